#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# run: beside-others grpc
"""All operations on all dtypes against numpy, over many sizes, ranks, reducers and lanes.
"""

import itertools
import json
import unittest

import harness
import oracle

CHUNK = 4096  # bytes; small, so that small arrays have many chunks
WORKER = harness.ROOT / "tests" / "e2e" / "worker_allreduce.py"


def matrix(sizes, styles, hows=("in", "out", "buffer")):
    """Every operation on every dtype and size; sizes are functions of the elements of a chunk."""
    how = itertools.cycle(hows)
    for size, dtype, op in itertools.product(sizes, oracle.DTYPES, oracle.OPS):
        for style in styles if dtype in oracle.FLOATS else ["exact"]:
            yield [op, dtype, size(CHUNK // oracle.itemsize(dtype)), style, next(how)]


# none, one, odd, and around the ends of the first and of later chunks
SIZES = [
    lambda chunk: 0,
    lambda chunk: 1,
    lambda chunk: 33,
    lambda chunk: chunk - 1,
    lambda chunk: chunk,
    lambda chunk: chunk + 1,
    lambda chunk: 5 * chunk + 3,
]
FEW = [lambda chunk: 0, lambda chunk: 1, lambda chunk: 2 * chunk + 1]


class AllReduce(unittest.TestCase):
    def check(self, cluster, world_size, cases, in_flight=32, deterministic=False, partials=False, timeout=60):
        """All ranks run the cases; every result must be right and the same on all ranks. partials: nodes may have
        rounded their sums."""
        cases = list(cases)
        plan = cluster.dir / "cases.json"
        how = {"in_flight": in_flight, "deterministic": deterministic, "partials": partials}
        plan.write_text(json.dumps({**how, "cases": cases}))
        workers = cluster.run(world_size, [harness.PYTHON, str(WORKER), str(plan)], timeout)
        said = [w.said("done") for w in workers]
        for rank, of in enumerate(said):
            self.assertEqual(of["errors"], [], f"rank {rank}")
            self.assertEqual(of["ops_done"], len(cases), f"rank {rank}")
            different = [cases[i] for i in range(len(cases)) if of["sums"][i] != said[0]["sums"][i]]
            self.assertEqual(different, [], f"ranks 0 and {rank} have different results")

    def test_one_worker(self):
        with harness.Cluster() as c:
            self.check(c, 1, matrix(FEW, ["random"]))

    def test_two_workers_two_reducers_three_lanes(self):
        with harness.Cluster(reducers=2, lanes=3, config={"sharding": {"chunk_bytes": CHUNK}}) as c:
            self.check(c, 2, matrix(FEW if harness.SLOW else SIZES, ["exact", "random"]))

    def test_special_values(self):
        with harness.Cluster(config={"sharding": {"chunk_bytes": CHUNK}}) as c:
            sizes = [lambda chunk: 1, lambda chunk: 2 * chunk + 77]
            cases = [case for case in matrix(sizes, ["special"]) if case[1] in oracle.FLOATS]
            self.check(c, 2, cases)

    def test_three_workers_four_weighted_reducers(self):
        with harness.Cluster(reducers=4) as c:
            reducers = [{"id": f"r{i}", "address": c.address(i), "weight": i + 1} for i in range(4)]
            c.config = {"reducers": reducers, "sharding": {"shards": 40, "chunk_bytes": CHUNK}}
            self.check(c, 3, matrix(FEW if harness.SLOW else SIZES, ["exact", "random"]))

    @unittest.skipIf(harness.SLOW, "eight processes")
    def test_eight_workers_three_reducers_mapped(self):
        sharding = {"chunk_bytes": CHUNK, "map": {"0": "r0", "1-4,7": "r1", "5-6,8-9": "r2"}}
        with harness.Cluster(reducers=3, lanes=3, config={"sharding": sharding}) as c:
            self.check(c, 8, matrix(SIZES[1:], ["exact"]), timeout=90)
            self.check(c, 8, matrix(FEW, ["random"]))

    def test_smallest_chunks_and_window(self):
        """One chunk of 1 KiB at a time, on more lanes than the reducer has threads."""
        with harness.Cluster() as c:
            c.config = {
                "reducers": [{"id": "r0", "address": c.address(0), "lanes": 5}],
                "sharding": {"chunk_bytes": 1024, "window": 1},
            }
            self.check(c, 3, matrix(FEW, ["exact"]))

    def test_checksums(self):
        config = {"job": {"checksum": True}, "sharding": {"chunk_bytes": CHUNK}}
        with harness.Cluster(reducers=2, config=config) as c:
            self.check(c, 2, matrix(FEW, ["exact", "random"]))

    def test_scalar_kernels(self):
        """A reducer without vector instructions beside one with the best that there are."""
        with harness.Cluster(reducers=2, config={"sharding": {"chunk_bytes": CHUNK}}, start=False) as c:
            c.start_reducer(0)
            c.server_args = ["--cpu", "scalar"]
            self.assertIn("cpu=scalar", c.start_reducer(1).err)
            self.check(c, 2, matrix(FEW, ["random"]))

    def test_large(self):
        """A few MiB of every dtype, then 64 MiB, with the default chunks."""
        mib = 1 << 20
        cases = [
            ["sum", d, 3 * mib // oracle.itemsize(d) + 1, "exact", how]
            for d, how in zip(oracle.DTYPES, itertools.cycle(["in", "out", "buffer"]))
        ]
        cases += [["avg", "float32", mib, "random", "out"], ["max", "bfloat16", mib, "random", "in"]]
        if not harness.SLOW:
            cases += [["sum", "float32", 16 * mib, "random", "in"]]
        with harness.Cluster(reducers=2, lanes=2) as c:
            self.check(c, 2, cases, in_flight=3, timeout=90)


if __name__ == "__main__":
    harness.main()
