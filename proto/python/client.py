# SPDX-License-Identifier: Apache-2.0
"""The reference client: one rank of a job, over TCP or gRPC, with secrets, TLS, groups, checksums, lanes and failover.

It follows proto/README.md, for readers and not for speed. It needs python3-numpy and python3-xxhash, and
python3-grpcio for gRPC. It uses protocol.py (frames, algorithms) and transport.py (connections).
"""

import collections
import queue
import secrets
import threading
import time

import numpy as np
import protocol as p
from transport import Grpc, Tcp

DTYPES = "int8 uint8 int32 uint32 int64 uint64 float16 float32 float64".split()
OPS = {"sum": 0, "prod": 1, "max": 2, "min": 3, "avg": 4, "broadcast": 16}
ABORTED, LOST = -15, -13  # codes
WAITS, JOINED, RUNNING = range(3)  # a lane before WELCOME, before START, after START


class Lane:
    def __init__(self, reducer, index):
        self.reducer, self.index, self.conn, self.state, self.view = reducer, index, None, WAITS, -1


class Communicator:
    """reducers: (id, address, lanes) of each; owner: the map; hello: further fields of HELLO. trace is called with
    (lane, "worker" or "reducer", frame)."""

    def __init__(self, job, rank, world_size, reducers, owner, *, grpc=False, tls=None, secret=None, chunk_bytes=32768,
                 window=32, priorities=2, detect_ms=10000, connect=60, trace=lambda *_: None, **hello):  # fmt: skip
        lanes = [n for _, _, n in reducers]
        self.hello = dict(job=job, rank=rank, world_size=world_size, chunk_bytes=chunk_bytes, window=window,
                          priorities=priorities, detect_ms=detect_ms, incarnation=secrets.randbits(64), processes=1,
                          label=f"python rank {rank}", software="reference client",
                          retain=len(reducers) > 1)  # fmt: skip
        self.hello.update(hello)
        self.checked, self.retain = self.hello.get("checksum", False), self.hello["retain"]
        ids = [(name, n) for name, _, n in reducers]
        self.hello["config_digest"] = p.digest(self.hello.get("deterministic", False), self.checked, chunk_bytes,
                                               window, priorities, ids, owner)  # fmt: skip
        self.reducers, self.counts, self.owner, self.trace = reducers, lanes, owner, trace
        self.transport, self.tls, self.secret = Grpc if grpc else Tcp, tls, secret
        self.lanes = [Lane(r, i) for r, n in enumerate(lanes) for i in range(n)]
        self.lead = max(len(owner), 8 * len(self.lanes))  # D
        self.lives, self.place, self.why = [0] * len(lanes), p.place(lanes, owner, [0] * len(lanes)), {}
        self.chunks = [{} for _ in range(priorities)]  # position: (op, fields, slice of its elements)
        self.first, self.seen, self.start = {}, [0] * 4, [0] * 4  # position of an operation's chunk 0; see start_of()
        self.ops, self.next, self.accepted, self.stable = collections.deque(), 0, 0, 0
        self.ends, self.number = [0] * 4, 0  # chunks of each priority; number of the view
        self.leaving = self.finished = self.error = None
        self.events, self.running = queue.SimpleQueue(), threading.Event()
        for lane in self.lanes:
            threading.Thread(target=self.read, args=(lane,), daemon=True).start()
        self.thread = threading.Thread(target=self.loop, daemon=True)
        self.thread.start()
        if not self.running.wait(connect):
            self.events.put(("fail", None, (-7, f"rank {rank}: not all ranks and reducers came within {connect} s")))
            self.thread.join()
        self.check()

    def submit(self, array, op="sum", name=0, tensors=0, priority=None, root=False):
        """Starts an operation; wait() returns its result."""
        seq, self.next = self.next, self.next + 1
        high = self.hello["priorities"] - 1
        fields = dict(dtype=DTYPES.index(array.dtype.name), op=OPS[op], seq=seq, count=array.size, name_hash=name,
                      tensors=tensors, chunk_elems=self.hello["chunk_bytes"] // array.itemsize,
                      priority=high * (array.nbytes <= 65536) if priority is None else min(priority, high))  # fmt: skip
        todo = dict(fields=fields, send=array.ravel().copy(), result=array.copy(), root=root, done=threading.Event())
        self.events.put(("op", None, todo))
        return todo

    def wait(self, op):
        op["done"].wait()
        self.check()
        return op["result"]

    def all_reduce(self, array, op="sum", name="", priority=None):
        return self.wait(self.submit(array, op, p.name_hash(name), priority=priority))

    def broadcast(self, array, root):
        return self.wait(self.submit(array, "broadcast", root=root == self.hello["rank"]))

    def group(self, tensors, op="sum"):
        """tensors: (name, array) of each, of one dtype, none above 32 KiB, all together at most 1 MiB."""
        name = p.group_hash([(a.size, p.name_hash(n)) for n, a in tensors])
        flat = self.wait(self.submit(np.concatenate([a.ravel() for _, a in tensors]), op, name, len(tensors)))
        parts = np.split(flat, np.cumsum([a.size for _, a in tensors])[:-1])
        return [part.reshape(a.shape) for part, (_, a) in zip(parts, tensors)]

    def close(self, why=None):
        """Leaves; why: ends the job for all ranks with this sentence."""
        self.events.put(("fail", None, (ABORTED, why)) if why else ("leave", None, None))
        self.thread.join()
        self.check()

    def check(self):
        if self.error:
            raise RuntimeError(self.error)

    def read(self, lane):  # the thread of a lane: connects, again and again, and reads frames
        while not self.finished:
            conn, data, why = None, b"", "the connection ended"
            try:
                conn = self.transport(self.reducers[lane.reducer][1], self.tls)
                self.events.put(("up", lane, conn))
                for more in conn.received():
                    data += more
                    while len(data) >= 64 and len(data) >= 64 + (head := p.decode(data))["payload_len"]:
                        frame, data = data[: 64 + head["payload_len"]], data[64 + head["payload_len"] :]
                        self.events.put(("frame", lane, (conn, head, frame)))
            except Exception as exc:  # of sockets, gRPC or decode()
                why = str(exc) or why
            self.events.put(("down", lane, (conn, why)))
            time.sleep(0.1)

    def loop(self):
        while not self.finished:
            try:
                what, lane, value = self.events.get(timeout=0.1)
                getattr(self, f"on_{what}")(lane, value)
            except queue.Empty:
                pass
            now = time.monotonic()
            for lane in self.lanes:
                if lane.conn and lane.state >= JOINED and now - lane.sent > lane.detect / 4:
                    self.say(lane, p.PING)
                if lane.conn and now - lane.heard > self.hello["detect_ms"] / 1000:
                    self.on_down(lane, (lane.conn, f"nothing was heard from it for {self.hello['detect_ms']} ms"))
            for lane in self.lanes:
                for priority in reversed(range(self.hello["priorities"])):
                    while self.send_next(lane, priority):
                        pass
            if self.leaving == "settle" and not self.ops and (not self.retain or self.stable >= self.next):
                self.end(p.GOODBYE)
            if self.leaving == "end" and (now > self.until or not any(lane.conn for lane in self.lanes)):
                self.finished = True
        for op in self.ops:
            op["done"].set()
        self.running.set()

    def say(self, lane, kind, payload=b"", flags=0, **fields):
        """Sends a frame. Control frames with a payload are CHECKED, others in jobs with checksums."""
        if payload and (self.checked or kind not in (p.DATA, p.KEPT)):
            flags, fields["payload_sum"] = flags | p.CHECKED, p.checksum(payload)
        ack = self.ops[0]["fields"]["seq"] if self.ops else self.accepted
        frame = p.encode(kind, payload, flags=flags, ack=ack, generation=self.hello.get("generation", 0), **fields)
        self.trace(lane, "worker", frame)
        lane.sent = time.monotonic()
        try:
            lane.conn.send(frame)
        except (OSError, ValueError):
            pass  # its thread notices too

    # joining

    def on_up(self, lane, conn):
        if self.leaving == "end":
            return conn.close()
        name, _, lanes = self.reducers[lane.reducer]
        lane.conn, lane.state, lane.view, lane.mac = conn, WAITS, -1, None
        lane.heard = lane.sent = time.monotonic()
        hello = dict(self.hello, reducer=name, lane=lane.index, lanes=lanes, rejoin=not self.lives_now(lane.reducer),
                     nonce=secrets.token_bytes(32) if self.secret else b"")  # fmt: skip
        lane.said = p.pack(p.HELLO, **hello)
        self.say(lane, p.HELLO, lane.said)

    def on_challenge(self, lane, head, challenge):
        if not self.secret:
            return self.on_fail(None, (-8, "the reducer asks for a secret, and this rank has none"))
        lane.mac = p.mac(self.secret, "reducer", b"", lane.said, challenge)
        proof = p.mac(self.secret, "worker", b"", lane.said, challenge)
        self.say(lane, p.PROOF, p.pack(p.PROOF, mac=proof))

    def on_welcome(self, lane, head, payload):
        welcome = p.unpack(p.WELCOME, payload)
        if self.secret and (lane.mac is None or not secrets.compare_digest(welcome["mac"], lane.mac)):
            return self.on_fail(None, (-8, "the reducer has not proven that it has the job's secret"))
        lane.state, lane.detect = JOINED, (welcome["detect_ms"] or self.hello["detect_ms"]) / 1000
        if self.number and self.lives_now(lane.reducer):
            self.send_view(lane)

    def on_refused(self, lane, head, payload):
        refused = p.unpack(p.REFUSED, payload)
        if not refused["retry"] and self.lives_now(lane.reducer):
            self.on_fail(None, (refused["code"], refused["message"]))

    def on_start(self, lane, head, payload):
        lane.state = RUNNING
        if self.number == 0:
            self.resume(lane, [0] * 4)
        mine = [other for other in self.lanes if other.reducer == lane.reducer]
        if not self.lives_now(lane.reducer) and all(other.state == RUNNING for other in mine):
            self.lives[lane.reducer] += 1
            self.apply()
        if all(other.state == RUNNING for other in self.lanes if self.lives_now(other.reducer)):
            self.running.set()

    # operations

    def on_op(self, _, op):
        fields, priority = op["fields"], op["fields"]["priority"]
        count, elems, self.accepted = fields["count"], fields["chunk_elems"], fields["seq"] + 1
        op["left"] = max(1, -(-count // elems))
        self.first[fields["seq"]] = self.ends[priority]
        for i in range(op["left"]):
            part = slice(i * elems, (i + 1) * elems)
            chunk = dict(op=op, part=part, result=None, fields=dict(fields, chunk=i))
            self.chunks[priority][self.ends[priority]] = chunk
            self.ends[priority] += 1
        self.ops.append(op)

    def lives_now(self, reducer):
        return self.lives[reducer] % 2 == 0

    def next_own(self, lane, priority):  # position of the lane's next chunk; inf: there is none
        while lane.at[priority] < self.ends[priority]:
            fields = self.chunks[priority][lane.at[priority]]["fields"]
            if self.place[(fields["chunk"] + fields["seq"]) % len(self.owner)] == (lane.reducer, lane.index):
                return lane.at[priority]
            lane.at[priority] += 1
        return float("inf")

    def first_missing(self, lane, priority):
        if not self.lives_now(lane.reducer):
            return float("inf")
        if lane.view != self.number or lane.state != RUNNING:
            return self.start[priority]
        return lane.flight[priority][0] if lane.flight[priority] else self.next_own(lane, priority)

    def send_next(self, lane, priority):  # sends the next chunk, if it may be sent
        if lane.state != RUNNING or lane.view != self.number or not self.lives_now(lane.reducer):
            return False
        position, window = self.next_own(lane, priority), self.hello["window"]
        if position == float("inf") or (sum(map(len, lane.flight)) >= window
                                        and len(lane.flight[priority]) >= max(1, window // 8)):  # fmt: skip
            return False
        if position - min(self.first_missing(other, priority) for other in self.lanes) > self.lead:
            return False
        chunk = self.chunks[priority][position]
        op, fields = chunk["op"], chunk["fields"]
        if chunk["result"] is not None:
            self.say(lane, p.HAVE, **fields)
        elif fields["op"] == OPS["broadcast"] and not op["root"]:
            self.say(lane, p.DATA, **fields)
        else:
            self.say(lane, p.DATA, op["send"][chunk["part"]].tobytes(), flags=p.ROOT * op["root"], **fields)
        lane.flight[priority].append(position)
        lane.at[priority] += 1
        return True

    def on_result(self, lane, head, payload):
        if lane.view != self.number:
            return  # between VIEW and RESUME
        priority = head["priority"]
        position = lane.flight[priority].popleft()
        chunk = self.chunks[priority][position]
        op, fields = chunk["op"], chunk["fields"]
        if (fields["seq"], fields["chunk"]) != (head["seq"], head["chunk"]):
            return self.on_down(lane, (lane.conn, "a RESULT came out of order"))
        self.seen[priority] = max(self.seen[priority], position + 1)
        if chunk["result"] is None:
            result = op["result"].reshape(-1)
            chunk["result"] = payload or op["send"][chunk["part"]].tobytes()  # the root of a broadcast gets none
            result[chunk["part"]] = np.frombuffer(chunk["result"], result.dtype)
            op["left"] -= 1
        while self.ops and self.ops[0]["left"] == 0:
            self.ops.popleft()["done"].set()
        if all(lane.view == self.number for lane in self.lanes if self.lives_now(lane.reducer)):
            old = max(0, self.seen[priority] - 1 - self.lead) if self.retain else position
            for at in list(self.chunks[priority]):
                if at >= min(old, *(self.first_missing(other, priority) for other in self.lanes)):
                    break
                del self.chunks[priority][at]

    def on_fetch(self, lane, head, payload):
        chunk = self.chunks[head["priority"]][self.first[head["seq"]] + head["chunk"]]
        self.say(lane, p.KEPT, chunk["result"], **chunk["fields"])

    # reducers that are lost and come back

    def on_down(self, lane, value):
        conn, why = value
        if conn is not lane.conn or conn is None:
            return
        joined = lane.state >= JOINED
        self.drop(lane)
        if self.running.is_set() and joined and self.lives_now(lane.reducer) and not self.leaving == "end":
            self.lose(lane.reducer, why)

    def drop(self, lane, code=None, text=""):
        if lane.state >= JOINED and code is not None:
            self.say(lane, p.ABORT, p.pack(p.ABORT, code=code, message=text))
        if lane.conn:
            lane.conn.end()
            threading.Timer(0.5, lane.conn.close).start()  # ABORT may still be on its way
        lane.conn, lane.state, lane.view = None, WAITS, -1

    def lose(self, reducer, why):
        if not self.retain:
            return self.on_fail(None, (-6, f"reducer {self.reducers[reducer][0]} was lost: {why}"))
        self.lives[reducer] += 1
        self.mark_lost(reducer, why)
        self.apply()

    def mark_lost(self, reducer, why):
        self.why = dict(lost=reducer + 1, why=why, lost_id=self.reducers[reducer][0])
        for lane in self.lanes:
            if lane.reducer == reducer:
                self.drop(lane, LOST, f"rank {self.hello['rank']} continues without it: {why}")

    def apply(self):  # the view has changed
        self.number = sum(self.lives)
        if all(life % 2 for life in self.lives):
            return self.on_fail(None, (-6, f"all reducers are lost, the last one: {self.why.get('why')}"))
        self.place = p.place(self.counts, self.owner, self.lives)
        self.start = [max(0, seen - 1 - self.lead) for seen in self.seen]
        for lane in self.lanes:
            if lane.conn and lane.state >= JOINED and self.lives_now(lane.reducer):
                self.send_view(lane)

    def send_view(self, lane):
        lane.view = -1
        self.say(lane, p.VIEW, p.pack(p.VIEW, lives=self.lives, start=self.start, **self.why))
        if self.leaving and lane.state == RUNNING:
            self.say(lane, p.SETTLE)

    def on_view(self, lane, head, payload):
        view = p.unpack(p.VIEW, payload)
        changed = [r for r, life in enumerate(view["lives"]) if life > self.lives[r]]
        for r in changed:
            life, mine = view["lives"][r], [other for other in self.lanes if other.reducer == r]
            if life % 2 == 0 and (self.lives_now(r) or not all(other.conn for other in mine)):
                life += 1  # it was lost meanwhile, or this rank has not noticed
            self.lives[r] = life
            if life % 2:
                self.mark_lost(r, view["why"] if view["lost"] == r + 1 else "another rank has lost it")
        if changed:
            self.apply()

    def on_resume(self, lane, head, payload):
        view = p.unpack(p.RESUME, payload)
        if sum(view["lives"]) == self.number and lane.state == RUNNING and self.lives_now(lane.reducer):
            self.resume(lane, view["start"])

    def resume(self, lane, start):
        lane.view, lane.at, lane.flight = self.number, list(start), [collections.deque() for _ in range(4)]

    # other frames, and the end

    def on_frame(self, lane, value):
        conn, head, frame = value
        if conn is not lane.conn:
            return
        self.trace(lane, "reducer", frame)
        lane.heard, self.stable = time.monotonic(), max(self.stable, head["ack"])
        if head["flags"] & p.CHECKED and p.checksum(frame[64:]) != head["payload_sum"]:
            return self.on_down(lane, (conn, "the checksum of a payload is wrong"))
        handler = getattr(self, "on_" + p.TYPES[head["type"]].lower(), None)
        if handler:  # WAITING and LATE are only for messages
            handler(lane, head, frame[64:])

    def on_ping(self, lane, head, payload):
        if head["count"] == 1:
            self.say(lane, p.PING)

    def on_drain(self, lane, head, payload):
        others = any(self.lives_now(r) for r in range(len(self.reducers)) if r != lane.reducer)
        if self.retain and others and self.lives_now(lane.reducer):
            self.lose(lane.reducer, "it is shutting down")

    def on_abort(self, lane, head, payload):
        abort = p.unpack(p.ABORT, payload)
        if self.retain and (abort["code"] == LOST or not self.lives_now(lane.reducer)):
            return self.on_down(lane, (lane.conn, abort["message"]))
        self.drop(lane)
        self.on_fail(None, (abort["code"], abort["message"]))

    def on_leave(self, *_):
        self.leaving = self.leaving or "settle"
        for lane in self.lanes:
            if self.retain and lane.state == RUNNING and self.lives_now(lane.reducer):
                self.say(lane, p.SETTLE)

    def on_fail(self, _, value):
        if not self.error:
            self.error = value[1]
            self.end(p.ABORT, p.pack(p.ABORT, code=value[0], message=value[1]))

    def end(self, kind, payload=b""):
        self.leaving, self.until = "end", time.monotonic() + 5
        for lane in self.lanes:
            if lane.state >= JOINED:
                self.say(lane, kind, payload)
                lane.conn.end()
            else:
                self.drop(lane)
