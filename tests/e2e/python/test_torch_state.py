#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan
"""The State of the communication hook in copies and files of a model, and time limits that are very long."""

import importlib.util
import unittest

import harness

WORKER = harness.ROOT / "tests/e2e/worker_torch_state.py"


@unittest.skipIf(importlib.util.find_spec("torch") is None or harness.SAN, "no torch, or too slow with it")
class Copies(unittest.TestCase):
    def test_copies(self):
        with harness.Cluster() as c:
            for rank in c.run(2, [harness.PYTHON, WORKER]):
                self.assertIn("copied", rank.out)


if __name__ == "__main__":
    harness.main()
