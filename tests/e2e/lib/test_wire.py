# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan
"""Encodings on the network, chosen by the file, for a communicator or for a tensor: the bits of the results with and
without agents, and how many bytes are sent.

Not under ThreadSanitizer: test_failover has encodings too.
"""

import unittest

import harness
from test_node_agent import place
from test_python_api import program

# an oracle of common/kernels/kernels.h; `local` consecutive ranks of each node are summed before, or a list of numbers
ORACLE = """
import zlib
def bf16(x, up=False):
    bits = x.astype("float32").view("uint32").astype("uint64")
    bits = bits + (0xffff if up else 0x7fff + (bits >> 16 & 1))
    return (bits >> 16 << 16).astype("uint32").view("float32")
def scaled(blocks, amax, largest):
    s = np.maximum(bf16(amax / np.float32(largest), up=True), np.float32(2.0 ** -126))
    return (blocks * (np.float32(1) / s)).astype("float64"), s
def fp8(blocks, amax):
    v, s = scaled(blocks, amax, 448)
    step = np.exp2(np.floor(np.log2(np.maximum(np.abs(v), 2.0 ** -6))) - 3)
    return (np.rint(v / step) * step).astype("float32") * s
def integers(largest):
    def encoded(blocks, amax):
        v, s = scaled(blocks, amax, largest)
        return np.rint(v).astype("float32") * s
    return encoded
def fp16(blocks, amax):
    s = np.exp2(np.maximum(np.floor(np.log2(np.maximum(amax, 2.0 ** -126))) - 14, -126)).astype("float32")
    return (blocks / s).astype("float16").astype("float32") * s
CODES = {"fp8": fp8, "int8": integers(127), "int4": integers(7), "fp16": fp16}
def rounded(x, wire):
    if wire in ("same", "bf16"):
        return bf16(x) if wire == "bf16" else x
    blocks = np.append(x, np.zeros(-len(x) % 128, "float32")).reshape(-1, 128)
    return CODES[wire](blocks, np.abs(blocks).max(axis=1, keepdims=True)).reshape(-1)[: len(x)]
def stored(x, dtype):
    return bf16(x) if dtype == "bfloat16" else x.astype(dtype).astype("float32")
def expected(parts, op, dtype, up, down, local):
    total = None
    parts, n = list(parts), len(parts)
    for size in [local] * (n // local) if isinstance(local, int) else local:
        part = parts.pop(0).copy()
        for _ in range(size - 1):
            part += parts.pop(0)
        part = rounded(part, up)
        total = part if total is None else total + part
    if op == "avg":
        total = total / np.float32(n)
    return stored(rounded(total, down), dtype)
NORMAL = [np.random.default_rng(r).normal(size=9973) for r in range(n)]
def part(r, begin, end, dtype):
    at = np.arange(begin, end)
    x = NORMAL[r][at % 9973] * np.exp2(at // 1000 % 9)
    return stored(x.astype("float32"), dtype)
def own_blocks(count):
    # each rank computes what a part of the blocks should be
    share = -(-count // n // 128) * 128
    return min(rank * share, count), min((rank + 1) * share, count)
def check_equal(x):
    # all ranks have the same bits
    own = np.array([zlib.crc32(x.view("uint8"))], "int64")
    same(comm.all_reduce(own.copy(), "min"), own)
    same(comm.all_reduce(own.copy(), "max"), own)
def raw(x, dtype):
    return (x.view("uint32") >> 16).astype("uint16") if dtype == "bfloat16" else x.astype(dtype)
def values(x, dtype):
    return (x.astype("uint32") << 16).view("float32") if dtype == "bfloat16" else x.astype("float32")
def check(count, op="sum", dtype="float32", up="same", down="same", local=1, **how):
    x = raw(part(rank, 0, count, dtype), dtype)
    comm.all_reduce(x, op, dtype=None if dtype in ("float32", "float64") else dtype, **how)
    check_equal(x)
    begin, end = own_blocks(count)
    want = expected([part(r, begin, end, dtype) for r in range(n)], op, dtype, up, down, local)
    found = values(x[begin:end], dtype)
    wrong = np.flatnonzero(found != want)
    assert len(wrong) == 0, (op, dtype, count, how, len(wrong), wrong[0], found[wrong[0]], want[wrong[0]])
def sent(call):
    comm.barrier()
    before = comm.stats()
    call()
    return comm.stats().tx_bytes - before.tx_bytes
"""

WORDS = (("bf16", "bf16"), ("fp8", "fp8"), ("int8", "int8"), ("fp16", "fp16"), ("int4", "int4"), ("fp8", "bf16"),
         ("same", "int8"), ("int4", "fp16"))  # fmt: skip
if harness.SLOW:  # the kernels' own tests run with sanitizers, too
    WORDS = WORDS[-3:]

# large enough for several pieces of a ring
SIZES = "(20_000, 100_001, 1_500_000)"


def with_oracle(code):
    return program(ORACLE + code)


class Wire(unittest.TestCase):
    def check(self, code, agents=(0, 2, 4), world_size=4, env=None, sharding=None, **job):
        for n in agents:
            config = {"job": {"deterministic": True, **job}, "sharding": sharding or {}}
            with self.subTest(agents=n), harness.Cluster(reducers=2, agents=n, config=config) as c:
                local = f"local = {2 if n == 2 else 1}\n"
                c.run(world_size, with_oracle(local + harness.python(code)[-1]), env=env)

    def test_words_of_the_file(self):
        for up, down in WORDS:
            with self.subTest(up=up, down=down):
                self.check(
                    f"""
                    for count in {SIZES}:
                        check(count, "sum", up="{up}", down="{down}", local=local)
                    check(50_000, "avg", up="{up}", down="{down}", local=local)
                    check(16384, "sum", local=local)              # 64 KiB
                    check(16385, "sum", up="{up}", down="{down}", local=local)
                    x = np.full(100_000, rank, "float32")
                    same(comm.all_reduce(x, "max"), np.full(100_000, n - 1))
                    y = np.full(100_000, rank, "int32")
                    same(comm.all_reduce(y), np.full(100_000, n * (n - 1) // 2))
                    """,
                    wire={"up": up, "down": down},
                )

    def test_rings_that_wrap_around(self):
        """A stage of the client has room for a part of the operation."""
        self.check(
            """
            check(3_000_000, up="fp8", down="fp8", local=local)
            check(3_000_000, wire="bf16", up="bf16", down="bf16", local=local)
            check(6_000_000, "sum", "bfloat16", wire="int8", up="int8", down="int8", local=local)
            """,
            agents=(2, 4),
            sharding={"chunk_bytes": "4KiB", "window": 4},
            wire="fp8",
        )

    def test_16_bit_gradients(self):
        """A node's sum is not rounded before it is encoded; bf16 does not fit."""
        self.check("""
            for dtype in ("bfloat16", "float16"):
                for wire in ("fp8", "int8", "int4"):
                    for op in ("sum", "avg"):
                        check(300_000, op, dtype, up=wire, down=wire, local=local, wire=wire)
        """)
        self.check('check(100_000, "sum", "bfloat16", wire="bf16")', agents=(0,))

    def averages(self, sizes, up, least, most, agents=0, **job):
        """Averages of float16 of nodes with so many ranks: the contributions are encoded as `up`, and a node sends at
        least and at most so many times the bytes of the tensor."""
        code = f"""
            local, up = {sizes}, {up!r}
            UNIFORM = [np.random.default_rng(r).uniform(0.9, 1, 9973) for r in range(n)]
            def data(r, begin, end, count):
                at = np.arange(begin, end)
                x = UNIFORM[r][at % 9973] * 65504
                x[(at >= count // 3) & (at < count // 2)] = 2.0 ** -24 * (r + 1)    # blocks of their own scale
                return x.astype("float16").astype("float32")
            for count, how in ((32_769, up), (300_001, up), (1_500_000, up), (32_768, "same")):
                x = data(rank, 0, count, count).astype("float16")
                comm.all_reduce(x, "avg")
                check_equal(x)
                begin, end = own_blocks(count)
                parts = [data(r, begin, end, count) for r in range(n)]
                same(x[begin:end], expected(parts, "avg", "float16", how, "same", local))
                assert np.isfinite(x).all() and x.any()
            x = np.full(1 << 20, 65504, "float16")
            times = sent(lambda: comm.all_reduce(x, "avg")) / x.nbytes
            assert {least} < times < {most}, times
            same(x, np.full(1 << 20, 65504))
        """
        config = {"job": {"deterministic": True, **job}}
        with self.subTest(sizes, agents=agents, **job), harness.Cluster(reducers=2, agents=agents, config=config) as c:
            env = None if agents else lambda r: place(r, sizes)
            c.run(4, with_oracle(harness.python(code)[-1]), env=env)

    def test_averages_of_float16(self):
        """The sum of a node goes up in 16 bits, with a scale: it may be out of range, the average is not."""
        self.averages([2, 2], "fp16", 1, 1.03)
        self.averages([2, 2], "fp16", 1, 1.03, agents=2)
        self.averages([3, 1], "fp16", 1, 1.03)
        self.averages([1] * 4, "same", 1, 1.02, agents=4)
        self.averages([2, 2], "same", 1.99, 2.1, partials="exact")
        self.averages([2, 2], "same", 1.99, 2.1, agents=2, features="baseline")
        self.averages([2, 2], "fp16", 1, 1.03, wire={"rounding": "stochastic", "feedback": "1MiB"})

    def test_words_of_a_communicator(self):
        """The environment and the argument go before the file, also with an agent."""
        code = """
            check(100_000, up="int8", down="bf16", local=local)
            check(100_000, local=local, wire="same")
            check(300, up="fp8", down="fp8", local=local, wire="fp8")
        """
        self.check(code, env={"REDUCTION_WIRE": "up=int8,down=bf16"}, wire="fp8")
        self.check(
            f"""
            comm.close()
            os.environ["REDUCTION_WIRE"] = "fp8"
            comm = reduction.Communicator(job="another", wire="up=int8,down=bf16")
            {code.strip()}
            """,
            agents=(0, 2),
            wire="fp8",
        )

    def test_bytes(self):
        """8 bits take 1.016 bytes for each element, 4 bits 0.516, and the headers."""
        for wire, least, most in (("fp8", 3.9, 4), ("int4", 7.6, 7.8)):
            self.check(
                f"""
                x = np.ones(1 << 20, "float32")
                plain = sent(lambda: comm.all_reduce(x, wire="same"))
                coded = sent(lambda: comm.all_reduce(x))
                assert {least} < plain / coded < {most}, (plain, coded)
                """,
                agents=(0, 4),
                wire=wire,
            )

    def test_local_rank_0_serves_its_node(self):
        config = {"job": {"deterministic": True, "wire": "fp8"}}
        with harness.Cluster(reducers=2, config=config) as c:
            code = """
                check(200_000, up="fp8", down="fp8", local=2)
                check(5000, wire="int8", up="int8", down="int8", local=2)
            """
            c.run(4, with_oracle(harness.python(code)[-1]), env=lambda r: place(r, [2, 2]))

    def test_one_node(self):
        """A node that sums by itself sends nothing, and rounds nothing."""
        with harness.Cluster(agents=1, config={"job": {"wire": "fp8"}}) as c:
            c.run(2, with_oracle('check(100_000); check(100_000, wire="int8")'))

    def test_groups(self):
        """No block has elements of two tensors: those of others do not matter."""
        self.check(
            """
            counts = [1, 0, 127, 128, 129, 1000, 8192] * 8
            def tensor(r, i, c):
                return np.full(c, (r + 1) * 2.0 ** (20 * (i % 2)), "float32")
            xs = [tensor(rank, i, c) for i, c in enumerate(counts)]
            comm.all_reduce_coalesced(xs)
            for i, (x, c) in enumerate(zip(xs, counts)):
                same(x, expected([tensor(r, i, c) for r in range(n)], "sum", "float32", "fp8", "fp8", local))
            few = [np.full(c, rank + 0.3, "float32") for c in counts[:6]]
            comm.all_reduce_coalesced(few)                        # at most 64 KiB
            same(few[5], np.full(1000, sum(np.float32(r + 0.3) for r in range(n)), "float32"))
            """,
            wire="fp8",
        )

    def test_ranks_that_differ(self):
        """The operation fails on all ranks, with both ranks and encodings."""
        for agents in (0, 1, 2):
            with self.subTest(agents=agents):
                config = {"agent": {"single_node": "reducers"}}
                with harness.Cluster(agents=agents, config=config) as c:
                    c.run(
                        2,
                        program("""
                            raises(reduction.ReductionError, "wants the result as", comm.all_reduce,
                                   np.zeros(100, "float32"), wire="fp8" if rank else "bf16")
                        """),
                    )

    def test_arguments(self):
        with harness.Cluster() as c:
            c.run(
                1,
                program("""
                    raises(ValueError, "wire 'fp4' is unknown; known are same, bf16, fp8, int8, fp16, int4",
                           comm.all_reduce, np.zeros(2, "float32"), wire="fp4")
                    raises(reduction.ReductionError, 'wire: found "fp4", expected same, bf16, fp8, int8, fp16 or int4',
                           reduction.Communicator, wire="fp4")
                """),
            )


if __name__ == "__main__":
    harness.main()
