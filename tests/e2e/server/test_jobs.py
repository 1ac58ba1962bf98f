#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# run: beside-others
"""Several jobs on the same reducers: side by side, one after the other, in one process, in generations.
"""

import json
import unittest

import harness
import oracle

WORKER = harness.ROOT / "tests" / "e2e" / "worker_allreduce.py"

# Opens and closes a communicator for each job name in its input, and sums; ends at an
# empty line.
SEQUENCE = harness.python("""
    import numpy, reduction, worker
    while name := worker.listen():
        with reduction.Communicator(job=name) as comm:
            x = numpy.arange(100_000, dtype="int32") * (comm.rank + 1)
            comm.all_reduce(x)
            assert (x == numpy.arange(100_000) * 3).all()
        worker.say(name)
    """)

TWO_IN_ONE = harness.python("""
    import numpy, reduction
    with reduction.Communicator(job="left") as a, reduction.Communicator(job="right") as b:
        requests = []
        for i in range(50):
            # ranks may start the operations of different jobs in different orders
            for comm in (a, b) if a.rank == 0 else (b, a):
                x = numpy.full(1000 + i, i + (comm is b), dtype="float64")
                requests.append((comm.all_reduce(x, async_op=True), 2 * (i + (comm is b))))
        for request, expected in requests:
            assert (request.wait() == expected).all()
    """)

GENERATION = harness.python("""
    import sys, numpy, reduction, worker
    with reduction.Communicator(generation=int(sys.argv[1])) as comm:
        x = numpy.ones(1000, dtype="float32")
        worker.say("open")
        if worker.listen() == "sum":
            worker.say("sum", **worker.attempt(comm.all_reduce, x), value=float(x[0]))
            worker.listen()
    """)


class Jobs(unittest.TestCase):
    def plan(self, cluster, number, deterministic):
        """Some operations that no other job has, in a file; returns the worker's command."""
        elements = 777 * number + 5
        cases = [
            [op, dtype, elements, "random", "in"]
            for dtype in ("float32", "bfloat16", "int64")
            for op in oracle.OPS
            for _ in range(3)
        ]
        path = cluster.dir / f"job{number}.json"
        path.write_text(json.dumps({"in_flight": 16, "deterministic": deterministic, "cases": cases}))
        return [harness.PYTHON, str(WORKER), str(path)], len(cases)

    def test_side_by_side(self):
        """Jobs with other names, world sizes, chunks, windows and lanes than their neighbors."""
        jobs = [
            (1, {"job": {"name": "single"}}),
            (2, {"job": {"name": "small"}, "sharding": {"chunk_bytes": 1024, "window": 2}}),
            (3, {"job": {"name": "ordered", "deterministic": True}, "sharding": {"chunk_bytes": 8192}}),
            (2, {"job": {"name": "large", "checksum": True}, "sharding": {"shards": 3, "window": 64}}),
        ]
        with harness.Cluster(reducers=2, lanes=2) as c:
            started = []
            for number, (world_size, config) in enumerate(jobs):
                argv, cases = self.plan(c, 100 * number, config["job"].get("deterministic", False))
                started.append((c.start_workers(world_size, argv, config=config), cases))
            for workers, cases in started:
                self.assertEqual(c.wait_all(workers), [0] * len(workers))
                said = [w.said("done") for w in workers]
                for of in said:
                    self.assertEqual(of["errors"], [])
                    self.assertEqual(len(of["sums"]), cases)
                    self.assertEqual(of["sums"], said[0]["sums"])
            for reducer in c.reducers:
                for _, config in jobs:
                    reducer.wait_text(f"job-closed job={config['job']['name']} ")

    def test_one_after_the_other(self):
        """A name may be used again, in the same generation, as soon as its job has ended."""
        with harness.Cluster() as c:
            workers = c.start_workers(2, SEQUENCE)
            for name in ("a", "b", "a", "a", "b"):
                for w in workers:
                    w.tell(name)
                for w in workers:
                    w.said(name)
            for w in workers:
                w.tell("")
            self.assertEqual(c.wait_all(workers), [0, 0])
            c.reducers[0].wait_text("(?s)(job-closed.*){5}")
            self.assertEqual(c.reducers[0].err.count("job-started"), 5)

    def test_two_in_one_process(self):
        with harness.Cluster(reducers=2) as c:
            c.run(2, TWO_IN_ONE)

    def test_new_generation_replaces_a_stuck_one(self):
        """A restarted job does not wait for what is left of the one before it, and may have another world size."""
        with harness.Cluster(reducers=2) as c:
            old = c.start_workers(2, GENERATION + ["0"])
            for w in old:
                w.said("open")
            old[0].tell("sum")  # rank 1 never calls it
            new = c.start_workers(3, GENERATION + ["1"])
            stuck = old[0].said("sum")
            self.assertEqual(stuck["error"], "ClosedError")
            self.assertRegex(stuck["message"], "generation 1 of job test has replaced generation 0")
            for w in new:
                w.said("open")
                w.tell("sum")
            for w in new:
                self.assertEqual((w.said("sum")["error"], w.said("sum")["value"]), (None, 3.0))
            # the old generation cannot come back
            late = c.start_worker(0, 2, harness.python("""
                import reduction, worker
                worker.say("refused", **worker.attempt(reduction.Communicator, generation=0))
                """))  # fmt: skip
            refused = late.said("refused")
            self.assertEqual(refused["error"], "RefusedError")
            self.assertRegex(refused["message"], "generation 1 already.* generation 0")
            for w in old + new:
                w.tell("end")
            self.assertEqual(c.wait_all(new), [0, 0, 0])


if __name__ == "__main__":
    harness.main()
