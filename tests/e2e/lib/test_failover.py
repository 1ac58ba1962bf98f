#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# run: beside-others grpc
"""Reducers are killed, stopped, drained and return while operations are pending: every operation completes on every
rank with the same bits, which in a deterministic job are those of a run without faults."""

import json
import re
import signal
import subprocess
import time
import unittest

import harness

WORKER = harness.ROOT / "tests" / "e2e" / "worker_mixed.py"
WORLD = 4
# Detection time for stopped reducers, which is waited for; longer than a busy machine
# keeps a thread waiting.
DETECT = {"timeouts": {"detect": f"{4 if 'thread' in harness.SAN else 3}s"}}
PLAN = {
    "seed": 1, "cases": 120, "in_flight": 8, "largest": 30_000, "style": "exact", "deterministic": False, "local": 1,
    "gates": {},
}  # fmt: skip


class Job:
    """The workers of one job, which run a plan. `cluster` has its reducers."""

    def __init__(self, test, cluster, **plan):
        self.test, self.cluster, self.plan = test, cluster, PLAN | plan
        self.plan["local"] = WORLD // len(cluster.agents) if cluster.agents else 1
        path = harness.write_whole(cluster.dir / "plan.json", json.dumps(self.plan))
        self.workers = cluster.start_workers(WORLD, [harness.PYTHON, str(WORKER), path])

    def at_gate(self, number):
        """Waits until one rank is at a gate and the others have started all they can, none of which can complete. No
        barrier (worker_mixed.BARRIERS) and no other gate may be among those."""
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

    def back(self, i):
        """Waits until all count reducer i as returned. One of them may have to lose it once more, if it hears of the
        return before its own connection is up; then all do, and the second check waits for that."""
        last = rf"reducer-back reducer=r{i}\b(?![\s\S]*reducer-lost reducer=r{i}\b)"
        for p in 2 * (self.cluster.agents or self.workers):
            p.wait_text(last)

    def done(self):
        """Waits until all ranks have all results; returns their checksums, the same on all."""
        said = [w.said("end", 60) for w in self.workers]
        for w, of in zip(self.workers, said):
            self.test.assertEqual((of["message"], of["wrong"]), ("", []), w.report())
            self.test.assertEqual(len(of["sums"]), self.plan["cases"])
            self.test.assertEqual(of["sums"], said[0]["sums"], w.name)
        self.cluster.wait_all(self.workers)
        return said[0]["sums"]

    def failed(self, pattern, since, seconds):
        """Waits until all ranks have got an error, at most this many seconds."""
        for w in self.workers:
            of = w.said("end", 60)
            self.test.assertEqual(of["error"], "PeerLostError", of)
            self.test.assertRegex(of["message"], pattern)
            self.test.assertEqual(of["wrong"], [])
        took = time.monotonic() - since
        self.test.assertLess(took, seconds)


def received_by(cluster, i):
    """Returns the bytes that reducer i has received on its open connections."""
    port = cluster.address(i).rsplit(":", 1)[1]
    said = subprocess.run(["ss", "-tinH", f"sport = :{port}"], capture_output=True, text=True, check=True).stdout
    return sum(map(int, re.findall(r"bytes_received:(\d+)", said)))


class Failover(unittest.TestCase):
    KINDS = [(0, False), (2, True)]
    ALL_KINDS = KINDS if harness.SLOW else [*KINDS, (0, True), (2, False)]
    known = {}  # sums of jobs without faults

    def each_kind(self, scenario, gates, kinds=KINDS, timeouts=None, **plan):
        """Runs a scenario with and without agents, and with and without `deterministic`, where bits are compared with
        those of a job without faults, which runs once for all scenarios with the same plan."""
        timeouts = timeouts or {}
        for agents, deterministic in kinds:
            how = plan | {"style": "random" if deterministic else "exact", "deterministic": deterministic}
            config = {"job": {"deterministic": deterministic}, "sharding": {"chunk_bytes": "4KiB"}, **timeouts}
            with self.subTest(agents=agents, deterministic=deterministic):
                with harness.Cluster(
                    reducers=3, agents=agents, lanes=2, config=config, server_config=timeouts,
                    server_args=["--log-level", "debug"],
                ) as c:  # fmt: skip
                    disturbed = Job(self, c, gates=gates, **how)
                    scenario(c, disturbed)
                    sums = disturbed.done()
                if deterministic:
                    undisturbed = (agents, *sorted(how.items()))
                    if undisturbed not in self.known:
                        with harness.Cluster(reducers=3, agents=agents, lanes=2, config=config) as c:
                            self.known[undisturbed] = Job(self, c, **how).done()
                    self.assertEqual(sums, self.known[undisturbed])

    def test_killed_one_after_the_other(self):
        """Until one is left; then the first returns, gets work again, and is the only one."""
        more = (80, 88, 100)
        gates = {10: 0, 40: 3, 70: 1, 108: 0} | {gate: gate % WORLD for gate in more}

        def scenario(c, job):
            for gate, victim in ((10, 0), (40, 1)):
                job.at_gate(gate)
                c.reducers[victim].kill()
                job.go(gate)
            job.at_gate(70)
            c.start_reducer(0)
            job.back(0)
            before = received_by(c, 0)
            job.go(70)
            for gate in more:
                job.at_gate(gate)
                job.go(gate)
            job.at_gate(108)
            self.assertGreater(received_by(c, 0), before + 10_000)
            c.reducers[2].kill()
            job.go(108)

        self.each_kind(scenario, gates, self.ALL_KINDS)

    def test_killed_at_once(self):
        def scenario(c, job):
            job.at_gate(30)
            for victim in (0, 2):
                c.reducers[victim].kill()
            job.go(30)

        self.each_kind(scenario, {30: 1})

    def test_killed_while_data_flows(self):
        """No rank waits for another: chunks are in flight everywhere."""

        def scenario(c, job):
            for number, victim in ((20, 1), (60, 2)):
                job.reached(number)
                c.reducers[victim].kill()

        self.each_kind(scenario, {}, largest=300_000)

    def test_stopped_for_a_while(self):
        """For longer than the detection time; when it continues, it must not disturb what the others have decided."""

        def scenario(c, job):
            for gate, victim in ((10, 1), (60, 2)):
                job.at_gate(gate)
                c.reducers[victim].signal(signal.SIGSTOP)
                job.go(gate)
                job.at_gate(gate + 30)  # what was pending is done without it
                c.reducers[victim].signal(signal.SIGCONT)
                job.go(gate + 30)

        self.each_kind(scenario, {10: 0, 40: 1, 60: 2, 90: 3}, timeouts=DETECT)

    def test_drained(self):
        """It drains while the job continues, and no rank gets an error; then the next one drains too."""

        def scenario(c, job):
            for gate, victim in ((10, 2), (60, 0)):
                job.at_gate(gate)
                c.reducers[victim].signal(signal.SIGTERM)
                c.reducers[victim].wait_text("draining")
                job.go(gate)
                job.at_gate(gate + 30)
                self.assertEqual(c.reducers[victim].wait(), 0)
                job.go(gate + 30)

        self.each_kind(scenario, {10: 0, 40: 1, 60: 2, 90: 3})

    def test_drained_while_idle(self):
        """No operation is pending: the ranks compute, and the drain need not wait for them."""
        with harness.Cluster(reducers=3) as c:
            job = Job(self, c, cases=60, in_flight=1, gates={20: 0, 40: 1})
            for gate, victim in ((20, 1), (40, 0)):
                job.at_gate(gate)
                c.reducers[victim].signal(signal.SIGTERM)
                self.assertEqual(c.reducers[victim].wait(), 0)
                job.go(gate)
            job.done()


class Giving(unittest.TestCase):
    """If no other reducer can or may take over, every rank gets an error that names the lost reducer."""

    def check(self, reducers, victims, pattern, config, how="kill", agents=0):
        timeouts = DETECT if how == "stop" else {}
        seconds = max(10, 3 * harness.SCALE) if how == "stop" else max(8, 2 * harness.SCALE)  # 10 s of silence are many
        with harness.Cluster(
            reducers=reducers, agents=agents, config={**timeouts, **config}, server_config=timeouts
        ) as c:  # fmt: skip
            job = Job(self, c, gates={10: 0})
            job.at_gate(10)
            since = time.monotonic()
            for victim in victims:
                if how == "kill":
                    c.reducers[victim].kill()
                else:
                    c.reducers[victim].signal(signal.SIGSTOP)
            job.go(10)
            job.failed(pattern, since, seconds)
            for victim in victims:
                c.reducers[victim].signal(signal.SIGCONT)

    def test_fail(self):
        for agents in (0, 2):
            for how in ("kill", "stop"):
                with self.subTest(agents=agents, how=how):
                    self.check(3, [1], r"reducer r1 \(127\.0\.0\.1:\d+\) was lost", {"job": {"failover": "fail"}}, how,
                               agents)  # fmt: skip

    def test_one_reducer(self):
        for how in ("kill", "stop"):
            with self.subTest(how):
                self.check(1, [0], r"reducer r0 \(127\.0\.0\.1:\d+\) was lost", {}, how)

    def test_all_of_them(self):
        for agents in (0, 2):
            with self.subTest(agents=agents):
                pattern = r"reducer r0 .* was lost: .*; reducer r1 .* was lost: .*; reducer r2 .* was lost: "
                self.check(3, [0, 1, 2], pattern, {}, agents=agents)


if __name__ == "__main__":
    harness.main()
