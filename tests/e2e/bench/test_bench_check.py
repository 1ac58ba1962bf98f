# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan
"""reduction-bench checks sums that are rounded by an encoding, and finds those that are wrong.

Not under ThreadSanitizer: the program has no threads of its own, and test_wire covers those of the library.
"""

import json
import unittest

import harness
from test_python_api import program

BENCH = [harness.binary("reduction-bench"), "-b", "16K", "-e", "1M", "-f", 64, "-n", 3, "-w", 1]
WORDS = ("same", "bf16", "fp8", "int8", "up=fp8,down=bf16", "up=fp8,down=int8", "up=int8,down=fp8")
ONE = ["-b", "128K", "-e", "128K", "-n", 1, "-w", 0, "--inplace", "no"]

# A rank that takes part in one row; its data is zero.
ZEROS = """
import numpy as np
size = 32 << 10
comm.all_reduce(np.zeros((16 << 10) + 128, "float32"))            # what is the encoding?
comm.barrier()
comm.all_reduce(np.zeros(size, "float32"), "{op}")
comm.all_reduce(np.zeros(1, "float64"), "max")            # the slowest time
print("wrong", comm.all_reduce(np.zeros(1, "uint64"))[0])
"""


class Check(unittest.TestCase):
    def rows(self, cluster, *more):
        procs = cluster.run(4, [*BENCH, "-d", "float32", "-o", "sum", "--json", *more])
        rows = [json.loads(line) for line in procs[0].out.splitlines()]
        self.assertEqual([row["wrong"] for row in rows], [0] * len(rows))
        return rows

    def test_rounded_sums_are_right(self):
        with harness.Cluster(reducers=2) as c:
            for wire in WORDS:
                with self.subTest(wire):
                    self.assertEqual(len(self.rows(c, "--wire", wire)), 4)
            self.rows(c, "--wire", "int8", "--tensors", 3)

    def test_all_types(self):
        with harness.Cluster() as c:
            procs = c.run(3, [*BENCH, "-d", "all", "-o", "all", "--wire", "int8", "--inplace", "only"])
            self.assertIn("wrong elements: 0", procs[0].out)
            for dtype in ("float32", "float16", "bfloat16"):
                self.assertIn(f"# sums of {dtype} are encoded", procs[0].out)
            self.assertNotIn("float64 are encoded", procs[0].out)

    def test_word_of_the_file(self):
        """Of the ranks' file, and of the agents' file, which ranks do not read; with several ranks on a node too."""
        config = {"job": {"wire": {"up": "int8", "down": "fp8", "rounding": "stochastic"}}}
        for agents in (0, 2):
            with self.subTest(agents=agents), harness.Cluster(reducers=2, agents=agents, config=config) as c:
                procs = c.run(4, [*BENCH, "-o", "sum"])
                self.assertIn("# sums of float32 are encoded", procs[0].out)
                self.assertIn("wrong elements: 0", procs[0].out)

    def test_wrong_sums_are_found(self):
        """A rank that sends zeros instead of its part."""
        for wire in ("same", "bf16", "fp8", "int8"):
            for op in ("sum", "avg"):
                commands = [BENCH[0], *map(str, ONE), "-o", op], program(ZEROS.format(op=op))
                with self.subTest(wire=wire, op=op), harness.Cluster(config={"job": {"wire": wire}}) as c:
                    first, second = c.run(2, lambda rank: commands[rank], check=False)
                    self.assertEqual((first.code, second.code), (1, 0), first.report() + second.report())
                    self.assertIn("FAILED", first.out)
                    wrong = int(second.out.split("wrong")[1])
                    self.assertGreater(wrong, (32 << 10) / 3)


if __name__ == "__main__":
    harness.main()
