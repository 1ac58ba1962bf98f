# SPDX-License-Identifier: Apache-2.0
"""Frames, messages and algorithms of the reduction protocol, as proto/README.md specifies them.

It uses python3-xxhash, python3-protobuf and protoc, and no other code of this project.
"""

import enum
import functools
import hmac
import pathlib
import struct
import subprocess
import types
from fractions import Fraction

import xxhash
from google.protobuf import descriptor_pb2, message_factory

HEADER = struct.Struct("<2sBBBBBBIIQQQIIIIII")
FIELDS = ("magic version type flags priority dtype op payload_len chunk seq count ack generation name_hash chunk_elems "
          "tensors payload_sum header_sum").split()  # fmt: skip
SHARED = {"up": ("dtype", 4), "down": ("op", 5)}  # fields in the high bits of another one
Kind = enum.IntEnum("Kind", "HELLO WELCOME REFUSED WAITING START DATA RESULT PING ABORT GOODBYE VIEW RESUME HAVE FETCH "
                            "KEPT SETTLE DRAIN LATE CHALLENGE PROOF PROBE NONFINITE LOAD CREDIT")  # fmt: skip
WIDE, ROOT, CHECKED, RELAY = 1, 2, 4, 8  # flags
SHARDED = 8  # the bit of `op`
FEATURE_START, FEATURE_PROBE, FEATURE_NONFINITE, FEATURE_ENCODINGS, FEATURE_RECONFIGURE = 1, 2, 4, 8, 16
FEATURE_SHARES, FEATURE_SLOTS, FEATURE_SHARDED, FEATURE_DECOUPLED, FEATURE_RELAYS = 64, 128, 256, 512, 1024
SHARE_MAX, NO_RELAY = 65535, 0xFFFF

FOLDER = pathlib.Path(__file__).resolve().parents[1]
PROTOC = ["protoc", f"--proto_path={FOLDER}", "--descriptor_set_out=/dev/stdout", "reduction.proto"]
COMPILED = descriptor_pb2.FileDescriptorSet.FromString(subprocess.check_output(PROTOC))
CLASSES = message_factory.GetMessages(COMPILED.file)
pb = types.SimpleNamespace(**{cls.DESCRIPTOR.name: cls for cls in CLASSES.values()})  # pb.Hello, pb.Welcome, ...


def xxh(data, seed=0):
    return xxhash.xxh3_64_intdigest(data, seed)


def checksum(data):
    return xxh(data) & 0xFFFFFFFF


def encode(kind, payload=b"", **fields):
    """Returns a frame. fields: by their names in the header, wrong ones too."""
    values = {"magic": b"RS", "version": 1, "type": kind, "payload_len": len(payload), **fields}
    for name, (other, bits) in SHARED.items():
        values[other] = values.get(other, 0) | values.get(name, 0) << bits
    head = HEADER.pack(*(values.get(name, 0) for name in FIELDS))[:60]
    return head + struct.pack("<I", fields.get("header_sum", checksum(head))) + payload


def decode(data):
    """Returns the fields of a header of 64 bytes. Raises ValueError, in the order in which a receiver checks."""
    head = dict(zip(FIELDS, HEADER.unpack(data[:64])))
    for name, (other, bits) in SHARED.items():
        head[name], head[other] = head[other] >> bits, head[other] & (1 << bits) - 1
    most = 16 << 20 if head["type"] in (Kind.DATA, Kind.RESULT, Kind.KEPT, Kind.PROBE) else 4096
    for what, wrong in {
        "magic": head["magic"] != b"RS",
        "version": head["version"] != 1,
        "checksum": head["header_sum"] != checksum(data[:60]),
        "type": not Kind.HELLO <= head["type"] <= Kind.CREDIT,
        "flags": head["flags"] > 15,
        "priority": head["priority"] > 3,
        "length": head["payload_len"] > most,
    }.items():
        if wrong:
            raise ValueError(what)
    return head


def name_hash(name):
    return (checksum(name.encode()) or 1) if name else 0


def group_hash(tensors):
    """The name_hash of a group. tensors: the count and the name_hash of each."""
    h = 0
    for count, name in tensors:
        h = checksum(struct.pack("<QII", count, h, name))
    return h or 1


def mac(secret, side, binding, hello, challenge):
    """The proof of one side, "worker" or "reducer". hello and challenge: the payloads of these frames."""
    text = b"reduction v1 " + side.encode() + b"\0"
    for part in (binding, hello, challenge):
        text += struct.pack("<Q", len(part)) + part
    return hmac.digest(secret, text, "sha256")


def digest(deterministic, checksum, chunk_bytes, window, priorities, reducers, owner, decoupled=0, groups=()):
    """The digest of a configuration. reducers: (id, lanes) of each; owner: the index of each shard's reducer; groups:
    the name of each, and the index of its relay of each shard, 0xffff for none."""
    d = 0
    steps = [deterministic, checksum, chunk_bytes, window, decoupled, priorities, len(reducers)]
    if not decoupled:
        del steps[4]
    for reducer, lanes in reducers:
        steps += [reducer.encode(), lanes]
    steps += [len(owner), *owner]
    if groups:
        steps.append(len(groups))
    for name, relays in groups:
        steps += [name.encode(), *relays]
    for step in steps:
        d = xxh(step if isinstance(step, bytes) else struct.pack("<Q", step), d)
    return d


def reducers_digest(ids):
    """The digest of the ids of all reducers."""
    d = xxh(struct.pack("<Q", len(ids)))
    for name in ids:
        d = xxh(name.encode(), d)
    return d


def sharded_bytes(parts, chunk_bytes):
    """What a sharded operation has in place of chunk_bytes."""
    return min(chunk_bytes, max(16 << 10, (128 << 10) // parts // 4096 * 4096))


def sharded_chunks(count, parts, chunk_elems):
    """The number of chunks of a sharded operation: at least one for each part."""
    return parts * max(1, -(-(count // parts) // chunk_elems))


def sharded_place(count, parts, chunk_elems, chunk):
    """Where a chunk of a sharded operation is: its part, its first element in the operation, how many it has."""
    row, turn = divmod(chunk, parts)
    part, size, offset = (turn + row) % parts, count // parts, row * chunk_elems
    return part, part * size + offset, min(chunk_elems, size - offset)


def deal(weights, shards):
    """The owner of each shard of a map that is made. weights: of each reducer, integers from 1 on."""
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


def place(lanes, owner, lives, shares=None):
    """Where each shard lives: (reducer, lane). lanes: of each reducer; lives, shares: as in VIEW, odd means lost."""
    if shares and len(owner) >= len(lanes):
        owner = deal(shares, len(owner))
    load = [0] * len(lanes)
    share = [owner.count(r) or -(-len(owner) // len(lanes)) for r in range(len(lanes))]
    living = [r for r, life in enumerate(lives) if life % 2 == 0]

    def put(r):
        load[r] += 1
        return r, (load[r] - 1) % lanes[r]

    placed = [put(r) for r in owner]
    for shard, r in enumerate(owner):
        if r not in living:
            placed[shard] = put(min(living, key=lambda i: Fraction(load[i] + 1, share[i])))
    return placed


def place_slots(lanes, owner, lives, shares=None):
    """The same with the feature `slots`."""
    if shares and len(owner) >= len(lanes):
        owner = deal(shares, len(owner))
    living = [r for r, life in enumerate(lives) if life % 2 == 0]
    weight, load = [owner.count(r) for r in range(len(lanes))], [0] * len(lanes)
    bare = [r for r in living if not weight[r]]
    dead = len(owner) - sum(weight[r] for r in living)
    for r in bare:
        weight[r] = min(-(-len(owner) // len(lanes)), dead // len(bare)) if dead < len(owner) else 1
    most = {r: -(-len(owner) * weight[r] // sum(weight[i] for i in living)) for r in living}
    placed = [None] * len(owner)

    def put(shard, r):
        placed[shard] = r, load[r] % lanes[r]
        load[r] += 1

    for shard, r in enumerate(owner):
        if r in living:
            put(shard, r)
    for shard in range(len(owner)):
        if not placed[shard]:
            room = [r for r in living if load[r] < most[r]]
            put(shard, max(room, key=lambda r: xxh(struct.pack("<HH", shard, r))))
    return placed


def place_relays(lanes, relays, lives, placed):
    """Where the ranks of a group send relayed chunks of each shard: (reducer, lane), or None: to their home. relays: of
    the group, as in digest(); placed: the homes, as place() or place_slots() returns them."""
    load, at = [0] * len(lanes), [None] * len(relays)
    living = [r for r, life in enumerate(lives) if life % 2 == 0 and r in relays]

    def put(shard, r):
        at[shard] = r, load[r] % lanes[r]
        load[r] += 1

    for shard, r in enumerate(relays):
        if r in living:
            put(shard, r)
    for shard, r in enumerate(relays):
        if living and r != NO_RELAY and r not in living:
            put(shard, min(living, key=lambda i: load[i]))
    return [None if relay and relay[0] == home[0] else relay for relay, home in zip(at, placed)]


def fold(parts, groups, add, sent):
    """The sum of a chunk in a deterministic job with groups. parts: the contribution of each rank, decoded; groups: the
    group of each; add: the op of two; sent: what is left of the sum of a group when its relay has sent it."""
    sums = {}
    for part, group in zip(parts, groups):
        sums[group] = add(sums[group], part) if group in sums else part
    return functools.reduce(add, [sent(sums[group]) for group in sorted(sums)])
