#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# run: beside-others
"""All gradients of a real model in flight at once, rounds following each other at once while one rank lags: a reducer
that confuses rounds of a tensor gives wrong sums here.
"""

import math
import unittest

import harness
import model

WORKER = harness.ROOT / "tests" / "e2e" / "worker_tensors.py"


class ManyTensors(unittest.TestCase):
    def run_rounds(self, cluster, world_size, rounds, in_flight, slow_rank):
        argv = [harness.PYTHON, str(WORKER), rounds, in_flight, slow_rank]
        for w in cluster.run(world_size, argv, timeout=90):
            said = w.said("done")
            self.assertEqual(said["wrong"], [], "[round, tensor, got, expected]")
            self.assertEqual(said["ops_done"], rounds * len(model.shapes()))

    def test_the_model(self):
        shapes = model.shapes()
        self.assertEqual(len(shapes), 213)
        self.assertEqual(sum(map(math.prod, shapes)), 5_288_548)  # as published

    def test_two_rounds_in_flight(self):
        with harness.Cluster(reducers=3, lanes=2) as c:
            self.run_rounds(c, 3, 2 if harness.SLOW else 6, "all", slow_rank=1)

    def test_rounds_back_to_back(self):
        """With a small window, which the fast ranks fill while they wait for the slow one."""
        with harness.Cluster(reducers=2, config={"sharding": {"window": 2, "chunk_bytes": "16KiB"}}) as c:
            self.run_rounds(c, 3, 2 if harness.SLOW else 5, "one", slow_rank=2)

    def test_more_operations_than_may_be_in_flight(self):
        """job.max_ops makes further calls wait; nothing is lost and nothing hangs."""
        with harness.Cluster(config={"job": {"max_ops": 7}}) as c:
            self.run_rounds(c, 2, 2, "all", slow_rank=0)


if __name__ == "__main__":
    harness.main()
