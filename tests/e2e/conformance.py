#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Misbehaves towards a running reducer in all ways of a table, and checks each answer:

    conformance.py ADDRESS [grpc] [relays | SECRET]

ADDRESS is host:port of a reducer without TLS; with `grpc` that of its gRPC port. Without SECRET the reducer asks for no
authentication. SECRET is a file: the reducer has secrets, that one for the job `conformance` and none for the job
`nobody`, and the table is that of bad proofs. With `relays` the reducer's file has the reducers r0, which is this one,
and r1, and any groups, and the table is that of relays.

conformance_rows.py has the rows. Beside the table a job of two ranks goes on, and its sums must stay right. Exit
status: 0 all answers are right, 1 some are not.
"""

import os
import pathlib
import queue
import socket
import struct
import sys
import threading

import wire  # finds proto/python

import blocks
import numpy as np
from conformance_rows import (
    BY_UPLINK, CLIENT_HELLO, CLOSED, CUT, DIFFERENT, EARLY, ENCODINGS, ENDS, EPOCHS, FIRST, GOES_ON, HELLO, KIB64,
    MISMATCH, NONFINITES, OTHERWISE, OWNERS, PROBES, PROOFS, PROTO, REFUSED, RELAYED, RETAIN, ROUTES, RULES, SCATTERED,
    SECOND, SHARDED, SHARES, SILENT, STARTS, SUMS, UNPROVEN, UPLINKS, data, encoded, relayed, sharded, view,
)  # fmt: skip
from wire import RESUME, VIEW, pb


class Call:
    """A call of the gRPC port with the interface of a socket."""

    def __init__(self, address):
        import grpc

        self.channel = grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)])
        self.sent, self.data, self.pieces, self.timeout = queue.SimpleQueue(), b"", queue.SimpleQueue(), 30
        exchange = self.channel.stream_stream(
            "/reduction.v1.Reducer/Exchange", pb.Piece.SerializeToString, pb.Piece.FromString
        )
        threading.Thread(target=self._read, args=(exchange(iter(self.sent.get, None)),), daemon=True).start()

    def _read(self, answers):
        try:
            for piece in answers:
                self.pieces.put(piece.data)
        except Exception:  # the end of the call, whatever its status
            pass
        self.pieces.put(b"")

    def sendall(self, data):
        for at in range(0, len(data), 1 << 19):
            self.sent.put(pb.Piece(data=data[at : at + (1 << 19)]))

    def recv(self, n):
        if not self.data:
            try:
                self.data = self.pieces.get(timeout=self.timeout)
            except queue.Empty:
                raise socket.timeout("no answer") from None
            if not self.data:
                self.pieces.put(b"")  # the next call ends too
        part, self.data = self.data[:n], self.data[n:]
        return part

    def close(self):
        self.sent.put(None)
        self.channel.close()


class Table:
    """Runs the rows against a reducer. failed: sentences about wrong answers."""

    def __init__(self, address, grpc=False, secret=None):
        self.address, self.grpc, self.secret, self.rows, self.failed = address, grpc, secret, 0, []
        self.open = []  # of the current row
        self.names = (f"conformance-{os.getpid()}-{i}" for i in range(1 << 30))

    def connect(self):
        if self.grpc:
            sock = Call(self.address)
        else:
            host, port = self.address.rsplit(":", 1)
            sock = socket.create_connection((host, int(port)), timeout=30)
        self.open.append(wire.Client(sock))
        return self.open[-1]

    def send(self, client, frames):
        for data in frames:
            try:
                client.send(data)
            except OSError:
                return  # it is closed already; its answer is read all the same

    def pair(self, **values):
        """Two ranks of a running job."""
        clients, job = [self.connect(), self.connect()], "conformance" if self.secret else next(self.names)
        for rank, client in enumerate(clients):
            if self.secret:
                mac = client.prove(self.secret, job=job, rank=rank, world_size=2, **values)
                if pb.Welcome.FromString(client.expect(wire.WELCOME)).mac != mac:
                    raise AssertionError("the proof in WELCOME is wrong")
            else:
                client.join(job=job, rank=rank, world_size=2, **values)
        for client in clients:
            client.expect(wire.START)
        return clients

    def answer(self, client, kind, code):
        """Reads a REFUSED or ABORT, which must have this code and a sentence; then the connection must end."""
        try:
            while (found := client.receive()) and found[0] in (VIEW, wire.PROBE, wire.CREDIT):
                pass  # of the other rank before its breach, or the answer to what was right
        except OSError as exc:
            raise AssertionError(f"no answer: {exc}") from None
        if found is None:
            raise AssertionError("the connection ended without an answer")
        said = pb.Refused() if found[0] == wire.REFUSED else pb.Abort()
        if found[0] in (wire.REFUSED, wire.ABORT):
            said.ParseFromString(found[1])
        if found[0] != kind or said.code != code or not said.message:
            raise AssertionError(f"got a frame of type {found[0]}, code {said.code}: {said.message!r}")
        client.closed()
        return said.message

    def row(self, name, run):
        self.rows += 1
        try:
            run()
        except (AssertionError, OSError) as exc:
            self.failed.append(f"{name}: {exc}")
        for client in self.open:
            client.sock.close()
        self.open = []

    def first(self, sent, code):
        client = self.connect()
        self.send(client, [sent])
        if code is None:
            client.expect(wire.WELCOME)
            client.closed()
        else:
            self.answer(client, wire.REFUSED, code)

    def bytes_alone(self, sent):
        client = self.connect()
        self.send(client, [bytes([byte]) for byte in sent])
        client.expect(wire.WELCOME)

    def second(self, values, code):
        job, first, second = next(self.names), self.connect(), self.connect()
        first.join(job=job, world_size=2, generation=1, incarnation=1, evidence="a=1 b=2")
        self.send(second, [wire.hello(**{"job": job, "rank": 1, "world_size": 2, "generation": 1, **values})])
        self.answer(second, wire.REFUSED, code)
        with_it = self.connect()
        if "world_size" in values:  # the job can never be complete: all its ranks hear of it, and those that come now
            self.answer(first, wire.ABORT, code)
            self.send(with_it, [wire.hello(job=job, rank=1, world_size=2, generation=1)])
            self.answer(with_it, wire.REFUSED, code)
            return
        # the first one still waits, and a good second one may join
        with_it.join(job=job, rank=1, world_size=2, generation=1, evidence="b=2 c=3")
        first.expect(wire.START)

    def starts(self, announced, known):
        clients, job = [self.connect(), self.connect()], next(self.names)
        for rank in (1, 0):
            clients[rank].join(job=job, rank=rank, world_size=2, features=announced[rank], incarnation=70 + rank)
        for client in clients:
            said = pb.Start.FromString(client.expect(wire.START))
            if (said.features & 9, said.start) != ((known, 70) if known else (0, 0)):
                raise AssertionError(f"START has {said}")

    def early(self, frames, code, **values):
        client = self.connect()
        client.join(job=next(self.names), world_size=2, **values)
        self.send(client, frames)
        self.answer(client, wire.ABORT, code)

    def comes_back(self, announced):
        """Two ranks bring the reducer back. Those that announce `probe` show that a chunk passes both ways."""
        clients, job = [self.connect(), self.connect()], next(self.names)
        for rank, client in enumerate(clients):
            client.join(job=job, rank=rank, world_size=2, retain=True, rejoin=True, features=announced[rank])
        for client in [clients[rank] for rank in (0, 1) if announced[rank] & 2]:
            client.send(wire.frame(wire.PROBE, bytes(KIB64)))
            if (length := len(client.expect(wire.PROBE))) != KIB64:  # and not START
                raise AssertionError(f"{length} of {KIB64} bytes come back")
            client.send(wire.frame(wire.PROBE))
        for client in clients:
            client.expect(wire.START)

    def goes_on(self, between=(), features=16, kept=True):
        """Two ranks end their generation and join the next one, on the same connections. between: frames before HELLO.
        kept: whether the reducer keeps the connection."""
        job = next(self.names)
        clients = [self.connect(), self.connect()]
        for rank, client in enumerate(clients):
            client.join(job=job, rank=rank, world_size=2, features=features)
        for client in clients:
            client.expect(wire.START)
        self.send(clients[0], [data([1]), wire.frame(wire.ABORT, pb.Abort(code=CLOSED, message="it goes on"))])
        while clients[1].receive()[0] != wire.ABORT:
            pass
        hello = {"job": job, "world_size": 2, "features": features, "generation": 7}
        for rank, client in enumerate(clients):
            self.send(client, [*between, wire.hello(rank=1 - rank, **hello)])
        if not kept:
            for client in clients:
                while (found := client.receive()) and found[0] != wire.WELCOME:
                    pass
                if found:
                    raise AssertionError("the connection is kept")
            return
        for client in clients:
            while (found := client.receive()) and found[0] != wire.WELCOME:
                pass
            if not found:
                raise AssertionError("the connection is not kept")
            client.expect(wire.START)

    def rule(self, frames, code, before=(), end=False, **values):
        good, bad = self.pair(**values)
        self.send(good, before)
        self.send(bad, frames)
        if end:
            bad.sock.close()
        text = self.answer(good, wire.ABORT, code)
        if "rank 1" not in text and "no rank" not in text:
            raise AssertionError(f"the sentence does not name rank 1: {text!r}")
        return text

    def epochs(self, second, resumes):
        """Rank 0 sets shares, rank 1 gets them and answers."""
        clients = self.pair(retain=True, features=65)
        self.send(clients[0], [view([0, 0], epoch=5, shares=[2, 3])])
        said = pb.View.FromString(clients[1].expect(VIEW))
        if (said.epoch, list(said.shares)) != (5, [2, 3]):
            raise AssertionError(f"VIEW has {said}")
        self.send(clients[1], [second])
        if not resumes:
            for client in clients:
                self.answer(client, wire.ABORT, CUT)
            return
        for client in clients:
            said = pb.View.FromString(client.expect(RESUME))
            if (said.epoch, list(said.shares)) != (5, [2, 3]):
                raise AssertionError(f"RESUME has {said}")

    def otherwise(self, frames):
        text = self.rule(frames, MISMATCH, [encoded([1], 2, 3)], features=9)
        if "rank 0" not in text:
            raise AssertionError(f"the sentence does not name rank 0: {text!r}")

    def sums(self, up, down):
        """131 elements, a block and a part of one, of float32 and of float16. With fp16 these are an average."""
        clients = self.pair(features=9)
        for seq, dtype in enumerate((7,) if up == 1 or down in (1, 4) else (7, 6)):
            op = 4 if (up, dtype) == (4, 6) else 0
            parts = [[rank + i / 8 for i in range(131)] for rank in (1, 2)]
            for client, part in zip(clients, parts):
                self.send(client, [encoded(part, up, down, dtype, seq=seq, op=op)])
            kind = np.float32 if dtype == 7 else np.float16
            floats = [np.array(part, np.float32) for part in parts]
            floats = [blocks.decode(up, blocks.encode(up, x), x.size) for x in floats]
            total = (floats[0] + floats[1]) / np.float32(2 if op else 1)
            want = blocks.encode(down, total) if down else total.astype(kind).tobytes()
            for client in clients:
                if client.expect(wire.RESULT) != want:
                    raise AssertionError(f"the sum of dtype {dtype} is wrong")
                if [client.header[name] for name in ("dtype", "up", "down")] != [dtype, up, down]:
                    raise AssertionError(f"the header of the result is {client.header}")

    def parts(self, retain):
        """A reduce-scatter and an all-gather, each of two parts of one element: who gets what. retain: then the same
        once more, with HAVE of the owner in place of the reduce-scatter."""
        clients = self.pair(features=257, retain=retain)
        values, roots = [[1, 2], [10, 20]], [wire.ROOT, 0]
        for rank, client in enumerate(clients):
            for chunk in (0, 1):
                flags = roots[chunk ^ rank]
                self.send(client, [sharded([values[rank][chunk]], op=12, chunk=chunk, flags=flags)])
            for chunk in (0, 1):
                mine = [values[rank][0]] if chunk == rank else []
                self.send(client, [sharded(mine, op=24, chunk=chunk, flags=roots[chunk ^ rank], seq=1)])
            for chunk in (0, 1) if retain else ():
                again = {"chunk": chunk, "seq": 2}
                self.send(client, [sharded([], kind=wire.HAVE, **again) if chunk == rank else sharded([3], **again)])
        averages, others = [[5.5], [11]], [[10], [1]]
        for rank, client in enumerate(clients):
            for seq, want in enumerate([averages[rank], others[rank], []][: 2 + retain]):
                for chunk in (0, 1):
                    gets = want if (chunk == rank) == (seq == 0) else []
                    payload = client.expect(wire.RESULT)
                    if payload != struct.pack(f"<{len(gets)}f", *gets):
                        raise AssertionError(f"rank {rank} got {payload.hex()!r} for chunk {chunk} of operation {seq}")
                    if [client.header[name] for name in ("seq", "chunk", "tensors")] != [seq, chunk, 2]:
                        raise AssertionError(f"the header of the result is {client.header}")

    def racks(self, **values):
        """The clients of two ranks of a running job, each in a group of its own, and its fields of HELLO."""
        digest = wire.protocol.reducers_digest(["r0", "r1"])
        common = {"job": next(self.names), "world_size": 2, "features": 1 | 256 | 1024, "groups": 2, "uplinks": 1,
                  "reducers_digest": digest, **values}  # fmt: skip
        clients = [self.connect(), self.connect()]
        for rank, client in enumerate(clients):
            client.join(rank=rank, group=rank + 1, **common)
        for client in clients:
            if not pb.Start.FromString(client.expect(wire.START)).features & 1024:
                raise AssertionError("START lacks the feature `relays`: has the file of the reducer r0, r1 and groups?")
        return clients, common

    def uplink(self, common, **values):
        """A client with HELLO of the reducer r1 that relays for the second group."""
        client = self.connect()
        self.send(client, [wire.hello(**{**common, "rank": 0, "group": 2, "relay": 2, **values})])
        return client

    def starts_uplink(self, common):
        client = self.uplink(common)
        client.expect(wire.WELCOME)
        if pb.Start.FromString(client.expect(wire.START)).start != 1:
            raise AssertionError("START of the uplink has another start")
        return client

    def adds(self, clients, seq=0):
        """Sums of these clients are right."""
        for client in clients:
            self.send(client, [data([3, 4], seq=seq)])
        for client in clients:
            while (found := client.receive()) and found[0] in (VIEW, wire.CREDIT):
                pass
            want = struct.pack("<2f", 3 * len(clients), 4 * len(clients))
            if found != (wire.RESULT, want):
                raise AssertionError(f"got {found} in place of the sum")

    def route(self, before, frames, code, **values):
        (good, bad), _ = self.racks(**values)
        self.send(good, before)
        self.send(bad, frames)
        for client in (good, bad):
            self.answer(client, wire.ABORT, code)

    def refused_uplink(self, values, code):
        clients, common = self.racks(retain=True)
        self.answer(self.uplink(common, **values), wire.REFUSED, code)
        self.adds(clients)

    def uplink_of_a_plain_job(self):
        """The ranks have not all announced relays."""
        clients, job = [self.connect(), self.connect()], next(self.names)
        common = {"job": job, "world_size": 2, "groups": 2, "uplinks": 1, "features": 1}
        for rank, client in enumerate(clients):
            client.join(rank=rank, group=rank + 1, **common)
        for client in clients:
            client.expect(wire.START)
        self.answer(self.uplink(common), wire.REFUSED, REFUSED)
        self.adds(clients)

    def bad_uplink(self, frames):
        """Only the uplink ends."""
        clients, common = self.racks(retain=True)
        uplink = self.starts_uplink(common)
        self.send(uplink, frames)
        self.answer(uplink, wire.ABORT, PROTO)
        self.adds(clients)

    def good_uplink(self):
        """It stands for rank 1. A second one is one too many, and rank 1 itself then disagrees."""
        clients, common = self.racks(retain=True)
        uplink = self.starts_uplink(common)
        self.adds([clients[0], uplink])
        self.answer(self.uplink(common), wire.REFUSED, REFUSED)
        self.adds([clients[0], uplink], seq=1)
        self.adds(clients, seq=2)
        self.send(uplink, [data([1], seq=3)])
        self.send(clients[1], [data([1], seq=3)])
        for client in (*clients, uplink):
            self.answer(client, wire.ABORT, MISMATCH)

    def run_relays(self):
        for name, frames, code in RELAYED:
            self.row(f"relays: {name}", lambda: self.route([], frames, code))
        for name, before, frames, code in ROUTES:
            self.row(f"relays with retain: {name}", lambda: self.route(before, frames, code, retain=True))
        for values, code in UPLINKS:
            self.row(f"HELLO of an uplink with {values}", lambda: self.refused_uplink(values, code))
        for name, frames in BY_UPLINK:
            self.row(f"an uplink sends {name}", lambda: self.bad_uplink(frames))
        self.row("an uplink of a job without relays", self.uplink_of_a_plain_job)
        self.row("a good uplink", self.good_uplink)

    def fall_silent(self):
        """Returns the clients of the rows of SILENT."""
        clients = []
        for _, values, frames, _ in SILENT:
            clients.append(self.connect())
            clients[-1].join(job=next(self.names), **{"world_size": 1, **values})
            if "world_size" not in values:
                clients[-1].expect(wire.START)
            self.send(clients[-1], frames)
        self.open = []
        return clients

    def silent(self, client, code):
        self.open = [client]
        while (found := client.receive()) and found[0] in (VIEW, RESUME):
            pass
        said = pb.Abort.FromString(found[1]) if found and found[0] == wire.ABORT else pb.Abort()
        if said.code != code or "nothing was heard from it for" not in said.message:
            raise AssertionError(f"got {found}")
        client.closed()

    def proof(self, make, code):
        client = self.connect()
        transcript = client.be_challenged(job="conformance", world_size=2)
        self.send(client, [make(self.secret, *transcript)])
        self.answer(client, wire.REFUSED, code)

    def run_proofs(self):
        for name, make, code in PROOFS:
            self.row(f"proof: {name}", lambda: self.proof(make, code))
        for values, code in UNPROVEN:
            self.row(f"HELLO with {values}", lambda: self.first(wire.hello(**values), code))

    def run(self):
        silent = self.fall_silent()
        for name, sent, code in FIRST:
            self.row(f"first: {name}", lambda: self.first(sent, code))
        if not self.grpc:
            self.row("first: TLS", lambda: self.first(CLIENT_HELLO, REFUSED))
        for values, code in HELLO:
            sent = wire.hello(**{"job": next(self.names), **values})
            self.row(f"HELLO with {str(values)[:60]}", lambda: self.first(sent, code))
        for values, code in SECOND:
            self.row(f"second HELLO with {values}", lambda: self.second(values, code))
        for announced, known in STARTS:
            self.row(f"START for ranks with the features {announced}", lambda: self.starts(announced, known))
        for name, sent, code in EARLY:
            self.row(f"before START: {name}", lambda: self.early([sent], code))
        for name, frames, code in PROBES:
            self.row(f"PROBE: {name}", lambda: self.early(frames, code, retain=True, rejoin=True, features=3))
        for announced in ((3, 3), (2, 2), (1, 3), (0, 0)):
            self.row(f"return of ranks with the features {announced}", lambda: self.comes_back(announced))
        for name, how in GOES_ON:
            self.row(f"the next generation: {name}", lambda: self.goes_on(**{"kept": not self.grpc, **how}))
        for name, frames, code in RULES:
            self.row(f"running: {name}", lambda: self.rule(frames, code))
        for name, frames, code in NONFINITES:
            self.row(f"NONFINITE: {name}", lambda: self.rule(frames, code, features=5))
        for name, frames, code in ENCODINGS:
            self.row(f"encodings: {name}", lambda: self.rule(frames, code, features=9))
        for name, frames in OTHERWISE:
            self.row(f"after rank 0, otherwise encoded: {name}", lambda: self.otherwise(frames))
        for up, down in SUMS:
            self.row(f"a sum with the encodings {up} and {down}", lambda: self.sums(up, down))
        for name, frames, code in SHARDED:
            self.row(f"sharded: {name}", lambda: self.rule(frames, code, features=265))
        before = [sharded([1], flags=wire.ROOT)]
        for name, frames in SCATTERED:
            self.row(f"after a part of rank 0: {name}", lambda: self.rule(frames, MISMATCH, before, features=257))
        for name, before, frames, code in OWNERS:
            self.row(f"owners: {name}", lambda: self.rule(frames, code, before, features=257, retain=True))
        for retain in (False, True):
            self.row(f"parts with retain {retain}", lambda: self.parts(retain))
        for name, frames, code in DIFFERENT:
            self.row(f"after rank 0: {name}", lambda: self.rule(frames, code, [data([1], name_hash=5)]))
        for name, frames, code in RETAIN:
            self.row(f"retain: {name}", lambda: self.rule(frames, code, retain=True))
        for name, frames, code in SHARES:
            self.row(f"shares: {name}", lambda: self.rule(frames, code, retain=True, features=65))
        for name, second, resumes in EPOCHS:
            self.row(f"shares of rank 0, then {name}", lambda: self.epochs(second, resumes))
        for name, frames, retain, code in ENDS:
            self.row(f"the end {name}", lambda: self.rule(frames, code, end=True, retain=retain))
        for (name, _, _, code), client in zip(SILENT, silent):
            self.row(f"silent {name}", lambda: self.silent(client, code))
        for name, hello in (
            ("a question", wire.hello(world_size=0)),
            ("a job name of 63 letters", wire.hello(job=f"{next(self.names)}-".ljust(63, "x"))),
            ("the job of a group", wire.hello(job=f"{next(self.names)}@0123456789abcdef")),
        ):
            self.row(f"{name}, byte by byte", lambda: self.bytes_alone(hello))


class Neighbors(threading.Thread):
    """A healthy job of two ranks. wrong: what was wrong with it."""

    def __init__(self, table):
        super().__init__(daemon=True)
        self.clients, table.open = table.pair(), []
        self.rounds, self.wrong, self.stopping = 0, None, threading.Event()
        self.start()

    def run(self):
        try:
            while not self.stopping.is_set():
                for rank, client in enumerate(self.clients):
                    client.send(data([self.rounds % 1000 + rank] * 5, seq=self.rounds))
                want = struct.pack("<5f", *[2 * (self.rounds % 1000) + 1] * 5)
                for client in self.clients:
                    if client.expect(wire.RESULT) != want:
                        raise AssertionError(f"the sum of round {self.rounds} is wrong")
                self.rounds += 1
        except Exception as exc:  # for the thread that asks
            self.wrong = exc

    def stop(self):
        self.stopping.set()
        self.join(60)
        for client in self.clients:
            client.sock.close()
        if self.wrong or not self.rounds:
            raise AssertionError(f"the job beside failed in round {self.rounds}: {self.wrong!r}")


def main():
    words = sys.argv[1:]
    grpc = "grpc" in words[1:]
    relays = "relays" in words[1:]
    rest = [word for word in words if word not in ("grpc", "relays")]
    if len(rest) not in (1, 2) or (relays and len(rest) == 2):
        sys.exit("usage: conformance.py HOST:PORT [grpc] [relays | SECRET]")
    secret = pathlib.Path(rest[1]).read_bytes().removesuffix(b"\n") if len(rest) == 2 else None
    table = Table(rest[0], grpc, secret)
    beside = Neighbors(table)
    if secret:
        table.run_proofs()
    elif relays:
        table.run_relays()
    else:
        table.run()
    try:
        beside.stop()
    except AssertionError as exc:
        table.failed.append(str(exc))
    for text in table.failed:
        print(f"FAIL {text}")
    print(f"{table.rows} rows, {len(table.failed)} wrong; {beside.rounds} rounds of a job beside them")
    sys.exit(bool(table.failed))


if __name__ == "__main__":
    main()
