# SPDX-License-Identifier: Apache-2.0
"""A rank that is late fails nothing until timeouts.op, which is off unless the file sets it; then everybody reads which
operation waits, for whom and since when, and the log has said so before.

Runs beside others. Not under ThreadSanitizer, since test_agent_faults and test_failures have such timeouts as well.
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
    def start(self, c, world):
        workers = c.start_workers(world, RANK)
        for w in workers:
            w.said("open")
        return workers

    def leave(self, workers):
        for w in workers:
            w.tell("leave")
        for w in workers:
            self.assertEqual(w.wait(), 0, w.report())

    def test_named_at_the_timeout(self):
        for world, late, agents, who in (
            (3, [1], 0, r"rank 1 \(pid {pid} on .*\) has not sent its part"),
            (3, [0, 2], 0, r"rank 0 \(pid {pid} on .*\) and rank 2 have not sent their part"),
            (5, [1, 2, 3], 0, r"rank 1 \(pid {pid} on .*\) and 2 others have not sent their part"),
            (4, [2, 3], 2, r"rank 1 \(processes 2-3 on .*\) has not sent its part"),
        ):
            config = {"timeouts": {"op": "3s"}}
            with self.subTest(who), harness.Cluster(reducers=2, lanes=2, agents=agents, config=config) as c:
                workers = self.start(c, world)
                waiting = [w for rank, w in enumerate(workers) if rank not in late]
                for w in waiting:
                    w.tell("go")
                found = []
                for w in waiting:
                    said = w.said("end")
                    self.assertEqual(said["error"], "PeerLostError", said)
                    self.assertGreater(said["seconds"], 2.9)
                    found.append(said["message"])
                pattern = r"all-reduce 1 \(layer1.weight\) of 100000 float32 was not done within 3 s: " + who.format(
                    pid=workers[late[0]].pid) + r" for [1-9]\d* s"
                for message in found:
                    self.assertRegex(message, pattern)
                for w in workers:
                    w.kill()

    def test_nothing_fails_by_default(self):
        """For longer than it takes to be warned of, and the sum is right in the end."""
        for agents in (0, 3):
            with self.subTest(agents=agents), harness.Cluster(reducers=2, agents=agents) as c:
                workers = self.start(c, 3)
                for w in workers[:2]:
                    w.tell("go")
                who = "process 2 on .*" if agents else rf"pid {workers[2].pid} on .*"
                warned = c.agents[0] if agents else workers[0]
                warned.wait_text(r"warn +operation-late job=test reason=\"all-reduce 1 \(layer1.weight\) waits: "
                                 rf"rank 2 \({who}\) has not sent its part for 1\d s\"", timeout=15)
                workers[2].tell("go")
                for w in workers:
                    said = w.said("end")
                    self.assertEqual((said["error"], said["sum"]), (None, 3.0), said)
                self.leave(workers)

    def test_a_stopped_rank_that_goes_on(self):
        """Shorter than the detection time, longer than a reducer takes to speak of it."""
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
