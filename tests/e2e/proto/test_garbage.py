#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# run: beside-others
"""Invalid input on a reducer's port, beyond the table of conformance_rows.py: what needs more than a row there.

The clients here are raw sockets (wire.py). All of it happens beside a job of two well-behaved raw clients, whose sums
must stay right.
"""

import random
import socket
import struct
import time
import unittest

import harness
import wire
from conformance import Neighbors, Table
from conformance_rows import ELEMS, data


def floats(payload):
    return list(struct.unpack(f"<{len(payload) // 4}f", payload))


class Garbage(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = harness.Cluster()
        cls.cluster.__enter__()
        cls.neighbors = Neighbors(Table(cls.cluster.address(0)))

    @classmethod
    def tearDownClass(cls):
        try:
            cls.neighbors.stop()
        finally:
            cls.cluster.__exit__(None, None, None)

    def connect(self):
        return wire.Client(self.cluster.connect(0))

    def pair(self, job, **values):
        """Two clients of one job that has started: rank 0, rank 1."""
        clients = [self.connect(), self.connect()]
        for rank, c in enumerate(clients):
            self.addCleanup(c.sock.close)
            c.join(job=job, rank=rank, world_size=2, **values)
        for c in clients:
            c.expect(wire.START)
        return clients

    def test_data_before_start(self):
        """Only the connection that broke the rule is closed: the rank may join again."""
        with self.connect() as early:
            early.join(job="early", rank=0, world_size=2)
            early.send(data([1]))
            self.assertIn("DATA before START", early.reason(wire.ABORT))
        deadline = time.monotonic() + 20 * harness.SCALE
        while True:  # until the reducer has seen that the first one is gone
            again = self.connect()
            self.addCleanup(again.sock.close)
            again.send(wire.hello(job="early", rank=0, world_size=2, incarnation=99))
            kind, _ = again.receive()
            if kind == wire.WELCOME:
                break
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        with self.connect() as other:
            other.join(job="early", rank=1, world_size=2)
            again.expect(wire.START)
            other.expect(wire.START)

    def test_payload_checksum_of_one_rank(self):
        """A rank may send checksums in a job without them; the result has none."""
        good, bad = self.pair("checksum-missing")
        payload = struct.pack("<f", 1)
        good.send(data([1], flags=wire.CHECKED, payload_sum=wire.checksum(payload)))
        bad.send(data([2]))
        self.assertEqual(floats(good.expect(wire.RESULT)), [3])

    def test_random_frames(self):
        """Valid headers with random fields after START: the job ends, and nothing hangs."""
        rng = random.Random(7)
        for round_ in range(20 if harness.SLOW else 100):
            good, bad = self.pair(f"random-{round_}", deterministic=rng.random() < 0.5)
            for _ in range(rng.randrange(1, 30)):
                count = rng.choice([0, 1, 2, ELEMS, ELEMS + 1, 1 << 40])
                kind = rng.choice([wire.DATA] * 8 + [wire.PING, wire.ABORT, wire.GOODBYE, wire.RESULT, wire.HELLO])
                payload = rng.randbytes(rng.choice([0, 4, 8, 4 * min(count, ELEMS)]))
                try:
                    bad.send(
                        wire.frame(
                            kind, payload, dtype=rng.choice([7, 7, 6, 9, 0, 11]), op=rng.choice([0, 0, 1, 4, 16, 9]),
                            flags=rng.choice([0, 0, 0, 1, 2, 4]), count=count, chunk=rng.choice([0, 0, 1, 1 << 31]),
                            seq=rng.choice([0, 0, 1, 2, 1 << 63]), ack=rng.choice([0, 1, 1 << 63]),
                            chunk_elems=rng.choice([ELEMS, ELEMS, 1, 0, ELEMS * 2]),
                            generation=rng.choice([0, 0, 0, 1]),
                        )  # fmt: skip
                    )
                except (BrokenPipeError, ConnectionResetError):
                    break
            # in the middle of a payload
            try:
                bad.send(data([0] * ELEMS, seq=5)[: rng.randrange(64, 5000)])
            except (BrokenPipeError, ConnectionResetError):
                pass
            bad.sock.close()
            # what rank 1 has sent may by chance be a GOODBYE, or complete operations
            # before that
            for seq in range(100):
                good.send(data([1], seq=seq))
                kind, _ = good.receive()
                if kind != wire.RESULT:
                    break
            self.assertEqual(kind, wire.ABORT)
            good.closed()
            good.sock.close()


class Silence(unittest.TestCase):
    def test_silence(self):
        """A connection without a whole HELLO in time is closed, wherever it stops, and many of them block no worker."""
        whole = wire.hello(job="silence")
        parts = (b"", whole[:1], whole[:63], whole[:64], whole[:-1])
        with harness.Cluster(server_config={"timeouts": {"handshake": "3s"}}) as cluster:
            silent = [wire.Client(cluster.connect(0)) for _ in range(200)]
            for c in silent:
                self.addCleanup(c.sock.close)
            for c in silent[:50]:  # reset, not closed in order
                c.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                c.sock.close()
            for c, part in zip(silent[50:], parts):
                c.send(part)
            with wire.Client(cluster.connect(0)) as c:
                c.join(job="newcomer")
                c.expect(wire.START)
            for c in silent[50:]:
                self.assertIn("no complete HELLO came within 3.0 s", c.reason(wire.REFUSED))


class Specification(unittest.TestCase):
    """A client written from proto/README.md gets its sums."""

    def test_operations(self):
        with harness.Cluster() as c, wire.Client(c.connect(0)) as a, wire.Client(c.connect(0)) as b:
            for rank, client in enumerate((a, b)):
                client.join(job="spec", rank=rank, world_size=2, processes=rank + 1)
            for client in (a, b):
                client.expect(wire.START)
            # a sum with a name, in two chunks
            values = [float(i) for i in range(ELEMS + 2)]
            for client in (a, b):
                for chunk, part in enumerate((values[:ELEMS], values[ELEMS:])):
                    client.send(data(part, chunk=chunk, count=len(values), name_hash=wire.name_hash("w")))
            for client in (a, b):
                got = floats(client.expect(wire.RESULT)) + floats(client.expect(wire.RESULT))
                self.assertEqual(got, [2 * v for v in values])
            # an average, divided by the processes behind the workers
            a.send(data([1, 4], seq=1, op=4))
            b.send(data([2, 5], seq=1, op=4))
            self.assertEqual(floats(a.expect(wire.RESULT)), [1, 3])
            said = [a.header[name] for name in "type flags dtype op payload_len chunk seq count".split()]
            self.assertEqual(said, [wire.RESULT, 0, 7, 4, 8, 0, 1, 2])
            b.expect(wire.RESULT)
            # float16: one rank sends float32 partial sums
            a.send(wire.frame(wire.DATA, struct.pack("<e", 0.5), seq=2, dtype=6, count=1, chunk_elems=ELEMS * 2))
            b.send(wire.frame(wire.DATA, struct.pack("<f", 0.25), seq=2, dtype=6, count=1, flags=wire.WIDE,
                              chunk_elems=ELEMS * 2))  # fmt: skip
            self.assertEqual(struct.unpack("<e", a.expect(wire.RESULT)), (0.75,))
            b.expect(wire.RESULT)
            # a broadcast from rank 1: the root gets no payload back
            a.send(data([], seq=3, count=2, op=wire.BROADCAST))
            b.send(data([7, 8], seq=3, op=wire.BROADCAST, flags=wire.ROOT))
            self.assertEqual(floats(a.expect(wire.RESULT)), [7, 8])
            self.assertEqual(b.expect(wire.RESULT), b"")
            # nothing, of all ranks
            for client in (a, b):
                client.send(data([], seq=4))
            for client in (a, b):
                self.assertEqual(client.expect(wire.RESULT), b"")
                client.send(wire.frame(wire.GOODBYE, ack=5))
            for client in (a, b):
                client.closed()
            c.reducers[0].wait_text("job-closed.*spec")

    def test_a_rank_that_leaves(self):
        """It is named, with its label."""
        with harness.Cluster() as c, wire.Client(c.connect(0)) as a, wire.Client(c.connect(0)) as b:
            for rank, client in enumerate((a, b)):
                client.join(job="leave", rank=rank, world_size=2, label=f"host {rank}")
            for client in (a, b):
                client.expect(wire.START)
            a.send(data([1]))
            b.send(wire.frame(wire.GOODBYE))
            self.assertIn("rank 1 (host 1) closed the communicator", a.reason(wire.ABORT))


if __name__ == "__main__":
    harness.main()
