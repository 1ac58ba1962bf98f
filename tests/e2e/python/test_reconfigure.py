#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# run: beside-others
"""Communicators that go on in the next generation: with other ranks and world sizes, after the loss of a rank, and with
new processes, over each transport. Connections stay where both ends can keep them.
"""

import pathlib
import shutil
import tempfile
import unittest

import certs
import harness

WORKER = harness.ROOT / "tests/e2e/worker_reconfigure.py"
CLOSED = -9


class Worker:
    def __init__(self, cluster, config=None, rank=0, world_size=1):
        env = {"REDUCTION_LOG_LEVEL": "debug"}
        self.proc = cluster.start_worker(rank, world_size, [harness.PYTHON, WORKER], env, config)
        self.lines = 0

    def tell(self, line):
        self.proc.tell(line)
        self.lines += 1

    def said(self):
        return self.proc.said(str(self.lines - 1), 30)

    @property
    def connections(self):
        return self.proc.err.count("reducer-connected")


class Reconfigure(unittest.TestCase):
    def cluster(self, **options):
        c = harness.Cluster(**options)
        self.enterContext(c)
        return c

    def all(self, workers, lines, error=None):
        """Each worker executes its line, all at once. Returns what they say. error: in the sentence of each."""
        for w, line in zip(workers, [lines] * len(workers) if isinstance(lines, str) else lines):
            w.tell(line)
        said = [w.said() for w in workers]
        for one in said:
            self.assertIn(error or "", one.get("error", "" if error is None else "no error"), one)
            self.assertTrue(error or "error" not in one, one)
        return said

    def join(self, workers, generation, word="join"):
        """They get the ranks of their order, and a sum is right."""
        self.all(workers, [f"{word} {rank} {len(workers)} {generation}" for rank in range(len(workers))])
        for said in self.all(workers, "sum"):
            self.assertEqual(said["value"], sum(range(1, len(workers) + 1)))

    def started(self, c, n, **options):
        workers = [Worker(c, **options) for _ in range(n)]
        self.join(workers, 0, "open")
        return workers

    def closed(self, workers):
        self.all(workers, "close")
        for w in workers:
            w.proc._popen.stdin.close()
            self.assertEqual(w.proc.wait(20), 0, w.proc.report())

    def comes_and_goes(self, workers, kept):
        """Ranks change, one is killed, a new one comes. kept: connections of each worker, if they are kept."""
        c, w = workers
        before = [x.connections for x in w]
        self.join(w[::-1], 1)
        self.all(w[1:], "pend")
        w[0].proc.kill()
        self.all(w[1:], "end", "rank ")  # was lost
        self.join(w[1:], 2)
        new = Worker(c)
        new.tell("open 2 3 5")
        self.all(w[1:], ["join 0 3 5", "join 1 3 5"])
        self.assertNotIn("error", new.said())
        w = [*w[1:], new]
        self.assertEqual([s["value"] for s in self.all(w, "sum")], [6] * 3)
        if kept:
            self.assertEqual([x.connections for x in w[:2]], before[1:])
        self.closed(w)

    def test_one_reducer(self):
        c = self.cluster(lanes=2)
        self.comes_and_goes((c, self.started(c, 3)), kept=True)

    def test_two_reducers(self):
        c = self.cluster(reducers=2)
        self.comes_and_goes((c, self.started(c, 3)), kept=True)

    def test_in_the_middle_of_operations(self):
        c = self.cluster(reducers=2)
        w = self.started(c, 2)
        w[0].tell("pend")
        w[0].said()
        w[1].tell("join 0 2 7")
        self.all(w[:1], "end", "has left generation 0 of the job for generation 7")
        self.all(w[:1], "sum", "has left generation 0")
        self.all(w[:1], "join 1 2 7")
        self.assertNotIn("error", w[1].said())
        self.assertEqual([s["value"] for s in self.all(w, "sum")], [3, 3])
        self.closed(w)

    def test_after_an_abort(self):
        c = self.cluster()
        w = self.started(c, 3)
        self.all(w[1:], "pend")
        self.assertLess(self.all(w[:1], "abort")[0]["ms"], 100 * harness.SCALE)
        self.all(w[1:], "end", "it fails")
        self.join(w, 1)
        self.closed(w)

    def test_reducer_comes_back(self):
        """Its connections are made anew."""
        c = self.cluster(reducers=2)
        w = self.started(c, 2)
        c.reducers[1].kill()
        c.start_reducer(1)
        self.join(w, 1)
        self.closed(w)

    def test_reducer_stays_away(self):
        c = self.cluster(reducers=2, config={"job": {"min_reducers": 1}})
        w = self.started(c, 2)
        c.reducers[1].kill()
        self.join(w, 1)
        self.closed(w)

    def test_not_all_meet(self):
        """The next generation can be tried."""
        c = self.cluster(config={"timeouts": {"connect": "2s"}})
        w = [Worker(c) for _ in range(2)]
        self.join(w, 0, "open")
        self.all(w[:1], "join 0 2 1", "rank 1")
        self.join(w, 2)
        self.closed(w)

    def test_arguments(self):
        w = self.started(self.cluster(), 1)
        for args, error in (("0 1 0", "generation is 0, a newer one than 0 was expected"),
                            ("1 1 1", "rank 1 is not a rank of 1"), ("0 0 1", "world_size is 0"),
                            ("0 1 4294967296", "at most 4294967295")):  # fmt: skip
            self.all(w, "join " + args, error)
        self.join(w, 4294967295)
        self.closed(w)

    def test_tls_and_a_secret(self):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="reduction-reconfigure-"))
        self.addCleanup(shutil.rmtree, folder)
        keys = certs.Folder(folder / "certs", "reducer:localhost,127.0.0.1", "client:worker")
        secret = folder / "test.secret"
        secret.write_text("a secret of more than 16 bytes\n")
        secret.chmod(0o600)
        server = keys.reducer("localhost", mutual=True) | {
            "access": [{"certificate": "worker", "jobs": "test"}], "server": {"secrets_dir": str(folder)}}
        config = keys.worker("worker", secret=str(secret))
        c = self.cluster(transport="tcp", config=config, server_config=server)
        self.comes_and_goes((c, self.started(c, 3)), kept=True)

    @unittest.skipUnless(harness.HAS_GRPC, "this build has no gRPC")
    def test_grpc(self):
        """Connections are made anew."""
        c = self.cluster(reducers=2, transport="grpc")
        self.comes_and_goes((c, self.started(c, 3)), kept=False)

    def test_baseline(self):
        c = self.cluster(config={"job": {"features": "baseline"}})
        self.comes_and_goes((c, self.started(c, 3)), kept=False)

    def test_agents(self):
        """Ranks behind an agent cannot: nothing has happened then. They close, and open the next generation."""
        c = self.cluster(reducers=2, agents=3)
        w = [Worker(c, rank=rank, world_size=6) for rank in range(6)]
        self.join(w, 0, "open")
        self.all(w, "join 0 6 1", "ranks behind a node's agent cannot be reconfigured: close the communicator and open")
        self.assertEqual([said["value"] for said in self.all(w, "sum")], [21] * 6)
        self.all(w[:5], "pend")
        w[5].proc.kill()
        self.all(w[:5], "end", "rank")
        self.all(w[:5], "close")
        self.all(w[:4], [f"open {rank} 4 1 {rank % 2} 2" for rank in range(4)])  # without the node that lacks a rank
        self.assertEqual([said["value"] for said in self.all(w[:4], "sum")], [10] * 4)
        self.closed(w[:4])


if __name__ == "__main__":
    harness.main()
