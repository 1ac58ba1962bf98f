# SPDX-License-Identifier: Apache-2.0
"""The reference client: one rank of a job, over TCP or gRPC, with secrets, TLS, groups, sharded operations, encodings,
checksums, lanes, failover and relays.

It follows proto/README.md, for readers and not for speed. protocol.py has the frames and the algorithms, blocks.py the
encodings. It needs python3-numpy, and python3-grpcio for gRPC.
"""

import asyncio
import contextlib
import pathlib
import secrets
import ssl
from types import SimpleNamespace

import blocks
import numpy as np
import protocol as p
from protocol import Kind, pb

DTYPES = "int8 uint8 int32 uint32 int64 uint64 float16 float32 float64".split()
OPS = {"sum": 0, "prod": 1, "max": 2, "min": 3, "avg": 4, "broadcast": 16}
MISMATCH, LOST, TIMEOUT, UNTRUSTED, CLOSED, CANNOT_SERVE = -5, -6, -7, -8, -9, -13  # codes
# A lane whose job has ended; before WELCOME, before START, between VIEW and RESUME, after them.
KEPT, WAITS, JOINED, STARTED, RUNNING = range(5)
TO_SEND, SENT, DONE = range(3)  # a chunk, in the current view


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

    keys, options = None, [("grpc.use_local_subchannel_pool", 1)]  # a connection for each lane
    if tls:
        files = {name: pathlib.Path(path).read_bytes() for name, path in tls.items()}
        keys = grpc.ssl_channel_credentials(files["authority"], files.get("key"), files.get("certificate"))
    channel = grpc.aio.secure_channel(address, keys, options) if keys else grpc.aio.insecure_channel(address, options)
    exchange = channel.stream_stream("/reduction.v1.Reducer/Exchange", pb.Piece.SerializeToString, pb.Piece.FromString)
    reader, sent = asyncio.StreamReader(), asyncio.Queue()

    async def requests():
        while data := await sent.get():
            for at in range(0, len(data), 1 << 19):
                yield pb.Piece(data=data[at : at + (1 << 19)])

    async def answers():
        with contextlib.suppress(grpc.RpcError):  # a status other than OK
            async with channel:
                async for piece in exchange(requests()):
                    reader.feed_data(piece.data)
        reader.feed_eof()

    task = asyncio.create_task(answers())
    return reader, SimpleNamespace(write=sent.put_nowait, write_eof=lambda: sent.put_nowait(b""), close=task.cancel)


async def receive(reader):
    """Returns the header and the payload of the next frame."""
    head = p.decode(await reader.readexactly(64))
    payload = await reader.readexactly(head["payload_len"])
    if head["flags"] & p.CHECKED and p.checksum(payload) != head["payload_sum"]:
        raise ValueError("the checksum of a payload is wrong")
    return head, payload


class Communicator:
    """Await join(), operations and close() in one event loop. reducers: (id, address, lanes) of each; owner: the map;
    groups: (name, relays) of each, as in digest(), and group: the index of this rank's; hello: further fields of HELLO.

    A lane is a connection to a reducer, which is made again when it ends. Its `flight` has, of each priority, the
    number of chunks that were sent and have no RESULT. `again` of a chunk: it is a part of another rank in a
    reduce-scatter, so it is sent once more after a loss, even if its RESULT has come."""

    def __init__(self, job, rank, world_size, reducers, owner, *, grpc=False, tls=None, secret=None, groups=(),
                 group=0, **hello):  # fmt: skip
        self.reducers, self.owner, self.tls, self.secret = reducers, owner, tls, secret
        self.relays = groups[group][1] if groups else []
        self.connect = connect_grpc if grpc else connect_tcp
        fields = dict(job=job, rank=rank, world_size=world_size, incarnation=secrets.randbits(64), processes=1,
                      label=f"python rank {rank}", software="reference client", chunk_bytes=32768, window=32,
                      priorities=2, detect_ms=10000, retain=len(reducers) > 1,
                      features=p.FEATURE_START | p.FEATURE_PROBE | p.FEATURE_ENCODINGS
                      | p.FEATURE_RECONFIGURE | p.FEATURE_SHARES
                      | p.FEATURE_SLOTS | p.FEATURE_SHARDED)  # fmt: skip
        if groups:
            relaying = {r for _, relays in groups for r in relays} - {p.NO_RELAY}
            fields.update(groups=len(groups), group=group + 1, features=fields["features"] | p.FEATURE_RELAYS,
                          uplinks=sum(reducers[r][2] for r in relaying),
                          reducers_digest=p.reducers_digest([name for name, _, _ in reducers]))  # fmt: skip
        self.hello = h = pb.Hello(**{**fields, **hello})
        h.config_digest = p.digest(h.deterministic, h.checksum, h.chunk_bytes, h.window, h.priorities,
                                   [(name, lanes) for name, _, lanes in reducers], owner, groups=groups)  # fmt: skip
        self.lanes = [SimpleNamespace(reducer=r, index=i, writer=None, state=WAITS, task=None, keeps=False)
                      for r, (_, _, lanes) in enumerate(reducers) for i in range(lanes)]  # fmt: skip
        self.reset()

    def reset(self):
        """Begins a generation."""
        self.chunks = []  # those that may be needed again
        self.ends, self.seen = [0] * 4, [0] * 4  # of each priority: positions that exist, that were seen in a RESULT
        self.ops, self.accepted, self.stable = [], 0, 0  # pending; started; all ranks have the results
        self.ended, self.error = False, None
        self.lives, self.epoch, self.shares = [0] * len(self.reducers), 0, []  # the view
        self.border = [0] * 4  # of each priority: chunks from this position on may be relayed
        self.start = 0  # which start of the job this is, if a reducer has said it
        self.features = self.hello.features  # what the job uses, as far as this rank knows
        self.begin_view()

    @property
    def lead(self):  # D
        lead = max(len(self.owner), 8 * len(self.lanes))
        return min(lead, 512) if self.features & p.FEATURE_SLOTS else lead

    async def join(self, seconds=60):
        self.started = asyncio.get_running_loop().create_future()
        for lane in self.lanes:
            if lane.state == KEPT and lane.writer:
                lane.state = WAITS
                self.say_hello(lane)
            else:
                lane.task = asyncio.create_task(self.run(lane))
        await asyncio.wait([self.started], timeout=seconds)
        if not self.started.done():
            self.fail(TIMEOUT, f"rank {self.hello.rank}: not all ranks and reducers came within {seconds} s")
        await self.started

    async def reconfigure(self, rank, world_size, generation):
        """Joins a newer generation, on the connections that reducers keep."""
        self.fail(CLOSED, f"rank {self.hello.rank} goes on in generation {generation}")
        if dropped := [lane.task for lane in self.lanes if lane.state != KEPT]:
            await asyncio.wait(dropped, timeout=5)
        self.hello.rank, self.hello.world_size, self.hello.generation = rank, world_size, generation
        self.hello.incarnation = secrets.randbits(64)
        self.reset()
        await self.join()

    def all_reduce(self, array, op="sum", name_hash=0, tensors=0, root=None, up="same", down="same", random=False,
                   sharded=False):  # fmt: skip
        """Starts an operation. Returns a future with its result. root: of a broadcast, whether this rank sends. up and
        down: the encodings; random: how the contribution is rounded."""
        if self.error:
            raise self.error
        up, down = blocks.WIRES.index(up), blocks.WIRES.index(down)
        if (up or down) and not self.features & p.FEATURE_ENCODINGS:
            raise ValueError("not all ranks and reducers know encodings")
        if sharded and not self.features & p.FEATURE_SHARDED:
            raise ValueError("not all ranks and reducers know sharded operations")
        scatter, gather = sharded and op != "broadcast", sharded and op == "broadcast"
        priority = (self.hello.priorities - 1) * (array.nbytes <= 65536 or gather)
        size = p.sharded_bytes(self.hello.world_size, self.hello.chunk_bytes) if sharded else self.hello.chunk_bytes
        elems = blocks.chunk_elems(array.itemsize, up, down, size, self.hello.decoded_bytes)
        relayed = array.nbytes > 65536 and op != "broadcast" and not sharded
        fields = dict(dtype=DTYPES.index(array.dtype.name), op=OPS[op] + p.SHARDED * sharded, seq=self.accepted,
                      count=array.size, name_hash=name_hash, tensors=self.hello.world_size if sharded else tensors,
                      chunk_elems=elems, priority=priority, up=up, down=down)  # fmt: skip
        op = SimpleNamespace(seq=self.accepted, array=array, chunks=[], done=asyncio.get_running_loop().create_future())
        for i, (first, n, owned) in enumerate(self.cut(array.size, elems, sharded)):
            is_root = owned if sharded else root
            sends = scatter or is_root is not False
            data = self.encode(array.ravel()[first : first + n], first, fields, random) if sends else b""
            op.chunks.append(SimpleNamespace(fields=dict(fields, chunk=i), shard=(i + op.seq) % len(self.owner),
                                             first=first, n=n, priority=priority, position=self.ends[priority] + i,
                                             state=TO_SEND, data=data, flags=p.ROOT if is_root else 0, result=None,
                                             again=scatter and not owned, relayed=relayed))  # fmt: skip
        self.ends[priority] += len(op.chunks)
        self.accepted += 1
        self.ops.append(op)
        self.chunks += op.chunks
        self.send()
        return op.done

    def cut(self, count, elems, sharded):
        """Of each chunk its first element, how many it has and, if sharded, whether this rank owns its part."""
        if not sharded:
            return [(i * elems, min(elems, count - i * elems), None) for i in range(max(1, -(-count // elems)))]
        parts = self.hello.world_size
        places = [p.sharded_place(count, parts, elems, i) for i in range(p.sharded_chunks(count, parts, elems))]
        return [(first, n, part == self.hello.rank) for part, first, n in places]

    def encode(self, part, first, fields, random):
        """The contribution to a chunk. It is made once, so that it is the same when it is sent again."""
        if not fields["up"]:
            return part.tobytes()
        bits = blocks.random_bits(fields["seq"], self.hello.rank, first, part.size) if random else None
        return blocks.encode(fields["up"], part.astype(np.float32), bits)

    def decode(self, array, chunk):
        """A result as elements of the dtype."""
        if not chunk.fields["down"]:
            return np.frombuffer(chunk.result, array.dtype)
        return blocks.decode(chunk.fields["down"], chunk.result, chunk.n).astype(array.dtype)

    def broadcast(self, array, root):
        return self.all_reduce(array, "broadcast", root=root == self.hello.rank)

    async def reduce_scatter(self, array, op="sum", name_hash=0, **wire):
        """array: a part for each rank. Returns the reduction of this rank's part."""
        parts = await self.all_reduce(array, op, name_hash, sharded=True, **wire)
        return np.split(parts.ravel(), self.hello.world_size)[self.hello.rank]

    async def all_gather(self, array, name_hash=0):
        """array: this rank's part. Returns those of all ranks."""
        parts = np.zeros((self.hello.world_size, array.size), array.dtype)
        parts[self.hello.rank] = array.ravel()
        return (await self.all_reduce(parts, "broadcast", name_hash, sharded=True)).ravel()

    async def group(self, tensors, op="sum", block=1, **wire):
        """tensors: (name, array) of each, of one dtype, none above 32 KiB, all together at most 1 MiB. block: elements
        of which each takes a multiple."""
        name = p.group_hash([(a.size, p.name_hash(n)) for n, a in tensors])
        padded = [np.pad(a.ravel(), (0, -a.size % block)) for _, a in tensors]
        flat = await self.all_reduce(np.concatenate(padded), op, name, len(tensors), **wire)
        parts = np.split(flat, np.cumsum([a.size for a in padded])[:-1])
        return [part[: a.size].reshape(a.shape) for part, (_, a) in zip(parts, tensors)]

    async def close(self):
        while not self.error and (self.ops or (self.hello.retain and self.stable < self.accepted)):
            for lane in self.lanes:
                if self.hello.retain and lane.state >= STARTED:
                    self.say(lane, Kind.SETTLE)
            await asyncio.sleep(0.1)
        if not self.error:
            self.end(Kind.GOODBYE)
        for lane in self.lanes:
            if lane.state == KEPT:
                self.drop(lane)
        await asyncio.wait([lane.task for lane in self.lanes], timeout=5)
        if self.error:
            raise self.error

    async def run(self, lane):
        """Connects a lane, again and again, and reads its frames."""
        while not self.ended:
            writer, silence = None, self.hello.detect_ms / 1000
            try:
                reader, writer = await asyncio.wait_for(self.connect(self.reducers[lane.reducer][1], self.tls), 5)
                lane.writer, lane.question = writer, 0
                self.say_hello(lane)
                while True:
                    head, payload = await asyncio.wait_for(receive(reader), silence)
                    if lane.writer is not writer or lane.state == KEPT:
                        continue  # drop() has ended it, and the reducer has not yet; or the job has ended
                    if lane.state == WAITS:
                        self.on_answer(lane, head, payload)
                    else:
                        self.on_frame(lane, head, payload)
            except Exception as exc:  # of sockets, gRPC, decode() or a handler
                lost = self.started.done() and lane.state >= JOINED and self.is_alive(lane)
                self.drop(lane)
                if lost:
                    self.change(lane.reducer, repr(exc))
            finally:
                if writer:
                    writer.close()
            await asyncio.sleep(0.1)

    # the handshake

    def say_hello(self, lane):
        name, _, lanes = self.reducers[lane.reducer]
        hello = pb.Hello(reducer=name, lane=lane.index, lanes=lanes, rejoin=not self.is_alive(lane),
                         nonce=secrets.token_bytes(32) if self.secret else b"")  # fmt: skip
        hello.MergeFrom(self.hello)
        if hello.rejoin:
            hello.features = self.features
        lane.again, lane.announced = lane.keeps, hello.features
        lane.hello, lane.mac, lane.keeps = hello.SerializeToString(), b"", False
        self.say(lane, Kind.HELLO, lane.hello)

    def on_answer(self, lane, head, payload):
        match head["type"]:
            case Kind.CHALLENGE if self.secret and not lane.mac:
                mine, lane.mac = (p.mac(self.secret, side, b"", lane.hello, payload) for side in ("worker", "reducer"))
                self.say(lane, Kind.PROOF, pb.Proof(mac=mine).SerializeToString())
            case Kind.REFUSED:
                refused = pb.Refused.FromString(payload)
                if not refused.retry and self.is_alive(lane):
                    self.fail(refused.code, refused.message)
                raise ConnectionError(refused.message)
            case Kind.WELCOME if self.is_trusted(lane, welcome := pb.Welcome.FromString(payload)):
                self.on_welcome(lane, welcome)
            case kind if kind in (Kind.CHALLENGE, Kind.WELCOME) or not lane.again:  # else of the last generation
                self.fail(UNTRUSTED, "the reducer and this rank do not have the same secret")

    def is_trusted(self, lane, welcome):
        return not self.secret or (lane.mac and secrets.compare_digest(lane.mac, welcome.mac))

    def on_welcome(self, lane, welcome):
        lane.state = JOINED
        lane.keeps = bool(lane.announced & welcome.features & p.FEATURE_RECONFIGURE)
        if not self.is_alive(lane) and self.hello.features & welcome.features & p.FEATURE_PROBE:
            self.say(lane, Kind.PROBE, bytes(self.hello.chunk_bytes))
        seconds = (welcome.detect_ms or self.hello.detect_ms) / 4000
        lane.pings = asyncio.create_task(self.ping(lane, self.hello.generation, seconds))
        if self.number() and self.is_alive(lane):
            self.send_view(lane)

    async def ping(self, lane, generation, seconds):
        writer = lane.writer
        while lane.writer is writer and lane.state >= JOINED and self.hello.generation == generation:
            self.say(lane, Kind.PING, count=lane.question)
            await asyncio.sleep(seconds)

    def on_start(self, start):
        known = self.start or (self.hello.incarnation if self.hello.rank == 0 else 0)
        if start.start and known and start.start != known:
            self.fail(MISMATCH, f"rank {self.hello.rank}: two trainings use the job {self.hello.job}")
        self.start = start.start or self.start
        if not self.started.done():
            self.features &= start.features
            self.place()

    def say(self, lane, kind, payload=b"", flags=0, **fields):
        """Sends a frame. Control frames with a payload are CHECKED, others in jobs with checksums."""
        if payload and kind != Kind.PROBE and (self.hello.checksum or kind not in (Kind.DATA, Kind.KEPT)):
            flags, fields["payload_sum"] = flags | p.CHECKED, p.checksum(payload)
        fields = {"generation": self.hello.generation, "ack": self.ops[0].seq if self.ops else self.accepted, **fields}
        lane.writer.write(p.encode(kind, payload, flags=flags, **fields))

    def on_frame(self, lane, head, payload):
        self.stable = max(self.stable, head["ack"])
        match head["type"]:  # WAITING and LATE are only for messages
            case Kind.START:
                self.on_start(pb.Start.FromString(payload))
                lane.state = STARTED if self.number() else RUNNING
                waiting = [other for other in self.lanes if other.state < STARTED]
                if not self.is_alive(lane) and all(other.reducer != lane.reducer for other in waiting):
                    self.change(lane.reducer)
                if not self.started.done() and not any(map(self.is_alive, waiting)):
                    self.started.set_result(None)
            case Kind.PING:
                lane.question = max(lane.question, head["count"])
                if head["count"]:
                    self.say(lane, Kind.PING, count=lane.question)
            case Kind.PROBE:  # large messages pass both ways
                self.say(lane, Kind.PROBE)
            case Kind.RESULT if lane.state == RUNNING:  # else it belongs to the view before
                self.on_result(lane, self.find(head), payload)
            case Kind.FETCH:
                chunk = self.find(head)
                self.say(lane, Kind.KEPT, chunk.result, **chunk.fields)
            case Kind.VIEW:
                self.on_view(pb.View.FromString(payload))
            case Kind.RESUME if self.is_mine(view := pb.View.FromString(payload)):  # else there was a later one
                lane.state = RUNNING
                self.border = list(view.begun) or [0] * 4
                if not self.accepted:
                    self.features &= view.features
                    self.place()
                for chunk in self.chunks:
                    if chunk.position < view.start[chunk.priority] and self.lane_of(chunk) is lane:
                        chunk.state = DONE
            case Kind.DRAIN if self.hello.retain and self.is_alive(lane):
                if any(self.is_alive(other) for other in self.lanes if other.reducer != lane.reducer):
                    self.change(lane.reducer, "it is shutting down")
            case Kind.ABORT:
                abort = pb.Abort.FromString(payload)
                if self.hello.retain and (abort.code == CANNOT_SERVE or not self.is_alive(lane)):
                    raise ConnectionError(abort.message)
                if lane.keeps:
                    lane.state = KEPT
                else:
                    self.drop(lane)
                self.fail(abort.code, abort.message)
        self.send()

    # operations

    def relay_of(self, chunk):
        """The place of the relay that adds a chunk first; None: the chunk goes straight home."""
        return self.relayed[chunk.shard] if chunk.relayed and chunk.position >= self.border[chunk.priority] else None

    def lane_of(self, chunk):
        place = self.relay_of(chunk) or self.places[chunk.shard]
        return next(lane for lane in self.lanes if (lane.reducer, lane.index) == place)

    def may_send(self, lane, chunk):
        window, reserve = self.hello.window, max(1, self.hello.window // 8)
        if lane.state < RUNNING or (sum(lane.flight) >= window and lane.flight[chunk.priority] >= reserve):
            return False
        missing = next(c.position for c in self.chunks if c.priority == chunk.priority and c.state < DONE)
        return chunk.position - missing <= self.lead

    def send(self):  # all that may be sent, the most urgent first
        for chunk in sorted(self.chunks, key=lambda chunk: -chunk.priority):
            lane = self.lane_of(chunk)
            if chunk.state == TO_SEND and self.may_send(lane, chunk):
                chunk.state = SENT
                lane.flight[chunk.priority] += 1
                if self.relay_of(chunk):
                    reducer, index = self.places[chunk.shard]
                    home = {"generation": reducer << 16 | index}
                    self.say(lane, Kind.DATA, chunk.data, flags=p.RELAY, **chunk.fields, **home)
                elif chunk.result is None or chunk.again:
                    self.say(lane, Kind.DATA, chunk.data, flags=chunk.flags, **chunk.fields)
                else:
                    self.say(lane, Kind.HAVE, **chunk.fields)

    def find(self, head):
        return next(c for c in self.chunks if c.fields["seq"] == head["seq"] and c.fields["chunk"] == head["chunk"])

    def on_result(self, lane, chunk, payload):
        chunk.state = DONE
        lane.flight[chunk.priority] -= 1
        self.seen[chunk.priority] = max(self.seen[chunk.priority], chunk.position + 1)
        if chunk.result is None:
            chunk.result = payload or chunk.data  # the root of a broadcast gets none
        while self.ops and all(chunk.result is not None for chunk in self.ops[0].chunks):
            op = self.ops.pop(0)
            result = np.zeros(op.array.size, op.array.dtype)
            for chunk in op.chunks:
                if not chunk.again:  # of a reduce-scatter only the own part has a result
                    result[chunk.first : chunk.first + chunk.n] = self.decode(op.array, chunk)
            op.done.set_result(result.reshape(op.array.shape))
        self.chunks = [c for c in self.chunks if c.state < DONE or c.position >= self.stable_position(c.priority)]

    def stable_position(self, priority):  # all ranks have the results below
        return max(0, self.seen[priority] - 1 - self.lead)

    # reducers that are lost and come back, and their shares

    def number(self):
        return sum(self.lives) + self.epoch

    def is_mine(self, view):
        return view.lives == self.lives and view.epoch == self.epoch

    def is_alive(self, lane):
        return self.lives[lane.reducer] % 2 == 0

    def change(self, reducer, why=""):
        """This rank has lost a reducer, or it is back."""
        if self.hello.retain:
            self.merge([life + (r == reducer) for r, life in enumerate(self.lives)], why)
        else:
            self.fail(LOST, f"reducer {self.reducers[reducer][0]} was lost: {why}")

    def set_shares(self, shares):
        """Gives the reducers these shares, 1 to 65535 each. Returns whether it could: only rank 0 can, if all ranks and
        reducers know shares, and all have the last view."""
        settled = all(lane.state == RUNNING for lane in self.lanes if self.is_alive(lane))
        able = self.hello.retain and self.features & p.FEATURE_SHARES and len(self.owner) >= len(self.reducers)
        if self.hello.rank or not able or not settled or self.error:
            return False
        self.merge(self.lives, "", self.epoch + 1, shares)
        return True

    def on_view(self, view):
        """Only rank 0 sets shares, and only once in each epoch."""
        mine = self.shares if view.epoch == self.epoch else view.shares
        if (view.shares != mine or len(view.shares) != (len(self.lives) if view.epoch else 0)
                or not all(1 <= share <= p.SHARE_MAX for share in view.shares)
                or (view.epoch > self.epoch and self.hello.rank == 0)):  # fmt: skip
            raise ValueError(f"a view has wrong shares in epoch {view.epoch}")
        self.merge(view.lives, "another rank has lost it", view.epoch, view.shares)

    def merge(self, lives, why, epoch=0, shares=()):
        """Takes the larger numbers of a view, and the shares of the larger epoch."""
        newer = epoch > self.epoch
        if newer:
            self.epoch, self.shares = epoch, list(shares)
        changed = [r for r, life in enumerate(lives) if life > self.lives[r]]
        for r in changed:
            lanes = [lane for lane in self.lanes if lane.reducer == r]
            missed = lives[r] % 2 == 0 and (self.is_alive(lanes[0]) or not all(lane.writer for lane in lanes))
            self.lives[r] = lives[r] + missed  # it was lost meanwhile
            abort = pb.Abort(code=CANNOT_SERVE, message=f"rank {self.hello.rank} continues without it: {why}")
            for lane in lanes if self.lives[r] % 2 else []:
                self.drop(lane, Kind.ABORT, abort.SerializeToString())
        if all(life % 2 for life in self.lives):
            self.fail(LOST, f"all reducers are lost, the last one: {why}")
        elif changed or newer:
            self.begin_view()

    def place(self):
        """Finds where the shards live in this view, and their relays."""
        place, lanes = p.place_slots if self.features & p.FEATURE_SLOTS else p.place, [r[2] for r in self.reducers]
        self.places = place(lanes, self.owner, self.lives, self.shares)
        self.relayed = [None] * len(self.owner)
        if self.features & p.FEATURE_RELAYS:
            self.relayed = p.place_relays(lanes, self.relays, self.lives, self.places)

    def begin_view(self):
        """All chunks that are kept are sent again."""
        self.place()
        for chunk in self.chunks:
            chunk.state = TO_SEND
        for lane in self.lanes:
            lane.flight = [0] * 4
            if lane.state >= JOINED and self.is_alive(lane):
                self.send_view(lane)

    def send_view(self, lane):
        lane.state = min(lane.state, STARTED)
        view = pb.View(lives=self.lives, start=map(self.stable_position, range(4)), features=self.features,
                       epoch=self.epoch, shares=self.shares,
                       begun=self.seen if self.features & p.FEATURE_RELAYS else [])  # fmt: skip
        self.say(lane, Kind.VIEW, view.SerializeToString())

    # the end

    def drop(self, lane, kind=None, payload=b""):
        """Ends a connection, with this frame if there is one; run() reads on until the reducer has ended it too."""
        if kind and lane.state >= JOINED:
            self.say(lane, kind, payload)
        with contextlib.suppress(OSError):  # the reducer has closed it
            if lane.writer:
                lane.writer.write_eof()
        lane.writer, lane.state = None, WAITS

    def fail(self, code, why):
        """Ends the job for all ranks."""
        if not self.error:
            self.error = RuntimeError(why)
            self.end(Kind.ABORT, pb.Abort(code=code, message=why).SerializeToString())
            for future in [self.started, *(op.done for op in self.ops)]:
                if not future.done():
                    future.set_exception(self.error)

    def end(self, kind, payload=b""):
        self.ended = True
        for lane in self.lanes:
            if lane.keeps and kind == Kind.ABORT and lane.state >= JOINED:
                self.say(lane, kind, payload)
                lane.state = KEPT
            elif lane.state != KEPT:
                if lane.state == WAITS:
                    lane.task.cancel()
                self.drop(lane, kind, payload)
