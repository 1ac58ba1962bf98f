# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan
"""A rank that is late fails nothing until timeouts.op, which is off unless the file sets it; then everybody reads which
operation waits, for whom and since when, and the log has said so before.

Not under ThreadSanitizer: test_agent_faults and test_failures have such timeouts too.
"""

import signal
import unittest

import harness

# Sums once, or when it is told to; then says how it ended.
RANK = harness.python("""
    import sys, numpy, reduction, worker
    with reduction.Communicator() as comm:
        comm.barrier()
        worker.say("open")
        worker.listen()
        x = numpy.full(100_000, comm.rank, "float32")
        found = worker.attempt(comm.all_reduce, x, name="layer1.weight")
        worker.say("end", sum=float(x[0]), **found)
        worker.listen()
    """)


class Stragglers(unittest.TestCase):
    def opened(self, workers):
        for w in workers:
            w.said("open")
        return workers

    def start(self, c, world):
        return self.opened(c.start_workers(world, RANK))

    def leave(self, workers):
        for w in workers:
            w.tell("leave")
        for w in workers:
            self.assertEqual(w.wait(), 0, w.report())

    def test_named_at_the_timeout(self):
        """Four jobs at the same time, to save time."""
        config = {"timeouts": {"op": "5s"}}
        clusters = {agents: self.enterContext(harness.Cluster(reducers=2, lanes=2, agents=agents, config=config))
                    for agents in (0, 2)}
        cases = (
            (3, [1], 0, r"rank 1 \(pid {pid} on .*\) has not sent its part"),
            (3, [0, 2], 0, r"rank 0 \(pid {pid} on .*\) and rank 2 have not sent their part"),
            (5, [1, 2, 3], 0, r"rank 1 \(pid {pid} on .*\) and 2 others have not sent their part"),
            (4, [2, 3], 2, r"rank 1 \(processes 2-3 on .*\) has not sent its part"),
        )
        jobs = [clusters[agents].start_workers(world, RANK, config={"job": {"name": f"job{number}"}})
                for number, (world, _, agents, _) in enumerate(cases)]
        for workers, (_, late, _, _) in zip(jobs, cases):
            self.opened(workers)
            for rank, w in enumerate(workers):
                if rank not in late:
                    w.tell("go")
        for workers, (_, late, _, who) in zip(jobs, cases):
            pattern = r"all-reduce 1 \(layer1.weight\) of 100000 float32 was not done within 5 s: " + who.format(
                pid=workers[late[0]].pid) + r" for [1-9]\d* s"
            waited = []
            for rank, w in enumerate(workers):
                if rank not in late:
                    with self.subTest(who, rank=rank):
                        said = w.said("end")
                        self.assertEqual(said["error"], "PeerLostError", said)
                        self.assertRegex(said["message"], pattern)
                        waited.append(said["seconds"])
            self.assertGreater(max(waited), 4.9)  # the first to give up tells the others

    def test_nothing_fails_by_default(self):
        """For longer than until the warning, and the sum is right in the end."""
        jobs = []
        for agents in (0, 3):
            c = self.enterContext(harness.Cluster(reducers=2, agents=agents))
            workers = self.start(c, 3)
            for w in workers[:2]:
                w.tell("go")
            jobs.append((c, workers))
        for c, workers in jobs:
            who = "process 2 on .*" if c.agents else rf"pid {workers[2].pid} on .*"
            warned = c.agents[0] if c.agents else workers[0]
            warned.wait_text(r"warn +operation-late job=test rank=0 reason=\"all-reduce 1 \(layer1.weight\) waits: "
                             rf"rank 2 \({who}\) has not sent its part for 1\d s\"", timeout=30)
            workers[2].tell("go")
            for w in workers:
                said = w.said("end")
                self.assertEqual((said["error"], said["sum"]), (None, 3.0), said)
            self.leave(workers)

    def test_a_stopped_rank_that_continues(self):
        """Shorter than the detection time, longer than until a reducer reports it."""
        with harness.Cluster(reducers=2) as c:
            workers = self.start(c, 2)
            workers[1].signal(signal.SIGSTOP)
            for w in workers:
                w.tell("go")
            with self.assertRaises(AssertionError):
                workers[0].wait_text('"end"', timeout=2.5 / harness.SCALE, stream="out")
            workers[1].signal(signal.SIGCONT)
            for w in workers:
                self.assertEqual(w.said("end")["sum"], 1.0)
            self.leave(workers)


if __name__ == "__main__":
    harness.main()
