#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# run: beside-others grpc
"""Reducers are killed, stopped or drained, workers leave: within the detection time every other rank gets an error that
names the cause, nothing hangs, and the next generation of the job works. test_worker_loss.py kills and stops workers.
"""

import signal
import time
import unittest

import harness

# Sums without end and reports when and why it ended. Arguments: generation, elements.
LOOP = harness.python("""
    import sys, time, numpy, reduction, worker
    generation, elements = map(int, sys.argv[1:])
    def run():
        with reduction.Communicator(generation=generation) as comm:
            rounds = 0
            while True:
                x = numpy.full(elements, comm.rank, dtype="float32")
                comm.all_reduce(x)
                assert (x == sum(range(comm.world_size))).all()
                rounds += 1
                if rounds == 3:
                    worker.say("running")
    found = worker.attempt(run)
    worker.say("end", at=time.monotonic(), **found)
    """)

# Executes its input, one statement at a time, with comm, numpy and x.
SHELL = harness.python("""
    import os, sys, time, numpy, reduction, worker
    comm = reduction.Communicator()
    x = numpy.ones(1000, dtype="float32")
    worker.say("open")
    while statement := worker.listen():
        worker.say("did", statement=statement, at=time.monotonic(), **worker.attempt(exec, statement, globals()))
    comm.close()
    """)

# Longer than a busy machine keeps a thread waiting for a processor.
DETECT = 3  # seconds
SHORT = {"timeouts": {"detect": f"{DETECT}s"}}
# Seconds until all ranks have got the error of a loss: of one that a closed connection
# shows, much less than the 10 s of silence that detection takes by default, and of one
# that only silence shows.
AT_ONCE = max(8, 2 * harness.SCALE)
SILENT = DETECT + max(5, 2 * harness.SCALE)
FAIL = {"job": {"failover": "fail"}}  # test_failover.py has what happens without


class Failures(unittest.TestCase):
    def ended(self, workers, since, pattern, seconds, error="PeerLostError"):
        """All have got the error, within this many seconds; returns the longest time."""
        said = [w.said("end") for w in workers]
        for of in said:
            self.assertEqual(of["error"], error, of)
            self.assertRegex(of["message"], pattern)
            self.assertLess(of["at"] - since, seconds)
        return max(of["at"] for of in said) - since

    def running(self, cluster, world_size, generation=0, elements=200_000):
        workers = cluster.start_workers(world_size, LOOP + [str(generation), str(elements)])
        for w in workers:
            w.said("running")
        return workers

    def test_reducer_killed(self):
        with harness.Cluster(reducers=2, lanes=2, config=FAIL) as c:
            workers = self.running(c, 3)
            since = time.monotonic()
            c.reducers[1].kill()
            took = self.ended(workers, since, r"reducer r1 \(127\.0\.0\.1:\d+\) was lost", AT_ONCE)
            print(f"a killed reducer was noticed within {took * 1000:.0f} ms", flush=True)
            # restarted at the same place it serves the next generation
            c.start_reducer(1)
            for w in self.running(c, 3, generation=1):
                w.kill()

    def test_stopped_reducer(self):
        with harness.Cluster(reducers=2, config=SHORT | FAIL) as c:
            workers = self.running(c, 2)
            since = time.monotonic()
            c.reducers[0].signal(signal.SIGSTOP)
            pattern = f"reducer r0 .*was lost: nothing was heard from it for {1000 * DETECT} ms"
            self.ended(workers, since, pattern, SILENT)
            c.reducers[0].signal(signal.SIGCONT)
            for w in self.running(c, 2, generation=1):
                w.kill()

    def test_all_workers_killed(self):
        """No rank is left; the reducer has room for the same job again."""
        with harness.Cluster(server_config={"server": {"max_jobs": 1}}) as c:
            for _ in range(2):
                for w in self.running(c, 2):
                    w.kill()
                c.reducers[0].wait_text("job-closed")

    def shells(self, cluster, world_size=2):
        workers = cluster.start_workers(world_size, SHELL)
        for w in workers:
            w.said("open")
        return workers

    def test_leaving_without_close(self):
        for statement, pattern, error in [
            ("os._exit(0)", "rank 1 .*was lost", "PeerLostError"),
            ("os.abort()", "rank 1 .*was lost", "PeerLostError"),
            ("comm.close()", "rank 1 .*closed the communicator", "ClosedError"),
            ("sys.exit(3)", "rank 1 .*closed the communicator", "ClosedError"),  # Python closes what is open
        ]:
            with self.subTest(statement), harness.Cluster(reducers=2) as c:
                workers = self.shells(c, 3)
                since = time.monotonic()
                workers[0].tell("comm.all_reduce(numpy.ones(500_000))")
                workers[2].tell("comm.all_reduce(numpy.ones(500_000))")
                workers[1].tell(statement)
                for w in (workers[0], workers[2]):
                    said = w.said("did")
                    self.assertEqual(said["error"], error)
                    self.assertRegex(said["message"], pattern)
                    self.assertLess(said["at"] - since, AT_ONCE)

    def test_leaving_at_the_end(self):
        """A rank may close as soon as it has its results; the others still get theirs."""
        with harness.Cluster(reducers=2) as c:
            workers = self.shells(c, 3)
            for w in workers:
                w.tell("comm.all_reduce(numpy.ones(1_000_000)); comm.close()")
            for w in workers:
                self.assertEqual(w.said("did")["message"], "")
                w.tell("")
            self.assertEqual(c.wait_all(workers), [0, 0, 0])
            for r in c.reducers:
                r.wait_text("job-closed")
                self.assertNotIn("job-aborted", r.err)

    def test_close_with_own_operations_pending(self):
        with harness.Cluster() as c:
            workers = self.shells(c)
            workers[0].tell("r = comm.all_reduce(x, async_op=True); comm.close(); r.wait()")
            said = workers[0].said("did")
            self.assertEqual(said["error"], "ClosedError")
            self.assertRegex(said["message"], "closed before all-reduce 0 was done")
            workers[1].tell("comm.all_reduce(x)")
            said = workers[1].said("did")
            self.assertEqual(said["error"], "ClosedError")
            self.assertRegex(said["message"], "rank 0 .*closed the communicator")

    def test_timeout_of_an_operation(self):
        config = {"timeouts": {"op": "700ms"}}
        with harness.Cluster(reducers=2, config=config) as c:
            workers = self.shells(c)
            workers[0].tell("comm.all_reduce(x, name='weights')")
            said = workers[0].said("did")
            self.assertEqual(said["error"], "PeerLostError")
            self.assertRegex(said["message"], r"all-reduce 0 \(weights\) of 1000 float32 was not done within 700 ms")
            self.assertGreater(said["seconds"], 0.6)
            workers[1].tell("comm.all_reduce(x, name='weights')")
            self.assertRegex(workers[1].said("did")["message"], "rank 0.*was not done within 700 ms")

    def test_timeout_of_a_wait(self):
        """It ends the wait and not the operation."""
        with harness.Cluster() as c:
            workers = self.shells(c)
            workers[0].tell("r = comm.all_reduce(x, async_op=True); r.wait(0.2)")
            self.assertEqual(workers[0].said("did")["error"], "ReductionTimeoutError")
            workers[1].tell("comm.all_reduce(x)")
            workers[0].tell("r.wait(); assert (x == 2).all(); worker.say('summed')")
            workers[0].said("summed")


class Draining(unittest.TestCase):
    """SIGTERM of a reducer: running jobs may end, no new ones begin."""

    def test_job_ends_in_time(self):
        with harness.Cluster() as c:
            workers = c.start_workers(2, SHELL)
            for w in workers:
                w.said("open")
            c.reducers[0].signal(signal.SIGTERM)
            c.reducers[0].wait_text("draining by=SIGTERM jobs=1")
            late = c.start_worker(0, 1, LOOP + ["0", "10"], env={"REDUCTION_JOB": "late"}, config=harness.SOON)
            self.assertRegex(late.said("end")["message"], "this reducer is shutting down")
            for w in workers:
                w.tell("comm.all_reduce(x); assert (x == 2).all()")
            for w in workers:
                self.assertEqual(w.said("did")["message"], "")
            self.assertTrue(c.reducers[0].running())
            for w in workers:
                w.tell("")
            self.assertEqual(c.wait_all(workers), [0, 0])
            self.assertEqual(c.reducers[0].wait(), 0)

    def test_job_does_not_end(self):
        with harness.Cluster(server_config={"timeouts": {"drain": "500ms"}}) as c:
            workers = c.start_workers(2, SHELL)
            for w in workers:
                w.said("open")
            workers[0].tell("comm.all_reduce(x)")
            c.reducers[0].signal(signal.SIGTERM)
            said = workers[0].said("did")
            self.assertEqual(said["error"], "ClosedError")
            pattern = "the reducer was stopped and the job did not end within its drain timeout"
            self.assertRegex(said["message"], pattern)
            self.assertEqual(c.reducers[0].wait(), 0)

    def test_second_signal(self):
        with harness.Cluster() as c:
            workers = c.start_workers(1, SHELL)
            workers[0].said("open")
            c.reducers[0].signal(signal.SIGINT)
            c.reducers[0].wait_text("draining by=SIGINT jobs=1")
            c.reducers[0].signal(signal.SIGINT)
            self.assertEqual(c.reducers[0].wait(), 1)
            c.reducers[0].killed = True  # its status was checked here
            workers[0].tell("comm.barrier()")
            self.assertRegex(workers[0].said("did")["message"], "reducer r0 .*was lost")


if __name__ == "__main__":
    harness.main()
