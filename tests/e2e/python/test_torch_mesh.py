# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan
"""The process group `reduction` where ranks reach the reducers and the store, and not each other."""

import importlib.util
import unittest

import harness

WORKER = harness.ROOT / "tests/e2e/worker_torch_mesh.py"
NO_CARD = {"GLOO_SOCKET_IFNAME": "nocard0"}


@unittest.skipIf(importlib.util.find_spec("torch") is None or harness.SAN, "no torch, or too slow with it")
class Mesh(unittest.TestCase):
    def check(self, argv, world_size=1, **options):
        with harness.Cluster(reducers=2) as c:
            c.run(world_size, [harness.PYTHON, *argv], timeout=60, **options)

    def test_no_way(self):
        self.check([WORKER, "no_way"], 3, env=NO_CARD)

    def test_no_way_in_the_name_of_gloo(self):
        self.check(["-m", "reduction.torch", WORKER, "no_way", "gloo"], 2, env=NO_CARD)

    def test_missing(self):
        self.check([WORKER, "missing"], 2)

    def test_addresses(self):
        self.check([WORKER, "addresses"])

    def test_slow(self):
        self.check([WORKER, "slow"])


if __name__ == "__main__":
    harness.main()
