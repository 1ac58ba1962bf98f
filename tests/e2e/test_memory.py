# SPDX-License-Identifier: Apache-2.0
# run: beside-others
"""A reducer without memory (shim_oom.c): the job concerned fails with a reason, the other jobs continue."""

import struct
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


class Limited(harness.Cluster):
    """A cluster whose reducer gets no memory while limit(True) holds."""

    def start(self, name, argv, env=None):
        if name.startswith("reducer"):
            self.set("0")
            shim = harness.BUILD / "tests" / "e2e" / "shim_oom.so"
            env = {**(env or {}), "LD_PRELOAD": str(shim), "REDUCTION_OOM": str(self.dir / "oom")}
        return super().start(name, argv, env)

    def set(self, mode, left=0):
        path = self.dir / "oom"
        with path.open("r+b" if path.exists() else "wb") as f:  # not truncated: the process has mapped it
            f.write(struct.pack("<c7xq", mode.encode(), left))

    def limit(self, on):
        self.set("1" if on else "0")

    def left(self):
        return struct.unpack("<c7xq", (self.dir / "oom").read_bytes())[1]

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
            c.limit(True)
            victim = one.pop()
            victim.kill()
            ((error, message),) = c.sum(one, "without memory")
            self.assertEqual(error, "PeerLostError")
            self.assertRegex(message, rf"rank 1 \(pid {victim.pid} on .*\) was lost")
            c.reducers[0].wait_text("job-closed job=one")
            self.assertEqual(c.sum(other, "without memory"), GOOD)
            c.limit(False)
            c.job("one")
            self.assertEqual(c.sum(other, "with memory"), GOOD)
            self.assertTrue(c.reducers[0].running())


PLENTY = 1 << 40


@unittest.skipIf(harness.SAN, "sanitizers bring their own allocator")
class OneAllocation(unittest.TestCase):
    """One allocation of a reducer fails, an early or a late one, while a job of two ranks opens, sums and leaves: the
    job is right or ends with a sentence, and the next one is right."""

    def whole(self, workers, name):
        for w in workers:
            w.tell(name)
        return [w.said(name, timeout=AT_ONCE) for w in workers]

    def without(self, c, workers, name, k):
        """A job without the k-th allocation. Returns what the ranks said, and how many allocations there were."""
        c.set("k", k)
        said = self.whole(workers, name)
        left = c.left()
        c.set("0")
        return said, k - left

    def test_every_tenth_part_of_a_job(self):
        with Limited(lanes=2) as c:
            workers = c.start_workers(2, WHOLE, config=harness.SOON)
            self.whole(workers, "first")
            count = self.without(c, workers, "counted", PLENTY)[1]
            self.assertTrue(20 < count < 1000, count)
            for k in range(1, count, count // 10):
                with self.subTest(allocation=k, of=count):
                    said, found = self.without(c, workers, f"without{k}", k)
                    for s in said:
                        self.assertTrue(s["error"] is None or s["message"], s)
                    if k <= count // 2:  # later ones need not exist in each job
                        self.assertGreaterEqual(found, k)
                    self.assertTrue(c.reducers[0].running(), c.reducers[0].report())
                    after = self.whole(workers, f"after{k}")
                    self.assertEqual([(s["error"], s["message"]) for s in after], GOOD)
            for w in workers:
                w.tell("")
            self.assertEqual(c.wait_all(workers), [0, 0])


if __name__ == "__main__":
    harness.main()
