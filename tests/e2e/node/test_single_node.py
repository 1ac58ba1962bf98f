#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# run: beside-others
"""A job on one node, whose agent sums by itself: the same bits as with reducers, none of them to the reducers, who may
go meanwhile and are still who the job belongs to.
"""

import json
import unittest

import harness

WORKER = harness.ROOT / "tests" / "e2e" / "worker_mixed.py"

# Sums when it is told to, until an empty line; or says why not.
SUMS = harness.python("""
    import numpy, reduction, worker
    def run():
        with reduction.Communicator() as comm:
            worker.say("open")
            for turn in range(1000):
                count = worker.listen()
                if not count:
                    return
                x = numpy.full(int(count), comm.rank + 1, "float32")
                comm.all_reduce(x)
                worker.say(f"sum {turn}", least=float(x.min()), most=float(x.max()))
    worker.say("end", **worker.attempt(run))
    """)


class SingleNode(unittest.TestCase):
    def sums(self, where, ranks, style):
        """Checksums of results of all kinds, drawn and checked."""
        config = {"agent": {"single_node": where}, "sharding": {"chunk_bytes": "4KiB"}, "job": {"deterministic": True}}
        plan = {"seed": 5, "cases": 60 if harness.SLOW else 200, "in_flight": 6, "largest": 300_000, "style": style,
                "deterministic": True, "local": ranks, "gates": {}}  # fmt: skip
        with harness.Cluster(reducers=2, agents=1, lanes=2, config=config) as c:
            path = harness.write_whole(c.dir / "plan.json", json.dumps(plan))
            workers = c.run(ranks, [harness.PYTHON, str(WORKER), str(path)], timeout=90)
            said = [w.said("end") for w in workers]
            for of in said:
                self.assertEqual((of["wrong"], of["code"]), ([], 0), of)
                self.assertEqual(of["sums"], said[0]["sums"])
            return said[0]["sums"]

    def test_the_same_bits_as_with_reducers(self):
        for ranks in (1, 3):
            with self.subTest(ranks=ranks):
                self.assertEqual(self.sums("local", ranks, "random"), self.sums("reducers", ranks, "random"))

    def sum(self, workers, turn, count):
        for w in workers:
            w.tell(str(count))
        for w in workers:
            said = w.said(f"sum {turn}")
            self.assertEqual((said["least"], said["most"]), (6, 6), w.name)

    def test_a_reducer_is_lost(self):
        """With another reducer left no rank notices; without one the job ends, as on several nodes."""
        with harness.Cluster(reducers=2, agents=1) as c:
            workers = c.start_workers(3, SUMS)
            for w in workers:
                w.said("open")
            c.agents[0].wait_text("job-started .*nodes=1 processes=3 summed_by=node")
            self.sum(workers, 0, 1_000_000)
            c.reducers[1].kill()
            c.agents[0].wait_text("reducer-lost")
            self.sum(workers, 1, 1_000_000)
            self.sum(workers, 2, 10)
            c.reducers[0].kill()
            c.agents[0].wait_text("job-failed")
            for w in workers:
                w.tell("10")
                self.assertRegex(w.said("end")["message"], "lost")
                self.assertEqual(w.wait(), 0, w.report())

    def test_reducers_are_required(self):
        """What fails on several nodes also fails on one."""
        with harness.Cluster(reducers=2, agents=1, start=False, config={"timeouts": {"connect": "5s"}}) as c:
            c.start_agent(0)
            for w in c.start_workers(2, SUMS):
                said = w.said("end")
                self.assertRegex(said["message"], "r0|r1")
                self.assertEqual(said["code"], -7, said)
                self.assertEqual(w.wait(), 0, w.report())

    def test_several_jobs(self):
        """Each uses its agent's loop only for a moment at a time."""
        with harness.Cluster(reducers=2, agents=1) as c:
            jobs = [c.start_workers(3, SUMS, env=lambda r, job=job: {"REDUCTION_JOB": job}) for job in ("a", "b", "c")]
            for workers in jobs:
                for w in workers:
                    w.said("open")
            for turn in range(5):
                for workers in jobs:
                    for w in workers:
                        w.tell("3000000" if workers is jobs[0] else "100")
                for workers in jobs:
                    for w in workers:
                        self.assertEqual(w.said(f"sum {turn}")["least"], 6)
            for workers in jobs:
                for w in workers:
                    w.tell("")
                self.assertEqual(c.wait_all(workers), [0] * 3)


if __name__ == "__main__":
    harness.main()
