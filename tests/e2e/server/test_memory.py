# SPDX-License-Identifier: Apache-2.0
# run: beside-others
"""A process without memory (shim_oom.c): a daemon says so and does not start, or the job concerned fails with a reason,
and the other jobs continue; a training process gets an error. None of them hangs or is ended by a signal."""

import os
import pathlib
import shutil
import struct
import subprocess
import tempfile
import threading
import unittest

import harness
from test_failures import AT_ONCE

# Sums for each line of input, and reports the result under that name.
RANK = harness.python("""
    import numpy, reduction, worker
    comm = reduction.Communicator()
    x = numpy.ones(1000, dtype="float32")
    while line := worker.listen():
        worker.say(line, **worker.attempt(comm.all_reduce, x))
    """)


# Does all that a rank can do, in the job of each line of input.
WHOLE = harness.python("""
    import numpy, reduction, worker
    def job(name):
        with reduction.Communicator(job=name) as comm:
            for n in (10, 100_000):
                x = numpy.ones(n, dtype="float32")
                comm.all_reduce(x)
                assert (x == 2).all(), x
            x = numpy.full(5000, comm.rank)
            comm.broadcast(x, root=1)
            assert (x == 1).all(), x
            comm.barrier()
    while line := worker.listen():
        worker.say(line, **worker.attempt(job, line))
    """)


GOOD = [(None, "")] * 2


SHIM = harness.BUILD / "tests" / "e2e" / "shim_oom.so"
PLENTY = 1 << 40


class Limit:
    """The file that tells shim_oom.so in a process when memory runs out."""

    def __init__(self, path):
        self.path = path
        self.set("0")
        self.env = {"LD_PRELOAD": str(SHIM), "REDUCTION_OOM": str(path)}

    def set(self, mode, left=0):
        with self.path.open("r+b" if self.path.exists() else "wb") as f:  # not truncated: the process has mapped it
            f.write(struct.pack("<c7xq", mode.encode(), left))

    def left(self):
        return struct.unpack("<c7xq", self.path.read_bytes())[1]


class Limited(harness.Cluster):
    """A cluster in which one process gets no memory while limit.set("1") holds: the reducer or the agent."""

    def __init__(self, who="reducer", **options):
        super().__init__(**options)
        self.who = who

    def start(self, name, argv, env=None):
        if name.startswith(self.who):
            self.limit = Limit(self.dir / "oom")
            env = {**(env or {}), **self.limit.env}
        return super().start(name, argv, env)

    def limited(self):
        return (self.agents if self.who == "agent" else self.reducers)[0]

    def job(self, name):
        """The workers of a job of two ranks, which have summed once."""
        workers = self.start_workers(2, RANK, env={"REDUCTION_JOB": name})
        assert self.sum(workers, "first") == GOOD
        return workers

    def sum(self, workers, line):
        """Runs an all-reduce on each worker; returns (error, message)."""
        for w in workers:
            w.tell(line)
        said = [w.said(line, timeout=AT_ONCE) for w in workers]
        return [(s["error"], s["message"]) for s in said]


@unittest.skipIf(harness.SAN, "sanitizers bring their own allocator")
class Memory(unittest.TestCase):
    def test_a_rank_is_lost(self):
        """The lane cannot allocate what it tells the accept loop; the other rank still gets the reason."""
        with Limited(lanes=2) as c:
            one, other = c.job("one"), c.job("other")
            c.limit.set("1")
            victim = one.pop()
            victim.kill()
            ((error, message),) = c.sum(one, "without memory")
            self.assertEqual(error, "PeerLostError")
            self.assertRegex(message, rf"rank 1 \(pid {victim.pid} on .*\) was lost")
            c.reducers[0].wait_text("job-closed job=one")
            self.assertEqual(c.sum(other, "without memory"), GOOD)
            c.limit.set("0")
            c.job("one")
            self.assertEqual(c.sum(other, "with memory"), GOOD)
            self.assertTrue(c.reducers[0].running())


@unittest.skipIf(harness.SAN, "sanitizers bring their own allocator")
class OneAllocation(unittest.TestCase):
    """One allocation of a process fails, an early or a late one."""

    def whole(self, workers, name):
        for w in workers:
            w.tell(name)
        return [w.said(name, timeout=AT_ONCE) for w in workers]

    def without(self, c, workers, name, k):
        """A job without the k-th allocation. Returns what the ranks said, and how many allocations there were."""
        c.limit.set("k", k)
        said = self.whole(workers, name)
        left = c.limit.left()
        c.limit.set("0")
        return said, k - left

    def jobs(self, parts, **options):
        """While a job of two ranks opens, sums and leaves: it is right or says why not, and the next one is right."""
        with Limited(lanes=2, **options) as c:
            workers = c.start_workers(2, WHOLE, config=harness.SOON)
            self.whole(workers, "first")
            count = self.without(c, workers, "counted", PLENTY)[1]
            self.assertTrue(20 < count < 1000, count)
            for k in range(1, count, max(1, count // parts)):
                with self.subTest(allocation=k, of=count):
                    said, found = self.without(c, workers, f"without{k}", k)
                    for s in said:
                        self.assertTrue(s["error"] is None or s["message"], s)
                    if k <= count // 2:  # later ones need not exist in each job
                        self.assertGreaterEqual(found, k)
                    self.assertTrue(c.limited().running(), c.limited().report())
                    after = self.whole(workers, f"after{k}")
                    self.assertEqual([(s["error"], s["message"]) for s in after], GOOD)
            for w in workers:
                w.tell("")
            self.assertEqual(c.wait_all(workers), [0, 0])

    def test_jobs_of_a_reducer(self):
        self.jobs(10)

    def test_jobs_of_an_agent(self):
        self.jobs(10, who="agent", agents=1)

    def starts(self, argv, limit):
        """Starts a daemon and stops it when it listens. Returns its exit status and what it said."""
        p = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True, env={"PATH": os.environ["PATH"], **limit.env})
        hung = threading.Timer(AT_ONCE, p.kill)
        hung.start()
        said = []
        for line in p.stderr:
            said.append(line)
            if " listening " in line:
                p.terminate()
        p.stderr.close()
        status = p.wait()
        hung.cancel()
        return status, said

    def daemon(self, program, *options):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="reduction-"))
        self.addCleanup(shutil.rmtree, folder)
        argv = [harness.binary(program), *(o.replace("FOLDER", str(folder)) for o in options)]
        limit = Limit(folder / "oom")
        limit.set("k", PLENTY)
        self.assertEqual(self.starts(argv, limit)[0], 0)
        count, refused = PLENTY - limit.left(), 0
        for k in range(1, count + 1):
            with self.subTest(allocation=k, of=count):
                limit.set("k", k)
                status, said = self.starts(argv, limit)
                if any(" listening " in line for line in said):
                    self.assertEqual(status, 0, said)
                else:
                    refused += 1
                    self.assertEqual(status, 1, said)
                    self.assertRegex("".join(said), r"(?i)memory|start a thread")
        self.assertGreater(refused, 20)

    def test_start_of_a_reducer(self):
        self.daemon("reduction-server", "--listen", "127.0.0.1:0", "--lanes", "2")

    def test_start_of_an_agent(self):
        self.daemon("reduction-agent", "--socket", "FOLDER/agent.sock")

    def test_a_training_process(self):
        """With the node's agent inside, and without: each allocation in turn."""
        for mode in "node", "direct":
            with self.subTest(mode), harness.Cluster() as c:
                limit = Limit(c.dir / "oom")
                w = c.start_worker(0, 1, [str(harness.BUILD / "tests" / "e2e" / "worker_memory")],
                                   env={**limit.env, "REDUCTION_MODE": mode}, config=harness.SOON)  # fmt: skip
                self.assertEqual(c.wait_all([w]), [0])
                tried = [said for said in w.objects() if said["what"] == "tried"]
                for said in tried:
                    self.assertTrue(said["message"] if said["step"] else said["code"] == 0, said)
                errors = [said for said in tried if said["step"] == "open"]
                self.assertGreater(len(errors), 60)
                for said in errors:
                    self.assertRegex(said["message"], r"memory|thread|the agent .* was stopped", said)
                self.assertEqual((tried[-1]["failed"], tried[-1]["step"]), (False, ""))


if __name__ == "__main__":
    harness.main()
