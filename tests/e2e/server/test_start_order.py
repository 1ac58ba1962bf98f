#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# run: beside-others
"""Processes may start in any order; missing ones are named after the connect timeout.
"""

import datetime
import socket
import unittest

import harness

# Opens a communicator and sums. Errors are printed, not raised.
WORKER = harness.python("""
    import numpy, reduction, worker
    worker.say("starting")
    def run():
        with reduction.Communicator() as comm:
            x = numpy.full(100_000, comm.rank + 1.0)
            comm.all_reduce(x)
            worker.say("sum", value=float(x[0]), same=bool((x == x[0]).all()))
    worker.say("end", **worker.attempt(run))
    """)


# Waits for a line before it sums.
GATED = harness.python("""
    import numpy, reduction, worker
    def run():
        with reduction.Communicator() as comm:
            worker.say("open")
            worker.listen()
            x = numpy.full(100_000, comm.rank + 1.0)
            comm.all_reduce(x)
            worker.say("sum", value=float(x[0]), same=bool((x == x[0]).all()))
    worker.say("end", **worker.attempt(run))
    """)


class StartOrder(unittest.TestCase):
    def summed(self, cluster, workers, expected):
        self.assertEqual(cluster.wait_all(workers), [0] * len(workers))
        for w in workers:
            self.assertEqual(w.said("end")["message"], "")
            self.assertEqual((w.said("sum")["value"], w.said("sum")["same"]), (expected, True))

    def test_workers_before_reducers(self):
        with harness.Cluster(reducers=2, start=False) as c:
            workers = c.start_workers(2, WORKER)
            for w in workers:
                w.said("starting")
            c.start_reducer(1)
            c.start_reducer(0)
            self.summed(c, workers, 3.0)

    def test_a_worker_between_the_reducers(self):
        with harness.Cluster(reducers=2, start=False) as c:
            c.start_reducer(0)
            workers = [c.start_worker(1, 3, WORKER)]
            c.reducers[0].wait_text("job-opened")
            workers.append(c.start_worker(2, 3, WORKER))
            c.start_reducer(1)
            c.reducers[1].wait_text("job-opened")
            workers.append(c.start_worker(0, 3, WORKER))
            self.summed(c, workers, 6.0)

    def test_nobody_waits_in_silence(self):
        with harness.Cluster() as c:
            first = c.start_worker(0, 2, WORKER)
            first.wait_text('warn +waiting job=test rank=0 reason="reducer r0: rank 1 of 2 has not joined job test; '
                            r'waiting for \d+ s"')
            # another configuration: the refused rank is reported at once, and not at the
            # next of the usual times
            refused = c.start_worker(1, 2, WORKER, config={"job": {"checksum": True}})
            self.assertIn("job.checksum true and false", refused.said("end")["message"])
            said = (c.reducers[0].wait_text(r"^(\S+)Z +\w+ +connection-refused .*configured differently"),
                    first.wait_text(r"^(\S+)Z +warn +waiting job=test .*; it says: ranks 1 and 0 of job test "
                                    r"are configured differently: .*; waiting for \d+ s"))
            before, after = (datetime.datetime.fromisoformat(match[1]) for match in said)
            self.assertLess((after - before).total_seconds(), 2.5)
            self.summed(c, [first, c.start_worker(1, 2, WORKER)], 3.0)

    def test_an_agent_says_which_local_rank_is_missing(self):
        with harness.Cluster(agents=1) as c:
            first = c.start_worker(0, 2, WORKER)
            c.agents[0].wait_text('warn +waiting job=test reason="1 of 2 local ranks have not connected: local rank 1; '
                                  r'waiting for \d+ s"')
            self.summed(c, [first, c.start_worker(1, 2, WORKER)], 3.0)

    def test_an_unreachable_reducer_is_reported(self):
        with harness.Cluster(start=False) as c:
            first = c.start_worker(0, 1, WORKER)
            first.wait_text(r'waiting job=test rank=0 reason="reducer r0 at \S+: .*refused.* \(tried \d+ times\); '
                            r'waiting for \d+ s"')
            c.start_reducer(0)
            self.summed(c, [first], 1.0)

    def test_ranks_that_start_late(self):
        """Longer than the detection time: ranks that wait send heartbeats."""
        short = {"timeouts": {"detect": "2500ms"}}
        with harness.Cluster(config=short, server_config=short, server_args=["--log-level", "debug"]) as c:
            first = c.start_worker(0, 2, WORKER)
            c.reducers[0].wait_text("worker-joined")
            with self.assertRaises(AssertionError):
                first.wait_text("end", 4 / harness.SCALE, "out")
            self.summed(c, [first, c.start_worker(1, 2, WORKER)], 3.0)

    def test_a_reducer_is_lost_while_ranks_wait(self):
        """It is named: at once by a rank that has joined, after the connect timeout by one that was about to."""
        with harness.Cluster(config={"timeouts": {"connect": "4s"}}) as c:
            first = c.start_worker(0, 2, WORKER)
            c.reducers[0].wait_text("job-opened")
            c.reducers[0].kill()
            said = first.said("end")
            self.assertIn(said["error"], ("PeerLostError", "ReductionTimeoutError"))
            self.assertRegex(said["message"], rf"reducer r0 (at |\(){c.address(0)}")

    def missing(self, cluster, world_size, ranks):
        workers = [cluster.start_worker(rank, world_size, WORKER) for rank in ranks]
        said = [w.said("end") for w in workers]
        for of in said:
            self.assertEqual(of["error"], "ReductionTimeoutError", of)
            self.assertLess(of["seconds"], 2 + max(5, 2 * harness.SCALE))
        self.assertGreater(max(of["seconds"] for of in said), 1.9)  # the first to give up tells the others
        return [of["message"] for of in said]

    def test_missing_ranks(self):
        with harness.Cluster(reducers=2, config={"timeouts": {"connect": "2s"}}) as c:
            for text in self.missing(c, 4, [1, 2]):
                # or the other one has given up before, which it says there
                self.assertRegex(text, r"ranks 0(, [12])? and 3 of 4 have not joined job test within 2 s")

    def test_missing_reducer(self):
        with harness.Cluster(reducers=2, start=False, config={"timeouts": {"connect": "2s"}}) as c:
            c.start_reducer(0)
            for text in self.missing(c, 2, [0, 1]):
                self.assertRegex(text, rf"reducer r1 at {c.address(1)}: connection refused \(tried \d+ times\)")
                self.assertNotIn("reducer r0", text)

    def test_min_reducers(self):
        """A job that says so starts without a reducer, and uses it when it comes."""
        config = {"job": {"min_reducers": 1}, "timeouts": {"connect": "8s"}}
        with harness.Cluster(reducers=2, start=False, config=config) as c:
            c.start_reducer(0)
            workers = c.start_workers(2, GATED)
            workers[0].wait_text("slot-empty reducer=r1 .*connection refused")
            for w in workers:
                w.said("open")
            c.start_reducer(1)
            workers[0].wait_text("slot-taken reducer=r1 ")
            for w in workers:
                w.tell()
            self.summed(c, workers, 3.0)

    def test_a_name_that_does_not_resolve(self):
        config = {
            "timeouts": {"connect": "2s"},
            "reducers": [{"id": "far", "address": "reducer.invalid:7600"}],
        }
        with harness.Cluster(reducers=0, config=config) as c:
            for text in self.missing(c, 1, [0]):
                self.assertRegex(text, "reducer far at reducer.invalid:760[01]: its name (cannot be resolved|does not "
                                       "exist)")

    def test_a_name_that_does_not_exist_is_an_error_at_once(self):
        """timeouts.connect is not waited for; a second reducer that is there does not help."""
        try:
            socket.getaddrinfo("reducer.invalid", 7600)
        except socket.gaierror as e:
            if e.errno != socket.EAI_NONAME:
                self.skipTest(f"this machine's name server does not answer: {e}")
        with harness.Cluster() as c:
            reducers = [{"id": "r0", "address": c.address(0)}, {"id": "far", "address": "reducer.invalid:7600"}]
            config = {"timeouts": {"connect": "10min", "resolve": "1s"}, "reducers": reducers}
            said = c.start_worker(0, 1, WORKER, config=config).said("end")
            self.assertEqual(said["error"], "RefusedError")
            self.assertRegex(said["message"],
                             r"^reducer far \(reducer.invalid:\d+\): its name does not exist, for \d+ s "
                             r"\(timeouts.resolve\)")

    def test_connect_timeout_of_the_caller(self):
        """The argument wins over the file."""
        with harness.Cluster() as c:
            w = c.start_worker(0, 2, harness.python("""
                import reduction, worker
                worker.say("end", **worker.attempt(reduction.Communicator, connect_timeout=2.5))
                """))  # fmt: skip
            self.assertRegex(w.said("end")["message"], "job test within 2500 ms")


if __name__ == "__main__":
    harness.main()
