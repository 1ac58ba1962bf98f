# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan all-only
"""Sharded operations and trainings over the process group `reduction`: reduce-scatters, all-gathers, FSDP2, hybrid
sharding, ZeroRedundancyOptimizer, DTensor. Their results are those of gloo."""

import importlib.util
import unittest

import harness

WORKER = harness.ROOT / "tests/e2e/worker_torch_sharded.py"
MANY = {"max_jobs": 200}


def worker(*functions):
    return [harness.PYTHON, WORKER, *functions]


@unittest.skipIf(importlib.util.find_spec("torch") is None or harness.SAN, "no torch, or too slow with it")
class Sharded(unittest.TestCase):
    def test_operations(self):
        for world_size in (2, 3):
            with self.subTest(world_size), harness.Cluster(reducers=2) as c:
                functions = "check_scatters", "check_forms", "check_order", "check_refused", "routes"
                c.run(world_size, worker(*functions), timeout=120)

    def test_functional_and_dtensor(self):
        with harness.Cluster(reducers=2) as c:
            c.run(2, worker("functional", "dtensor"), timeout=120)

    def test_agents(self):
        with harness.Cluster(reducers=2, agents=2) as c:
            functions = "check_scatters", "check_forms", "check_order", "functional", "dtensor"
            c.run(4, worker(*functions), timeout=120)

    def test_nodes_that_are_not_alike(self):
        with harness.Cluster(reducers=2, agents=2) as c:
            places = lambda rank: {"GROUP_RANK": min(rank, 1), "GROUP_WORLD_SIZE": 2}  # noqa: E731
            c.run(3, worker("unsharded", "check_forms"), timeout=120, env=places)

    def test_trainings_of_two_ranks(self):
        with harness.Cluster(reducers=2) as c:
            c.run(2, worker("fsdp2", "zero"), timeout=120)

    def test_trainings_of_four_ranks(self):
        with harness.Cluster(reducers=2, server_config={"server": MANY}) as c:
            c.run(4, worker("fsdp2", "hybrid", "zero"), timeout=180)

    def test_training_with_agents(self):
        with harness.Cluster(reducers=2, agents=2) as c:
            c.run(4, worker("fsdp2", "zero"), timeout=180)

    def test_reducer_killed_in_a_step(self):
        with harness.Cluster(reducers=2) as c:
            procs = c.start_workers(2, worker("failover"))
            for p in procs:
                p.wait_text("in the middle|no fully_shard", stream="out", timeout=60)
            c.reducers[1].kill()
            for p in procs:
                if "in the middle" in p.out:
                    p.tell()
            c.wait_all(procs, 120)
            for p in procs:
                self.assertRegex(p.out, "trained on|no fully_shard")


if __name__ == "__main__":
    harness.main()
