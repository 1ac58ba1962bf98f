#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# run: beside-others
"""Urgent operations overtake others on the wire, and ranks that disagree about a priority get an error.
"""

import contextlib
import socket
import struct
import unittest

import harness
import wire

CHUNK = 65536  # bytes


def data(seq, priority, chunk=0, chunks=1):
    """A rank's contribution of CHUNK bytes of float32 to one of the operation's chunks."""
    payload = struct.pack("<f", seq + 1) * (CHUNK // 4)
    return wire.frame(wire.DATA, payload, seq=seq, priority=priority, chunk=chunk, count=chunks * CHUNK // 4, dtype=7,
                      chunk_elems=CHUNK // 4)  # fmt: skip


class Reducer(unittest.TestCase):
    """The order of a reducer's frames, for clients that implement the protocol themselves."""

    @contextlib.contextmanager
    def pair(self, **values):
        """The two ranks of a job on a reducer of their own."""
        with harness.Cluster() as c, wire.Client(c.connect(0)) as a, wire.Client(c.connect(0)) as b:
            self.start((a, b), values)
            yield a, b

    def start(self, clients, values):
        # little room, so that unread results wait in the reducer
        clients[0].sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 131072)
        for rank, client in enumerate(clients):
            client.join(rank=rank, world_size=2, chunk_bytes=CHUNK, priorities=2, **values)
        for client in clients:
            client.expect(wire.START)

    def test_a_result_overtakes_others(self):
        """Rank 0 reads only when all is summed: the urgent result is not the last one that it gets."""
        chunks = 127  # more than an unread socket takes
        with self.pair(window=128) as (a, b):
            for chunk in range(chunks):
                for client in (a, b):
                    client.send(data(0, 0, chunk, chunks))
                b.expect(wire.RESULT)
            for client in (a, b):
                client.send(data(1, 1))
            b.expect(wire.RESULT)
            order = []
            for _ in range(chunks + 1):
                payload = a.expect(wire.RESULT)
                chunk, seq = a.header["chunk"], a.header["seq"]
                self.assertEqual(a.header["priority"], seq)
                self.assertEqual(payload, struct.pack("<f", 2 * (seq + 1)) * (CHUNK // 4))
                order.append((seq, chunk))
            self.assertEqual([e for e in order if e[0] == 0], [(0, chunk) for chunk in range(chunks)])
            self.assertLess(order.index((1, 0)), chunks)

    def test_windows_full_of_different_priorities(self):
        """Neither of two ranks waits forever for chunks for which the other has no room."""
        with self.pair(window=3) as (a, b):
            for seq in range(3):
                a.send(data(seq, 0))
                b.send(data(3 + seq, 1))
            for seq in range(3):
                for client, other in ((a, data(3 + seq, 1)), (b, data(seq, 0))):
                    client.send(other)
                    for each in (a, b):
                        each.expect(wire.RESULT)
            a.send(b"".join(data(seq, 0) for seq in range(10, 14)))
            self.assertIn("rank 0 has more than 3 chunks without a result", a.reason(wire.ABORT))

    def test_disagreement(self):
        """Also if both ranks send another operation first."""
        for name, first, second in (
            ("one operation", [(0, 0)], [(0, 1)]),
            ("two operations, swapped", [(1, 1), (0, 0)], [(0, 1), (1, 0)]),
        ):
            with self.subTest(name), self.pair() as (a, b):
                a.send(b"".join(data(*d) for d in first))
                b.send(b"".join(data(*d) for d in second))
                for client in (a, b):
                    self.assertRegex(
                        client.reason(wire.ABORT),
                        r"ranks disagree about operation \d: rank \d gave it priority \d, rank \d priority \d",
                    )


WORKER = """
    import sys
    import numpy, reduction
    from worker import attempt, listen, say

    with reduction.Communicator() as comm:
        say("open", priorities=comm.priorities)
        low = numpy.full(1 << 18, 1, "float32")
        urgent = numpy.full(16, 2, "float32")
        requests = [comm.all_reduce(low, async_op=True, priority=0), comm.all_reduce(urgent, async_op=True)]
        requests[1].wait()
        say("urgent", sums=urgent.tolist(), done=requests[0].done())
        requests[0].wait()
        say("low", right=bool((low == 4).all()))
"""


# 128 KiB: without a priority it is behind the all-reduce
BROADCAST = """
    import numpy, reduction
    from worker import say

    with reduction.Communicator() as comm:
        say("open")
        low = numpy.full(1 << 18, 1, "float32")
        weights = numpy.zeros(1 << 15, "float32")
        requests = [comm.all_reduce(low, async_op=True, priority=0),
                    comm.broadcast(weights, 1, async_op=True, priority=1)]
        requests[1].wait()
        say("urgent", right=bool((weights == 5).all()), done=requests[0].done())
        requests[0].wait()
        say("low", right=bool((low == 4).all()))
"""


class Worker(unittest.TestCase):
    """A worker whose peer, simulated here, first contributes to its urgent operation only."""

    def peer(self, cluster, priorities=2):
        client = wire.Client(cluster.connect(0))
        client.join(rank=1, world_size=2, run="test", chunk_bytes=8192, window=32, priorities=priorities,
                    config_digest=self.digest(priorities))  # fmt: skip
        return client

    @staticmethod
    def digest(priorities):
        """As the specification says; one reducer with one lane."""
        return wire.protocol.digest(False, False, 8192, 32, priorities, [("r0", 1)], [0] * 64)

    def test_a_small_operation_does_not_wait_for_a_large_one(self):
        for agents in (0, 1):
            with self.subTest(agents=agents), harness.Cluster(
                agents=agents, config={"sharding": {"chunk_bytes": 8192, "window": 32}}
            ) as c:
                w = c.start_worker(0, 2, harness.python(WORKER), env={"LOCAL_WORLD_SIZE": 1})
                with self.peer(c) as b:
                    b.expect(wire.START)
                    self.assertEqual(w.said("open")["priorities"], 2)
                    payload = struct.pack("<f", 2) * 16
                    b.send(wire.frame(wire.DATA, payload, seq=1, priority=1, count=16, dtype=7, chunk_elems=2048))
                    self.assertEqual(w.said("urgent"), {"what": "urgent", "sums": [4] * 16, "done": False})
                    payload = struct.pack("<f", 3) * 2048
                    for chunk in range(128):
                        b.send(wire.frame(wire.DATA, payload, seq=0, chunk=chunk, count=1 << 18, dtype=7,
                                          chunk_elems=2048))  # fmt: skip
                        b.expect(wire.RESULT)
                    self.assertEqual(w.said("low"), {"what": "low", "right": True})
                    b.expect(wire.RESULT)
                    self.assertEqual(w.wait(), 0)

    def test_an_urgent_broadcast_does_not_wait_for_a_large_operation(self):
        for agents in (0, 1):
            with self.subTest(agents=agents), harness.Cluster(
                agents=agents, config={"sharding": {"chunk_bytes": 8192, "window": 32}}
            ) as c:
                w = c.start_worker(0, 2, harness.python(BROADCAST), env={"LOCAL_WORLD_SIZE": 1})
                with self.peer(c) as b:
                    b.expect(wire.START)
                    payload = struct.pack("<f", 5) * 2048
                    for chunk in range(16):
                        b.send(wire.frame(wire.DATA, payload, seq=1, priority=1, chunk=chunk, count=1 << 15, dtype=7,
                                          op=wire.BROADCAST, flags=wire.ROOT, chunk_elems=2048))  # fmt: skip
                        self.assertEqual(b.expect(wire.RESULT), b"")
                    self.assertEqual(w.said("urgent"), {"what": "urgent", "right": True, "done": False})
                    payload = struct.pack("<f", 3) * 2048
                    for chunk in range(128):
                        b.send(wire.frame(wire.DATA, payload, seq=0, chunk=chunk, count=1 << 18, dtype=7,
                                          chunk_elems=2048))  # fmt: skip
                        b.expect(wire.RESULT)
                    self.assertEqual(w.said("low"), {"what": "low", "right": True})
                    self.assertEqual(w.wait(), 0)

    def test_one_priority_keeps_the_order(self):
        """The small operation is sent after the large one: its chunk comes last."""
        with harness.Cluster(config={"sharding": {"chunk_bytes": 8192, "window": 32, "priorities": 1}}) as c:
            w = c.start_worker(0, 2, harness.python(WORKER))
            with self.peer(c, priorities=1) as b:
                b.expect(wire.START)
                payload = struct.pack("<f", 3) * 2048
                for chunk in range(128):
                    b.send(wire.frame(wire.DATA, payload, seq=0, chunk=chunk, count=1 << 18, dtype=7,
                                      chunk_elems=2048))  # fmt: skip
                    b.expect(wire.RESULT)
                payload = struct.pack("<f", 2) * 16
                b.send(wire.frame(wire.DATA, payload, seq=1, count=16, dtype=7, chunk_elems=2048))
                b.expect(wire.RESULT)
                self.assertTrue(w.said("urgent")["done"])
                self.assertEqual(w.wait(), 0)


if __name__ == "__main__":
    harness.main()
