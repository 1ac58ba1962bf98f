# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan all-only
"""Training over the process group `reduction`: DistributedDataParallel, its options and hooks, hybrid sharding."""

import importlib.util
import unittest

import harness

WORKER = harness.ROOT / "tests/e2e/worker_torch_train.py"


@unittest.skipIf(importlib.util.find_spec("torch") is None or harness.SAN, "no torch, or too slow with it")
class Training(unittest.TestCase):
    def test_two_ranks(self):
        with harness.Cluster(reducers=2) as c:
            c.run(2, [harness.PYTHON, WORKER, "parity", "options", "hooks", "loader", "power_buckets"], timeout=120)

    def test_four_ranks_with_agents(self):
        with harness.Cluster(reducers=2, agents=2) as c:
            c.run(4, [harness.PYTHON, WORKER, "parity", "sharded", "power_buckets"], timeout=120)

    def test_reducer_killed(self):
        with harness.Cluster(reducers=2) as c:
            procs = c.start_workers(2, [harness.PYTHON, WORKER, "failover"])
            procs[0].wait_text("step 10", stream="out", timeout=60)
            c.reducers[1].kill()
            procs[0].tell()
            for p in procs:
                self.assertEqual(p.wait(60), 0, p.report())


if __name__ == "__main__":
    harness.main()
