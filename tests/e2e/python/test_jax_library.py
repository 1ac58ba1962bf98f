#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# run: beside-others
"""libreduction-jax.so without jax: processes open it as jaxlib does and call all its functions (worker_jax.c)."""

import unittest

import harness

WORKER = str(harness.BUILD / "tests/e2e/worker_jax")
LIBRARY = str(harness.BUILD / "lib/libreduction-jax.so")
INTERFACE = str(harness.ROOT / "agent/jax/interface.txt")


class Library(unittest.TestCase):
    def start(self, cluster, world_size, *more):
        return [
            cluster.start_worker(rank, world_size, [WORKER, LIBRARY, INTERFACE, rank, world_size, *more])
            for rank in range(world_size)
        ]

    def test_all_functions(self):
        for world_size in (1, 2, 3, 4):
            with self.subTest(world_size=world_size), harness.Cluster(reducers=2, lanes=2) as c:
                for worker in self.start(c, world_size):
                    self.assertEqual(worker.wait(), 0, worker.report())

    def test_lost_rank(self):
        with harness.Cluster(reducers=2) as c:
            for worker in self.start(c, 3, "lost")[:-1]:
                self.assertEqual(worker.wait(), 0)
                self.assertRegex(worker.out, r"^1: barrier of JAX: rank 2 \(pid \d+ on .*\) was lost: ")


if __name__ == "__main__":
    harness.main()
