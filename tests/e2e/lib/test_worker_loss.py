# SPDX-License-Identifier: Apache-2.0
# run: beside-others grpc
"""Ranks that are killed, stand still, or whose machine goes dark while operations are pending: within the detection
time every other rank reads who it was, and goes on in the same process, with the same reducers and agents, in the next
generation of the job and a world of another size.
"""

import contextlib
import signal
import sys
import time
import unittest

import harness

sys.path.insert(0, str(harness.ROOT / "bench/net"))
import lab as net  # noqa: E402

DETECT = 3  # seconds: longer than a busy machine may let a thread wait for a processor
# What may come on top: a tick of the lane or the agent, the last words of the engines (up
# to a second), such a wait
SLACK = max(5, 2.5 * harness.SCALE)
TIMEOUTS = {"timeouts": {"detect": f"{DETECT * 1000:.0f}ms", "connect": f"{30 * harness.SCALE}s"}}
STOPPED = {"timeouts": TIMEOUTS["timeouts"] | {"stopped": f"{DETECT * 1000:.0f}ms"}}  # a stopped process is lost too

# One rank. Generation after generation it is told "GENERATION RANK WORLD LOCAL_RANK
# LOCAL_WORLD_SIZE NODE NODES", opens a communicator, sums and compares, and then leaves
# operations pending until one fails or it is told to close.
RANK = harness.python("""
    import os, sys, time, numpy, oracle, reduction, worker

    CASES = [("sum", "float32", 1), ("avg", "float16", 70_000), ("max", "int64", 5_000), ("sum", "bfloat16", 33_333),
             ("sum", "float64", 300_000)]

    def sums(comm):
        '''Several at once, all compared with numpy's.'''
        n, made = comm.world_size, []
        for seed, (op, dtype, count) in enumerate(CASES):
            parts = [oracle.make(dtype, count, "exact", seed, r) for r in range(n)]
            x = parts[comm.rank].copy()
            made.append((op, dtype, parts, comm.all_reduce(
                x, op, async_op=True, dtype="bfloat16" if dtype == "bfloat16" else None)))
        for op, dtype, parts, request in made:
            wrong = oracle.check(dtype, op, "exact", parts, request.wait())
            assert not wrong, wrong

    def pending(comm):
        '''Large, small and grouped ones, which wait for the rank that is idle.'''
        requests = [comm.all_reduce(numpy.ones(n, "float32"), async_op=True, name=f"pending {n}")
                    for n in (4_000_000, 10, 100_000)]
        with comm.group(async_op=True) as group:
            requests += [group.all_reduce(numpy.ones(50)) for _ in range(3)]
        worker.say(f"pending {generation}")
        ends = [worker.attempt(r.wait) for r in requests]
        worker.say(f"ended {generation}", at=time.monotonic(), errors=sorted({e["error"] for e in ends if e["error"]}),
                   messages=sorted({e["message"] for e in ends if e["error"]}))

    while order := worker.listen():
        generation, rank, world, local_rank, local_world, node, nodes = map(int, order.split())
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(local_rank),
                          LOCAL_WORLD_SIZE=str(local_world), GROUP_RANK=str(node), GROUP_WORLD_SIZE=str(nodes))
        try:
            comm = reduction.Communicator(generation=generation)
            sums(comm)
        except reduction.ReductionError as exc:
            worker.say(f"failed {generation}", message=str(exc))
            continue
        worker.say(f"summed {generation}", world=comm.world_size)
        what = worker.listen()
        if what == "pend":
            pending(comm)
        elif what == "compute":     # alive, and not in any call
            worker.listen()
            worker.say(f"found {generation}", **worker.attempt(comm.barrier))
        try:
            comm.close()
        except reduction.ReductionError:
            pass                    # the error that was read
    """)


class Job:
    """The ranks of a job over its generations. Ranks live on nodes, which have one agent each if there are any."""

    def __init__(self, test, per_node, start):
        self.test = test
        self.generation = -1
        self.nodes = [[start(node) for _ in range(n)] for node, n in enumerate(per_node)]

    def ranks(self):
        return [p for node in self.nodes for p in node]

    def open(self):
        """Starts the next generation, with all ranks that are left."""
        self.generation += 1
        nodes = [node for node in self.nodes if node]
        world, rank = sum(map(len, nodes)), 0
        for i, node in enumerate(nodes):
            for local, p in enumerate(node):
                p.tell(f"{self.generation} {rank} {world} {local} {len(node)} {i} {len(nodes)}")
                rank += 1
        for p in self.ranks():
            self.test.assertEqual(p.said(f"summed {self.generation}", timeout=60)["world"], world)

    def take_out(self, victim):
        """Removes a rank, leaves it idle and all others with operations pending."""
        for node in self.nodes:
            if victim in node:
                node.remove(victim)
        victim.tell("compute")
        for p in self.ranks():
            p.tell("pend")
        for p in self.ranks():
            p.said(f"pending {self.generation}")

    def failed(self, pattern, since, seconds=DETECT + SLACK):
        """All must have got the error by now."""
        for p in self.ranks():
            said = p.said(f"ended {self.generation}", timeout=seconds + 10)
            self.test.assertEqual(said["errors"], ["PeerLostError"], said)
            for message in said["messages"]:
                self.test.assertRegex(message, pattern)
            self.test.assertLess(said["at"] - since, seconds)

    def close(self):
        for p in self.ranks():
            p.tell("close")
            p.tell()
            self.test.assertEqual(p.wait(), 0, p.report())


class Loss(unittest.TestCase):
    """On loopback."""

    def clusters(self, config=TIMEOUTS):
        """Without agents, and with two nodes of two ranks each."""
        for agents in (0, 2):
            with self.subTest(agents=agents), harness.Cluster(
                reducers=2, agents=agents, config=config, server_config=config
            ) as c:
                per_node = [2, 2] if agents else [4]
                agent = [c.socket_path(i) for i in range(agents)] or ["direct"]
                job = Job(self, per_node, lambda node: c.start_worker(0, 1, RANK, env=harness.reach(agent[node])))
                job.open()
                yield c, job

    def test_killed(self):
        """Down to one, then up again with new ones."""
        for c, job in self.clusters():
            for world in (3, 2, 1):
                victim = job.ranks()[1]
                number = 1
                job.take_out(victim)
                since = time.monotonic()
                victim.kill()
                job.failed(rf"rank {number} \(pid {victim.pid} on .*\) (was lost|exited)", since)
                job.open()
                self.assertEqual(len(job.ranks()), world)
            for p in job.ranks():
                p.tell("close")
            node = next(i for i, ranks in enumerate(job.nodes) if ranks)
            env = harness.reach(c.socket_path(node) if c.agents else "direct")
            job.nodes[node] += [c.start_worker(0, 1, RANK, env=env) for _ in range(4)]
            job.open()
            job.close()

    def test_stopped(self):
        for c, job in self.clusters(STOPPED):
            victim = job.ranks()[2]
            job.take_out(victim)
            since = time.monotonic()
            victim.signal(signal.SIGSTOP)
            job.failed(
                rf"rank 2 \(pid {victim.pid} on .*\) was lost: nothing was heard from it for {DETECT:.1f} s", since
            )
            job.open()
            # the one that was lost goes on, finds itself replaced, and is told so
            victim.signal(signal.SIGCONT)
            victim.tell("on")
            self.assertIn(victim.said("found 0")["error"], ("PeerLostError", "ClosedError"))
            victim.tell("0 2 4 0 2 1 2" if c.agents else "0 2 4 2 4 0 1")
            self.assertRegex(victim.said("failed 0")["message"], "is at generation 1")
            victim.tell()
            self.assertEqual(victim.wait(), 0)
            job.close()

    def test_computing_is_not_lost(self):
        """A rank that is busy in its own code for longer than the detection time fails nothing."""
        for _, job in self.clusters():
            victim = job.ranks()[1]
            victim.tell("compute")
            others = [p for p in job.ranks() if p is not victim]
            for p in others:
                p.tell("pend")
            for p in others:
                p.said("pending 0")
            with self.assertRaises(AssertionError):  # nothing happens, which takes time to see
                others[0].wait_text('"ended ', timeout=(DETECT + 1.5) / harness.SCALE, stream="out")
            since = time.monotonic()
            victim.kill()
            for node in job.nodes:
                if victim in node:
                    node.remove(victim)
            job.failed("rank 1 .*(was lost|exited)", since)
            job.open()
            job.close()

    def test_agent_stopped(self):
        """Its node is lost: the other nodes learn that from the reducers, its own ranks find out by themselves."""
        with harness.Cluster(reducers=2, agents=3, config=STOPPED, server_config=STOPPED) as c:
            job = Job(self, [1, 2, 1], lambda node: c.start_worker(
                0, 1, RANK, env=harness.reach(c.socket_path(node))))
            job.open()
            orphans, idle = job.nodes[1], job.nodes[2][0]
            job.nodes[1] = []
            idle.tell("compute")
            pending = job.nodes[0] + orphans
            for p in pending:
                p.tell("pend")
            for p in pending:
                p.said("pending 0")
            since = time.monotonic()
            c.agents[1].signal(signal.SIGSTOP)
            for p in pending:
                said = p.said("ended 0", timeout=DETECT + SLACK + 10)
                pattern = "the agent at .* was lost: nothing was heard from it for" if p in orphans else \
                    r"rank 1 \(processes 1-2 on .*\) was lost: nothing was heard"
                self.assertRegex(said["messages"][0], pattern)
                self.assertLess(said["at"] - since, DETECT + SLACK)
            c.agents[1].signal(signal.SIGCONT)
            idle.tell("on")
            job.open()  # of nodes 0 and 2
            for p in orphans:
                p.tell()
                self.assertEqual(p.wait(), 0, p.report())
            job.close()


def why_not():
    """Why there can be no network of hosts here, or None."""
    if harness.SLOW:
        return "once is enough"
    try:
        net.check_machine()
    except net.LabError as exc:
        return str(exc)
    return None


WHY_NOT = why_not()


@unittest.skipIf(WHY_NOT, WHY_NOT)
class PowerOff(unittest.TestCase):
    """Hosts 0 and 1 run a reducer each, the others ranks, some behind an agent. A host's link goes down: nothing more
    comes from it, and nothing says so."""

    @contextlib.contextmanager
    def hosts(self, per_node, agents, rate="none"):
        nodes = len(per_node)
        with net.Lab(2 + nodes, rate=rate) as lab, harness.Cluster(reducers=0) as c:
            inside = lambda host: ["ip", "netns", "exec", lab.namespace(host)]  # noqa: E731
            config = TIMEOUTS | {"job": {"name": "test"}, "reducers": [
                {"id": f"r{i}", "address": f"{lab.address(i)}:7600"} for i in range(2)]}
            path = c.write_config("job.yaml", config)
            for i in range(2):
                c.reducers.append(c.start(f"reducer r{i}", inside(i) + [
                    harness.binary("reduction-server"), "--config", path, "--insecure", "--listen",
                    f"{lab.address(i)}:7600"]))
                c.reducers[i].wait_text("listening")
            for node in range(nodes if agents else 0):
                c.agents.append(c.start(f"agent {node}", inside(2 + node) + [
                    harness.binary("reduction-agent"), "--config", path, "--socket", c.socket_path(node)]))
                c.agents[node].wait_text("listening")

            def start(node):
                env = harness.reach(c.socket_path(node) if agents else "direct")
                env |= {"REDUCTION_CONFIG": path, "REDUCTION_RUN": "loss"}
                return c.start(f"rank on node {node}", inside(2 + node) + RANK, harness.worker_env() | env)

            yield lab, c, Job(self, per_node, start)

    def test_idle_rank(self):
        """Heartbeats find it."""
        for agents in (False, True):
            with self.subTest(agents=agents), self.hosts([1, 1, 1], agents) as (lab, c, job):
                job.open()
                victim = job.ranks()[1]
                job.take_out(victim)
                since = time.monotonic()
                lab.plug(3, False)
                who = r"rank 1 \(process 1 on .*\)" if agents else rf"rank 1 \(pid {victim.pid} on .*\)"
                job.failed(f"{who} was lost: ", since)
                job.open()
                job.close()
                # and the disconnected one found out by itself
                victim.tell("on")
                said = victim.said("found 0")
                self.assertRegex(said["message"], "reducer r[01] .* was lost: ")
                self.assertLess(said["seconds"], SLACK)

    def test_during_traffic(self):
        """All have bytes in flight, in both directions, on links that are slow enough for that."""
        for agents in (False, True):
            with self.subTest(agents=agents), self.hosts([1, 1, 1], agents, rate="30mbit") as (lab, c, job):
                job.open()
                for p in job.ranks():
                    p.tell("pend")  # 16 MB take seconds
                for p in job.ranks():
                    p.said("pending 0")
                victim = job.nodes[2].pop()
                since = time.monotonic()
                lab.plug(4, False)
                job.failed("rank 2 .* was lost: ", since)
                said = victim.said("ended 0", timeout=DETECT + SLACK + 10)
                self.assertLess(said["at"] - since, DETECT + SLACK)
                self.assertRegex(said["messages"][0], r"reducer r[01] \(10\.99\.0\.[12]:7600\) was lost: ")
                job.open()
                job.close()


if __name__ == "__main__":
    harness.main()
