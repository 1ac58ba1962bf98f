#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# run: beside-others
"""Invalid input on an agent's socket: random bytes, other versions, clients that break the rules, flood it or do not
read. All of it happens beside a job of two correct raw clients, whose sums must stay right.
"""

import ctypes
import fcntl
import itertools
import mmap
import os
import random
import signal
import socket
import struct
import threading
import unittest

import harness
import local

COUNT = 1000
LIMITS = {"job": {"max_ops": 8}, "timeouts": {"handshake": "3s"}, "agent": {"shm_bytes": "8MiB"}}


class Neighbors:
    """Two local ranks that all-reduce in a thread until the block ends."""

    def __init__(self, path):
        self.clients = [local.Client(path, 20 * harness.SCALE) for _ in range(2)]
        self.rounds, self.error, self.stopping = 0, None, threading.Event()
        self.thread = threading.Thread(target=self.run)

    def __enter__(self):
        for rank, c in enumerate(self.clients):
            c.send(local.hello(job="neighbors", rank=rank, world=2, local_rank=rank, local_world=2))
        for c in self.clients:
            c.expect(local.WELCOME)
            c.expect(local.READY)
        self.buffers = []
        for c in self.clients:
            number, fd = c.buffer(4 * COUNT)
            self.buffers.append((number, mmap.mmap(fd, 4 * COUNT)))
            os.close(fd)
        self.thread.start()
        return self

    def run(self):
        try:
            while not self.stopping.is_set():
                for c, (number, memory) in zip(self.clients, self.buffers):
                    memory[:] = struct.pack("=f", self.rounds % 100) * COUNT
                    c.send(local.submit(self.rounds, COUNT, (number, 0), (number, 0)))
                for c, (_, memory) in zip(self.clients, self.buffers):
                    body, _ = c.expect(local.DONE)
                    assert struct.unpack_from("=Qi", body) == (self.rounds, 0), body
                for _, memory in self.buffers:
                    assert memory[:] == struct.pack("=f", 2 * (self.rounds % 100)) * COUNT, self.rounds
                self.rounds += 1
        except BaseException as exc:  # reported by the test's own thread
            self.error = exc

    def __exit__(self, *_):
        self.stopping.set()
        self.thread.join()
        for c in self.clients:
            c.send(local.message(local.GOODBYE))
            c.sock.close()
        if self.error:
            raise AssertionError(f"the neighbors' round {self.rounds} went wrong") from self.error
        assert self.rounds > 0


class Garbage(unittest.TestCase):
    def setUp(self):
        self.cluster = self.enterContext(harness.Cluster(agents=1, config=LIMITS))
        self.jobs = itertools.count()
        self.neighbors = self.enterContext(Neighbors(self.cluster.socket_path(0)))

    def client(self):
        c = local.Client(self.cluster.socket_path(0), 20 * harness.SCALE)
        self.addCleanup(c.sock.close)
        return c

    def ready(self):
        """Returns a client that is the only one of its job; each has another job."""
        c = self.client()
        c.join(job=f"job{next(self.jobs)}")
        return c

    def check(self, prepare, data, pattern, kind=local.ABORT):
        """After prepare(client) the agent must answer this message by closing, with such a message."""
        c = self.client()
        values = prepare(c) if prepare else None
        c.send(data(*values) if callable(data) else data)
        got, code, sentence = c.last_words()
        self.assertEqual(got, kind, sentence)
        self.assertLess(code, 0)
        self.assertRegex(sentence, pattern)

    def test_not_messages(self):
        hello = local.hello()
        cases = [
            (b"x", "message of 1 bytes"),
            (b"GET / HTTP/1.1\r\n\r\n", "version"),
            (hello + b"x", "HELLO of 497 bytes that says 496, expected 496"),
            (hello[:-4], "HELLO of 492 bytes"),
            (hello + bytes(4000), "HELLO of 4496 bytes"),
            (local.message(local.HELLO, hello[8:], size=999), "HELLO of 496 bytes that says 999"),
            (local.message(local.HELLO, hello[8:], version=10), "version 10 of the local protocol, expected version 9"),
            (local.message(77), "unknown type 77"),
            (local.message(0), "unknown type 0"),
            (local.message(local.WELCOME, bytes(8)), "only the other side"),
        ]
        for data, pattern in cases:
            with self.subTest(pattern):
                self.check(None, data, pattern, local.REFUSED)

    def test_random_bytes(self):
        rng = random.Random(7)
        for i in range(200):
            c = self.client()
            c.send(rng.randbytes(rng.randrange(1, 1500)))
            self.assertEqual(c.last_words()[0], local.REFUSED)

    def test_random_bodies(self):
        """Valid message headers with random bodies, in a job of its own each time."""
        sizes = {local.ALLOC: 8, local.FREE: 8, local.SUBMIT: 144, local.HELLO: 232, local.STATS: 0}
        rng = random.Random(8)
        for i in range(100):
            c = self.ready()
            c.buffer(4096)
            try:
                for _ in range(20):
                    kind = rng.choice(list(sizes))
                    c.send(local.message(kind, rng.randbytes(sizes[kind])))
            except (BrokenPipeError, ConnectionResetError):
                pass
            c.sock.close()

    def test_invalid_buffer_ranges(self):
        cases = [
            ({"job": ""}, "not a job name"),
            ({"job": "a b"}, "not a job name"),
            ({"job": "../etc"}, "not a job name"),
            ({"rank": 1}, "rank 1 of a world of 1"),
            ({"world": 0}, "world"),
            ({"world": 1 << 31, "local_world": 1 << 31}, "world"),
            ({"local_rank": 1}, "local rank 1 of 1"),
            ({"local_world": 0}, "local rank 0 of 0"),
            ({"node": 1}, "node 1 of 1"),
            ({"nodes": 0}, "node 0 of 0"),
            ({"world": 4, "local_world": 2, "nodes": 1}, "cannot be part of a world of 4"),
            ({"world": 4, "local_world": 4, "nodes": 2}, "cannot be part of a world of 4"),
        ]
        for who, pattern in cases:
            with self.subTest(pattern):
                self.check(None, local.hello(**who), pattern, local.REFUSED)

    def test_order(self):
        def waiting(c):
            c.send(local.hello(job=f"job{next(self.jobs)}", world=2, local_world=2))
            c.expect(local.WELCOME)
            return ()

        for kind in (local.ALLOC, local.FREE, local.SUBMIT, local.STATS, local.GOODBYE):
            size = {local.ALLOC: 8, local.FREE: 8, local.SUBMIT: 144}.get(kind, 0)
            self.check(None, local.message(kind, bytes(size)), "before HELLO", local.REFUSED)
        self.check(waiting, local.hello(), "a second HELLO")
        self.check(waiting, local.submit(), "SUBMIT before READY")
        self.check(waiting, local.free(0), "FREE of shared buffer 0")

    def test_invalid_operations(self):
        def ready(c):
            c.join(job=f"job{next(self.jobs)}")
            number, fd = c.buffer(8192)
            os.close(fd)
            return (number,)

        b = lambda offset=0: lambda n: (n, offset)
        cases = [
            (lambda n: local.submit(seq=1), "operation 1, expected 0"),
            (lambda n: local.submit(dtype=13), "unknown dtype 13"),
            (lambda n: local.submit(op=9), "unknown op 9"),
            (lambda n: local.submit(op=16, root=1), "root 1 in a world of 1"),
            (lambda n: local.submit(root=1), "root 1"),
            (lambda n: local.submit(send=(n + 1, 0), recv=(n, 0)), "does not exist"),
            (lambda n: local.submit(send=(n, 0), recv=(4000000000, 0)), "does not exist"),
            (lambda n: local.submit(count=2049, send=(n, 0), recv=(n, 0)), "8196 bytes at offset 0 .* has 8192"),
            (lambda n: local.submit(send=(n, 8189), recv=(n, 8189)), "4 bytes at offset 8189"),
            (lambda n: local.submit(send=(n, 2**64 - 4), recv=(n, 0)), "at offset 18446744073709551612"),
            (lambda n: local.submit(count=2**62, send=(n, 0), recv=(n, 0)), "elements|bytes"),
            (lambda n: local.submit(count=2**64 - 1, send=(n, 0), recv=(n, 0)), "18446744073709551615 elements"),
            (lambda n: local.submit(count=4, send=(n, 0), recv=(n, 8)), "overlap"),
            (lambda n: local.submit(op=16, send=(n, 0), recv=(n, 4096)), "send and recv differ"),
            (lambda n: local.submit(count=4, missing=5, send=(n, 0), recv=(n, 0)), "4 elements of which 5 are missing"),
            (lambda n: local.submit(count=4, ring=8, send=(n, 0), recv=(n, 0)), "4 elements in a ring of 8 bytes"),
            (lambda n: local.submit(count=2**40, missing=2**40, ring=8192, send=(n, 0), recv=(n, 0)),
             "a ring of 8192 bytes, expected at least"),
            (lambda n: local.submit(count=4, ring=16, counter=12, send=(n, 0), recv=(n, 0)), "counter at offset 12"),
            (lambda n: local.submit(count=4, ring=16, counter=8192, send=(n, 0), recv=(n, 0)),
             "counter at offset 8192"),
            (lambda n: local.submit(count=2**61, missing=2**61, ring=2**63, send=(n, 0), recv=(n, 0)),
             "bytes at offset"),
            (lambda n: local.filled(0, 1), "FILLED of operation 0, which it has not started"),
        ]
        for data, pattern in cases:
            with self.subTest(pattern):
                self.check(ready, data, pattern)

    def test_invalid_filled(self):
        def started(c):
            c.join(job=f"job{next(self.jobs)}")
            number, fd = c.buffer(8192)
            os.close(fd)
            c.send(local.submit(count=2000, missing=1500, send=(number, 0), recv=(number, 0)))
            return ()

        for count in (0, 499, 500, 2001, 2**64 - 1):
            with self.subTest(count=count):
                pattern = f"FILLED up to element {count} of operation 0, expected 501 to 2000"
                self.check(started, local.filled(0, count), pattern)
        self.check(started, local.filled(1, 600), "FILLED of operation 1, which it has not started")

    def test_filled_bit_by_bit(self):
        """Any steps are good, and the agent ignores what a client writes into the counter in shared memory."""
        c = self.ready()
        number, fd = c.buffer(1 << 20)
        self.addCleanup(os.close, fd)
        memory = mmap.mmap(fd, 1 << 20)
        memory[:] = b"\1" * (1 << 20)
        count = 100_000
        for seq in range(2):
            places = {"send": (number, 64), "recv": (number, 64), "ring": 4 * count, "counter": 8 * seq}
            c.send(local.submit(seq, count, missing=count, **places))
            for at in range(777, count, 777):
                c.send(local.filled(seq, at))
            c.send(local.filled(seq, count))
            kind, body, _ = c.receive()
            while kind == local.LANDED:
                kind, body, _ = c.receive()
            self.assertEqual((kind, struct.unpack_from("=Qi", body)), (local.DONE, (seq, 0)))

    def test_local_rank_stops_filling(self):
        """An operation that a local rank does not complete ends with timeouts.op, or with that rank."""
        for leave in (False, True):
            with self.subTest(leave=leave):
                job = f"job{next(self.jobs)}"
                path = self.cluster.socket_path(0)
                if not leave:
                    limits = {**LIMITS, "timeouts": {"op": "2s"}}
                    path = self.enterContext(harness.Cluster(agents=1, config=limits)).socket_path(0)
                a, b = [local.Client(path, 20 * harness.SCALE) for _ in range(2)]
                for c in (a, b):
                    self.addCleanup(c.sock.close)
                for rank, c in enumerate((a, b)):
                    c.send(local.hello(job=job, rank=rank, world=2, local_rank=rank, local_world=2))
                    c.expect(local.WELCOME)
                for c in (a, b):
                    c.expect(local.READY)
                    number, fd = c.buffer(8192)
                    os.close(fd)
                    missing = {"missing": 1500} if c is a else {}
                    c.send(local.submit(count=2000, send=(number, 0), recv=(number, 0), **missing))
                if leave:
                    a.send(local.message(local.GOODBYE))
                sentence = b.expect(local.DONE)[0][12:520].split(b"\0")[0].decode()
                pattern = "left the job before it had given all" if leave else "has given only 500 elements"
                self.assertRegex(sentence, "rank 0 .*" + pattern)

    def test_leaving_without_reading(self):
        """The messages of a process before it closes are handled, although the agent cannot answer it."""
        with harness.Cluster(reducers=1, agents=1) as cluster:
            agent = cluster.agents[0]
            clients = [local.Client(cluster.socket_path(0), 20 * harness.SCALE) for _ in range(2)]
            for rank, c in enumerate(clients):
                self.addCleanup(c.sock.close)
                c.send(local.hello(job="leaves", rank=rank, world=2, local_rank=rank, local_world=2))
                c.expect(local.WELCOME)
            for c in clients:
                c.expect(local.READY)
            agent.signal(signal.SIGSTOP)
            for c in clients:
                c.send(local.message(local.STATS))  # its answer meets a closed socket
                c.send(local.message(local.GOODBYE))
                c.sock.close()
            agent.signal(signal.SIGCONT)
            agent.wait_text("job-(ended|failed)")
            self.assertNotIn("exited", agent.err)

    def test_memory_is_sealed(self):
        c = self.ready()
        _, fd = c.buffer(8192)
        self.addCleanup(os.close, fd)
        for size in (0, 4096, 1 << 20):
            with self.assertRaises(PermissionError):
                os.ftruncate(fd, size)
        with self.assertRaises(PermissionError):
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)

    def test_punched_hole_in_shared_memory(self):
        """Pages that a client removes come back as zeros and harm no other client."""
        c = self.ready()
        number, fd = c.buffer(1 << 20)
        os.posix_fallocate(fd, 0, 1 << 20)
        memory = mmap.mmap(fd, 1 << 20)
        memory[:] = b"\1" * (1 << 20)
        self.addCleanup(os.close, fd)
        libc = ctypes.CDLL(None, use_errno=True)
        libc.fallocate(fd, 3, ctypes.c_long(0), ctypes.c_long(1 << 20))  # KEEP_SIZE | PUNCH_HOLE
        c.send(local.submit(0, 1 << 18, (number, 0), (number, 0)))
        body, _ = c.expect(local.DONE)
        self.assertEqual(struct.unpack_from("=Qi", body), (0, 0))
        self.assertEqual(memory[:], bytes(1 << 20))

    @unittest.skipUnless(os.geteuid() == 0, "needs root to become somebody else")
    def test_other_users(self):
        """The socket's mode keeps other users out; if the mode is changed, the agent checks the user."""
        path = self.cluster.socket_path(0)
        os.chmod(self.cluster.dir, 0o755)
        program = """
            import os, sys
            import local
            os.setgroups(eval(sys.argv[2])); os.setgid(65534); os.setuid(65534)
            try:
                c = local.Client(sys.argv[1])
                try:
                    c.send(local.hello(job="other", world=2, local_world=2))
                except BrokenPipeError:
                    pass  # the agent has answered already
                print(c.receive())
            except OSError as exc:
                print(type(exc).__name__)
        """

        def attempt(groups):
            env = {"PYTHONPATH": str(harness.ROOT / "tests" / "e2e")}
            p = self.cluster.start("other user", harness.python(program, path, groups), env)
            self.assertEqual(p.wait(20), 0, p.report())
            return p.out

        self.assertIn("PermissionError", attempt("[]"))
        os.chmod(path, 0o666)
        self.assertIn("user 65534 may not use the agent", attempt("[]"))
        os.chown(path, 0, 65533)
        self.assertIn(f"({local.WELCOME},", attempt(f"[{os.getegid()}]"))  # the group the socket was made with

    def test_silent(self):
        c = self.client()
        kind, _, sentence = c.last_words()
        self.assertEqual(kind, local.REFUSED)
        self.assertIn("no HELLO within 3000 ms", sentence)

    def test_client_that_does_not_read(self):
        """A client that sends requests but never reads is dropped; the agent's memory for it is bounded."""
        c = self.ready()
        with self.assertRaises((BrokenPipeError, ConnectionResetError)):
            while True:
                c.send(local.message(local.STATS))
        self.cluster.agents[0].wait_text("rank 0 .* does not read the agent's messages")

    def test_too_many_operations(self):
        ready = [self.client() for _ in range(2)]
        for i, c in enumerate(ready):
            c.send(local.hello(job="many", rank=i, world=2, local_rank=i, local_world=2))
        for c in ready:
            c.expect(local.WELCOME)
            c.expect(local.READY)
        for seq in range(9):
            ready[0].send(local.submit(seq, 0))
        self.assertIn("more than 8 operations in flight", ready[0].last_words()[2])
        kind, body, _ = ready[1].receive()
        self.assertEqual((kind, struct.unpack_from("=i", body)[0]), (local.ABORT, -6))
        self.assertIn(b"broke the local protocol: more than 8 operations in flight", body)

    def test_alloc_while_alloc(self):
        """Both are sent before the agent reads the first, because it might answer quickly."""
        c = self.ready()
        agent = self.cluster.agents[0]
        agent.signal(signal.SIGSTOP)
        os.waitid(os.P_PID, agent.pid, os.WSTOPPED | os.WNOWAIT)
        c.send(local.alloc(1 << 22))
        c.send(local.alloc(1 << 22))
        agent.signal(signal.SIGCONT)
        self.assertIn("ALLOC before the last one was answered", c.last_words()[2])

    def test_memory_of_lost_clients_is_freed(self):
        for _ in range(20):
            c = self.ready()
            os.close(c.buffer(7 << 20)[1])
            c.sock.close()

    def test_descriptors_are_not_taken(self):
        c = self.ready()
        for _ in range(300):
            socket.send_fds(c.sock, [local.message(local.STATS)], [0, 1, 2])
            c.expect(local.COUNTERS)
        self.assertLess(len(os.listdir(f"/proc/{self.cluster.agents[0].pid}/fd")), 60)

    def test_many_connections(self):
        """Above the limit of connections, those without HELLO are closed, if there are any."""
        held = [self.client() for _ in range(1100)]
        for c in held:
            kind, _, sentence = c.last_words()
            self.assertEqual(kind, local.REFUSED)
            self.assertRegex(sentence, "it has not sent HELLO and the agent serves its maximum|no HELLO within")
        refused = ""
        for rank in range(1030):
            c = self.client()
            try:
                c.send(local.hello(job="many", rank=rank % 1024, world=1024, local_rank=rank % 1024, local_world=1024))
            except (BrokenPipeError, ConnectionResetError):
                pass  # the agent was faster
            kind, body, _ = c.receive()
            if kind == local.REFUSED:
                refused = body[8:516].split(b"\0")[0].decode()
                break
        self.assertIn("already has 1024 clients", refused)


if __name__ == "__main__":
    harness.main()
