# SPDX-License-Identifier: Apache-2.0
"""The reference client: one rank of a job, over TCP or gRPC, with secrets, TLS, groups, checksums, lanes and failover.

It follows proto/README.md, for readers and not for speed. protocol.py has the frames and the algorithms. It needs
python3-numpy, and python3-grpcio for gRPC.
"""

import asyncio
import collections
import contextlib
import pathlib
import secrets
import ssl
import time
from types import SimpleNamespace

import numpy as np
import protocol as p
from protocol import Kind, pb

DTYPES = "int8 uint8 int32 uint32 int64 uint64 float16 float32 float64".split()
OPS = {"sum": 0, "prod": 1, "max": 2, "min": 3, "avg": 4, "broadcast": 16}
LOST, TIMEOUT, UNTRUSTED, CANNOT_SERVE = -6, -7, -8, -13  # codes
WAITS, JOINED, RUNNING = range(3)  # a lane before WELCOME, before START, after START


async def connect_tcp(address, tls):
    """Returns a reader and a writer. tls: None, or a dict with the paths `authority` and, for mutual TLS, `certificate`
    and `key`. Python's ssl module has no exporter, so a secret together with TLS works over gRPC only."""
    host, port = address.rsplit(":", 1)
    if not tls:
        return await asyncio.open_connection(host, port)
    context = ssl.create_default_context(cafile=tls["authority"])
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.set_alpn_protocols(["reduction/1"])
    if "certificate" in tls:
        context.load_cert_chain(tls["certificate"], tls["key"])
    reader, writer = await asyncio.open_connection(host, port, ssl=context)
    writer.write_eof = writer.close  # close_notify
    return reader, writer


async def connect_grpc(address, tls):
    """The same for a call. Its writer has those methods of a StreamWriter that are needed here."""
    import grpc

    reader, sent = asyncio.StreamReader(), asyncio.Queue()
    options = [("grpc.use_local_subchannel_pool", 1)]  # a connection for each lane
    if tls:
        files = {name: pathlib.Path(path).read_bytes() for name, path in tls.items()}
        keys = grpc.ssl_channel_credentials(files["authority"], files.get("key"), files.get("certificate"))
        channel = grpc.aio.secure_channel(address, keys, options)
    else:
        channel = grpc.aio.insecure_channel(address, options)
    exchange = channel.stream_stream("/reduction.v1.Reducer/Exchange", pb.Piece.SerializeToString, pb.Piece.FromString)

    async def requests():
        while data := await sent.get():
            for at in range(0, len(data), 1 << 19):
                yield pb.Piece(data=data[at : at + (1 << 19)])

    async def answers():
        try:
            async with channel:
                async for piece in exchange(requests()):
                    reader.feed_data(piece.data)
            reader.feed_eof()
        except grpc.RpcError as exc:  # a status other than OK
            reader.set_exception(ConnectionError(exc.details()))

    task = asyncio.create_task(answers())
    return reader, SimpleNamespace(write=sent.put_nowait, write_eof=lambda: sent.put_nowait(b""), close=task.cancel)


async def receive(reader):
    """Returns the header and the payload of the next frame."""
    head = p.decode(await reader.readexactly(64))
    payload = await reader.readexactly(head["payload_len"])
    if head["flags"] & p.CHECKED and p.checksum(payload) != head["payload_sum"]:
        raise ValueError("the checksum of a payload is wrong")
    return head, payload


class Lane:
    """A connection to a reducer, which is made again when it ends. resumed: all ranks have the same view on it. todo,
    flight: of each priority, the chunks to send, and those that were sent and have no RESULT."""

    def __init__(self, reducer, index):
        self.reducer, self.index, self.writer, self.state, self.resumed = reducer, index, None, WAITS, False
        self.clear()

    def clear(self):
        self.todo, self.flight = ([collections.deque() for _ in range(4)] for _ in range(2))


class Communicator:
    """Await join(), operations and close() in one event loop. reducers: (id, address, lanes) of each; owner: the map;
    hello: further fields of HELLO."""

    def __init__(self, job, rank, world_size, reducers, owner, *, grpc=False, tls=None, secret=None, **hello):
        self.reducers, self.owner, self.tls, self.secret = reducers, owner, tls, secret
        self.connect = connect_grpc if grpc else connect_tcp
        fields = dict(job=job, rank=rank, world_size=world_size, incarnation=secrets.randbits(64), processes=1,
                      label=f"python rank {rank}", software="reference client", chunk_bytes=32768, window=32,
                      priorities=2, detect_ms=10000, retain=len(reducers) > 1)  # fmt: skip
        self.hello = h = pb.Hello(**{**fields, **hello})
        h.config_digest = p.digest(h.deterministic, h.checksum, h.chunk_bytes, h.window, h.priorities,
                                   [(name, lanes) for name, _, lanes in reducers], owner)  # fmt: skip
        self.lanes_of = [[Lane(r, i) for i in range(lanes)] for r, (_, _, lanes) in enumerate(reducers)]
        self.lanes = [lane for lanes in self.lanes_of for lane in lanes]
        self.lead = max(len(owner), 8 * len(self.lanes))  # D
        self.lives, self.loss = [0] * len(reducers), {}  # the view, and what it says of the last loss
        self.places = p.place([lanes for _, _, lanes in reducers], owner, self.lives)
        self.chunks = [collections.deque() for _ in range(4)]  # of each priority: those that may be needed again
        self.ends, self.seen = [0] * 4, [0] * 4  # of each priority: positions that exist, that were seen in a RESULT
        self.ops, self.accepted, self.stable = collections.deque(), 0, 0  # pending; started; all ranks have the results
        self.leaving, self.ended, self.error = False, False, None

    # what a program calls

    async def join(self, seconds=60):
        self.started = asyncio.get_running_loop().create_future()
        for lane in self.lanes:
            lane.task = asyncio.create_task(self.run(lane))
        self.pings = asyncio.create_task(self.ping())
        await asyncio.wait([self.started], timeout=seconds)
        if not self.started.done():
            self.fail(TIMEOUT, f"rank {self.hello.rank}: not all ranks and reducers came within {seconds} s")
        await self.started

    def all_reduce(self, array, op="sum", name_hash=0, tensors=0, priority=None, root=False):
        """Starts an operation. Returns a future with its result."""
        if self.error:
            raise self.error
        high, elems = self.hello.priorities - 1, self.hello.chunk_bytes // array.itemsize
        priority = high * (array.nbytes <= 65536) if priority is None else min(priority, high)
        n, done = max(1, -(-array.size // elems)), asyncio.get_running_loop().create_future()
        fields = dict(dtype=DTYPES.index(array.dtype.name), op=OPS[op], seq=self.accepted, count=array.size,
                      name_hash=name_hash, tensors=tensors, chunk_elems=elems, priority=priority)  # fmt: skip
        op = SimpleNamespace(seq=self.accepted, send=array.flatten(), result=array.copy(), root=root, left=n, done=done)
        for i in range(n):
            chunk = SimpleNamespace(op=op, part=slice(i * elems, (i + 1) * elems), fields=dict(fields, chunk=i),
                                    position=self.ends[priority] + i, result=None)  # fmt: skip
            self.chunks[priority].append(chunk)
            self.lane_of(chunk).todo[priority].append(chunk)
        self.ends[priority] += n
        self.accepted += 1
        self.ops.append(op)
        self.send()
        return done

    def broadcast(self, array, root):
        return self.all_reduce(array, "broadcast", root=root == self.hello.rank)

    async def group(self, tensors, op="sum"):
        """tensors: (name, array) of each, of one dtype, none above 32 KiB, all together at most 1 MiB."""
        name = p.group_hash([(a.size, p.name_hash(n)) for n, a in tensors])
        flat = await self.all_reduce(np.concatenate([a.ravel() for _, a in tensors]), op, name, len(tensors))
        parts = np.split(flat, np.cumsum([a.size for _, a in tensors])[:-1])
        return [part.reshape(a.shape) for part, (_, a) in zip(parts, tensors)]

    async def close(self):
        self.leaving = True
        for lane in self.lanes:
            if self.hello.retain and lane.state == RUNNING:
                self.say(lane, Kind.SETTLE)
        while not self.error and (self.ops or (self.hello.retain and self.stable < self.accepted)):
            await asyncio.sleep(0.01)
        if not self.error:
            self.end(Kind.GOODBYE)
        await asyncio.wait([lane.task for lane in self.lanes], timeout=5)
        if self.error:
            raise self.error

    # connections and frames

    async def run(self, lane):
        """Connects a lane, again and again, and reads its frames."""
        while not self.ended:
            writer, silence = None, self.hello.detect_ms / 1000
            try:
                reader, writer = await asyncio.wait_for(self.connect(self.reducers[lane.reducer][1], self.tls), 5)
                self.greet(lane, writer)
                while True:
                    head, payload = await asyncio.wait_for(receive(reader), silence)
                    if lane.writer is writer:  # else drop() has ended it, and the reducer has not yet
                        self.on_frame(lane, head, payload)
            except asyncio.IncompleteReadError:
                self.down(lane, writer, "it closed the connection")
            except asyncio.TimeoutError:
                self.down(lane, writer, f"nothing was heard from it for {silence} s")
            except Exception as exc:  # of sockets, gRPC, decode() or a handler
                self.down(lane, writer, str(exc))
            finally:
                if writer:
                    writer.close()
            await asyncio.sleep(0.1)

    async def ping(self):
        while not self.ended:
            for lane in self.lanes:
                if lane.state >= JOINED and time.monotonic() - lane.sent > lane.quiet:
                    self.say(lane, Kind.PING, count=lane.question)
            await asyncio.sleep(0.1)

    def say(self, lane, kind, payload=b"", flags=0, **fields):
        """Sends a frame. Control frames with a payload are CHECKED, others in jobs with checksums."""
        if payload and (self.hello.checksum or kind not in (Kind.DATA, Kind.KEPT)):
            flags, fields["payload_sum"] = flags | p.CHECKED, p.checksum(payload)
        ack = self.ops[0].seq if self.ops else self.accepted
        lane.writer.write(p.encode(kind, payload, flags=flags, ack=ack, generation=self.hello.generation, **fields))
        lane.sent = time.monotonic()

    def on_frame(self, lane, head, payload):
        self.stable = max(self.stable, head["ack"])
        handler = getattr(self, f"on_{Kind(head['type']).name.lower()}", None)
        if handler:  # WAITING and LATE are only for messages
            handler(lane, head, payload)
            self.send()

    def on_ping(self, lane, head, payload):
        lane.question = max(lane.question, head["count"])
        if head["count"]:
            self.say(lane, Kind.PING, count=lane.question)

    # joining

    def greet(self, lane, writer):
        lane.writer, lane.mac, lane.question = writer, b"", 0
        name, _, lanes = self.reducers[lane.reducer]
        hello = pb.Hello(reducer=name, lane=lane.index, lanes=lanes, rejoin=not self.is_alive(lane.reducer),
                         nonce=secrets.token_bytes(32) if self.secret else b"")  # fmt: skip
        hello.MergeFrom(self.hello)
        lane.hello = hello.SerializeToString()
        self.say(lane, Kind.HELLO, lane.hello)

    def on_challenge(self, lane, head, challenge):
        if not self.secret:
            return self.fail(UNTRUSTED, "the reducer asks for a secret, and this rank has none")
        mine, lane.mac = (p.mac(self.secret, side, b"", lane.hello, challenge) for side in ("worker", "reducer"))
        self.say(lane, Kind.PROOF, pb.Proof(mac=mine).SerializeToString())

    def on_welcome(self, lane, head, payload):
        welcome = pb.Welcome.FromString(payload)
        if self.secret and not (lane.mac and secrets.compare_digest(welcome.mac, lane.mac)):
            return self.fail(UNTRUSTED, "the reducer has not proven that it has the job's secret")
        lane.state, lane.quiet = JOINED, (welcome.detect_ms or self.hello.detect_ms) / 4000
        if any(self.lives) and self.is_alive(lane.reducer):
            self.send_view(lane)

    def on_refused(self, lane, head, payload):
        refused = pb.Refused.FromString(payload)
        if not refused.retry and self.is_alive(lane.reducer):
            self.fail(refused.code, refused.message)

    def on_start(self, lane, head, payload):
        lane.state, lane.resumed = RUNNING, not any(self.lives)
        if not self.is_alive(lane.reducer) and all(other.state == RUNNING for other in self.lanes_of[lane.reducer]):
            self.change(lane.reducer)
        living = [other for other in self.lanes if self.is_alive(other.reducer)]
        if all(other.state == RUNNING for other in living) and not self.started.done():
            self.started.set_result(None)

    # operations

    def lane_of(self, chunk):
        reducer, index = self.places[(chunk.fields["chunk"] + chunk.op.seq) % len(self.owner)]
        return self.lanes_of[reducer][index]

    def first_missing(self, priority):  # position
        pending = [lane.flight[priority] or lane.todo[priority] for lane in self.lanes]
        return min((chunks[0].position for chunks in pending if chunks), default=self.ends[priority])

    def may_send(self, lane, priority):
        if not lane.resumed or not lane.todo[priority]:
            return False
        window, reserve = self.hello.window, max(1, self.hello.window // 8)
        if sum(map(len, lane.flight)) >= window and len(lane.flight[priority]) >= reserve:
            return False
        return lane.todo[priority][0].position - self.first_missing(priority) <= self.lead

    def send(self):  # all that may be sent
        for lane in self.lanes:
            for priority in reversed(range(self.hello.priorities)):
                while self.may_send(lane, priority):
                    chunk = lane.todo[priority].popleft()
                    lane.flight[priority].append(chunk)
                    self.send_chunk(lane, chunk)

    def send_chunk(self, lane, chunk):
        if chunk.result is not None:
            self.say(lane, Kind.HAVE, **chunk.fields)
        elif chunk.fields["op"] == OPS["broadcast"] and not chunk.op.root:
            self.say(lane, Kind.DATA, **chunk.fields)
        else:
            self.say(lane, Kind.DATA, chunk.op.send[chunk.part].tobytes(), flags=p.ROOT * chunk.op.root, **chunk.fields)

    def on_result(self, lane, head, payload):
        if not lane.resumed:
            return  # between VIEW and RESUME
        priority = head["priority"]
        chunk = lane.flight[priority].popleft()
        if (chunk.op.seq, chunk.fields["chunk"]) != (head["seq"], head["chunk"]):
            raise ValueError("a RESULT came out of order")
        self.seen[priority] = max(self.seen[priority], chunk.position + 1)
        if chunk.result is None:
            chunk.result = payload or chunk.op.send[chunk.part].tobytes()  # the root of a broadcast gets none
            chunk.op.result.flat[chunk.part] = np.frombuffer(chunk.result, chunk.op.result.dtype)
            chunk.op.left -= 1
        while self.ops and self.ops[0].left == 0:
            op = self.ops.popleft()
            op.done.set_result(op.result)
        needed = min(self.stable_position(priority), self.first_missing(priority))
        while self.chunks[priority] and self.chunks[priority][0].position < needed:
            self.chunks[priority].popleft()

    def on_fetch(self, lane, head, payload):
        for chunk in self.chunks[head["priority"]]:
            if (chunk.op.seq, chunk.fields["chunk"]) == (head["seq"], head["chunk"]):
                self.say(lane, Kind.KEPT, chunk.result, **chunk.fields)

    def stable_position(self, priority):  # all ranks have the results below
        return max(0, self.seen[priority] - 1 - self.lead)

    # reducers that are lost and come back

    def is_alive(self, reducer):
        return self.lives[reducer] % 2 == 0

    def down(self, lane, writer, why):  # the connection has ended
        if writer and lane.writer is writer:
            lost = self.started.done() and lane.state >= JOINED and self.is_alive(lane.reducer)
            self.drop(lane)
            if lost:
                self.change(lane.reducer, why)

    def drop(self, lane, kind=None, payload=b""):
        """Ends a connection, with this frame if there is one; run() reads on until the reducer has ended it too."""
        if kind and lane.state >= JOINED:
            self.say(lane, kind, payload)
        with contextlib.suppress(OSError):  # the reducer has closed it
            if lane.writer:
                lane.writer.write_eof()
        lane.writer, lane.state, lane.resumed = None, WAITS, False

    def change(self, reducer, why=""):
        """This rank has lost a reducer, or it is back."""
        if not self.hello.retain:
            return self.fail(LOST, f"reducer {self.reducers[reducer][0]} was lost: {why}")
        self.merge([life + (r == reducer) for r, life in enumerate(self.lives)], {reducer: why})

    def on_view(self, lane, head, payload):
        view = pb.View.FromString(payload)
        self.merge(view.lives, {view.lost - 1: view.why})

    def merge(self, lives, reasons):
        """Takes the larger numbers of a view. reasons: why reducers were lost."""
        changed = [r for r, life in enumerate(lives) if life > self.lives[r]]
        for r in changed:
            connected = all(lane.writer for lane in self.lanes_of[r])
            missed = lives[r] % 2 == 0 and (self.is_alive(r) or not connected)  # it was lost meanwhile
            self.lives[r] = lives[r] + missed
            if not self.is_alive(r):
                why = reasons.get(r, "another rank has lost it")
                self.loss = dict(lost=r + 1, why=why, lost_id=self.reducers[r][0])
                abort = pb.Abort(code=CANNOT_SERVE, message=f"rank {self.hello.rank} continues without it: {why}")
                for lane in self.lanes_of[r]:
                    self.drop(lane, Kind.ABORT, abort.SerializeToString())
        if all(life % 2 for life in self.lives):
            return self.fail(LOST, f"all reducers are lost, the last one: {self.loss['why']}")
        if changed:
            self.apply()

    def apply(self):  # the view has changed
        self.places = p.place([lanes for _, _, lanes in self.reducers], self.owner, self.lives)
        for lane in self.lanes:
            lane.clear()
            if lane.state >= JOINED and self.is_alive(lane.reducer):
                self.send_view(lane)
        for priority, chunks in enumerate(self.chunks):
            for chunk in chunks:
                self.lane_of(chunk).todo[priority].append(chunk)

    def send_view(self, lane):
        lane.resumed = False
        view = pb.View(lives=self.lives, start=map(self.stable_position, range(4)), **self.loss)
        self.say(lane, Kind.VIEW, view.SerializeToString())
        if self.leaving and lane.state == RUNNING:
            self.say(lane, Kind.SETTLE)

    def on_resume(self, lane, head, payload):
        view = pb.View.FromString(payload)
        if view.lives == self.lives:  # else there was a later view
            lane.resumed = True
            for todo, start in zip(lane.todo, view.start):
                while todo and todo[0].position < start:
                    todo.popleft()

    def on_drain(self, lane, head, payload):
        living = [r for r in range(len(self.reducers)) if self.is_alive(r)]
        if self.hello.retain and lane.reducer in living and len(living) > 1:
            self.change(lane.reducer, "it is shutting down")

    # the end

    def on_abort(self, lane, head, payload):
        abort = pb.Abort.FromString(payload)
        if self.hello.retain and (abort.code == CANNOT_SERVE or not self.is_alive(lane.reducer)):
            raise ConnectionError(abort.message)
        self.drop(lane)
        self.fail(abort.code, abort.message)

    def fail(self, code, why):
        """Ends the job for all ranks."""
        if not self.error:
            self.error = RuntimeError(why)
            self.end(Kind.ABORT, pb.Abort(code=code, message=why).SerializeToString())
            pending = [self.started, *(op.done for op in self.ops)]
            for future in [future for future in pending if not future.done()]:
                future.set_exception(self.error)

    def end(self, kind, payload=b""):
        self.ended = True
        for lane in self.lanes:
            if lane.state < JOINED:
                lane.task.cancel()
            self.drop(lane, kind, payload)
