# SPDX-License-Identifier: Apache-2.0
# run: beside-others
"""A reducer without memory (shim_oom.c): the job concerned fails with a reason, the other jobs continue."""

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


GOOD = [(None, "")] * 2


class Limited(harness.Cluster):
    """A cluster whose reducers get no memory while limit(True) holds."""

    def start(self, name, argv, env=None):
        if name.startswith("reducer"):
            (self.dir / "oom").write_text("0")
            shim = harness.BUILD / "tests" / "e2e" / "shim_oom.so"
            env = {**(env or {}), "LD_PRELOAD": str(shim), "REDUCTION_OOM": str(self.dir / "oom")}
        return super().start(name, argv, env)

    def limit(self, on):
        with (self.dir / "oom").open("r+") as f:  # not truncated: the reducers have mapped it
            f.write("1" if on else "0")

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


if __name__ == "__main__":
    harness.main()
