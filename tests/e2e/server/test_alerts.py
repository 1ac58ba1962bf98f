#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan all-only
"""What alerts, doctor, events, metrics, page and records show: each fault within a time; nothing of healthy jobs."""

import json
import os
import re
import shutil
import socket
import subprocess
import time
import unittest
from concurrent import futures

import harness
import prometheus
from faults import FAULTS, STEADY, World, net, show
from test_http import GRPC, HAS_HTTP, HTTP

# Minutes in which healthy jobs run; more by hand: HEALTHY_MINUTES=30.
MINUTES = float(os.environ.get("HEALTHY_MINUTES", 0.25))
LOOKS = 60  # seconds from one doctor to the next
# A file for the times after which each fault was shown, as lines of JSON: make fault-table.
TABLE = os.environ.get("FAULT_TABLE")
TOGETHER = 1 if TABLE else 4  # faults at the same time
LIMIT = 60  # seconds until a fault must be shown
ALERTS = re.findall(r"- alert: (\w+)", prometheus.RULES.read_text())
def doctor(target, seconds=10):
    """The findings of reductionctl doctor."""
    argv = [harness.binary("reductionctl"), "doctor", "--json", "--seconds", str(seconds), target]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120 * harness.SCALE)
    assert done.returncode in (0, 3), done.stderr
    return json.loads(done.stdout)["findings"]


def no_lab():
    """Whether the network laboratory cannot be made here."""
    try:
        net.check_machine()
        net.check_delay(harness.BUILD)
    except net.LabError:
        return True
    return False


class Runbook(unittest.TestCase):
    def test_rules(self):
        rules = prometheus.RULES.with_suffix(".test.yml")
        done = subprocess.run(["promtool", "test", "rules", rules], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_each_alert_has_a_section(self):
        page = harness.ROOT / "deploy" / "alerts.md"
        sections = re.findall(r"^## (Reduction\w+)$", page.read_text(), re.M)
        self.assertEqual(sorted(sections), sorted(ALERTS))
        links = re.findall(r'runbook_url: "(\S+)"', prometheus.RULES.read_text())
        at = "file:///usr/share/doc/reduction/deploy/alerts.md"
        self.assertEqual(links, [f"{at}#{name.lower()}" for name in ALERTS])


# A Prometheus for each test of a sanitizer would test Prometheus.
@unittest.skipIf(harness.SAN, "Prometheus is tried with the default build")
@unittest.skipUnless(HAS_HTTP and harness.HAS_GRPC, "this build has no HTTP or no gRPC")
@unittest.skipUnless(shutil.which("prometheus"), "Debian's package prometheus is not installed")
class Shown(unittest.TestCase):
    def test_no_false_alarm(self):
        """Two jobs, one of which is restarted normally again and again, and load balancers that connect and close."""
        alarms = []
        with harness.Cluster(reducers=2, server_args=[*HTTP, *GRPC]) as c:
            w = World(c)
            p = prometheus.Prometheus(c, w.http)
            target = w.target()
            steady = c.start_workers(2, STEADY)
            for rank in steady:
                rank.said("open")
            began = looked = time.monotonic()
            looks = restarts = 0
            while (now := time.monotonic()) - began < MINUTES * 60:
                short = c.start_workers(2, STEADY, {"REDUCTION_RUN": f"short-{restarts}"}, {"job": {"name": "short"}})
                for rank in short:
                    rank.said("open")
                with socket.create_connection(c.address(0).rsplit(":", 1)):
                    pass
                if not looks or now - looked >= LOOKS:
                    looks, looked = looks + 1, now
                    alarms += [(round(now - began), f) for f in doctor(target)]
                else:
                    short[0].wait_more(5)
                for rank in short:
                    rank.tell()
                c.wait_all(short)
                restarts += 1
                alarms += [(round(now - began), *map(str, a)) for a in p.firing()]
            for rank in steady:
                rank.tell()
            c.wait_all(steady)
            for r in c.reducers:
                alarms += re.findall(r"^.* (?:warn|error) .*$", r.err, re.M)
        print(json.dumps({"minutes": MINUTES, "doctor_looks": looks, "ended_jobs": restarts + 1, "alarms": alarms}),
              flush=True)
        self.assertEqual(alarms, [])

    def test_each_fault_is_shown(self):
        faults = [f for f in FAULTS if not (f.root and os.geteuid()) and not (f.lab and no_lab())]
        with futures.ThreadPoolExecutor(TOGETHER) as pool:
            shown = list(pool.map(lambda f: None if f.alone else show(f, LIMIT * harness.SCALE), faults))
        shown = [watch or show(f, LIMIT * harness.SCALE) for f, watch in zip(faults, shown)]
        for f, watch in zip(faults, shown):
            with self.subTest(f.name):
                self.assertEqual({k: watch.found.get(k) for k in f.expected if k not in watch.seen}, {})
                self.assertEqual(watch.false, [])
        if TABLE:
            lines = (json.dumps({"fault": f.name, "alert_name": f.expected.get("alert"), **watch.seen})
                     for f, watch in zip(faults, shown))
            harness.write_whole(TABLE, "\n".join(lines) + "\n")
        alerts = {"Reduction" + f.expected["alert"] for f in FAULTS if "alert" in f.expected}
        self.assertEqual(set(ALERTS) - alerts, {"ReductionDegraded"})  # it comes after 5 minutes: promtool tries it


if __name__ == "__main__":
    harness.main()
