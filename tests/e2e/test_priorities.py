#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Urgent operations overtake others on the wire, and ranks that disagree about a priority hear so."""

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
    """What a reducer does, seen by clients that speak the protocol themselves."""

    @contextlib.contextmanager
    def pair(self, **values):
        """The two ranks of a job on a reducer of their own."""
        with harness.Cluster() as c, wire.Client(c.connect(0)) as a, wire.Client(c.connect(0)) as b:
            self.start((a, b), values)
            yield a, b

    def start(self, clients, values):
        # little room, so that results that nobody reads wait in the reducer
        clients[0].sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 131072)
        for rank, client in enumerate(clients):
            client.join(rank=rank, world_size=2, chunk_bytes=CHUNK, priorities=2, **values)
        for client in clients:
            client.expect(wire.START)

    def test_a_result_overtakes_others(self):
        """Rank 0 reads only when all is summed: the urgent result is not the last one that it gets."""
        chunks = 127  # more than a socket that nobody reads takes
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
                _, _, _, _, priority, _, _, _, chunk, seq = a.header[:10]
                self.assertEqual(priority, seq)
                self.assertEqual(payload, struct.pack("<f", 2 * (seq + 1)) * (CHUNK // 4))
                order.append((seq, chunk))
            self.assertEqual([e for e in order if e[0] == 0], [(0, chunk) for chunk in range(chunks)])
            self.assertLess(order.index((1, 0)), chunks)

    def test_windows_full_of_different_priorities(self):
        """Neither of two ranks waits for ever for chunks for which the other has no place."""
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
        """Also where both ranks send another operation first."""
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


if __name__ == "__main__":
    harness.main()
