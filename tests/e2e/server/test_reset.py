#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# run: beside-others
"""Workers whose connections are reset: the others get the reason.
"""

import signal
import socket
import struct
import unittest

import harness
import wire

VALUE = struct.pack("<f", 1)


def data(seq):
    return wire.frame(wire.DATA, VALUE, seq=seq, dtype=7, count=1, chunk_elems=16384)


def reset(client):
    """Closes so that the kernel sends RST."""
    client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.sock.close()


class Reset(unittest.TestCase):
    def setUp(self):
        self.cluster = harness.Cluster()
        self.cluster.__enter__()
        self.addCleanup(self.cluster.__exit__, None, None, None)
        self.good, self.bad = (wire.Client(self.cluster.connect(0)) for _ in range(2))
        for rank, client in enumerate((self.good, self.bad)):
            self.addCleanup(client.sock.close)
            client.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            client.join(rank=rank, world_size=2)
        for client in (self.good, self.bad):
            client.expect(wire.START)

    def test_the_reason_names_the_rank(self):
        reset(self.bad)
        self.assertRegex(self.good.reason(wire.ABORT), "rank 1 was lost: connection reset by peer")

    def test_the_reason_names_the_rank_after_other_frames(self):
        reducer = self.cluster.reducers[0]
        reducer.signal(signal.SIGSTOP)
        self.bad.send(wire.frame(wire.PING))
        reset(self.bad)
        reducer.signal(signal.SIGCONT)
        self.assertRegex(self.good.reason(wire.ABORT), "rank 1 was lost: connection reset by peer")

    def test_input_before_a_reset_is_read(self):
        """A busy reducer finds the ABORT and the reset at the same time."""
        reducer = self.cluster.reducers[0]
        reducer.signal(signal.SIGSTOP)
        self.bad.send(wire.frame(wire.ABORT, wire.pb.Abort(code=-3, message="rank 1: out of paper")))
        reset(self.bad)
        reducer.signal(signal.SIGCONT)
        self.assertEqual(self.good.reason(wire.ABORT), "rank 1: out of paper")

    def test_input_is_read_if_sending_fails_first(self):
        """Sending the result that the good rank's contribution completes fails with a reset of the bad one."""
        reducer = self.cluster.reducers[0]
        self.bad.send(data(0))
        self.good.send(data(0))
        for client in (self.good, self.bad):
            client.expect(wire.RESULT)
        self.bad.send(data(1))
        # an answer to what comes later shows that the reducer has read it
        with wire.Client(self.cluster.connect(0)) as other:
            other.join(job="other")
            other.expect(wire.START)
            other.send(data(0))
            other.expect(wire.RESULT)
        reducer.signal(signal.SIGSTOP)
        self.good.send(data(1))
        self.bad.send(wire.frame(wire.ABORT, wire.pb.Abort(code=-3, message="rank 1: out of ink")))
        reset(self.bad)
        reducer.signal(signal.SIGCONT)
        kind, payload = self.good.receive()
        if kind == wire.RESULT:
            kind, payload = self.good.receive()
        self.assertEqual(kind, wire.ABORT)
        self.assertEqual(wire.pb.Abort.FromString(payload).message, "rank 1: out of ink")


if __name__ == "__main__":
    harness.main()
