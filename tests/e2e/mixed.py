# SPDX-License-Identifier: Apache-2.0
"""Operations of all kinds, drawn from a seed so that all ranks draw the same, and checked.

    case = mixed.Case(seed, number, comm.rank, comm.world_size, largest=100_000)
    flight = case.start(comm)
    crc, error = flight.finish()

Fifty consecutive numbers have every dtype with every op. The form of the operation ("in" place, "out" of place, in a
"buffer" of the communicator, a "group" of small ones, a "broadcast", or an "empty" one), its size and its priority are
drawn. With style "random" the bits of the result depend on the order of summing.
"""

import math
import random
import zlib

import numpy
import oracle

WAYS = {"in": 4, "out": 2, "buffer": 2, "group": 2, "broadcast": 2, "empty": 1}


class Case:
    """The contribution of one rank to an operation and, unless `check` is False, the expected result. largest: maximum
    of elements. local: ranks that an agent sums. groups: that of each node, if the job has groups. deterministic:
    results are compared by bits with the sum in rank order, or by groups; else as by oracle.check(). It can be started
    repeatedly."""

    def __init__(
        self, seed, number, rank, world_size, largest, style="exact", deterministic=False, local=1, check=True,
        groups=None,
    ):  # fmt: skip
        rng = random.Random(f"{seed} {number}")
        self.number, self.style, self.local, self.deterministic = number, style, local, deterministic
        self.groups = groups
        self.dtype = oracle.DTYPES[number % 10]
        self.op = oracle.OPS[(number // 10 + number) % 5]
        self.way = rng.choices(list(WAYS), list(WAYS.values()))[0]
        self.priority = rng.choice([None, None, 0, 1])
        self.root = rng.randrange(world_size)
        count = int(2 ** rng.uniform(0, math.log2(largest)))
        counts = {"empty": [0], "group": [rng.randrange(1, 3000) for _ in range(rng.randrange(1, 12))]}
        self.counts = counts.get(self.way, [count])
        seeds = [number * 100 + i for i in range(len(self.counts))]
        self.mine = [oracle.make(self.dtype, n, style, s, rank) for n, s in zip(self.counts, seeds)]
        self.parts = None
        if check:
            self.parts = [
                [oracle.make(self.dtype, n, style, s, r) for r in range(world_size)]
                for n, s in zip(self.counts, seeds)
            ]

    def start(self, comm):
        return _Flight(self, comm)

    def wrong(self, got):
        """Returns an empty string, or a sentence about wrong results."""
        for parts, result in zip(self.parts or [], got):
            if self.way == "broadcast":
                bad = "" if result.tobytes() == parts[self.root].tobytes() else "it is not what the root had"
            elif self.deterministic and self.groups:
                want = oracle.fold_groups(self.dtype, self.op, parts, self.local, self.groups)
                bad = "" if result.tobytes() == want.tobytes() else "its bits are not those of the sum by groups"
            elif self.deterministic:
                want = oracle.fold_nodes(self.dtype, self.op, parts, self.local)
                bad = "" if result.tobytes() == want.tobytes() else "its bits are not those of the sum in rank order"
            else:
                bad = oracle.check(self.dtype, self.op, self.style, parts, result, partials=self.local > 1)
            if bad:
                return f"case {self.number} ({self.way} {self.op} of {len(result)} {self.dtype}): {bad}"
        return ""


class _Flight:
    """A case that has been started."""

    def __init__(self, case, comm):
        self._case, self._sent = case, []
        bits = case.dtype if case.dtype == "bfloat16" else None
        name = f"case {case.number}"
        if case.way == "broadcast":
            array = case.mine[0].copy()
            self._requests = [comm.broadcast(array, case.root, async_op=True, dtype=bits, name=name)]
        elif case.way == "group":
            with comm.group(async_op=True) as group:
                for array in case.mine:
                    group.all_reduce(array.copy(), case.op, dtype=bits, name=name, priority=case.priority)
            self._requests = group.requests
        else:
            array, out = case.mine[0].copy(), None
            if case.way == "buffer":
                array = comm.empty_buffer(len(array), case.dtype)
                array[:] = case.mine[0]
            elif case.way == "out":
                self._sent, out = [array], numpy.full(len(array), 77, array.dtype)
            self._requests = [
                comm.all_reduce(
                    array, case.op, async_op=True, out=out, dtype=bits, name=name, priority=case.priority
                )
            ]

    def finish(self):
        """Waits; returns a checksum of the results, and a sentence if something is wrong, else an empty string."""
        got = [request.wait() for request in self._requests]
        crc = 0
        for result in got:
            crc = zlib.crc32(result.tobytes(), crc)
        error = self._case.wrong(got)
        if any(a.tobytes() != b.tobytes() for a, b in zip(self._sent, self._case.mine)):
            error = f"case {self._case.number} has changed its send buffer"
        return crc, error
