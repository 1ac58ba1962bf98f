#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan
"""What makes a reducer drain, with real processes: the file of a notice, SIGPWR, the signals of Slurm, a hook of
Kubernetes. Its jobs go on with the other reducer, and log, status and metrics name the reason."""

import json
import os
import re
import signal
import subprocess
import time
import unittest
import urllib.request

import harness
from test_http import HAS_HTTP

STEP = 100
# Sums until it is told to stop; each sum must be right.
SUMS = harness.python("""
    import sys, threading, numpy, reduction, worker
    stop = threading.Event()
    threading.Thread(target=lambda: (worker.listen(), stop.set()), daemon=True).start()
    n = 0
    with reduction.Communicator() as comm:
        worker.say("open")
        while True:
            x = numpy.full(20001, comm.rank + n % 7, dtype="float32")
            x[-1] = stop.is_set()
            comm.all_reduce(x)
            assert (x[:-1] == 1 + 2 * (n % 7)).all(), x
            n += 1
            if n % %d == 0:
                worker.say("sums", n=n)
            if x[-1] == 2:
                break
    worker.say("end", n=n)
    """.replace("%d", str(STEP)))


def ctl(*args):
    """Runs reductionctl, which must succeed; returns what it prints."""
    argv = [harness.binary("reductionctl"), *args]
    return subprocess.run(argv, check=True, capture_output=True, text=True,
                          env=os.environ | harness.sanitizer_env(argv)).stdout  # fmt: skip


PORTS = {"grpc": "127.0.0.1:0", **({"http": "127.0.0.1:0"} if HAS_HTTP else {})} if harness.HAS_GRPC else {}


def stamp(seconds):
    """The time in so many seconds, as a notice has it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds))


class Draining(unittest.TestCase):
    def cluster(self, reducers=2, jobs=True, **config):
        c = harness.Cluster(reducers=reducers, server_config={"server": PORTS, **config}, start=False)
        c.__enter__()
        self.addCleanup(c.__exit__, None, None, None)
        self.notice = c.dir / "notice"
        for i in range(reducers):
            self.start_reducer(c, i)
        if jobs:
            self.ranks = c.start_workers(2, SUMS)
            for rank in self.ranks:
                rank.said("sums")
        return c

    def start_reducer(self, c, i, wait=True):
        """Only reducer r0 is on a machine with notices."""
        c.server_args = ["--notice", str(self.notice)] if i == 0 else []
        c.start_reducer(i, wait)

    def more(self):
        """The ranks sum on."""
        for rank in self.ranks:
            last = re.findall(r'"sums", "n": (\d+)', rank.out)
            rank.wait_text(rf'"sums", "n": {int(last[-1] if last else 0) + 2 * STEP}\b', stream="out")

    def end(self, c):
        for rank in self.ranks:
            rank.tell()
        self.assertEqual(c.wait_all(self.ranks), [0, 0])
        self.assertEqual(len({rank.said("end")["n"] for rank in self.ranks}), 1)

    def drained(self, c, by, because, handed_over=1, finished=0, cut=0):
        """Waits for the end of reducer r0, which takes less than 10 s, and checks its log."""
        shown = r'"?%s"?' % re.escape(because.replace('"', '\\"'))
        c.reducers[0].wait_text(rf"\bdraining by={by} .*? because={shown}$")
        said = c.reducers[0].wait_text(
            rf"\bdrained because=({shown}) jobs=(\d+) handed_over=(\d+) finished=(\d+) cut=(\d+) took_ms=(\d+)")
        self.assertEqual([int(n) for n in said.groups()[1:5]],
                         [handed_over + finished + cut, handed_over, finished, cut])
        self.assertLess(int(said[6]), 10000 * harness.SCALE)
        self.assertEqual(c.reducers[0].wait(), 0)

    def handed_over(self, c, by, because):
        self.drained(c, by, because)
        self.more()
        self.end(c)

    def test_notice(self):
        c = self.cluster()
        self.notice.write_text(f"a notice of aws at {stamp(0)}: terminate\nbefore {stamp(120)}\n")
        self.handed_over(c, "notice", self.notice.read_text().split("\n", 1)[0])
        said = re.search(r"\bdraining by=notice jobs=1 ranks=2 left_ms=(\d+)", c.reducers[0].err)
        self.assertTrue(115000 <= int(said[1]) <= 118000, said[0])

    def test_a_reducer_does_not_stay_while_the_notice_stands(self):
        """A supervisor starts it again on the same machine: it takes no job, and ends well."""
        c = self.cluster(jobs=False)
        self.notice.write_text("maintenance\n")
        self.drained(c, "notice", "maintenance", handed_over=0)
        self.start_reducer(c, 0, wait=False)
        self.drained(c, "notice", "maintenance", handed_over=0)
        self.notice.unlink()
        self.start_reducer(c, 0)
        self.ranks = c.start_workers(2, SUMS)
        self.more()
        self.end(c)
        self.assertNotIn("draining", c.reducers[0].err)

    def test_a_job_without_another_reducer(self):
        """It may go on until just before the machine ends, and then gets an error; another one ends in time."""
        for finishes in True, False:
            with self.subTest(finishes=finishes):
                c = self.cluster(reducers=1, timeouts={"drain": "60s"})
                self.notice.write_text(f"maintenance\nbefore {stamp(90 if finishes else 5)}\n")
                c.reducers[0].wait_text("draining by=notice")
                self.more()
                if finishes:
                    self.end(c)
                    self.drained(c, "notice", "maintenance", handed_over=0, finished=1)
                    continue
                for rank in self.ranks:
                    self.assertNotEqual(rank.wait(), 0)
                    self.assertIn("within its drain timeout", rank.err)
                    rank.killed = True
                self.drained(c, "notice", "maintenance", handed_over=0, cut=1)

    def test_sigpwr(self):
        """systemd's SIGPWR, and then the SIGTERM of the shutdown: it is not the second signal that ends at once."""
        c = self.cluster()
        c.reducers[0].signal(signal.SIGPWR)
        c.reducers[0].wait_text("draining by=SIGPWR")
        if c.reducers[0].running():
            c.reducers[0].signal(signal.SIGTERM)
        self.handed_over(c, "SIGPWR", "SIGPWR")

    def test_slurm(self):
        """Preemption: SIGCONT and SIGTERM, after GraceTime both again and SIGKILL; also to a stopped process."""
        for stopped in False, True:
            with self.subTest(stopped=stopped):
                c = self.cluster()
                if stopped:
                    c.reducers[0].signal(signal.SIGSTOP)
                c.reducers[0].signal(signal.SIGCONT)
                c.reducers[0].signal(signal.SIGTERM)
                self.handed_over(c, "SIGTERM", "SIGTERM")

    @unittest.skipUnless(harness.HAS_GRPC, "this build has no gRPC")
    def test_kubernetes(self):
        """The hook preStop of deploy/kubernetes, then kubelet's SIGTERM."""
        why = "the end of pod reducer-0"
        c = self.cluster()
        address = c.reducers[0].wait_text(r"\bgrpc-ready\b.*?address=(\S+)").group(1)
        ctl("drain", "--because", why, address)
        if c.reducers[0].running():
            c.reducers[0].signal(signal.SIGTERM)
        self.handed_over(c, "control-service", why)

    @unittest.skipUnless(harness.HAS_GRPC, "this build has no gRPC")
    def test_status_and_metrics(self):
        c = self.cluster(reducers=1)
        self.notice.write_text('a notice of "me"\n')
        c.reducers[0].wait_text("draining by=notice")
        address = c.reducers[0].wait_text(r"\bgrpc-ready\b.*?address=(\S+)").group(1)
        shown = ctl("status", address)
        self.assertRegex(shown, r'  drains because of a notice of "me", \d+(\.\d+)? s left  jobs 1 ')
        shown = json.loads(ctl("status", address, "--json"))
        self.assertEqual((shown["draining"], shown["drain_because"]), (True, 'a notice of "me"'))
        if HAS_HTTP:
            at = c.reducers[0].wait_text(r"\bhttp-ready\b.*?address=(\S+)").group(1)
            with urllib.request.urlopen(f"http://{at}/metrics", timeout=20 * harness.SCALE) as answer:
                self.assertIn('\nreduction_drain_info{because="a notice of \\"me\\""} 1\n', answer.read().decode())
        self.assertIn('"name":"draining"', ctl("events", "--past", "--json", address))
        self.end(c)
        self.drained(c, "notice", 'a notice of "me"', handed_over=0, finished=1)


if __name__ == "__main__":
    harness.main()
