#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan
"""Ranks that disagree: about an operation (all ranks get an error that names both sides), about the job (the mismatched
rank is refused, with both values), about limits.

Not under ThreadSanitizer: these errors reach waiting threads in the same way as those of test_failures.
"""

import signal
import time
import unittest

import harness

# Runs cases that it is told, each in a job of its own: "JOB STATEMENT". The statement
# uses comm and numpy. It says when it has opened, and waits for a line: who reads of the
# job's end while it opens, or before its barrier, fails there.
CASES = harness.python("""
    import numpy, reduction, worker
    while line := worker.listen():
        job, statement = line.split(" ", 1)
        with reduction.Communicator(job=job) as comm:
            comm.barrier()
            worker.say(f"{job} open")
            worker.listen()
            first = worker.attempt(exec, statement, {"comm": comm, "numpy": numpy})
            # the communicator is broken for good, and says why again
            second = worker.attempt(comm.barrier)
        worker.say(job, first=first, second=second)
    """)

# Opens one communicator with the options that the test gives, says so, sums and waits
# until told to leave.
MEMBER = harness.python("""
    import sys, json, numpy, reduction, worker
    def run():
        with reduction.Communicator(**json.loads(sys.argv[1])) as comm:
            worker.say("open")
            x = numpy.ones(10)
            comm.all_reduce(x)
            assert (x == comm.world_size).all()
            worker.say("summed")
            worker.listen()
    worker.say("end", **worker.attempt(run))
    """)


class Operations(unittest.TestCase):
    """Two ranks agree, the third does something else; an example of each with the sentence that all read."""

    CASES = [
        # what two ranks do, what the third does, what the sentence names
        (
            "comm.all_reduce(numpy.ones(4096, 'float32'))",
            "comm.all_reduce(numpy.ones(8192, 'float32'))",
            ["an all-reduce sum of 4096 float32", "an all-reduce sum of 8192 float32"],
        ),
        (
            "comm.all_reduce(numpy.ones(100, 'float32'))",
            "comm.all_reduce(numpy.ones(100, 'int32'))",
            ["100 float32", "100 int32"],
        ),
        (
            "comm.all_reduce(numpy.ones(100, 'float32'))",
            "comm.all_reduce(numpy.ones(100, 'float64'))",
            ["100 float32", "100 float64"],
        ),
        (
            "comm.all_reduce(numpy.ones(100, 'float32'), 'sum')",
            "comm.all_reduce(numpy.ones(100, 'float32'), 'max')",
            ["all-reduce sum of 100", "all-reduce max of 100"],
        ),
        (
            "comm.all_reduce(numpy.ones(100, 'float32'), name='weights')",
            "comm.all_reduce(numpy.ones(100, 'float32'), name='bias')",
            ["another name"],
        ),
        (
            "comm.all_reduce(numpy.ones(100, 'float32'), name='weights')",
            "comm.all_reduce(numpy.ones(100, 'float32'))",
            ["another name"],
        ),
        (
            "comm.all_reduce(numpy.ones(100, 'float32'))",
            "comm.broadcast(numpy.ones(100, 'float32'))",
            ["an all-reduce sum of 100 float32", "a broadcast of 100 float32"],
        ),
        (
            "comm.all_reduce(numpy.ones(100, 'float32'))",
            "comm.barrier()",
            ["100 float32", "0 uint8"],
        ),
        (
            "comm.all_reduce(numpy.ones(0, 'float32'))",
            "comm.all_reduce(numpy.ones(1, 'float32'))",
            ["0 float32", "1 float32"],
        ),
        (
            "comm.broadcast(numpy.ones(100, 'float32'), root=0)",
            "comm.broadcast(numpy.ones(100, 'float32'), root=2)",
            ["from rank 0", "from rank 2"],
        ),
        (
            # the third rank takes another for the root, which sends nothing
            "comm.broadcast(numpy.ones(100, 'float32'), root=0)",
            "comm.broadcast(numpy.ones(100, 'float32'), root=1)",
            ["from rank 0", "from rank 1"],
        ),
        (
            # nobody sends
            "comm.broadcast(numpy.ones(100, 'float32'), root=2)",
            "comm.broadcast(numpy.ones(100, 'float32'), root=0)",
            ["from rank 2", "from rank 0"],
        ),
        (
            # a later operation, while earlier ones are under way
            "r = [comm.all_reduce(numpy.ones(50_000), async_op=True) for _ in range(9)]; "
            "r.append(comm.all_reduce(numpy.ones(7), async_op=True)); [x.wait() for x in r]",
            "r = [comm.all_reduce(numpy.ones(50_000), async_op=True) for _ in range(9)]; "
            "r.append(comm.all_reduce(numpy.ones(8), async_op=True)); [x.wait() for x in r]",
            ["operation 10", "7 float64", "8 float64"],
        ),
    ]

    def test_all_ranks_get_the_names_of_both_ranks(self):
        with harness.Cluster(reducers=2) as c:
            workers = c.start_workers(3, CASES)
            for number, (usual, other, named) in enumerate(self.CASES):
                with self.subTest(usual=usual, other=other):
                    for rank, w in enumerate(workers):
                        w.tell(f"case{number} {other if rank == 2 else usual}")
                    for w in workers:
                        w.said(f"case{number} open")
                    for w in workers:
                        w.tell("go")
                    said = [w.said(f"case{number}") for w in workers]
                    for of in said:
                        self.assertEqual(of["first"]["error"], "MismatchError", of)
                        self.assertEqual(of["second"]["code"], of["first"]["code"])
                        self.assertEqual(of["second"]["message"], of["first"]["message"])
                        for part in named:
                            self.assertIn(part, of["first"]["message"])
                        if len(named) > 1:
                            self.assertRegex(of["first"]["message"], r"rank 2 .*rank [01]|rank [01] .*rank 2")
            for w in workers:
                w.tell("")
            self.assertEqual(c.wait_all(workers), [0, 0, 0])


class Membership(unittest.TestCase):
    def refused(self, cluster, first, second, expected, error="MismatchError"):
        """Rank 0 joins; a second process that does not fit is refused with a sentence; then the right rank 1 comes and
        the job works as if nothing had been. first, second: arguments of start_worker."""
        a = cluster.start_worker(**{"rank": 0, "world_size": 2, "argv": MEMBER + ["{}"], **first})
        for reducer in cluster.reducers:
            reducer.wait_text("worker-joined")
        b = cluster.start_worker(**{"rank": 1, "world_size": 2, "argv": MEMBER + ["{}"], **second})
        said = b.said("end")
        self.assertEqual(said["error"], error, said)
        self.assertRegex(said["message"], expected)
        right = cluster.start_worker(**{"world_size": 2, "argv": MEMBER + ["{}"], **first, "rank": 1})
        for w in (a, right):
            w.said("summed")
            w.tell("leave")
        self.assertEqual(cluster.wait_all([a, right]), [0, 0])
        # whichever it came to first: that ends it, and others may not hear of it
        harness.wait_any(cluster.reducers, "connection-refused")

    def test_mismatched_ranks_are_refused(self):
        for name, first, second, expected, error in [
            ("same rank twice", {}, {"rank": 0}, r"rank 0 of job test is already taken by pid \d+ on ", "RefusedError"),
            (
                "deterministic",
                {"config": {"job": {"deterministic": True}}},
                {"config": {"job": {"deterministic": False}}},
                "ranks 1 and 0 of job test .*job.deterministic false and true",
                None,
            ),
            ("checksum", {}, {"config": {"job": {"checksum": True}}}, "job.checksum true and false", None),
            (
                "chunks",
                {},
                {"config": {"sharding": {"chunk_bytes": "64KiB"}}},
                "ranks 1 and 0 .*chunk_bytes 65536 and 32768",
                None,
            ),
            ("window", {}, {"config": {"sharding": {"window": 3}}}, "window 3 and 32", None),
            ("priorities", {}, {"config": {"sharding": {"priorities": 1}}}, "priorities 1 and 2", None),
            (
                "shard map",
                {"config": {"sharding": {"map": {"0-31": "r0", "32-63": "r1"}}}},
                {"config": {"sharding": {"map": {"0-30": "r0", "31-63": "r1"}}}},
                "ranks 1 and 0 .*reducers or shard maps are not the same",
                None,
            ),
            ("shards", {}, {"config": {"sharding": {"shards": 9}}}, "shard maps are not the same", None),
            (
                "generation",
                {"argv": MEMBER + ['{"generation": 3}']},
                {},
                "generation 3 already.*generation 0",
                "RefusedError",
            ),
        ]:
            with self.subTest(name), harness.Cluster(reducers=2, server_args=["--log-level", "debug"]) as c:
                self.refused(c, first, second, expected, error or "MismatchError")

    def test_all_ranks_read_of_another_world_size(self):
        """At once, however they reach the reducers; the last rank comes when the others have left."""
        open_ = harness.python("""
            import reduction, worker
            worker.say("ready")
            worker.listen()
            worker.say("end", **worker.attempt(reduction.Communicator))
            """)
        for way in ("direct", "node", "agent"):
            with self.subTest(way), harness.Cluster(agents=way == "agent", server_args=["--log-level", "debug"],
                                                    config={"logging": {"level": "debug"}}) as c:  # fmt: skip
                reach = {} if way == "agent" else harness.reach(way)
                workers = [
                    c.start_worker(rank, 5 if rank == 2 else 4, open_,
                                   env={"LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": 4, "GROUP_RANK": 0,
                                        "GROUP_WORLD_SIZE": 1, **reach})
                    for rank in range(4)
                ]  # fmt: skip
                for w in workers:
                    w.said("ready")
                for rank in (0, 1, 2, 3):
                    workers[rank].tell()
                    if rank == 0:  # the others find a job that gathers, or a node that listens
                        where = c.reducers[0] if way == "direct" else c.agents[0] if way == "agent" else workers[0]
                        where.wait_text("worker-joined" if way == "direct" else "client-joined")
                    if rank == 2:  # rank 3 comes when this is over
                        for w in workers[1:3]:
                            w.wait_text('"end"', stream="out")
                started = time.monotonic()
                for w in workers:
                    said = w.said("end")
                    self.assertEqual(said["error"], "MismatchError", said)
                    self.assertRegex(said["message"], r"\b5\b.* 4$")
                self.assertLess(time.monotonic() - started, 5 * harness.SCALE)  # timeouts.connect is 60 s

    def test_a_process_opens_a_rank_twice(self):
        twice = harness.python("""
            import time, numpy, reduction, worker
            comm = reduction.Communicator()
            started = time.monotonic()
            second = worker.attempt(reduction.Communicator)
            took = time.monotonic() - started
            x = numpy.ones(5)
            comm.all_reduce(x)
            comm.close()
            with reduction.Communicator() as comm:  # the first one is closed
                comm.barrier()
            worker.say("end", took=took, sum=float(x[0]), **second)
            """)
        for way in ("direct", "node", "agent"):
            with self.subTest(way), harness.Cluster(agents=way == "agent") as c:
                reach = {} if way == "agent" else harness.reach(way)
                for w in c.start_workers(2, twice, env=reach):
                    said = w.said("end")
                    self.assertEqual((said["error"], said["sum"]), ("RefusedError", 2.0), said)
                    self.assertRegex(said["message"], r"^rank [01] of job test, generation 0, is already open in this "
                                     r"process \(pid \d+\): close that communicator first")
                    self.assertLess(said["took"], 2 * harness.SCALE)

    def test_other_lanes_and_swapped_addresses(self):
        with harness.Cluster(reducers=2, server_args=["--log-level", "debug"]) as c:
            swapped = [{"id": "r0", "address": c.address(1)}, {"id": "r1", "address": c.address(0)}]
            self.refused(c, {}, {"config": {"reducers": swapped}}, r"calls this reducer r[01], rank 0 calls it r[01]")
        with harness.Cluster(server_args=["--log-level", "debug"]) as c:
            lanes = [{"id": "r0", "address": c.address(0), "lanes": 2}]
            self.refused(c, {}, {"config": {"reducers": lanes}}, "lanes 2 and 1")

    def test_a_rank_outside_the_world(self):
        with harness.Cluster() as c:
            w = c.start_worker(2, 2, MEMBER + ["{}"])
            self.assertRegex(w.said("end")["message"], "RANK: found 2, expected at most 1 since WORLD_SIZE is 2")


class Running(unittest.TestCase):
    """A process that wants a place in a job that runs. Each rank is a node of its own."""

    def node(self, rank, way, **more):
        return {"LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1, "GROUP_RANK": rank, "GROUP_WORLD_SIZE": 2, **harness.reach(way),
                **more}  # fmt: skip

    def start(self, c, rank, way, world=2, **more):
        return c.start_worker(rank, world, MEMBER + ["{}"], env=self.node(rank, way, **more))

    def test_a_taken_rank_or_another_world_size(self):
        """It is refused at once, with both sides; the job goes on."""
        for way, reducers in [("direct", 2), ("direct", 1), ("node", 2)]:
            with self.subTest(way, reducers=reducers), harness.Cluster(reducers=reducers) as c:
                members = [self.start(c, rank, way) for rank in range(2)]
                for w in members:
                    w.said("summed")
                for rank, world, error, expected in [
                    (0, 2, "RefusedError", r"reducer r[01] .*rank 0 of job test is already taken by p\w+ \d+ on \S+, "
                                           r"and p\w+ \d+ on \S+ wants it too: check the ranks"),
                    (3, 4, "MismatchError", r"rank 3 says the world size of job test is 4, rank [01] says 2"),
                ]:  # fmt: skip
                    started = time.monotonic()
                    other = self.start(c, rank, way, world, GROUP_WORLD_SIZE=world)
                    said = other.said("end")
                    self.assertEqual(said["error"], error, said)
                    self.assertRegex(said["message"], expected)
                    self.assertLess(time.monotonic() - started, 8 * harness.SCALE)  # timeouts.connect is 60 s
                for w in members:
                    w.tell("leave")
                self.assertEqual(c.wait_all(members), [0, 0])

    def test_the_same_through_agents(self):
        """The agent that has the rank refuses it itself; another agent reads it from a reducer."""
        who = r"p\w+ \d+"
        with harness.Cluster(reducers=2, agents=3) as c:
            way = c.socket_path
            members = [self.start(c, rank, way(rank)) for rank in range(2)]
            for w in members:
                w.said("summed")
            for agent, rank, world, error, expected in [
                (0, 0, 2, "RefusedError", rf"rank 0 .*of job test is taken: rank 0 \({who} on \S+\) has local rank 0"),
                (0, 0, 4, "MismatchError", rf"rank 0 \({who}\) of job test has world size 4, rank 0 .* has 2"),
                (2, 0, 2, "RefusedError", r"reducer r[01] .*rank 0 of job test is already taken by .* wants it too"),
                (2, 3, 4, "MismatchError", r"rank 3 says the world size of job test is 4, rank [01] says 2"),
            ]:
                with self.subTest(agent=agent, rank=rank, world=world):
                    started = time.monotonic()
                    said = self.start(c, rank, way(agent), world, GROUP_WORLD_SIZE=world).said("end")
                    self.assertEqual(said["error"], error, said)
                    self.assertRegex(said["message"], expected)
                    self.assertLess(time.monotonic() - started, 8 * harness.SCALE)
            for w in members:
                w.tell("leave")
            self.assertEqual(c.wait_all(members), [0, 0])

    def test_a_process_that_replaces_one_that_died(self):
        """It gets the place, although its reducers may not know yet that the old one has died."""
        soon = {"timeouts": {"detect": "2s"}}
        for way, number in [("direct", signal.SIGKILL), ("node", signal.SIGKILL), ("direct", signal.SIGSTOP)]:
            with self.subTest(way, signal=number), harness.Cluster(2, config=soon, server_config=soon) as c:
                members = [self.start(c, rank, way) for rank in range(2)]
                for w in members:
                    w.said("summed")
                members[1].signal(number)  # a stopped process is silent, like one of a dead machine
                again = [self.start(c, 1, way)]
                members[0].tell("leave")
                members[0].wait()
                again.append(self.start(c, 0, way))
                for w in again:
                    w.said("summed")
                    w.tell("leave")
                self.assertEqual(c.wait_all(again), [0, 0])
                members[1].kill()


class Limits(unittest.TestCase):
    """A reducer that has no room says which limit it is; who may come later waits until the connect timeout."""

    def crowd(self, limits):
        return harness.Cluster(server_config={"server": limits})

    def test_jobs(self):
        with self.crowd({"max_jobs": 1}) as c:
            first = c.start_worker(0, 1, MEMBER + ['{"job": "first"}'])
            first.said("summed")
            second = c.start_worker(0, 1, MEMBER + ['{"job": "second"}'], config=harness.SOON)
            self.assertRegex(second.said("end")["message"], "runs 1 jobs, as many as its server.max_jobs allows")
            # with time enough it gets the place that the first one leaves
            third = c.start_worker(0, 1, MEMBER + ['{"job": "third"}'])
            c.reducers[0].wait_text("(?s)server.max_jobs.*server.max_jobs")
            first.tell("leave")
            third.said("summed")

    def test_workers(self):
        with self.crowd({"max_workers": 2}) as c:
            said = c.start_worker(0, 3, MEMBER + ["{}"]).said("end")
            self.assertEqual(said["error"], "RefusedError")
            self.assertRegex(said["message"], "reducer r0 .*job test has 3 workers, .*server.max_workers allows 2")

    def test_memory(self):
        with self.crowd({"memory": "1MiB"}) as c:
            said = c.start_worker(0, 1, MEMBER + ["{}"]).said("end")
            self.assertEqual(said["error"], "RefusedError")
            self.assertRegex(said["message"], r"needs \d+ bytes of memory, this reducer's server.memory is 1048576")
            # what it says helps
            small = c.start_worker(0, 1, MEMBER + ["{}"], config={"sharding": {"chunk_bytes": "1KiB"}})
            small.said("summed")

    def test_connections(self):
        with self.crowd({"max_connections": 2}) as c:
            first = c.start_workers(2, MEMBER + ['{"job": "first"}'])
            for w in first:
                w.said("summed")
            second = c.start_worker(0, 1, MEMBER + ['{"job": "second"}'], config=harness.SOON)
            said = second.said("end")["message"]
            self.assertRegex(said, "has 2 connections, as many as its server.max_connections allows")


if __name__ == "__main__":
    harness.main()
