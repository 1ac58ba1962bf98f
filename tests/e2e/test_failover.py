#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Reducers that die, stop, end in good order and come back while operations are pending: every operation completes on
every rank with the same bits, which in a deterministic job are those of a run that nobody disturbed."""

import json
import signal
import time
import unittest

import harness

WORKER = harness.ROOT / "tests" / "e2e" / "worker_mixed.py"
WORLD = 4
DETECT = {"timeouts": {"detect": f"{1000 * harness.SCALE}ms"}}
PLAN = {
    "seed": 1, "cases": 120, "in_flight": 8, "largest": 30_000, "style": "exact", "deterministic": False, "local": 1,
    "gates": {},
}  # fmt: skip


class Job:
    """The workers of one job, which run a plan. `cluster` has its reducers."""

    def __init__(self, test, cluster, **plan):
        self.test, self.cluster, self.plan = test, cluster, PLAN | plan
        self.plan["local"] = WORLD // len(cluster.agents) if cluster.agents else 1
        path = cluster.dir / "plan.json"
        path.write_text(json.dumps(self.plan))
        self.workers = cluster.start_workers(WORLD, [harness.PYTHON, str(WORKER), str(path)])

    def at_gate(self, number):
        """Waits until one rank stands at a gate and the others have started all they can, none of which can be done."""
        last = min(number + self.plan["in_flight"], self.plan["cases"]) - 1
        for rank, w in enumerate(self.workers):
            if rank == self.plan["gates"][number]:
                w.wait_text(rf'"what": "gate", "case": {number}\}}', stream="out")
            else:
                w.wait_text(rf'"what": "at", "case": {last}\}}', stream="out")

    def go(self, number):
        self.workers[self.plan["gates"][number]].tell()

    def reached(self, number):
        """Waits until one rank has started a case."""
        self.workers[number % WORLD].wait_text(rf'"what": "at", "case": {number}\}}', stream="out")

    def done(self):
        """All ranks have all results; returns their checksums, the same on all."""
        said = [w.said("end", 60) for w in self.workers]
        for w, of in zip(self.workers, said):
            self.test.assertEqual((of["message"], of["wrong"]), ("", []), w.report())
            self.test.assertEqual(len(of["sums"]), self.plan["cases"])
            self.test.assertEqual(of["sums"], said[0]["sums"], w.name)
        self.cluster.wait_all(self.workers)
        return said[0]["sums"]

    def failed(self, pattern, since, seconds):
        """All ranks have read an error."""
        for w in self.workers:
            of = w.said("end", 60)
            self.test.assertEqual(of["error"], "PeerLostError", of)
            self.test.assertRegex(of["message"], pattern)
            self.test.assertEqual(of["wrong"], [])
        took = time.monotonic() - since
        self.test.assertLess(took, seconds * harness.SCALE)


class Failover(unittest.TestCase):
    KINDS = [(0, False), (2, True)] if harness.SLOW else [(0, False), (0, True), (2, False), (2, True)]

    def each_kind(self, scenario, gates):
        """Runs a scenario with and without agents, and with and without `deterministic`, where bits are compared with
        those of a job that nothing happened to."""
        for agents, deterministic in self.KINDS:
            how = {"style": "random" if deterministic else "exact", "deterministic": deterministic}
            config = {"job": {"deterministic": deterministic}, "sharding": {"chunk_bytes": "4KiB"}, **DETECT}
            with self.subTest(agents=agents, deterministic=deterministic):
                with harness.Cluster(
                    reducers=3, agents=agents, lanes=2, config=config, server_config=DETECT,
                    server_args=["--log-level", "debug"],
                ) as c:  # fmt: skip
                    disturbed = Job(self, c, gates=gates, **how)
                    scenario(c, disturbed)
                    sums = disturbed.done()
                if deterministic:
                    with harness.Cluster(reducers=3, agents=agents, lanes=2, config=config) as c:
                        self.assertEqual(Job(self, c, **how).done(), sums)

    def test_undisturbed(self):
        def scenario(_, job):
            for gate in (3, 30):
                job.at_gate(gate)
                job.go(gate)

        self.each_kind(scenario, {3: 0, 30: 2})


if __name__ == "__main__":
    harness.main()
