#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# run: alone no-tsan all-only
"""NCCL's own code with the plugin, for the versions that PyTorch pins and the newest (tests/nccl/real)."""

import subprocess
import sys
import unittest

import harness


class Versions(unittest.TestCase):
    def test_ci(self):
        """Every cell of the table is "ok" or explained. With sanitizers in the plugin: one version."""
        argv = [sys.executable, harness.ROOT / "tests/nccl/real/versions.py", "--ci"]
        argv += ["--versions", "2.30.7"] if harness.SAN else []
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.stdout.startswith("skipped: "):
            self.skipTest(done.stdout.strip().removeprefix("skipped: "))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    harness.main()
