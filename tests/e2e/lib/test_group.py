# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan
"""Groups of tensors, with and without agents: the bits of separate operations, the bytes of one, clear mismatches.

Not under ThreadSanitizer: groups use the same threads as single operations, and test_failover has groups too.
"""

import unittest

import harness
from test_python_api import program
from test_python_torch import needs_torch

BACKENDS = (0, 2)  # agents


class Groups(unittest.TestCase):
    def check(self, code, world_size=4, agents=BACKENDS, **config):
        for n in agents:
            with self.subTest(agents=n), harness.Cluster(reducers=2, agents=n, lanes=2, config=config) as c:
                procs = c.run(world_size, program(code))
        return procs

    def test_group_costs_the_bytes_of_one_operation(self):
        """200 tensors of 1 KiB: at most 1.05 times the bytes of one of 200 KiB."""
        self.check("""
            def sent(call):
                comm.barrier()
                before = comm.stats()
                call()
                after = comm.stats()
                return after.tx_bytes - before.tx_bytes, after.ops_done - before.ops_done
            xs = [np.full(256, rank + i, "float32") for i in range(200)]
            whole = np.zeros(200 * 256, "float32")
            one, _ = sent(lambda: comm.all_reduce(whole))
            grouped, operations = sent(lambda: comm.all_reduce_coalesced(xs))
            separate, _ = sent(lambda: [comm.all_reduce(x) for x in xs])
            assert grouped <= 1.05 * one, (grouped, one)
            assert separate > grouped + 150 * 64, (separate, grouped)
            assert operations == 1, operations
        """)

    def test_same_bits(self):
        """Every dtype and op, sizes around those where something changes, and many more bytes than the stages have."""
        self.check(
            """
            sizes = [1, 0, 3, 1000, 8191, 8192, 8193, 16384, 16385, 40000, 5] + [4000] * 300
            random = np.random.default_rng(rank)
            kinds = [(d, o) for d in ("float32", "float16", "int8", "float64") for o in ("sum", "avg", "max", "prod")]
            xs = [(random.uniform(-3, 3, n).astype(kinds[i % 16][0]), kinds[i % 16][1]) for i, n in enumerate(sizes)]
            alone = [comm.all_reduce(x.copy(), op) for x, op in xs]
            for step in range(3):
                with comm.group() as group:
                    outs = [np.empty_like(x) for x, _ in xs]
                    for i, (x, op) in enumerate(xs):
                        group.all_reduce(x, op, out=outs[i], name=f"tensor {i}", priority=i % 3 or None)
                for i, (a, b) in enumerate(zip(alone, outs)):
                    assert a.tobytes() == b.tobytes(), (i, sizes[i], xs[i][1], a[:4], b[:4])
            """,
            job={"deterministic": True},
        )

    def test_groups_and_others_in_flight(self):
        self.check("""
            xs = [np.full(100, rank, "int64") for i in range(400)]
            big = [np.full(300_000, rank, "int32") for i in range(8)]
            requests = []
            for i in range(8):
                requests += comm.all_reduce_coalesced(xs[50 * i : 50 * i + 50], async_op=True)
                requests.append(comm.all_reduce(big[i], "max", async_op=True))
            for request in reversed(requests):
                request.wait()
                assert request.done()
            for x in xs:
                same(x, np.full(100, 6))
            same(big, np.full((8, 300_000), 3))
        """)

    def test_layouts_and_shared_memory(self):
        self.check("""
            strided = np.full((10, 10), rank, "float32")
            shared = comm.empty_buffer(50)
            shared[:] = rank
            half = np.full(10, 0x3f80, "uint16")            # 1.0 as bfloat16
            with comm.group(async_op=True) as group:
                a = group.all_reduce(strided[:, ::2], "avg")
                b = group.all_reduce(shared, "avg")
                c = group.all_reduce(half, dtype="bfloat16")
                d = group.all_reduce(half[:0], dtype="bfloat16")
            assert group.requests == [a, b, c, d]
            a.wait(), c.wait(), d.wait()
            same(b.wait(), np.full(50, 1.5))
            same(strided[:, ::2], np.full((10, 5), 1.5))
            same(strided[:, 1::2], np.full((10, 5), rank))
            same(half, np.full(10, 0x4080))                 # 4.0
            assert comm.all_reduce_coalesced([]) == []
        """)

    def test_requests_before_and_after_the_block(self):
        self.check(
            """
            group = comm.group()
            with group:
                request = group.all_reduce(np.ones(3))
                assert not request.done()
                raises(reduction.ReductionError, "has not been started", request.wait)
            same(request.wait(), np.full(3, 2))
            raises(reduction.ReductionError, "the group's block has ended", group.all_reduce, np.ones(3))
            try:
                with comm.group() as group:
                    request = group.all_reduce(np.ones(3))
                    group.all_reduce(np.ones(3, complex))
            except TypeError:
                pass
            raises(reduction.ReductionError, "was not started", request.wait)
            raises(ValueError, "1 names for 2 arrays", comm.all_reduce_coalesced, [np.ones(1)] * 2, names=["a"])
            same(comm.all_reduce(np.ones(3)), np.full(3, 2))  # nothing of it went out
            """,
            world_size=2,
            agents=[0],
        )

    def test_a_communicator_that_is_closed(self):
        self.check(
            """
            comm.close()
            raises(reduction.ClosedError, "closed", comm.all_reduce_coalesced, [np.ones(3)])
            """,
            world_size=1,
            agents=[0],
        )

    @needs_torch
    def test_torch(self):
        self.check("""
            import torch
            xs = [torch.full((i,), float(rank), dtype=d) for i in range(1, 40) for d in (torch.float32, torch.bfloat16)]
            for x, y in zip(xs, comm.all_reduce_coalesced(xs, "max")):
                assert x is y and (x == 3).all(), x
        """)


class Mismatch(unittest.TestCase):
    CASES = [
        # what rank 0 and 1 group, what rank 2 does, what the sentence says
        ([2, 3], "comm.all_reduce_coalesced([f(3), f(2)])", "group of 2 tensors other counts or names"),
        ([2, 3], "comm.all_reduce_coalesced([f(1), f(1), f(3)])", "group of 3 tensors"),
        ([2, 3], "comm.all_reduce_coalesced([f(2), f(4)])", "sum of 6 float32 (group of 2 tensors)"),
        ([2, 3], "comm.all_reduce_coalesced([f(2), f(3)], names=['a', 'b'])", "other counts or names"),
        ([2, 3], "comm.all_reduce_coalesced([f(2), f(3)], 'max')", "all-reduce max of 5 float32 (group of 2 tensors)"),
        ([2, 3], "comm.all_reduce(f(5))", "all-reduce sum of 5 float32 (group of 2 tensors)"),
    ]

    def test_all_ranks_get_the_names_of_both_ranks(self):
        for agents, world_size in ((0, 3), (1, 3)):
            for counts, other, says in self.CASES:
                with self.subTest(agents=agents, other=other), harness.Cluster(agents=agents) as c:
                    code = f"""
                        f = lambda n: np.ones(n, "float32")
                        comm.barrier()
                        usual = lambda: comm.all_reduce_coalesced([f(n) for n in {counts}])
                        exc = raises(reduction.MismatchError, {says!r}, (lambda: {other}) if rank == 2 else usual)
                        assert "rank 2" in str(exc), exc
                        raises(reduction.MismatchError, str(exc), usual)
                    """
                    c.run(world_size, program(code, end="comm.close()"))


if __name__ == "__main__":
    harness.main()
