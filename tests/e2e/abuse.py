#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Abuse of a reducer or an agent by an unauthenticated peer, one kind at a time: a program that runs until it is ended.

abuse.py KIND ADDRESS [SECONDS [RATE]]

RATE bounds the rows that the kinds "conformance" and "conformance-grpc" do in a second. ADDRESS is host:port of a
reducer; for kinds that begin with "grpc-" that of its gRPC port; for kinds that begin with "local-" the path of an
agent's socket. It ends when its standard input has a line or ends, or after SECONDS if they are not 0. Then it writes a
last line of JSON: the number of actions, the number of answers with and without a reason, and its processor time.
tests/e2e/server/test_abuse.py and bench/abuse.py run it beside jobs, which must not be affected.
"""

import collections
import itertools
import json
import os
import random
import select
import socket
import struct
import sys
import threading
import time

import conformance
import http2
import local
import wire

HELD = 6000  # open connections: more than server.max_connections by default
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close sends a reset, which leaves no port in TIME_WAIT


class Abuse:
    """counts: actions ("done"), refusals with a reason ("refused") and without one ("cut")."""

    def __init__(self, address):
        self.address = address
        self.counts = collections.Counter()
        self.stopped = threading.Event()
        self.rng = random.Random(1)
        self.rate = None  # actions in a second; None: no limit
        self.names = (f"abuse-{os.getpid()}-{i}" for i in itertools.count())

    def connect(self):
        """Connects; None if there is no room for the connection now."""
        host, port = self.address.rsplit(":", 1)
        s = socket.socket()
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        s.settimeout(5)
        try:
            s.connect((host, int(port)))
        except OSError:
            s.close()
            self.counts["unconnected"] += 1
            return None
        return s

    def answer(self, s, wait=5):
        """Returns the type of the next frame, and counts REFUSED; None at the end of the connection."""
        s.settimeout(wait)
        try:
            client = wire.Client(s)
            found = client.receive()
        except (OSError, AssertionError):
            found = None
        if found is None:
            self.counts["cut"] += 1
            return None
        if found[0] == wire.REFUSED:
            self.counts["refused"] += 1
            self.counts["why: " + wire.pb.Refused.FromString(found[1]).message[-60:]] += 1
        return found[0]

    def once(self, data, wait=False):
        """Sends this on a new connection, and reads the answer or closes at once."""
        s = self.connect()
        if s is None:
            return
        with s:
            try:
                if data:
                    s.sendall(data)
                if wait:
                    self.answer(s)
            except OSError:
                self.counts["cut"] += 1
            self.counts["done"] += 1

    def hold(self, make, many, every=0.0, step=None):
        """Keeps `many` results of make() open, and replaces closed ones; calls step(s) for each at intervals."""
        held, poll, next_step = {}, select.epoll(), 0.0
        while not self.stopped.is_set():
            while len(held) < many and not self.stopped.is_set():
                s = make()
                if s is None:
                    break
                s.setblocking(False)
                held[s.fileno()] = s
                poll.register(s, select.EPOLLIN | select.EPOLLRDHUP)
                self.counts["done"] += 1
                if len(held) % 64 == 0:
                    break
            for fd, _ in poll.poll(0 if len(held) < many else 0.05):
                try:
                    data = held[fd].recv(65536)
                    if data[3:4] == bytes([wire.REFUSED]):
                        self.counts["refused"] += 1
                except BlockingIOError:
                    continue
                except OSError:
                    data = b""
                if not data:
                    held.pop(fd).close()
            if step and time.monotonic() >= next_step:
                next_step = time.monotonic() + every
                for s in list(held.values()):
                    try:
                        step(s)
                    except OSError:
                        pass
        for s in held.values():
            s.close()

    # connections

    def storm(self):
        """Connects and closes."""
        while not self.stopped.is_set():
            self.once(b"")

    def silent(self):
        """Holds thousands of connections that never send anything."""
        self.hold(self.connect, HELD)

    def loris(self):
        """Sends HELLOs byte by byte."""
        hello = wire.hello(job="loris", world_size=2)
        at = collections.Counter()

        def say(s):
            n = at[s.fileno()]
            s.send(hello[n % len(hello) :][:1])
            at[s.fileno()] += 1

        self.hold(self.connect, 500, 0.05, say)

    def garbage(self):
        while not self.stopped.is_set():
            self.once(self.rng.randbytes(200), wait=True)

    def absurd(self):
        """Sends headers with the largest length, and with the largest permitted length without a payload."""
        kinds = (wire.HELLO, wire.DATA, wire.PING)
        frames = [wire.frame(kind, payload_len=n) for kind in kinds for n in (0xFFFFFFFF, 4096)]
        for data in itertools.cycle(frames):
            if self.stopped.is_set():
                break
            self.once(data, wait=b"\xff\xff\xff\xff" in data)

    # jobs

    def jobs(self):
        """Opens more and more jobs, each of which waits for a rank that never joins."""

        def make():
            s = self.connect()
            if s is None:
                return None
            s.sendall(wire.hello(job=next(self.names), world_size=2, window=1))
            return s

        def ping(s):
            s.send(wire.frame(wire.PING))

        self.hold(make, 500, 1, ping)

    def churn(self):
        """Opens, starts and closes jobs."""
        while not self.stopped.is_set():
            s = self.connect()
            if s is None:
                continue
            with s:
                s.sendall(wire.hello(job=next(self.names), window=1))
                if self.answer(s) == wire.WELCOME and self.answer(s) == wire.START:
                    s.sendall(wire.frame(wire.GOODBYE))
                    self.answer(s)
                    self.counts["cut"] -= 1  # as expected
                self.counts["done"] += 1

    def huge(self):
        """Sends HELLOs that request nearly all memory, and disconnects."""
        while not self.stopped.is_set():
            self.once(wire.hello(job=next(self.names), window=900, chunk_bytes=1 << 20, world_size=2), wait=True)

    def join(self, **who):
        """Returns a connection that has joined a job; None if it was refused."""
        s = self.connect()
        if s is None:
            return None
        try:
            s.sendall(wire.hello(**who))
            if self.answer(s) == wire.WELCOME:
                return s
        except OSError:
            pass
        s.close()
        return None

    def pings(self):
        """Joins jobs and sends only PINGs, as fast as possible."""
        data = wire.frame(wire.PING) * 1024
        held = [s for s in (self.join(job=next(self.names), world_size=2) for _ in range(64)) if s]
        for s in held:
            s.setblocking(False)
        while not self.stopped.is_set():
            _, ready, _ = select.select([], held, [], 0.1)
            for s in ready:
                try:
                    sent = s.send(data)
                    if sent % 64:  # in the middle of a frame
                        s.setblocking(True)
                        s.sendall(data[sent % 64 : 64])
                        s.setblocking(False)
                    self.counts["done"] += sent // 64
                except OSError:
                    held.remove(s)
                    self.counts["cut"] += 1

    def deaf(self):
        """Joins jobs, sends contributions and never reads results."""
        payload = bytes(65536)
        held = []
        for _ in range(20):
            s = self.join(job=next(self.names), window=16, detect_ms=600000)
            if s:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                self.answer(s)
                s.settimeout(0.2)
                held.append(s)
        for i in itertools.count():
            for s in list(held):
                if i and self.stopped.is_set():
                    return
                try:
                    s.sendall(wire.frame(wire.DATA, payload, dtype=7, seq=i, count=16384, chunk_elems=16384))
                    self.counts["done"] += 1
                except OSError:  # its socket is full: the reducer has stopped reading, or closed it
                    held.remove(s)
                    self.counts["full"] += 1
            if not held:
                self.stopped.wait()

    def dead(self):
        """Joins jobs and then goes silent, as after the loss of a machine."""
        self.hold(lambda: self.join(job=next(self.names), world_size=2, window=1), 50)

    # the gRPC port

    def grpc(self, said):
        s = self.connect()
        if s:
            s.sendall(said)
        return s

    def grpc_silent(self):
        """Holds thousands of connections that never send anything."""
        self.hold(self.connect, HELD)

    def grpc_idle(self):
        """Holds thousands of HTTP/2 connections without a call."""
        self.hold(lambda: self.grpc(http2.hello()), HELD)

    def grpc_garbage(self):
        while not self.stopped.is_set():
            self.once(http2.hello() + self.rng.randbytes(200), wait=True)

    def calls(self, path, message=None, end=True):
        return b"".join(http2.call(1 + 2 * i, path, message, end) for i in range(http2.CALLS))

    def grpc_health(self):
        """Calls the health service without reading responses, as often as connections permit."""
        self.hold(lambda: self.grpc(http2.hello(0) + self.calls(http2.CHECK)), HELD)

    def grpc_watch(self):
        """The same with calls that never end."""
        self.hold(lambda: self.grpc(http2.hello(0) + self.calls(http2.WATCH)), HELD)

    def grpc_streams(self):
        """Opens streams that never send HELLO."""
        self.hold(lambda: self.grpc(http2.hello(0) + self.calls(http2.EXCHANGE)), HELD)

    def grpc_huge(self):
        """Sends messages with a length of 1 GiB, as fast as they are accepted."""

        def once(path):
            s = self.connect()
            if s:
                with s:
                    self.counts["sent"] += http2.deluge(s, path, 1 << 30, lambda: not self.stopped.is_set())
                self.counts["done"] += 1

        def again(path):
            while not self.stopped.is_set():
                once(path)

        paths = [http2.CHECK, http2.EXCHANGE] * 2
        threads = [threading.Thread(target=again, args=(path,), daemon=True) for path in paths]
        for t in threads:
            t.start()
        for t in threads:
            t.join()

    # the agent's socket

    def client(self):
        s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        s.settimeout(5)
        try:
            s.connect(self.address)
        except OSError:
            s.close()
            self.counts["unconnected"] += 1
            return None
        return s

    def local_once(self, *messages):
        s = self.client()
        if s is None:
            return
        with s:
            try:
                for m in messages:
                    s.send(m)
                if messages:
                    data = s.recv(2048)
                    self.counts["refused"] += data[2:3] == bytes([local.REFUSED])
            except OSError:
                self.counts["cut"] += 1
            self.counts["done"] += 1

    def local_storm(self):
        while not self.stopped.is_set():
            self.local_once()

    def local_silent(self):
        self.hold(self.client, 3000)

    def local_garbage(self):
        while not self.stopped.is_set():
            self.local_once(self.rng.randbytes(300))

    def local_churn(self):
        """Opens and closes jobs of one process."""
        while not self.stopped.is_set():
            self.local_once(local.hello(job=next(self.names)), local.message(local.GOODBYE))

    def local_jobs(self):
        """Opens more and more jobs that wait for a local rank that never joins."""

        def make():
            s = self.client()
            if s:
                s.send(local.hello(job=next(self.names), world=2, local_world=2))
            return s

        self.hold(make, 500)

    def local_stats(self):
        """A client that sends requests continuously, and reads the answers."""
        c = local.Client(self.address)
        c.join(job=next(self.names))
        while not self.stopped.is_set():
            for _ in range(32):
                c.send(local.message(local.STATS))
            for _ in range(32):
                c.receive()
            self.counts["done"] += 32
        c.sock.close()


    def conformance(self, grpc=False):
        """All rows of the conformance table, again and again. Wrong answers are counted as "wrong"."""
        while not self.stopped.is_set():
            table = EndlessTable(self, grpc)
            table.run()
            self.counts["wrong"] += len(table.failed)

    def conformance_grpc(self):
        self.conformance(grpc=True)


class EndlessTable(conformance.Table):
    """The conformance table, without the rows that wait for the detection time. It ends early if it is told to."""

    def __init__(self, abuse, grpc):
        super().__init__(abuse.address, grpc)
        self.abuse, self.names = abuse, abuse.names
        self.next = time.monotonic()

    def row(self, name, run):
        if self.abuse.rate:
            self.next = max(self.next, time.monotonic() - 1) + 1 / self.abuse.rate  # a second may be made up for
            self.abuse.stopped.wait(self.next - time.monotonic())
        if not self.abuse.stopped.is_set():
            super().row(name, run)
            self.abuse.counts["done"] += 1

    def fall_silent(self):
        return []


KINDS = ["storm", "silent", "loris", "garbage", "absurd", "jobs", "churn", "huge", "pings", "deaf", "dead"]
GRPC_KINDS = ["grpc-silent", "grpc-idle", "grpc-garbage", "grpc-health", "grpc-watch", "grpc-streams", "grpc-huge"]
TABLE_KINDS = ["conformance", "conformance-grpc"]
LOCAL_KINDS = ["local-storm", "local-silent", "local-garbage", "local-churn", "local-jobs", "local-stats"]


def main():
    kinds = KINDS + GRPC_KINDS + TABLE_KINDS + LOCAL_KINDS
    if not 3 <= len(sys.argv) <= 5 or sys.argv[1] not in kinds:
        sys.exit(f"usage: abuse.py KIND ADDRESS [SECONDS [RATE]], with a KIND of {', '.join(kinds)}")
    abuse = Abuse(sys.argv[2])
    seconds = float(sys.argv[3]) if len(sys.argv) > 3 else 0
    abuse.rate = float(sys.argv[4]) if len(sys.argv) > 4 else None
    worker = threading.Thread(target=getattr(abuse, sys.argv[1].replace("-", "_")), daemon=True)
    started, cpu_started = time.monotonic(), time.process_time()
    print("started", flush=True)
    worker.start()
    while worker.is_alive() and (not seconds or time.monotonic() < started + seconds):
        ready, _, _ = select.select([sys.stdin], [], [], 0.1)
        if ready and (abuse.counts["done"] or time.monotonic() > started + 60):
            break
        if ready:
            time.sleep(0.01)  # nothing has been done yet, however late the thread is
    took, cpu = time.monotonic() - started, time.process_time() - cpu_started
    abuse.stopped.set()
    worker.join(20)
    print(json.dumps({"kind": sys.argv[1], "seconds": round(took, 3), "cpu_seconds": round(cpu, 3),
                      **abuse.counts}), flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
