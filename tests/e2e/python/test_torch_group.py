# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan
"""The backend `reduction` of torch.distributed: operations against gloo, Work objects, subgroups."""

import importlib.util
import unittest

import harness

WORKER = harness.ROOT / "tests/e2e/worker_torch_group.py"


def worker(*functions):
    return [harness.PYTHON, WORKER, *functions]


@unittest.skipIf(importlib.util.find_spec("torch") is None or harness.SAN, "no torch, or too slow with it")
class Group(unittest.TestCase):
    def test_two_ranks(self):
        with harness.Cluster(reducers=2) as c:
            c.run(2, worker("conformance", "delegated", "works", "forks", "again"), timeout=120)

    def test_four_ranks_with_agents(self):
        many = {"max_jobs": 200}
        with harness.Cluster(reducers=2, agents=2, server_config={"server": many}, config={"agent": many}) as c:
            c.run(4, worker("conformance", "delegated", "works", "subgroups"), timeout=120)


if __name__ == "__main__":
    harness.main()
