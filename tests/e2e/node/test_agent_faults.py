#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# run: beside-others
"""Local ranks and agents that fail, stall, disagree or come too late: every remaining rank gets an error that names the
cause, in time, and other jobs of the same agent continue.
"""

import contextlib
import os
import pathlib
import re
import signal
import socket
import unittest

import harness
import local

TIMEOUTS = {"timeouts": {"drain": "1s"}}
AT_ONCE = max(8, 2 * harness.SCALE)  # seconds until a loss is reported: less than the 10 s of timeouts.detect

# Prints "open", then answers each line of its input with "answer N": "COUNT DTYPE OP" is
# an all-reduce of ones, "BYTES" asks for shared memory.
WORKER = harness.python("""
    import numpy, reduction, worker
    try:
        comm = reduction.Communicator()
    except reduction.ReductionError as exc:
        worker.say("closed", code=exc.code, message=str(exc))
    else:
        with comm:
            worker.say("open")
            answers, kept = 0, []
            while order := worker.listen().split():
                if len(order) == 1:
                    found = worker.attempt(lambda: kept.append(comm.empty_buffer(int(order[0]), "uint8")))
                else:
                    x = numpy.ones(int(order[0]), order[1])
                    name = "x" if order[2] == "max" else "y"
                    found = worker.attempt(comm.all_reduce, x, order[2], name=name)
                    found["value"] = float(x[0])
                worker.say(f"answer {answers}", **found)
                answers += 1
""")

NEIGHBORS = harness.python("""
    import numpy, reduction, worker
    with reduction.Communicator(job="neighbors") as comm:
        worker.say("open")
        stop = numpy.zeros(1, "int32")
        rounds = 0
        import select, sys
        while not stop[0]:
            x = numpy.full(3000, rounds % 100, "float32")
            comm.all_reduce(x)
            assert (x == 2 * (rounds % 100)).all()
            rounds += 1
            stop[0] = bool(select.select([sys.stdin], [], [], 0)[0])
            comm.all_reduce(stop)
        worker.say("good", rounds=rounds)
""")

# Three operations of several rings each are always under way.
LARGE = harness.python("""
    import numpy, reduction, worker
    with reduction.Communicator() as comm:
        x = [numpy.zeros(6_000_000, "float32") for _ in range(3)]
        try:
            for i in range(1_000_000):
                for request in [comm.all_reduce(v, async_op=True) for v in x]:
                    request.wait()
                if i == 1:
                    worker.say("flying")
        except reduction.ReductionError as exc:
            worker.say("over", message=str(exc))
""")

HOST = re.escape(socket.gethostname())


@contextlib.contextmanager
def memory_group(limit):
    """Makes a control group with this limit; yields its folder, or None where that is not permitted."""
    own = re.findall(r"^\d*:(?:memory)?:(.*)$", pathlib.Path("/proc/self/cgroup").read_text(), re.M)
    for root, name in (("memory", "memory.limit_in_bytes"), ("", "memory.max")):
        for parent in (*own, "/"):
            group = pathlib.Path("/sys/fs/cgroup", root, parent.lstrip("/"), f"reduction-test-{os.getpid()}")
            try:
                group.mkdir()
                (group / name).write_text(str(limit))
            except OSError:
                with contextlib.suppress(OSError):
                    group.rmdir()
                continue
            try:
                yield group
            finally:
                group.rmdir()
            return
    yield None


class Faults(unittest.TestCase):
    def cluster(self, **more):
        return harness.Cluster(**{"reducers": 1, "agents": 1, "config": TIMEOUTS, **more})

    def open(self, c, world_size=2, **more):
        workers = c.start_workers(world_size, WORKER, **more)
        for w in workers:
            w.said("open")
        return workers

    def tell(self, workers, order="10 float32 sum"):
        for w in workers:
            w.asked = getattr(w, "asked", -1) + 1
            w.tell(order)

    def answers(self, workers):
        return [w.said(f"answer {w.asked}") for w in workers]

    def expect_sum(self, workers, value):
        self.assertEqual([a["value"] for a in self.answers(workers)], [value] * len(workers))

    def expect_error(self, workers, pattern, code):
        for w, said in zip(workers, self.answers(workers)):
            self.assertRegex(said["message"], pattern, w.name)
            self.assertLess(said["seconds"], AT_ONCE)
            self.assertEqual(said["code"], code, said)

    def leave(self, workers):
        for w in workers:
            w.tell()
        for w in workers:
            self.assertEqual(w.wait(), 0, w.report())

    def test_killed_amid_large_operations(self):
        """While bytes are copied in and out, by the library's threads and the agent's."""
        for victim, pattern in (("rank", "rank 1 .* exited"), ("agent", "the agent at .* was lost"),
                                ("reducer", "reducer r0 .* was lost")):
            with self.subTest(victim), self.cluster() as c:
                workers = c.start_workers(2, LARGE)
                for w in workers:
                    w.said("flying", timeout=60)
                {"rank": workers[1], "agent": c.agents[0], "reducer": c.reducers[0]}[victim].kill()
                for w in workers[:1] if victim == "rank" else workers:
                    self.assertRegex(w.said("over")["message"], pattern)
                    self.assertEqual(w.wait(), 0, w.report())

    def test_rank_leaves_early(self):
        with self.cluster() as c:
            workers = self.open(c, 2)
            workers[1].tell()
            self.assertEqual(workers[1].wait(), 0)
            self.tell(workers[:1])
            self.expect_error(workers[:1], r"rank 1 \(pid .*\) has left the job before operation 0", -9)
            self.leave(workers[:1])

    def test_stopped_rank_delays_only_its_job(self):
        with self.cluster(config={"timeouts": {"detect": "60s"}}) as c:
            workers = self.open(c, 2)
            workers[1].signal(signal.SIGSTOP)
            self.tell(workers)
            neighbors = c.start_workers(2, NEIGHBORS)
            for n in neighbors:
                n.said("open")
                n.tell("stop")
            self.assertEqual(c.wait_all(neighbors), [0, 0])
            workers[1].signal(signal.SIGCONT)
            self.expect_sum(workers, 2)
            self.leave(workers)

    def test_agent_killed(self):
        with self.cluster(agents=2) as c:
            workers = self.open(c, 4)
            self.tell(workers[:1] + workers[2:])
            c.agents[0].kill()
            self.expect_error(workers[:1], f"the agent at {c.socket_path(0)} was lost", -6)
            self.expect_error(workers[2:], rf"rank 0 \(processes 0-1 on {HOST}\)", -6)
            self.tell(workers[1:2])
            self.expect_error(workers[1:2], "the agent at .* was lost", -6)
            self.leave(workers)
            c.start_agent(0)  # replaces the socket of the killed agent
            self.leave(self.open(c, 4))

    def test_agent_stopped(self):
        with self.cluster(agents=2) as c:
            workers = self.open(c, 4)
            self.tell(workers[:1] + workers[2:])
            self.assertEqual(c.agents[0].stop(), 0)
            self.assertFalse(os.path.exists(c.socket_path(0)))
            self.assertFalse(os.path.exists(c.socket_path(0) + ".lock"))
            self.expect_error([workers[0]] + workers[2:], f"the agent on {HOST} was stopped", -9)
            self.leave(workers)

    def test_agent_stopped_waits_for_jobs(self):
        with self.cluster(config={"timeouts": {"drain": "60s"}}) as c:
            workers = self.open(c, 2)
            c.agents[0].signal(signal.SIGTERM)
            c.agents[0].wait_text("draining by=SIGTERM")
            self.tell(workers)
            self.expect_sum(workers, 2)
            self.leave(workers)
            self.assertEqual(c.agents[0].wait(10), 0)

    def test_second_signal_ends_at_once(self):
        with self.cluster(config={"timeouts": {"drain": "60s"}}) as c:
            workers = self.open(c, 2)
            self.tell(workers[:1])
            c.agents[0].signal(signal.SIGTERM)
            c.agents[0].wait_text("draining by=SIGTERM")
            c.agents[0].signal(signal.SIGTERM)
            self.assertEqual(c.agents[0].wait(10), 1)
            c.agents[0].killed = True
            self.expect_error(workers[:1], "was lost", -6)
            self.leave(workers)

    def test_a_buffer_beyond_the_control_group(self):
        """It is refused. The kernel would end the agent without a word."""
        with memory_group(128 << 20) as group, self.cluster() as c:
            if not group:
                self.skipTest("no control group with a limit of memory can be made here")
            (group / "cgroup.procs").write_text(str(c.agents[0].pid))
            workers = self.open(c, 1)
            self.tell(workers, str(200 << 20))
            self.expect_error(workers, "its control group, which is limited to 134217728 bytes, has", -2)
            self.tell(workers, str(1 << 20))
            self.assertEqual(self.answers(workers)[0]["message"], "")
            self.leave(workers)
            self.assertEqual(c.agents[0].stop(), 0)

    def test_rank_late(self):
        with self.cluster(config={"timeouts": {"op": "1s"}}) as c:
            workers = self.open(c, 2)
            self.tell(workers[:1])
            late = rf"not done within 1000 ms: rank 1 \(pid \d+ on {HOST}\) has not started it"
            self.expect_error(workers[:1], late, -6)
            self.leave(workers)

    def test_reducer_killed(self):
        with self.cluster(reducers=2) as c:
            workers = self.open(c, 2)
            self.tell(workers[:1])
            for r in c.reducers:  # one reducer suffices for the job
                r.kill()
            self.expect_error(workers[:1], r"r0.*127\.0\.0\.1.*r1", -6)
            self.tell(workers[1:])
            self.expect_error(workers[1:], r"r0.*127\.0\.0\.1.*r1", -6)
            self.leave(workers)

    def test_ranks_disagree(self):
        sums = {"count": ("10 float32 sum", "11 float32 sum", "an all-reduce sum of 1[01] float32"),
                "dtype": ("10 float32 sum", "10 int32 sum", "an all-reduce sum of 10 (float|int)32"),
                "op": ("10 float32 sum", "10 float32 prod", "an all-reduce (sum|prod) of 10 float32"),
                "name": ("10 float32 sum", "10 float32 max", "an all-reduce (sum|max) of 10 float32")}
        for what, (mine, yours, text) in sums.items():
            with self.subTest(what), self.cluster() as c:
                workers = self.open(c, 2)
                self.tell(workers[:1], mine)
                self.tell(workers[1:], yours)
                who = rf"rank [01] \(pid \d+ on {HOST}\)"
                self.expect_error(workers, f"ranks disagree about operation 0: {who} called {text}, {who} {text}", -5)
                self.leave(workers)

    def test_local_rank_missing(self):
        with self.cluster(config={"timeouts": {"connect": "1s"}}) as c:
            w = c.start_worker(2, 4, WORKER, env={"LOCAL_RANK": 2, "LOCAL_WORLD_SIZE": 4})
            said = w.said("closed")
            self.assertRegex(said["message"], "3 of 4 local ranks of job test did not connect.*: local ranks 0, 1, 3")
            self.assertEqual(said["code"], -7)

    def test_node_missing(self):
        with self.cluster(agents=2, config=harness.SOON) as c:
            w = c.start_worker(0, 2, WORKER)
            said = w.said("closed")
            self.assertRegex(said["message"], "rank 1")
            self.assertEqual(said["code"], -7)

    def test_local_ranks_contradict(self):
        def env(rank):
            nodes = 2 + rank
            return {"LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": 2, "GROUP_RANK": 0, "WORLD_SIZE": 2 * nodes,
                    "GROUP_WORLD_SIZE": nodes}

        with self.cluster(config={"logging": {"level": "debug"}}) as c:
            c.start_worker(0, 4, WORKER, env=env(0))
            c.agents[0].wait_text("client-joined")
            self.assertRegex(c.start_worker(1, 4, WORKER, env=env(1)).said("closed")["message"],
                             rf"rank 1 \(pid \d+\) of job test has world size 6, rank 0 \(pid \d+ on {HOST}\) has 4")

    def test_local_rank_taken(self):
        with self.cluster(config={"logging": {"level": "debug"}}) as c:
            c.start_worker(0, 2, WORKER)
            c.agents[0].wait_text("client-joined")
            said = c.start_worker(0, 2, WORKER).said("closed")
            self.assertRegex(said["message"], r"rank 0 \(local rank 0\) of job test is taken: rank 0 \(pid \d+ on")

    def test_agent_starts_last(self):
        with self.cluster(start=False) as c:
            workers = c.start_workers(2, WORKER)
            for w in workers:  # the interpreter has started and the library retries
                w.wait_text("", stream="out")
            c.start_agent(0)
            c.start_reducer(0)
            for w in workers:
                w.said("open")
            self.leave(workers)

    def test_no_agent(self):
        with self.cluster(start=False, config={"timeouts": {"connect": "1s"}}) as c:
            w = c.start_worker(0, 1, WORKER)
            self.assertRegex(w.said("closed")["message"], f"no agent is listening on {c.socket_path(0)}")

    def test_newer_generation(self):
        with self.cluster() as c:
            old = self.open(c, 2)
            self.tell(old[:1])
            new = self.open(c, 2, env={"REDUCTION_GENERATION": 1})
            self.expect_error(old[:1], "generation 1 of job test has started", -9)
            late = c.start_worker(0, 2, WORKER)
            self.assertRegex(late.said("closed")["message"], "job test is at generation 1, generation 0 is over")
            self.tell(new)
            self.expect_sum(new, 2)
            self.leave(new + old)

    def test_too_much_memory(self):
        with self.cluster(config={"agent": {"shm_bytes": "1MiB"}}) as c:
            workers = self.open(c, 2)
            for size, code in ((1 << 20, 0), (4096, -8), (1 << 50, -8)):
                self.tell(workers[:1], str(size))
                said = self.answers(workers[:1])[0]
                self.assertEqual(said["code"], code, said)
                if code:
                    text = f"cannot share {size} more bytes: 1048576 of agent.shm_bytes 1048576 are in use"
                    self.assertIn(text, said["message"])
            self.leave(workers)

    def test_operation_bigger_than_shared_memory(self):
        with self.cluster(config={"agent": {"shm_bytes": "1MiB"}}) as c:
            workers = self.open(c, 2)
            self.tell(workers, "1000000 float32 sum")
            self.expect_error(workers[:1], "agent.shm_bytes", -8)
            self.leave(workers)


class Start(unittest.TestCase):
    """Errors of an agent that cannot start."""

    def attempt(self, c, path):
        p = c.start("agent", [harness.binary("reduction-agent"), "--socket", path])
        p.killed = True
        self.assertEqual(p.wait(10), 1)
        return p.err

    def test_refusals(self):
        with harness.Cluster(agents=1) as c:
            self.assertRegex(self.attempt(c, c.socket_path(0)), "another agent is serving .*agent0.sock")
            self.assertRegex(self.attempt(c, c.dir / "none" / "a.sock"), "create its directory first")
            (c.dir / "file").write_text("precious")
            self.assertRegex(self.attempt(c, c.dir / "file"), "file exists and is not a socket")
            self.assertEqual((c.dir / "file").read_text(), "precious")
            self.assertRegex(self.attempt(c, "/tmp/" + "x" * 200), "has 205 bytes, expected at most 107")
            with socket.socket(socket.AF_UNIX) as other:
                other.bind(str(c.dir / "other"))
                other.listen()
                self.assertRegex(self.attempt(c, c.dir / "other"), "another program is listening on")
            self.assertEqual(os.stat(c.socket_path(0)).st_mode & 0o777, 0o660)

    def test_no_descriptors(self):
        """Connections without HELLO are closed for new ones, with a reason; when others leave there is room again."""
        with harness.Cluster() as c:
            path = str(c.dir / "few.sock")
            agent = c.start("agent", ["prlimit", "--nofile=24:24", harness.binary("reduction-agent"), "--socket", path])
            agent.wait_text("listening")
            clients = [local.Client(path, 20 * harness.SCALE) for _ in range(30)]
            for client in clients[:6]:
                self.assertRegex(client.last_words()[2], "has no file descriptors left")
            for client in clients:
                client.sock.close()
            got = local.REFUSED
            while got == local.REFUSED:  # until it has noticed all disconnects
                with local.Client(path, 20 * harness.SCALE) as client:
                    try:
                        client.send(local.hello(world=2, local_world=2))
                    except BrokenPipeError:
                        pass
                    got, body, _ = client.receive()
                    if got == local.REFUSED:
                        self.assertEqual(body[4:8], b"\1\0\0\0", "to be tried again")
            self.assertEqual(got, local.WELCOME)
            self.assertEqual(agent.stop(), 0)

    def test_command_line(self):
        with harness.Cluster(reducers=0) as c:
            for args, code, pattern in ((["--help"], 0, "--socket +PATH"), (["--version"], 0, r"^reduction-agent \d"),
                                        (["--nonsense"], 2, "--help"), (["more"], 2, 'found "more"'),
                                        (["--log-level", "loud"], 2, "error, warn, info"),
                                        (["--config", "/none"], 1, "/none"), (["--cpu", "z80"], 1, "z80")):
                p = c.start("agent", [harness.binary("reduction-agent"), *args])
                self.assertEqual(p.wait(10), code, p.report())
                self.assertRegex(p.out + p.err, pattern)


if __name__ == "__main__":
    harness.main()
