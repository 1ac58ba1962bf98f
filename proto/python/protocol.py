# SPDX-License-Identifier: Apache-2.0
"""Frames, messages and algorithms of the reduction protocol, as proto/README.md specifies them.

It uses Python's standard library and python3-xxhash, and no other code of this project.
"""

import hashlib
import hmac
import re
import struct

import xxhash

HEADER = struct.Struct("<2sBBBBBBIIQQQIIIIII")
FIELDS = ("magic version type flags priority dtype op payload_len chunk seq count ack generation name_hash chunk_elems "
          "tensors payload_sum header_sum").split()  # fmt: skip
TYPES = ("- HELLO WELCOME REFUSED WAITING START DATA RESULT PING ABORT GOODBYE VIEW RESUME HAVE FETCH KEPT SETTLE "
         "DRAIN LATE CHALLENGE PROOF").split()  # fmt: skip
(HELLO, WELCOME, REFUSED, WAITING, START, DATA, RESULT, PING, ABORT, GOODBYE, VIEW, RESUME, HAVE, FETCH, KEPT, SETTLE,
 DRAIN, LATE, CHALLENGE, PROOF) = range(1, 21)  # fmt: skip
WIDE, ROOT, CHECKED = 1, 2, 4
U64 = (1 << 64) - 1


class ProtocolError(Exception):
    """What is wrong with a frame or a message."""


def xxh(data, seed=0):
    return xxhash.xxh3_64_intdigest(data, seed)


def checksum(data):
    return xxh(data) & 0xFFFFFFFF


def encode(kind, payload=b"", **fields):
    """Returns a frame. fields: by their names in the header."""
    values = {"magic": b"RS", "version": 1, "type": kind, "payload_len": len(payload), **fields}
    head = HEADER.pack(*(values.get(name, 0) for name in FIELDS))
    return head[:60] + struct.pack("<I", checksum(head[:60])) + payload


def decode(data):
    """Returns the fields of a header of 64 bytes. Raises ProtocolError, in the order in which a receiver checks."""
    head = dict(zip(FIELDS, HEADER.unpack(data[:64])))
    most = 16 << 20 if head["type"] in (DATA, RESULT, KEPT) else 4096
    for wrong, what in [
        (head["magic"] != b"RS", "magic"),
        (head["version"] != 1, "version"),
        (head["header_sum"] != checksum(data[:60]), "checksum"),
        (not HELLO <= head["type"] <= PROOF, "type"),
        (head["flags"] > 7, "flags"),
        (head["priority"] > 3, "priority"),
        (head["payload_len"] > most, "length"),
    ]:
        if wrong:
            raise ProtocolError(what)
    return head


# name and kind of each field: u an unsigned number, b a bool, i sint32, x fixed64, s text, r bytes, * repeated
_MESSAGES = {
    HELLO: "job:s generation:u rank:u world_size:u lane:u lanes:u chunk_bytes:u window:u deterministic:b checksum:b "
           "config_digest:x processes:u label:s reducer:s incarnation:x software:s detect_ms:u priorities:u retain:b "
           "rejoin:b nonce:r run:s",
    CHALLENGE: "nonce:r", PROOF: "mac:r", WELCOME: "software:s detect_ms:u mac:r",
    REFUSED: "code:i message:s retry:b", WAITING: "joined:u world_size:u missing:* refused:s",
    ABORT: "code:i message:s", LATE: "seq:u waited_ms:u missing_all:u missing:* label:s",
    VIEW: "lives:* start:* lost:u why:s reported:b lost_id:s",
}  # fmt: skip
MESSAGES = {kind: [f.split(":") for f in text.split()] for kind, text in _MESSAGES.items()}
MESSAGES[RESUME] = MESSAGES[VIEW]
_ZERO = {"s": "", "r": b"", "b": False}


def _varint(n):
    out = b""
    while n > 127:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])


def pack(kind, **values):
    """Encodes the protobuf message of a frame type: fields in ascending order, without those that are 0 or empty."""
    out = b""
    for number, (name, how) in enumerate(MESSAGES[kind], 1):
        value = values.get(name)
        if not value:
            continue
        if how == "x":
            out += _varint(number << 3 | 1) + struct.pack("<Q", value)
        elif how in "sr*":
            data = value.encode() if how == "s" else b"".join(map(_varint, value)) if how == "*" else value
            out += _varint(number << 3 | 2) + _varint(len(data)) + data
        else:
            out += _varint(number << 3) + _varint((value << 1 ^ value >> 31) & 0xFFFFFFFF if how == "i" else int(value))
    return out


def unpack(kind, data):
    """Decodes such a message; unknown fields are skipped. Returns a dict with all fields."""
    fields, at = MESSAGES[kind], 0
    found = {name: [] if how == "*" else _ZERO.get(how, 0) for name, how in fields}

    def varint():
        nonlocal at
        n = shift = 0
        while True:
            n, at, shift = n | (data[at] & 127) << shift, at + 1, shift + 7
            if data[at - 1] < 128:
                return n & U64

    try:
        while at < len(data):
            key = varint()
            name, how = fields[(key >> 3) - 1] if 0 < key >> 3 <= len(fields) else ("", "")
            if key & 7 == 0:
                n = varint()
                value = n >> 1 ^ -(n & 1) if how == "i" else bool(n) if how == "b" else n
                value = [*found[name], n] if how == "*" else value
            else:
                length = {1: 8, 5: 4}.get(key & 7) or varint()
                value, at = data[at : at + length], at + length
                if at > len(data):
                    raise IndexError
                if how == "x":
                    value = struct.unpack("<Q", value)[0]
                elif how == "s":
                    value = value.decode()
                elif how == "*":
                    outer, data, end, at = data, value, at, 0
                    value = list(found[name])
                    while at < len(data):
                        value.append(varint())
                    data, at = outer, end
            if name:
                found[name] = value
    except (IndexError, UnicodeDecodeError, struct.error):
        raise ProtocolError(f"the {TYPES[kind]} message cannot be decoded") from None
    return found


def name_hash(name):
    return (checksum(name.encode()) or 1) if name else 0


def group_hash(tensors):
    """The name_hash of a group. tensors: the count and the name_hash of each."""
    h = 0
    for count, name in tensors:
        h = checksum(struct.pack("<QII", count, h, name))
    return h or 1


def job_name(run):
    """The name of a job that has none, made of its run."""
    return re.sub("[^0-9A-Za-z._-]", "-", run[:54]) + f"-{checksum(run.encode()):08x}"


def mac(secret, side, binding, hello, challenge):
    """The proof of one side, "worker" or "reducer". hello and challenge: the payloads of these frames."""
    text = b"reduction v1 " + side.encode() + b"\0"
    for part in (binding, hello, challenge):
        text += struct.pack("<Q", len(part)) + part
    return hmac.new(secret, text, hashlib.sha256).digest()


def digest(deterministic, checksum, chunk_bytes, window, priorities, reducers, owner):
    """The digest of a configuration. reducers: (id, lanes) of each; owner: the index of each shard's reducer."""
    d = 0
    steps = [deterministic, checksum, chunk_bytes, window, priorities, len(reducers)]
    for reducer, lanes in reducers:
        steps += [reducer.encode(), lanes]
    for step in steps + [len(owner), *owner]:
        d = xxh(step if isinstance(step, bytes) else struct.pack("<Q", step), d)
    return d


def default_shards(weights, lanes):
    """The number of shards if the configuration gives none."""
    n = len(weights)
    if len({int(w * 1e6 + 0.5) for w in weights}) > 1:
        return max(64, 16 * n)
    unit = n * lanes[0] if len(set(lanes)) == 1 and n * lanes[0] <= 4096 else n
    return -(-64 // unit) * unit


def make_map(weights, shards):
    """The owner of each shard if the configuration has no map."""
    weights = [int(w * 1e6 + 0.5) for w in weights]
    total = sum(weights)
    count = [max(1, shards * w // total) for w in weights]
    behind = [shards * w - c * total for w, c in zip(weights, count)]
    while sum(count) < shards:
        i = max(range(len(count)), key=lambda i: (behind[i], -i))
        count[i], behind[i] = count[i] + 1, behind[i] - total
    while sum(count) > shards:
        i = min((i for i in range(len(count)) if count[i] > 1), key=lambda i: (behind[i], -i))
        count[i], behind[i] = count[i] - 1, behind[i] + total
    owner, credit = [], [0] * len(count)
    for _ in range(shards):
        credit = [c + n for c, n in zip(credit, count)]
        best = max(range(len(count)), key=lambda i: (credit[i], -i))
        credit[best] -= shards
        owner.append(best)
    return owner


def place(lanes, owner, lives):
    """Where each shard lives: (reducer, lane). lanes: of each reducer; lives: as in VIEW, odd means lost."""
    n, load = len(lanes), [0] * len(lanes)
    share = [owner.count(r) or -(-len(owner) // n) for r in range(n)]
    placed = []

    def put(r):
        load[r] += 1
        return r, (load[r] - 1) % lanes[r]

    for r in owner:
        placed.append(put(r))
    for shard, r in enumerate(owner):
        if lives[r] % 2:
            best = None
            for i in range(n):
                if lives[i] % 2 == 0 and (best is None or (load[i] + 1) * share[best] < (load[best] + 1) * share[i]):
                    best = i
            placed[shard] = put(best)
    return placed
