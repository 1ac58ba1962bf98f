# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan
"""Outer steps on several sites (reduction.torch.Outer): their arithmetic beside torch.optim.SGD, in one process over a
communicator of threads; and sites that are processes, over reducers, of which one is killed and comes back.
"""

import importlib.util
import json
import sys
import threading
import unittest

import harness

sys.path.insert(0, str(harness.ROOT / "agent" / "python"))

MISSING = importlib.util.find_spec("torch") is None or harness.SAN
if not MISSING:
    import torch

    from reduction import errors
    from reduction.torch import Members, Outer


class Hub:
    """What the ranks of a communicator of threads share: the parts of each operation."""

    def __init__(self, size):
        self.size, self.parts, self.lock, self.names = size, {}, threading.Condition(), set()

    def ranks(self):
        return [Rank(self, r) for r in range(self.size)]


class Rank:
    """One rank of it, with the methods of Communicator that Outer uses."""

    def __init__(self, hub, rank):
        self.hub, self.rank, self.count = hub, rank, 0

    def _start(self, tensor, combine):
        number, self.count = self.count, self.count + 1
        with self.hub.lock:
            parts = self.hub.parts.setdefault(number, {})
            parts[self.rank] = tensor.clone()
            self.hub.lock.notify_all()
        rank = self

        class Request:
            def wait(self):
                with rank.hub.lock:
                    if not rank.hub.lock.wait_for(lambda: len(parts) == rank.hub.size, timeout=30):
                        raise errors.PeerLostError(errors.EPEER, "a rank is missing")
                tensor.copy_(combine([parts[r] for r in range(rank.hub.size)]))

        return Request()

    def all_reduce(self, tensor, op, async_op=False, name=None, wire=None):
        self.hub.names.add((name, wire))
        request = self._start(tensor, {"avg": lambda parts: sum(parts) / len(parts),
                                       "max": lambda parts: torch.stack(parts).amax(0)}[op])  # fmt: skip
        return request if async_op else request.wait()

    def broadcast(self, tensor, root, name=None):
        self._start(tensor, lambda parts: parts[root]).wait()


_seeded = threading.Lock()  # torch's random numbers are those of all threads


def model(site):
    with _seeded:
        torch.manual_seed(site)
        return torch.nn.Sequential(*(torch.nn.Linear(5, 5) for _ in range(4)))


def inner_step(net, site, step):
    """One step of SGD on the site's own data."""
    x = torch.randn(6, 5, generator=torch.Generator().manual_seed(100 * step + site))
    net.zero_grad()
    (net(x) - x.flip(1)).square().mean().backward()
    with torch.no_grad():
        for p in net.parameters():
            p -= 0.3 * p.grad


def in_threads(calls):
    """Calls all of them at once, and returns what they return."""
    found, threads = [None] * len(calls), []

    def run(index, call):
        try:
            found[index] = call()
        except Exception as exc:
            found[index] = exc

    for item in enumerate(calls):
        threads.append(threading.Thread(target=run, args=item))
        threads[-1].start()
    for thread in threads:
        thread.join()
    for one in found:
        if isinstance(one, Exception):
            raise one
    return found


def reference(sites, steps, fragments, every, delay, alpha):
    """The same training, one step after the other, as the papers describe it, with torch's own optimizer."""
    nets = [model(0) for _ in range(sites)]
    outer = model(0)
    parts = [[p for i in part for p in outer[i].parameters()] for part in fragments]
    theirs = [[[p for i in part for p in net[i].parameters()] for part in fragments] for net in nets]
    optimizers = [torch.optim.SGD(part, lr=0.7, momentum=0.9, nesterov=True) for part in parts]
    slot, pending = every // len(fragments), {}
    for step in range(1, steps + 1):
        for site, net in enumerate(nets):
            inner_step(net, site, step)
        for f, part in enumerate(parts):
            if step >= (f + 1) * slot and (step - (f + 1) * slot) % every == 0:
                pending[step + delay, f] = [
                    sum(p.detach() - theirs[s][f][i].detach() for s in range(sites)) / sites for i, p in enumerate(part)
                ]
        for f, part in enumerate(parts):
            if (step, f) not in pending:
                continue
            for p, gradient in zip(part, pending.pop((step, f))):
                p.grad = gradient
            optimizers[f].step()
            with torch.no_grad():
                for s in range(sites):
                    for p, mine in zip(part, theirs[s][f]):
                        mine.copy_(alpha * mine + (1 - alpha) * p)
    return [list(net.parameters()) for net in nets]


def train(comm, site, steps, fragments, every, delay, alpha, **more):
    net = model(site)
    pieces = [torch.nn.ModuleList(net[i] for i in part) for part in fragments]
    outer = Outer(pieces, comm, sync_every=every, fragment_sync_delay=delay, fragment_update_alpha=alpha, **more)
    for step in range(1, steps + 1):
        inner_step(net, site, step)
        outer.step()
    return net, outer


@unittest.skipIf(MISSING, "no torch, or too slow with it")
class Arithmetic(unittest.TestCase):
    def check(self, fragments, every, delay, alpha, steps=29, sites=3):
        hub = Hub(sites)
        found = in_threads([
            lambda comm=comm: train(comm, comm.rank, steps, fragments, every, delay, alpha, wire="int8")
            for comm in hub.ranks()
        ])  # fmt: skip
        for (net, _), want in zip(found, reference(sites, steps, fragments, every, delay, alpha)):
            for p, q in zip(net.parameters(), want):
                torch.testing.assert_close(p, q, rtol=2e-5, atol=2e-6)
        names = {f"outer-{i}" for i in range(len(fragments))}
        self.assertEqual({name for name, wire in hub.names if wire == "int8"}, names)
        return found

    def test_one_fragment(self):
        """DiLoCo: all sites wait at each outer step, and have the same bits after it."""
        found = self.check([[0, 1, 2, 3]], every=7, delay=0, alpha=0.0, steps=28)
        for net, outer in found:
            self.assertEqual(outer.outer_steps, 4)
            for p, q in zip(net.parameters(), found[0][0].parameters()):
                self.assertTrue(torch.equal(p, q))

    def test_fragments_that_overlap(self):
        """Streaming DiLoCo; the longest delay has two all-reduces under way."""
        self.check([[0, 2], [1, 3]], every=6, delay=2, alpha=0.5)
        self.check([[0], [1], [2, 3]], every=6, delay=5, alpha=0.25)
        self.check([[3, 2, 1, 0]], every=1, delay=0, alpha=0.0, steps=6)

    def test_other_optimizer(self):
        """With lr 1 and no momentum an outer step is the average of the parameters."""
        found = in_threads([
            lambda comm=comm: train(comm, comm.rank, 5, [[0, 1, 2, 3]], 5, 0, 0.0, lr=1.0, momentum=0.0, nesterov=False)
            for comm in Hub(2).ranks()
        ])  # fmt: skip
        nets = [model(0), model(0)]
        for step in range(1, 6):
            for site, net in enumerate(nets):
                inner_step(net, site, step)
        for p, a, b in zip(found[0][0].parameters(), *(net.parameters() for net in nets)):
            torch.testing.assert_close(p, (a + b) / 2, rtol=2e-5, atol=2e-6)

    def test_state(self):
        """A training that goes on from a checkpoint has the bits of one that was not interrupted."""
        shape = ([[0, 1], [2, 3]], 4, 0, 0.5)

        def go_on(net, outer, site):
            for step in range(9, 21):
                inner_step(net, site, step)
                outer.step()
            return [p.detach().clone() for p in net.parameters()]

        def again(comm, saved, state):
            net, outer = train(comm, comm.rank, 0, *shape)
            net.load_state_dict(saved)
            outer.load_state_dict(state)
            self.assertEqual(outer.steps, 8)
            return go_on(net, outer, comm.rank)

        def begin(comm):
            net, outer = train(comm, comm.rank, 8, *shape)
            saved = {name: value.clone() for name, value in net.state_dict().items()}
            return saved, outer.state_dict(), go_on(net, outer, comm.rank)

        first = in_threads([lambda comm=comm: begin(comm) for comm in Hub(2).ranks()])
        second = in_threads([
            lambda comm=comm: again(comm, first[comm.rank][0], first[0][1]) for comm in Hub(2).ranks()
        ])  # fmt: skip
        for one, two in zip(first, second):
            for p, q in zip(one[2], two):
                self.assertTrue(torch.equal(p, q))

    def test_bfloat16(self):
        """Outer parameters of 16-bit models are float32; a frozen parameter stays with its site."""
        def run(comm):
            net = model(comm.rank)[0].to(torch.bfloat16)
            net.bias.requires_grad_(False)
            outer = Outer(net, comm, sync_every=1)
            with torch.no_grad():
                net.weight.add_(0.125 * (1 + comm.rank))
            outer.step()
            return net, outer
        (a, outer), (b, _) = in_threads([lambda comm=comm: run(comm) for comm in Hub(2).ranks()])
        self.assertEqual(outer.state_dict()["fragments"][0]["outer"].dtype, torch.float32)
        self.assertEqual(a.weight.dtype, torch.bfloat16)
        self.assertTrue(torch.equal(a.weight, b.weight))
        self.assertFalse(torch.equal(a.bias, b.bias))

    def test_wrong_arguments(self):
        net = model(0)
        for words, fragments, options in (
            ("sync_every is 5; a multiple of the 2 fragments", [net[0], net[1]], {"sync_every": 5}),
            ("fragment_sync_delay is 4; 0 to 3", net, {"sync_every": 4, "fragment_sync_delay": 4}),
            ("fragment_update_alpha is 2", net, {"sync_every": 4, "fragment_update_alpha": 2}),
            ("in the fragments 0 and 1", [net[0], net], {"sync_every": 4}),
            ("there are no fragments", [], {"sync_every": 4}),
            ("no parameter that requires a gradient", [[]], {"sync_every": 4}),
            ("wire 'int3' is unknown", net, {"sync_every": 4, "wire": "int3"}),
        ):
            with self.subTest(words), self.assertRaisesRegex(ValueError, words):
                Outer(fragments, Hub(1).ranks()[0], **options)
        with self.assertRaisesRegex(ValueError, "None on the site's other ranks"):
            Outer(net, None, sync_every=4)


@unittest.skipIf(MISSING, "no torch, or too slow with it")
class Agreement(unittest.TestCase):
    """Lists of members, without communicators."""

    def members(self, store, name, sites):
        found = Members(store, name, sites, patience=5)
        self.addCleanup(found.close)
        return found

    def test_lists(self):
        store = torch.distributed.HashStore()
        a, b, c = (self.members(store, name, 3) for name in "abc")
        self.assertEqual(in_threads([c._agree, a._agree, b._agree]), [["a", "b", "c"]] * 3)
        self.assertEqual([m._generation for m in (a, b, c)], [1, 1, 1])
        self.assertFalse(a.wanted)
        late = self.members(store, "d", 3)

        def when_wanted(member):
            while not member.wanted:
                member._closed.wait(0.02)
            return member._agree()

        # b's beat ends: it is not waited for, and d takes part with the members
        b.close()
        b._thread.join()
        found = in_threads([late._agree, lambda: when_wanted(a), lambda: when_wanted(c)])
        self.assertEqual(found, [["a", "c", "d"]] * 3)
        self.assertFalse(a.wanted)
        self.assertEqual(late._generation, 2)

    def test_closed(self):
        alone = self.members(torch.distributed.HashStore(), "a", 2)
        with self.assertRaisesRegex(errors.ClosedError, "site a is closed"):
            in_threads([alone._agree, alone.close])

    def test_wrong_arguments(self):
        store = torch.distributed.HashStore()
        for words, options in (
            ("sites is 0", {"sites": 0}),
            ("patience is 1", {"sites": 1, "patience": 1}),
            ("rank follows from the sites", {"sites": 1, "rank": 0}),
        ):
            with self.subTest(words), self.assertRaisesRegex(ValueError, words):
                Members(store, "a", **options)


@unittest.skipIf(MISSING, "no torch, or too slow with it")
class Sites(unittest.TestCase):
    def command(self, **plan):
        return [harness.PYTHON, str(harness.ROOT / "tests/e2e/worker_outer.py"), json.dumps(plan)]

    def test_sites_of_two_ranks(self):
        """Two sites of two ranks: all four have the same parameters in the end, with each encoding."""
        with harness.Cluster(reducers=2) as c:
            checksums = set()
            for number, options in enumerate((
                {"wire": "int8", "fragment_sync_delay": 1, "fragment_update_alpha": 0.5}, {"backup_device": "cpu"},
            )):  # fmt: skip
                procs = c.run(
                    4, self.command(sites=2, ranks=2, outer=options), 120,
                    env=lambda _, n=number: {"REDUCTION_JOB": f"outer-{n}", "GLOO_SOCKET_IFNAME": "lo"},
                )  # fmt: skip
                said = [p.said("trained") for p in procs]
                self.assertEqual({(s["step"], s["outer"]) for s in said}, {(12, 4)}, said)
                self.assertEqual(len({s["crc"] for s in said}), 1, said)
                checksums.add(said[0]["crc"])
                for site in range(2):
                    (c.dir / f"site-{site}").unlink()
            self.assertEqual(len(checksums), 2)

    def test_site_comes_back(self):
        """A site is killed and started again three times. The others go on, and nobody else is started again."""
        store = torch.distributed.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
        with harness.Cluster(reducers=2) as c:
            names = ["a", "b", "c"]
            options = {"sync_every": 4, "fragment_sync_delay": 1, "fragment_update_alpha": 0.5}

            def start(name):
                plan = {"sites": 3, "store": store.port, "site": name, "reports": True, "steps": 1 << 30}
                return c.start_worker(names.index(name), 3, self.command(**plan, outer=options))

            def train_until(condition):
                """Lets all sites take steps until the condition holds."""
                while not condition():
                    for p in sites.values():
                        if p.running() and len(p.objects()) - 1 == told.setdefault(p.pid, 0) + 1:
                            told[p.pid] += 1
                            p.tell("go")
                    any_of = next(p for p in sites.values() if p.running())
                    any_of.wait_more(0.02)

            told = {}
            sites = {name: start(name) for name in names}

            def outer_steps(name):
                return max((o["outer"] for o in sites[name].objects() if o["what"] == "step"), default=0)

            def last_step(p):
                return max((o["step"] for o in p.objects() if o["what"] == "step"), default=0)

            train_until(lambda: all(outer_steps(name) >= 2 for name in names))
            for _ in range(1 if harness.SLOW else 3):
                sites["b"].kill()
                more = outer_steps("a") + 2
                train_until(lambda more=more: min(outer_steps("a"), outer_steps("c")) >= more)
                sites["b"] = start("b")
                train_until(lambda more=more: outer_steps("b") > more)
            end = max(map(last_step, sites.values())) + 8
            for p in sites.values():
                p.said("step")
                p.tell(f"end {end}")
            c.wait_all(sites.values())
            said = [p.said("trained") for p in sites.values()]
            self.assertEqual({s["step"] for s in said}, {end})
            self.assertEqual(len({s["crc"] for s in said}), 1, said)


if __name__ == "__main__":
    harness.main()
