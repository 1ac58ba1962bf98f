# SPDX-License-Identifier: Apache-2.0
# run: beside-others
"""The encodings of the kernels, bit for bit those of wire_codec.py."""

import subprocess
import unittest

import harness
import numpy
import wire_codec

WIRES = ["same", "bf16", "fp8", "int8"]
PROGRAM = harness.BUILD / "tests/e2e/worker_encode"


def run(data, *args):
    return subprocess.run([PROGRAM, *map(str, args)], input=data, stdout=subprocess.PIPE, check=True).stdout


def elements(n, seed):
    """Returns n elements: blocks of all magnitudes, some with zeros or all bits random."""
    random = numpy.random.default_rng(seed)
    x = (random.standard_normal(n) * 2.0 ** random.integers(-140, 120, (n + 127) // 128).repeat(128)[:n]).astype("f4")
    x[random.random(n) < 0.02] = -0.0
    wild = random.integers(0, 2**32, n, "u4").view("f4")
    return numpy.where((numpy.arange(n) // 128 % 4 == 3) & (random.random(n) < 0.3), wild, x).astype("f4")


class WireCodec(unittest.TestCase):
    def check(self, wire, x, *rounding):
        got = run(x.tobytes(), wire, len(x), *rounding)
        self.assertEqual(got, wire_codec.encode(x, wire, *rounding), (wire, len(x), rounding))
        back = run(got, "-d", wire, len(x))
        self.assertEqual(back, wire_codec.decode(got, len(x), wire).tobytes(), (wire, len(x)))

    def test_encode_and_decode(self):
        for wire in WIRES:
            for n in (1, 127, 128, 129, 50000):
                self.check(wire, elements(n, n))

    def test_random_rounding(self):
        for wire in WIRES:
            for key, first in ((0, 0), (2**64 - 1, 128), (4711, 2**32 - 300), (39, 2**40)):
                self.check(wire, elements(5000, key % 97), key, first)

    def test_specials(self):
        for wire in WIRES:
            for values in ([numpy.inf, -numpy.inf, 1, 0], [numpy.nan, numpy.inf, 1], [3.4028234e38, -3.3e38, 1]):
                self.check(wire, numpy.array(values, "f4"))

    def test_decodes_any_bytes(self):
        data = numpy.random.default_rng(5).integers(0, 256, 130 * 2000, "u1").tobytes()
        for wire in ("fp8", "int8"):
            self.assertEqual(run(data, "-d", wire, 128 * 2000), wire_codec.decode(data, 128 * 2000, wire).tobytes())


if __name__ == "__main__":
    unittest.main()
