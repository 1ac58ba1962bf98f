#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# run: beside-others grpc
"""All operations through agents: one to four local ranks on one or two nodes, several jobs at once.
"""

import unittest

import harness
import oracle
import test_allreduce
from test_allreduce import CHUNK, FEW, SIZES, matrix

BROADCASTS = """
    import numpy, reduction, worker
    with reduction.Communicator() as comm:
        for root in range(comm.world_size):
            for dtype in ("int8", "float16", "float32", "int64"):
                for n in (0, 1, 4099):
                    own = numpy.full(n, comm.rank + 1, dtype)
                    shared = comm.empty_buffer(n, dtype)
                    shared[:] = own
                    for x in (own, shared):
                        comm.broadcast(x, root=root)
                        assert (x == root + 1).all(), (root, dtype, n, x[:4])
        comm.barrier()
    worker.say("done")
"""


class Agent(unittest.TestCase):
    def check(self, *args, **kwargs):
        test_allreduce.AllReduce.check(self, *args, partials=True, **kwargs)

    def small(self, reducers=2, agents=1, lanes=2, **more):
        config = {"sharding": {"chunk_bytes": CHUNK}, **more}
        return harness.Cluster(reducers=reducers, agents=agents, lanes=lanes, config=config)

    def on_one_node(self, ranks, cases):
        """Summed by the agent alone, and with reducers."""
        for where in ("local", "reducers"):
            with self.subTest(where), self.small(agent={"single_node": where}) as c:
                self.check(c, ranks, cases)

    def test_one_rank(self):
        self.on_one_node(1, matrix(FEW, ["random"]))

    def test_one_rank_on_each_of_two_nodes(self):
        with self.small(agents=2) as c:
            self.check(c, 2, matrix(FEW if harness.SLOW else SIZES, ["exact", "random"]))

    def test_two_ranks_on_one_node(self):
        self.on_one_node(2, matrix(FEW if harness.SLOW else SIZES, ["exact", "random"]))

    def test_two_ranks_on_each_of_two_nodes(self):
        with self.small(agents=2) as c:
            self.check(c, 4, matrix(FEW if harness.SLOW else SIZES, ["exact", "random"]), timeout=90)

    @unittest.skipIf(harness.SLOW, "eight processes")
    def test_four_ranks_on_each_of_two_nodes(self):
        with self.small(agents=2) as c:
            self.check(c, 8, matrix(FEW, ["exact"]), timeout=90)

    def test_nodes_of_different_size(self):
        """Three local ranks, whose halves are summed in float32, beside one, whose halves are sent unchanged."""
        with self.small(agents=2) as c:
            env = lambda rank: {
                "LOCAL_RANK": rank if rank < 3 else 0,
                "LOCAL_WORLD_SIZE": 3 if rank < 3 else 1,
                "GROUP_RANK": 0 if rank < 3 else 1,
                "GROUP_WORLD_SIZE": 2,
                **harness.reach(c.socket_path(0 if rank < 3 else 1)),
            }
            run = c.run
            c.run = lambda world_size, argv, timeout: run(world_size, argv, timeout, env=env)
            self.check(c, 4, matrix(FEW, ["exact", "random"]))

    def test_special_values(self):
        sizes = [lambda chunk: 1, lambda chunk: 2 * chunk + 77]
        cases = [case for case in matrix(sizes, ["special"]) if case[1] in oracle.FLOATS]
        for ranks in (1, 2):
            self.on_one_node(ranks, cases)

    def test_deterministic(self):
        with self.small(agents=2, job={"deterministic": True}) as c:
            self.check(c, 4, matrix(FEW, ["exact"]))

    def test_broadcast(self):
        for agents, world_size in ((1, 1), (1, 3), (2, 2), (2, 4)):
            with self.subTest(agents=agents, world_size=world_size), self.small(agents=agents) as c:
                c.run(world_size, harness.python(BROADCASTS))

    def test_large(self):
        """More bytes in flight than fit the agent's stages of one job, and than the agent's shared memory."""
        mib = 1 << 20
        cases = [["sum", d, 6 * mib // oracle.itemsize(d) + 1, "exact", "in"] for d in oracle.DTYPES]
        cases += [["avg", "bfloat16", mib, "random", "out"]] * 3
        if not harness.SLOW:
            cases += [["sum", "float16", 32 * mib + 5, "exact", "in"]] * 3
        with harness.Cluster(reducers=2, agents=1, config={"agent": {"shm_bytes": "512MiB"}}) as c:
            self.check(c, 2, cases, in_flight=8, timeout=120)

    def test_rings(self):
        """Operations of several times the size of their ring, of all dtypes, with ranks whose memory is partly shared
        with the agent, on nodes of one and of several ranks, and on one node alone; chunks do not divide pieces
        evenly."""
        config = {"sharding": {"chunk_bytes": 12352, "window": 4}, "agent": {"shm_bytes": "128MiB"}}
        mib = 1 << 20
        hows = ("in", "out", "buffer")
        cases = [[op, d, (10 + i) * mib // oracle.itemsize(d) + 3, "exact", hows[i % 3]]
                 for i, (op, d) in enumerate((("sum", "float32"), ("max", "int8"), ("sum", "float16"), ("sum", "int64"),
                                              ("avg", "float64"), ("sum", "bfloat16")))]
        for agents, world_size in ((2, 2), (1, 2)) if harness.SLOW else ((2, 2), (2, 4), (1, 1), (1, 3)):
            with self.subTest(agents=agents, world_size=world_size), harness.Cluster(2, agents, config=config) as c:
                self.check(c, world_size, cases, in_flight=3, timeout=120)

    def test_rings_with_staged_and_shared_memory(self):
        """One rank of a node uses a stage, the other one shared memory, in and out of place."""
        with harness.Cluster(reducers=2, agents=2) as c:
            c.run(
                4,
                harness.python('''
                    import numpy, reduction, worker
                    n = 5_000_011
                    with reduction.Communicator() as comm:
                        own = numpy.empty(n, "float32")
                        shared = comm.empty_buffer(n, "float32")
                        for turn in range(8):
                            send = shared if (turn + comm.rank) % 2 else own
                            recv = shared if (turn // 2 + comm.rank) % 2 else own
                            send[:] = numpy.arange(n) % (1000 + turn) + comm.rank
                            comm.all_reduce(send, out=None if recv is send else recv)
                            want = 4 * (numpy.arange(n) % (1000 + turn)) + 6
                            assert (recv == want).all(), (turn, numpy.flatnonzero(recv != want)[:5])
                            comm.broadcast(own, root=turn % 4)
                            comm.broadcast(shared, root=turn % 4)
                    worker.say("done")
                '''),
                timeout=90,
            )

    def test_little_shared_memory(self):
        """Each of two ranks may stage two of eight operations at a time."""
        cases = [["sum", "float32", 500_000 + i, "exact", "in"] for i in range(16)]
        with self.small(agent={"shm_bytes": "9MiB"}) as c:
            self.check(c, 2, cases, in_flight=8)

    def test_many_in_flight(self):
        """More operations than job.max_ops permits in flight."""
        cases = [["sum", "float32", 10 + i % 700, "exact", "in"] for i in range(400)]
        with self.small(job={"max_ops": 7}) as c:
            self.check(c, 2, cases, in_flight=100)

    def test_two_jobs_at_once(self):
        with self.small(agents=2) as c:
            workers = []
            for job in ("red", "blue"):
                workers += c.start_workers(
                    4,
                    harness.python('''
                        import numpy, os, reduction, worker
                        add = len(os.environ["REDUCTION_JOB"])
                        with reduction.Communicator() as comm:
                            for i in range(200):
                                x = numpy.full(5000, add + i, "float32")
                                comm.all_reduce(x)
                                assert (x == 4 * (add + i)).all(), (i, x[:4])
                        worker.say("done")
                    '''),
                    env={"REDUCTION_JOB": job},
                )
            self.assertEqual(c.wait_all(workers), [0] * 8)

    def test_stats(self):
        """The agent sends one contribution for all local ranks, of as many bytes as each has; or none."""
        cases = [
            ("reducers", "float32", {}, 400_000, 440_000),
            ("reducers", "bfloat16", {}, 200_000, 230_000),
            ("reducers", "bfloat16", {"partials": "exact"}, 400_000, 440_000),
            ("local", "float32", {}, 100, 4000),
        ]
        for where, dtype, job, least, most in cases:
            with self.subTest(where, dtype=dtype, job=job), self.small(agent={"single_node": where}, job=job) as c:
                self.check_stats(c, dtype, least, most)

    def check_stats(self, c, dtype, least, most):
        """All ranks read the agent's traffic."""
        workers = c.run(
            2,
            harness.python(f'''
                import numpy, oracle, reduction, worker
                with reduction.Communicator() as comm:
                    x = oracle.make("{dtype}", 100000, "exact", 1, comm.rank)
                    comm.all_reduce(x, dtype="{dtype}")
                    comm.barrier()
                    s = comm.stats()
                    worker.say("stats", tx=s.tx_bytes, ops=s.ops_done)
            '''),
        )
        for w in workers:
            said = w.said("stats")
            self.assertEqual(said["ops"], 2)
            self.assertGreater(said["tx"], least)
            self.assertLess(said["tx"], most)


if __name__ == "__main__":
    harness.main()
