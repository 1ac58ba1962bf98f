#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# run: beside-others
"""job.deterministic: results are bitwise the same whatever the arrival order, chunk size, lanes and reducers.
"""

import itertools
import json
import unittest

import harness
import oracle

WORKER = harness.ROOT / "tests" / "e2e" / "worker_deterministic.py"
WORLD = 4
ROUNDS = 5 if harness.SLOW else 20
CASES = [[op, dtype, 9001] for dtype in oracle.FLOATS for op in ("sum", "avg")] + [["prod", "float32", 9001]]

# (reducers, lanes, sharding)
SETTINGS = [
    (1, 1, {"chunk_bytes": "64KiB"}),
    (2, 3, {"chunk_bytes": "1KiB", "window": 3}),
    (3, 1, {"chunk_bytes": "4KiB", "shards": 7}),
    (3, 2, {"chunk_bytes": 2496, "window": 64}),
]


class Deterministic(unittest.TestCase):
    def sums(self, reducers, lanes, sharding, deterministic=True):
        """Checksums of all results, which are the same on all ranks: [round][case]."""
        config = {"job": {"deterministic": deterministic}, "sharding": sharding}
        with harness.Cluster(reducers=reducers, lanes=lanes, config=config) as c:
            plan = c.dir / "plan.json"
            plan.write_text(json.dumps({"rounds": ROUNDS, "cases": CASES}))
            workers = c.run(WORLD, [harness.PYTHON, str(WORKER), str(plan)])
            said = [w.said("done") for w in workers]
            for rank, of in enumerate(said):
                self.assertEqual(of["sums"], said[0]["sums"], f"ranks 0 and {rank}")
            if deterministic:
                self.assertEqual(said[0]["errors"], [])
            return said[0]["sums"]

    def test_order_matters_for_this_data(self):
        """Otherwise the other test could not fail."""
        for number, (op, dtype, count) in enumerate(CASES):
            with self.subTest(op=op, dtype=dtype):
                parts = [oracle.make(dtype, count, "random", number, rank) for rank in range(WORLD)]
                orders = [oracle.fold(dtype, op, order).tobytes() for order in itertools.permutations(parts)]
                self.assertGreater(len(set(orders)), 1)

    def test_same_bits(self):
        found = {}
        for reducers, lanes, sharding in SETTINGS[:2] if harness.SLOW else SETTINGS:
            name = f"{reducers} reducers, {lanes} lanes, {sharding}"
            found[name] = self.sums(reducers, lanes, sharding)
            for round_, sums in enumerate(found[name]):
                self.assertEqual(sums, found[name][0], f"round {round_} with {name}")
        for name, sums in found.items():
            self.assertEqual(sums, next(iter(found.values())), name)

    def test_arrival_order_shows_without_it(self):
        """The delays of the worker do change the order of arrival: sums that are not deterministic differ."""
        sums = self.sums(1, 1, {}, deterministic=False)
        self.assertGreater(len({tuple(s) for s in sums}), 1)


if __name__ == "__main__":
    harness.main()
