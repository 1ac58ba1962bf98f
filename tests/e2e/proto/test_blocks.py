# SPDX-License-Identifier: Apache-2.0
# run: beside-others
"""The encodings of the kernels are bit for bit those of proto/python/blocks.py, with many more elements than the
vectors have."""

import subprocess
import sys
import unittest

import harness
import numpy

sys.path.insert(0, str(harness.ROOT / "proto/python"))
import blocks

PROGRAM = harness.BUILD / "tests/e2e/worker_encode"


def run(data, *args):
    return subprocess.run([PROGRAM, *map(str, args)], input=data, stdout=subprocess.PIPE, check=True).stdout


def elements(n, seed):
    """Returns n elements: blocks of all magnitudes, zeros of both signs, and blocks with any bits."""
    random = numpy.random.default_rng(seed)
    x = (random.standard_normal(n) * 2.0 ** random.integers(-140, 120, (n + 127) // 128).repeat(128)[:n]).astype("f4")
    x[random.random(n) < 0.02] = -0.0
    x[random.random(n) < 0.02] = 0.0
    wild = random.integers(0, 2**32, n, "u4").view("f4")
    return numpy.where((numpy.arange(n) // 128 % 4 == 3) & (random.random(n) < 0.3), wild, x).astype("f4")


class Blocks(unittest.TestCase):
    def check(self, wire, x, random=None, *rounding):
        got = run(x.tobytes(), blocks.WIRES[wire], len(x), *rounding)
        self.assertEqual(got, blocks.encode(wire, x, random), (blocks.WIRES[wire], len(x), rounding))
        self.check_decode(wire, got, len(x))

    def check_decode(self, wire, data, n):
        back = run(data, "-d", blocks.WIRES[wire], n)
        self.assertEqual(back, blocks.decode(wire, data, n).tobytes(), (blocks.WIRES[wire], n))

    def test_nearest(self):
        for wire in range(len(blocks.WIRES)):
            for n in (1, 127, 128, 129, 50000):
                self.check(wire, elements(n, n))

    def test_random(self):
        for wire in range(len(blocks.WIRES)):
            for seq, rank, first in ((0, 0, 0), (1, 7, 128), (4711, 1023, 2**32 - 300), (2**63, 1, 2**40)):
                key = (seq * 0x9E3779B97F4A7C15 + rank) % 2**64
                random = blocks.random_bits(seq, rank, first, 5000)
                self.check(wire, elements(5000, rank), random, key, first)

    def test_specials(self):
        for wire in range(len(blocks.WIRES)):
            for values in ([numpy.inf, -numpy.inf, 1, 0], [-numpy.inf, 1, numpy.inf], [0, -0.0, 0],
                           [numpy.nan, numpy.inf, 1], [3.4028234e38, -3.3e38, 1]):  # fmt: skip
                self.check(wire, numpy.array(values, "f4"))

    def test_decodes_any_bytes(self):
        data = numpy.random.default_rng(5).integers(0, 256, 130 * 2000, "u1").tobytes()
        for wire in range(blocks.FP8, len(blocks.WIRES)):
            block = blocks.wire_bytes(wire, 4, 128)
            self.check_decode(wire, data[: len(data) // block * block], len(data) // block * 128)


if __name__ == "__main__":
    unittest.main()
