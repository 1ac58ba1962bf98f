#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# run: beside-others
"""Ctrl-C, or a signal handler that raises, in a blocking call: the job ends on all ranks, and nothing uses the memory.

A program that catches the exception, refills its array and calls again gets an error and no sum of another operation.
"""

import signal
import unittest

import harness

# Rank 0 is interrupted in its first call, while it waits, and then calls again. Rank 1
# calls when it is told to.
CODE = """
    import os, signal, sys, numpy, reduction, worker
    from reduction import _request

    class Alarm(Exception):
        pass

    def handler(number, frame):
        raise Alarm("the handler")

    signal.signal(signal.SIGUSR1, handler)
    base = numpy.zeros((1000000, 2), "float32")
    arrays = {"dense": base.reshape(-1), "strided": base[:, 0]}
    comm = reduction.Communicator()
    x = arrays.get(sys.argv[1], numpy.zeros(1000, "float32"))
    calls = {
        "barrier": comm.barrier,
        "broadcast": lambda: comm.broadcast(x, root=1),
        "coalesced": lambda: comm.all_reduce_coalesced([x, numpy.ones(5, "float32")]),
    }
    call = calls.get(sys.argv[1], lambda: comm.all_reduce(x))
    x[:] = 1 + comm.rank
    if comm.rank == 1:
        worker.say("ready")
        worker.listen()
        worker.say("first", **worker.attempt(call), values=sorted(set(x.tolist())))
    else:
        slice_of = _request.Request._wait_slice
        def said(request, milliseconds):
            if request._handle is not None:
                os.write(1, b'{"what": "waiting"}\\n')  # at once, since the signal comes when it is read
                _request.Request._wait_slice = slice_of
            return slice_of(request, milliseconds)
        _request.Request._wait_slice = said
        try:
            call()
        except (KeyboardInterrupt, Alarm) as exc:
            worker.say("interrupted", by=type(exc).__name__)
        x[:] = 100
        worker.say("second", **worker.attempt(call), values=sorted(set(x.tolist())))
    comm.close()
"""


class Interrupt(unittest.TestCase):
    def interrupt(self, kind, agents=0, env=None, number=signal.SIGINT, by="KeyboardInterrupt"):
        with self.subTest(kind=kind, agents=agents, env=env), harness.Cluster(reducers=2, agents=agents) as c:
            ranks = c.start_workers(2, [*harness.python(CODE), kind], env=env)
            ranks[1].said("ready")
            ranks[0].said("waiting")
            ranks[0].signal(number)
            self.assertEqual(ranks[0].said("interrupted")["by"], by)
            said = [ranks[0].said("second")]
            ranks[1].tell()
            said.append(ranks[1].said("first"))
            for found in said:
                self.assertEqual(found["error"], "AbortedError", found)
                self.assertIn("rank 0 (pid ", found["message"])
                self.assertIn(f"aborted the job: {by} interrupted a call that had started an operation",
                              found["message"])
            self.assertEqual([found["values"] for found in said], [[100.0], [2.0]])
            self.assertEqual(c.wait_all(ranks), [0, 0])

    def test_arrays(self):
        for kind in ("dense", "strided"):
            self.interrupt(kind)
            self.interrupt(kind, agents=1)

    def test_calls(self):
        for kind in ("small", "barrier", "broadcast", "coalesced"):
            self.interrupt(kind)

    def test_the_node(self):
        self.interrupt("dense", env={"REDUCTION_MODE": "node"})

    def test_a_handler_that_raises(self):
        self.interrupt("dense", number=signal.SIGUSR1, by="Alarm")
        self.interrupt("strided", agents=1, number=signal.SIGUSR1, by="Alarm")


if __name__ == "__main__":
    harness.main()
