# SPDX-License-Identifier: Apache-2.0
"""Sums and averages of a job with encodings, drawn from a seed as those of mixed.py, and compared by bits with
proto/python/blocks.py. The job must be deterministic and round to nearest."""

import pathlib
import random
import sys
import zlib

import numpy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "proto" / "python"))
import blocks  # noqa: E402

LEAST = 16_385  # elements; the job sends 64 KiB as they are


def rounded(word, x):
    wire = blocks.WIRES.index(word)
    return blocks.decode(wire, blocks.encode(wire, x), len(x))


class Case:
    """The contribution of one rank to an operation. local: ranks that an agent sums. check: compare the result, if
    rounding is to nearest."""

    def __init__(self, plan, number, rank, world_size, check):
        rng = random.Random(f"{plan['seed']} {number}")
        self.number, self.world_size, self.local = number, world_size, plan["local"]
        self.up, self.down = plan["wire"]
        self.op = rng.choice(["sum", "avg"])
        self.count = rng.randrange(LEAST, plan["largest"])
        self.check = check and plan["nearest"]
        self.mine = self.part(rank)

    def part(self, rank):
        rng = numpy.random.default_rng([self.number, rank])
        magnitudes = numpy.exp2(numpy.arange(self.count) // 1000 % 9)
        return (rng.standard_normal(self.count) * magnitudes).astype("float32")

    def expected(self):
        total = 0
        for first in range(0, self.world_size, self.local):
            node = self.part(first)
            for rank in range(first + 1, first + self.local):
                node += self.part(rank)
            total = total + rounded(self.up, node)
        return rounded(self.down, total / numpy.float32(self.world_size) if self.op == "avg" else total)

    def start(self, comm):
        array = self.mine.copy()
        self.request = comm.all_reduce(array, self.op, async_op=True, name=f"case {self.number}")
        return self

    def finish(self):
        """Waits; returns a checksum of the result, and a sentence if it is wrong, else an empty string."""
        got = self.request.wait().tobytes()
        wrong = self.check and got != self.expected().tobytes()
        sentence = f"case {self.number} ({self.op} of {self.count}): its bits are not those of blocks.py"
        return zlib.crc32(got), sentence if wrong else ""
