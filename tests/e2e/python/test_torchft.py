#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan
"""torchft's process group over reducers: replicas that come and go, on the connections that they have, each operation,
errors, and the end. Needs torchft, which is not part of Debian: `make versions` runs it with that of PyPI, and
`make trainers` runs torchft's own tests.
"""

import subprocess
import unittest

import harness

WORKER = harness.ROOT / "tests/e2e/worker_torchft.py"
_FOUND = subprocess.run([harness.PYTHON, "-c", "import torchft"], capture_output=True).returncode == 0


class Replica:
    def __init__(self, cluster, name, env=None):
        env = {"REDUCTION_LOG_LEVEL": "debug", **(env or {})}
        self.proc = cluster.start_worker(0, 1, [harness.PYTHON, WORKER], env)
        self.name, self.lines = name, 0

    def tell(self, line):
        self.proc.tell(line)
        self.lines += 1

    def said(self):
        return self.proc.said(str(self.lines - 1), 40)

    @property
    def connections(self):
        return self.proc.err.count("reducer-connected")


@unittest.skipUnless(_FOUND and not harness.SAN, "torchft is not installed for this Python, or too slow with it")
class Torchft(unittest.TestCase):
    def start(self, **options):
        self.cluster = harness.Cluster(**options)
        self.enterContext(self.cluster)
        self.keeper = Replica(self.cluster, "store")
        self.keeper.tell("store")
        self.keeper.proc.said("0", 120)
        self.prefixes = 0

    def replicas(self, *names, **env):
        """Starts them, and waits until they have imported torch: that may take longer than configure() has time."""
        started = [Replica(self.cluster, name, env) for name in names]
        for r in started:
            r.tell("errored")
        for r in started:
            r.proc.said("0", 120)
        return started

    def all(self, replicas, line, error=None):
        """Each executes the line, all at once. Returns what they say. error: in the sentence of each."""
        for r in replicas:
            r.tell(line)
        return [self.check(r, error) for r in replicas]

    def check(self, replica, error=None):
        said = replica.said()
        self.assertIn(error or "", said.get("error", "" if error is None else "no error"), said)
        self.assertTrue(error or "error" not in said, said)
        return said

    def address(self):
        self.prefixes += 1
        return f"127.0.0.1:{self.keeper.said()['value']}/quorum/{self.prefixes}"

    def configure(self, replicas):
        """They get the ranks of their order, and a sum is right."""
        address = self.address()
        for rank, r in enumerate(replicas):
            r.tell(f"configure {address} {r.name} {rank} {len(replicas)} {self.prefixes}")
        for r in replicas:
            self.check(r)
        n = len(replicas)
        self.assertEqual([said["value"] for said in self.all(replicas, "sum")], [n * (n + 1) / 2] * n)
        self.assertEqual([said["value"] for said in self.all(replicas, "errored")], [None] * n)

    def test_comes_and_goes(self):
        """One is killed, the others go on, and it comes back; nobody else opens connections again."""
        self.start(reducers=2)
        a, b, c = r = self.replicas("a", "b", "c")
        self.configure(r)
        before = [x.connections for x in r]
        self.configure([c, a, b])
        self.all([a, b], "pend")
        c.proc.kill()
        self.all([a, b], "end", "(rank 0 is replica c)")
        for said in self.all([a, b], "errored"):
            self.assertIn("the process group is aborted until configure() is called: ", said["value"])
            self.assertIn("(rank 0 is replica c)", said["value"])
        self.all([a, b], "sum", "(rank 0 is replica c)")
        self.configure([a, b])
        (c,) = self.replicas("c-again")
        self.configure([c, b, a])
        self.assertEqual([x.connections for x in (a, b)], before[:2])

    def test_operations(self):
        self.start(reducers=2)
        r = self.replicas("a", "b", "c")
        self.configure(r)
        self.all(r, "collectives")
        self.configure(r[1:])
        self.all(r[1:], "collectives")
        self.configure(r[:1])
        self.all(r[:1], "collectives")

    def test_ends(self):
        """abort(), shutdown() and no configure()."""
        self.start()
        a, b, c = r = self.replicas("a", "b", "c")
        self.all(r, "sum", "process group not initialized")
        self.configure(r)
        before = [x.connections for x in r]
        self.all([b, c], "pend")
        self.assertLess(self.all([a], "abort")[0]["ms"], 100 * harness.SCALE)
        self.all([b, c], "end", "(rank 0 is replica a)")
        self.all([a], "sum", "process group not initialized")
        self.assertIn("abort() was called", self.all([a], "errored")[0]["value"])
        self.configure(r)
        self.assertEqual([x.connections for x in r], before)
        self.all([a, b], "pend")
        self.all([c], "shutdown")
        self.all([a, b], "end", "(rank 2 is replica c)")
        self.all([c], "sum", "process group not initialized")
        self.configure(r)
        self.all(r, "shutdown")
        self.all(r, "shutdown")
        self.configure([a])

    def test_timeouts(self):
        """Of an operation, and of configure()."""
        self.start()
        a, b = r = self.replicas("a", "b")
        self.configure(r)
        self.all([a], "timeout 0.5")
        self.all([a], "sum", "was not done within the process group's timeout of 0.5 s")
        self.all([b], "sum", "(rank 0 is replica a)")
        a.tell(f"configure {self.address()} a 0 2 {self.prefixes}")
        self.check(a, "rank 1 of 2 has not")
        self.assertIn("configure() timeout after 500ms: rank 1 of 2", self.all([a], "errored")[0]["value"])
        self.all(r, "timeout 20")
        self.configure(r)

    def test_reducer(self):
        """The only one is lost, and comes back."""
        self.start()
        r = self.replicas("a", "b")
        self.configure(r)
        self.cluster.reducers[0].kill()
        for said in self.all(r, "sum", "reducer"):
            self.assertIn("r0", said["error"])
        self.cluster.start_reducer(0)
        self.configure(r)

    def test_another_run(self):
        """Replicas that were alone are each in a run of their own; those behind the first one leave it."""
        self.start()
        r = self.replicas("a", "b", REDUCTION_CONFIG="", REDUCTION_REDUCERS=self.cluster.address(0))  # no job's name
        for one in r:
            self.configure([one])
        self.configure(r)
        self.configure(r[::-1])

    def test_arguments(self):
        code = "import reduction.torchft as t; t.ProcessGroupReduction(mode='agent')"
        self.start()
        worker = self.cluster.start_worker(0, 1, [harness.PYTHON, "-c", code])
        self.assertNotEqual(worker.wait(60), 0)
        self.assertIn("mode follows from torchft's quorum", worker.err)


if __name__ == "__main__":
    harness.main()
