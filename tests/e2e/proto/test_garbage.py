#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# run: beside-others
"""Invalid input on a reducer's port: other programs, other versions, random bytes, workers that break rules.

The clients here are raw sockets (wire.py). All of it happens beside a job of two well-behaved raw clients, whose sums
must stay right. conformance.py has the table of misbehaviours and their codes, tests/unit the sentences; here are those
that need more than a row there.
"""

import random
import socket
import struct
import threading
import time
import unittest

import harness
import wire

KIB64 = 65536
ELEMS = KIB64 // 4  # float32 elements of a chunk


def data(values, seq=0, chunk=0, count=None, **other):
    """A DATA frame of float32 values, a sum unless something else is given."""
    payload = struct.pack(f"<{len(values)}f", *values)
    rest = {"dtype": 7, "op": 0, "chunk_elems": ELEMS, **other}
    return wire.frame(wire.DATA, payload, seq=seq, chunk=chunk, count=len(values) if count is None else count, **rest)


def floats(payload):
    return list(struct.unpack(f"<{len(payload) // 4}f", payload))


class Neighbors:
    """Two clients of a job of their own that all-reduce as long as the block lasts, in a thread."""

    def __init__(self, cluster):
        self.clients = [wire.Client(cluster.connect(0)) for _ in range(2)]
        self.rounds = 0
        self.error = None
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def __enter__(self):
        for rank, client in enumerate(self.clients):
            client.join(job="neighbors", rank=rank, world_size=2)
        for client in self.clients:
            client.expect(wire.START)
        self.thread.start()
        return self

    def run(self):
        try:
            while not self.stopping.is_set():
                for rank, client in enumerate(self.clients):
                    client.send(data([self.rounds % 1000 + rank] * 5, seq=self.rounds))
                want = [2 * (self.rounds % 1000) + 1] * 5
                for client in self.clients:
                    got = floats(client.expect(wire.RESULT))
                    if got != want:
                        raise AssertionError(f"round {self.rounds}: got {got}, expected {want}")
                self.rounds += 1
        except Exception as exc:  # for the thread that leaves the block
            self.error = exc

    def __exit__(self, kind, *_):
        self.stopping.set()
        self.thread.join()
        for client in self.clients:
            client.sock.close()
        if kind is None and (self.error or self.rounds == 0):
            raise AssertionError(f"the neighbors failed in round {self.rounds}: {self.error!r}")


class Garbage(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = harness.Cluster()
        cls.cluster.__enter__()
        cls.neighbors = Neighbors(cls.cluster)
        cls.neighbors.__enter__()

    @classmethod
    def tearDownClass(cls):
        try:
            cls.neighbors.__exit__(None, None, None)
        finally:
            cls.cluster.__exit__(None, None, None)

    def connect(self):
        return wire.Client(self.cluster.connect(0))

    def test_first_frame_is_no_hello(self):
        """What a user reads who has connected another program, or another version."""
        cases = [
            ("HTTP", b"GET / HTTP/1.1\r\nHost: reducer\r\nUser-Agent: somebody curious/1.0\r\n\r\n", "bytes 47 45"),
            ("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100), "does not speak TLS"),
            ("version 2", wire.frame(wire.HELLO, version=2), "version 2, this side speaks version 1"),
            ("flags", wire.frame(wire.HELLO, flags=0x81), "flags 0x80 are unknown"),
        ]
        for name, sent, expected in cases:
            with self.subTest(name), self.connect() as c:
                c.send(sent)
                self.assertIn(expected, c.reason(wire.REFUSED))

    def test_limits_of_this_reducer(self):
        """Values within the protocol's ranges that this reducer does not admit."""
        for values, expected in (
            ({"world_size": 300}, "server.max_workers"),
            # more memory than server.memory (4 GiB) together
            ({"window": 512, "deterministic": True, "world_size": 256, "lanes": 64}, "server.memory"),
        ):
            with self.subTest(values), self.connect() as c:
                c.send(wire.hello(**{"job": "impossible", **values}))
                self.assertIn(expected, c.reason(wire.REFUSED))

    def test_hello_in_small_pieces(self):
        with self.connect() as c:
            c.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for byte in wire.hello(job="pieces"):
                c.send(bytes([byte]))
            c.expect(wire.WELCOME)
            c.expect(wire.START)
            c.send(wire.frame(wire.GOODBYE))
            c.closed()

    def pair(self, job, **values):
        """Two clients of one job that has started: rank 0, rank 1."""
        clients = [self.connect(), self.connect()]
        for rank, c in enumerate(clients):
            self.addCleanup(c.sock.close)
            c.join(job=job, rank=rank, world_size=2, **values)
        for c in clients:
            c.expect(wire.START)
        return clients

    def test_a_rank_that_breaks_the_rules(self):
        """The other rank of the job gets an error that names the rank and the violation."""
        cases = [
            ("noise", [b"\xaa" * 64], "not frames of this protocol"),
            ("other version", [data([1], version=3)], "version 3"),
            ("too long for the job", [data([1], payload_len=16 << 20)], "payload bytes instead of 4"),
            ("window", [data([1], seq=i) for i in range(17)], "more than 16 chunks"),
        ]  # fmt: skip
        for number, (name, frames, expected) in enumerate(cases):
            with self.subTest(name):
                good, bad = self.pair(f"rules-{number}")
                for f in frames:
                    bad.send(f)
                text = good.reason(wire.ABORT)
                self.assertIn(expected, text)
                self.assertIn("rank 1", text)
                bad.sock.close()

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
            # what rank 1 has sent may by chance be a GOODBYE, or complete operations before that
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

    def test_abort_reaches_all_ranks(self):
        """The sentence of one rank's ABORT reaches the others unchanged; a rank that leaves early is named."""
        with harness.Cluster() as c, wire.Client(c.connect(0)) as a, wire.Client(c.connect(0)) as b:
            for rank, client in enumerate((a, b)):
                client.join(job="abort", rank=rank, world_size=2)
            for client in (a, b):
                client.expect(wire.START)
            b.send(wire.frame(wire.ABORT, wire.pb.Abort(code=-6, message="rank 1: out of paper")))
            self.assertEqual(a.reason(wire.ABORT), "rank 1: out of paper")
        with harness.Cluster() as c, wire.Client(c.connect(0)) as a, wire.Client(c.connect(0)) as b:
            for rank, client in enumerate((a, b)):
                client.join(job="leave", rank=rank, world_size=2, label=f"host {rank}")
            for client in (a, b):
                client.expect(wire.START)
            a.send(data([1]))
            b.send(wire.frame(wire.GOODBYE))
            text = a.reason(wire.ABORT)
            self.assertIn("rank 1 (host 1) closed the communicator", text)


if __name__ == "__main__":
    harness.main()
