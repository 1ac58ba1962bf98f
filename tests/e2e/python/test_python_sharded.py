# SPDX-License-Identifier: Apache-2.0
# run: beside-others
"""The Python package: reduce_scatter and all_gather against NumPy, their arguments, and when a reducer dies."""

import unittest

import harness
from test_python_api import program

WORKER = harness.ROOT / "tests/e2e/worker_sharded.py"


def worker(function):
    return [harness.PYTHON, WORKER, function]


def uneven(rank):
    """The places of three ranks on two nodes."""
    return {"GROUP_RANK": min(rank, 1), "GROUP_WORLD_SIZE": 2}


class Sharded(unittest.TestCase):
    def right(self, function, world_size, env=None, **cluster):
        with harness.Cluster(reducers=2, **cluster) as c:
            for p in c.run(world_size, worker(function), timeout=120, env=env):
                self.assertIsNot(p.said("right").get("can_shard"), False)

    def test_table(self):
        for world_size in (3,) if harness.SLOW else (2, 3, 4):
            with self.subTest(world_size):
                self.right("table", world_size)

    def test_table_in_rank_order(self):
        self.right("table", 3, config={"job": {"deterministic": True}})

    def test_many_at_once(self):
        for world_size in (3,) if harness.SLOW else (3, 7):  # with 7, chunks are smaller than those of other operations
            with self.subTest(world_size):
                self.right("mixed", world_size)

    def test_table_on_nodes(self):
        for world_size, agents in ((4, 2),) if harness.SLOW else ((4, 2), (6, 3), (3, 1)):
            with self.subTest(world_size, agents=agents):
                self.right("table", world_size, agents=agents)

    def test_table_on_nodes_in_rank_order_with_exact_partial_sums(self):
        self.right("table", 4, agents=2, config={"job": {"deterministic": True, "partials": "exact"}})

    def test_table_with_an_agent_for_each_rank(self):
        self.right("table", 2, agents=2)

    def test_table_on_a_node_without_a_daemon(self):
        self.right("table", 3, env={"REDUCTION_MODE": "node"})

    def test_many_at_once_on_nodes(self):
        self.right("mixed", 4, agents=2)

    def killed_in_the_middle(self, world_size, **cluster):
        with harness.Cluster(reducers=3, **cluster) as c:
            procs = c.start_workers(world_size, worker("failover"))
            for p in procs:
                p.said("half way", 60)
            c.reducers[1].kill()
            for p in procs:
                p.tell()
            for p in procs:
                p.said("right", 60)
            c.wait_all(procs)

    def test_reducer_killed_in_the_middle(self):
        self.killed_in_the_middle(3)

    def test_reducer_killed_in_the_middle_of_nodes(self):
        for partials in ("rounded", "exact"):
            with self.subTest(partials):
                self.killed_in_the_middle(4, agents=2, config={"job": {"partials": partials}})

    def killed_while_data_flows(self, world_size, **cluster):
        with harness.Cluster(reducers=2, **cluster) as c:
            procs = c.start_workers(world_size, worker("streaming"))
            procs[0].said("flows", 60)
            c.reducers[0].kill()
            for p in procs:
                p.said("right", 60)
            c.wait_all(procs)

    def test_reducer_killed_while_data_flows(self):
        self.killed_while_data_flows(2)

    def test_reducer_killed_while_data_of_nodes_flows(self):
        self.killed_while_data_flows(4, agents=2)


class Arguments(unittest.TestCase):
    def check(self, code, world_size=2, agents=0, **cluster):
        with harness.Cluster(reducers=2, agents=agents, **cluster) as c:
            places = uneven if world_size % max(1, agents) else lambda rank: {}
            return c.run(world_size, program(code), env=lambda r: {"REDUCTION_BUILD": harness.BUILD, **places(r)})

    def test_shapes(self):
        self.check("""
            x = np.arange(24, dtype="float32").reshape(4, 6)
            same(comm.reduce_scatter(x.copy()), 2 * x[2 * rank : 2 * rank + 2])
            same(comm.all_gather(x[rank]), np.concatenate([x[0], x[1]]))
            same(comm.all_gather(np.array(rank, "float32")), np.array([0, 1], "float32"))
            out = np.zeros((3, 4), "float32")               # the same number of elements in another shape
            assert comm.reduce_scatter(x, out=out) is out
            same(out.ravel(), 2 * x.ravel()[12 * rank : 12 * rank + 12])
            same(x, np.arange(24, dtype="float32").reshape(4, 6))
            wide = np.zeros((2, 12), "float32")             # arrays that are not dense, on both sides
            comm.reduce_scatter(x.T, out=wide[:, ::2])
            same(wide[:, ::2].ravel(), 2 * x.T.ravel()[12 * rank : 12 * rank + 12])
            assert not wide[:, 1::2].any()
            columns = np.zeros((6, 4), "float32").T
            assert comm.all_gather(x[2 * rank : 2 * rank + 2, :], columns) is columns
            same(columns, x)
            foreign = x.astype(">f4")
            got = comm.all_gather(foreign[rank])
            same(got, x[:2].ravel())
            assert comm.all_gather(np.zeros((0, 3))).shape == (0, 3)
            assert comm.reduce_scatter(np.zeros((0, 3))).shape == (0, 3)
            x.flags.writeable = False
            same(comm.all_gather(x), np.concatenate([x, x]))
            raises(ValueError, "read-only", comm.reduce_scatter, x)
        """)

    def test_refused(self):
        self.check("""
            x = np.zeros(9, "float32")
            raises(ValueError, "shape (9,): without `out` its first length must be a multiple of 2",
                   comm.reduce_scatter, x)
            raises(ValueError, "out has 4 elements; one of 2 equal parts of the array's 9 was expected",
                   comm.reduce_scatter, x, out=x[:4].copy())
            raises(ValueError, "out has 9 elements; 2 times the array's 9 were expected", comm.all_gather, x, x.copy())
            raises(TypeError, "out has dtype float64 but the array has float32", comm.all_gather, x, np.zeros(18))
            raises(TypeError, "expected a numpy array or a torch tensor, got list", comm.all_gather, [1, 2])
            raises(TypeError, "complex128 is not supported", comm.reduce_scatter, np.zeros(2, complex))
            raises(ValueError, "op 'mean' is unknown", comm.reduce_scatter, np.zeros(2), "mean")
            raises(ValueError, "priority is -1", comm.all_gather, x, priority=-1)
            raises(ValueError, "wire 'fp4' is unknown", comm.reduce_scatter, np.zeros(2), wire="fp4")
            same(comm.all_gather(np.full(1, rank)), [0, 1])  # nothing was started
        """)

    def test_dlpack(self):
        self.check("""
            from fake_gpu import Exported
            whole, part = np.arange(8, dtype="float32"), np.zeros(4, "float32")
            comm.reduce_scatter(Exported(whole), out=Exported(part))
            same(part, 2 * np.arange(8, dtype="float32")[4 * rank : 4 * rank + 4])
            comm.all_gather(Exported(part), Exported(whole))
            same(whole, 2 * np.arange(8, dtype="float32"))
            same(comm.all_gather(Exported(part)), whole)
            own = whole[4 * rank : 4 * rank + 4].copy()
            same(comm.reduce_scatter(Exported(whole), "avg"), own)
        """)

    def test_names_and_wire(self):
        self.check("""
            x = np.full(200_000, 1 + 2.0**-12, "float32")   # bfloat16 has not so many bits
            same(comm.reduce_scatter(x.copy(), wire="bf16", name="part"), np.full(100_000, 2, "float32"))
            same(comm.reduce_scatter(x.copy(), wire="same"), 2 * x[:100_000])
            bits = np.full(10, 0x3f80 + rank, "uint16")
            same(comm.all_gather(bits, dtype="bfloat16", name="weights", priority=1), [0x3f80] * 10 + [0x3f81] * 10)
            raises(reduction.MismatchError, "all-gather", comm.all_gather, x[: 10 + rank])
        """)

    def test_one_rank(self):
        self.check("""
            x = np.arange(5.0)
            same(comm.reduce_scatter(x, "avg"), np.arange(5.0))
            same(comm.all_gather(x), np.arange(5.0))
        """, world_size=1)

    def test_nodes_that_are_not_alike(self):
        """One rank on the first node and two on the other: the error says so, and the communicator goes on."""
        self.check(
            """
            assert comm.can_shard is False
            x = np.arange(3.0)
            for call in (comm.reduce_scatter, comm.all_gather):
                exc = raises(reduction.ReductionError, "equally many in the order of ranks", call, x)
                assert "REDUCTION_MODE=direct" in str(exc)
            same(comm.all_reduce(x), 3 * np.arange(3.0))
            """,
            world_size=3,
            agents=2,
        )

    def test_closed(self):
        self.check("""
            assert comm.can_shard is True
            comm.close()
            raises(reduction.ClosedError, "closed", lambda: comm.can_shard)
            raises(reduction.ClosedError, "closed", comm.all_gather, np.zeros(2))
        """)


if __name__ == "__main__":
    harness.main()
