# SPDX-License-Identifier: Apache-2.0
"""The tables of conformance.py: what is sent, and the code of the frame that must come back; proto/FRAMES.md has the
codes."""

import os
import random
import struct

import wire  # finds proto/python

import blocks
import numpy as np
from wire import DRAIN, FETCH, HAVE, KEPT, LATE, RESUME, SETTLE, VIEW, pb

KIB64 = 65536
ELEMS = KIB64 // 4  # float32 elements of a chunk
INVALID, PROTO, MISMATCH, PEER, REFUSED, CLOSED, CUT = -1, -4, -5, -6, -8, -9, -13  # codes


def data(values, seq=0, chunk=0, count=None, kind=wire.DATA, **other):
    """A DATA frame of float32 values: a sum, if nothing else is given."""
    payload = struct.pack(f"<{len(values)}f", *values)
    rest = {"dtype": 7, "op": 0, "chunk_elems": ELEMS, **other}
    return wire.frame(kind, payload, seq=seq, chunk=chunk, count=len(values) if count is None else count, **rest)


def sharded(values, count=2, op=8, parts=2, **other):
    """A DATA frame of a reduce-scatter sum, if nothing else is given; chunk 0 is part 0, chunk 1 part 1."""
    return data(values, count=count, op=op, tensors=parts, **other)


def encoded(values, up, down, dtype=7, change=0, **other):
    """A DATA frame whose elements are encoded. change: of the length."""
    x = np.array(values, np.float32)
    payload = blocks.encode(up, x) if up else x.astype(np.float16 if dtype == 6 else np.float32).tobytes()
    payload = payload[:change] if change < 0 else payload + bytes(change)
    elems = blocks.chunk_elems(4 if dtype == 7 else 2, up, down, KIB64)
    fields = {"dtype": dtype, "up": up, "down": down, "count": len(values), "chunk_elems": elems}
    return wire.frame(wire.DATA, payload, **{**fields, **other})


def relayed(values, reducer=1, lane=0, **other):
    """A DATA frame with RELAY, for this home."""
    return data(values, **{"flags": wire.RELAY, "generation": reducer << 16 | lane, **other})


def view(lives, start=(0, 0, 0, 0), epoch=0, shares=(), **frame):
    return wire.frame(VIEW, pb.View(lives=lives, start=start, epoch=epoch, shares=shares), **frame)


NOISE = random.Random(1).randbytes(200)
CLIENT_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + random.Random(2).randbytes(100)

# What a connection begins with, and the code of REFUSED. Each is below the 64 KiB that
# the gRPC port lets a connection send before its peer is authenticated: the port may shut
# a connection that sends more, without an answer.
FIRST = [
    ("noise", NOISE, PROTO),
    ("noise of several frames", NOISE * 250, PROTO),
    ("HTTP", b"GET / HTTP/1.1\r\nHost: reducer\r\nUser-Agent: somebody curious/1.0\r\n\r\n", PROTO),
    ("zeros", bytes(64), PROTO),
    ("version 2", wire.frame(wire.HELLO, version=2), PROTO),
    ("version 0", wire.frame(wire.HELLO, version=0, header_sum=0), PROTO),
    ("a wrong header checksum", wire.frame(wire.HELLO, header_sum=1), PROTO),
    ("a header checksum of 0", wire.frame(wire.HELLO, header_sum=0), PROTO),
    ("type 0", wire.frame(0), PROTO),
    ("CREDIT", wire.frame(wire.CREDIT), PROTO),
    ("type 25", wire.frame(25), PROTO),
    ("NONFINITE", wire.frame(wire.NONFINITE), PROTO),
    ("type 255", wire.frame(255), PROTO),
    ("flag 16", wire.frame(wire.HELLO, flags=16), PROTO),
    ("flag 128", wire.frame(wire.HELLO, flags=0x81), PROTO),
    ("priority 4", wire.frame(wire.HELLO, priority=4), PROTO),
    ("HELLO of 4,097 bytes", wire.frame(wire.HELLO, payload_len=4097), PROTO),
    ("HELLO of 4 GiB", wire.frame(wire.HELLO, payload_len=0xFFFFFFFF), PROTO),
    ("DATA of 4 GiB", wire.frame(wire.DATA, payload_len=0xFFFFFFFF), PROTO),
    ("HELLO that is no message", wire.frame(wire.HELLO, b"\xff" * 40), PROTO),
    ("HELLO that ends early", wire.frame(wire.HELLO, b"\x0a\x20abc"), PROTO),
    ("HELLO with a wrong payload checksum", wire.frame(wire.HELLO, b"\x0a\x01a", flags=4, payload_sum=1), PROTO),
    ("an empty HELLO is a question", wire.frame(wire.HELLO), None),
    *((f"{name} in place of HELLO", wire.frame(kind), PROTO)
      for name, kind in (("DATA", wire.DATA), ("PING", wire.PING), ("GOODBYE", wire.GOODBYE), ("WELCOME", wire.WELCOME),
                         ("PROOF", wire.PROOF), ("HAVE", HAVE), ("VIEW", VIEW), ("SETTLE", SETTLE))),
]  # fmt: skip

# What comes between the end of a generation and the answer to the next HELLO, and whether
# the reducer keeps the connection.
GOES_ON = [
    ("HELLO alone", {}),
    ("without the feature", {"features": 15, "kept": False}),
    ("after DATA", {"between": [data([1] * 9), data([1], seq=1)]}),
    ("after frames that break the rules", {"between": [wire.frame(wire.WELCOME), wire.frame(wire.GOODBYE), view([9])]}),
    ("after ABORT", {"between": [wire.frame(wire.ABORT)]}),
    ("after noise", {"between": [NOISE], "kept": False}),
]  # fmt: skip

# Fields of HELLO, and the code of REFUSED.
HELLO = [
    ({"job": ""}, PROTO),
    ({"job": "x" * 64}, PROTO),
    ({"job": "two\nlines"}, PROTO),
    ({"job": "a b"}, INVALID),
    ({"job": "a=b"}, INVALID),
    ({"job": "../x"}, INVALID),
    ({"job": "\u00fc"}, INVALID),
    ({"job": "a@b"}, INVALID),
    ({"job": "@0123456789abcdef"}, INVALID),
    ({"job": "a@0123456789ABCDEF"}, INVALID),
    ({"job": "../x@0123456789abcdef"}, INVALID),
    ({"label": "\x1b[2Jwiped"}, PROTO),
    ({"label": "x" * 128}, PROTO),
    ({"run": "x" * 128}, PROTO),
    ({"run": "a\tb"}, PROTO),
    ({"reducer": "x" * 64}, PROTO),
    ({"nonce": b"short"}, PROTO),
    ({"world_size": 4097}, INVALID),
    ({"world_size": 0xFFFFFFFF}, INVALID),
    ({"rank": 2, "world_size": 2}, INVALID),
    ({"rank": 0xFFFFFFFF}, INVALID),
    ({"lanes": 0}, INVALID),
    ({"lanes": 65}, INVALID),
    ({"lane": 1, "lanes": 1}, INVALID),
    ({"chunk_bytes": 0}, INVALID),
    ({"chunk_bytes": 1023}, INVALID),
    ({"chunk_bytes": 65537}, INVALID),
    ({"chunk_bytes": (4 << 20) + 64}, INVALID),
    ({"chunk_bytes": 0xFFFFFFC0}, INVALID),
    ({"decoded_bytes": 63}, INVALID),
    ({"decoded_bytes": 2 * KIB64 + 1}, INVALID),
    ({"decoded_bytes": 8 * KIB64 + 64}, INVALID),
    ({"decoded_bytes": 0xFFFFFFC0}, INVALID),
    ({"window": 0}, INVALID),
    ({"window": 1025}, INVALID),
    ({"most_window": 15}, INVALID),  # window is 16
    ({"most_window": 1025}, INVALID),
    ({"wanted_window": 17}, INVALID),  # most_window is not set
    ({"most_window": 20, "wanted_window": 21}, INVALID),
    ({"most_window": 20, "wanted_window": 15}, INVALID),
    ({"window": 0xFFFFFFFF}, INVALID),
    ({"priorities": 0}, INVALID),
    ({"priorities": 5}, INVALID),
    ({"processes": 0}, INVALID),
    ({"detect_ms": 0}, INVALID),
    ({"processes": (1 << 20) + 1}, INVALID),
    ({"groups": 2}, INVALID),
    ({"groups": 2, "group": 3}, INVALID),
    ({"groups": 65, "group": 1}, INVALID),
    ({"groups": 2, "group": 1, "uplinks": 16385}, INVALID),
    ({"groups": 2, "group": 1, "uplinks": 0xFFFFFFFF}, INVALID),
    ({"groups": 2, "group": 1, "relay": 257}, INVALID),
    ({"groups": 2, "group": 1, "relay": 0xFFFFFFFF}, INVALID),
    ({"groups": 2, "group": 1, "relay": 1}, REFUSED),  # no such job runs
    ({"relay": 1}, REFUSED),
    ({"rank": 1, "world_size": 2, "shared": True}, REFUSED),  # rank 0 comes first
    ({"window": 1024, "chunk_bytes": 4 << 20, "lanes": 64, "priorities": 4}, REFUSED),  # 4 TiB of memory
]

# Fields of the HELLO of rank 1 that differ from that of rank 0, which waits; the code of
# REFUSED.
SECOND = [
    ({"world_size": 3}, MISMATCH),
    ({"config_digest": 8}, MISMATCH),
    ({"chunk_bytes": 32768}, MISMATCH),
    ({"decoded_bytes": 4 * KIB64}, MISMATCH),
    ({"window": 15}, MISMATCH),
    ({"priorities": 2}, MISMATCH),
    ({"lanes": 2}, MISMATCH),
    ({"deterministic": True}, MISMATCH),
    ({"checksum": True}, MISMATCH),
    ({"retain": True}, MISMATCH),
    ({"groups": 2, "group": 1}, MISMATCH),
    ({"reducers_digest": 8}, MISMATCH),
    ({"reducer": "r1"}, MISMATCH),
    ({"reducer": "r1", "shared": True}, REFUSED),  # with `retry` and `elsewhere`
    ({"run": "another"}, MISMATCH),
    ({"evidence": "c=3 b=1"}, MISMATCH),  # rank 0 has "a=1 b=2", and so b=2 here
    ({"rank": 0, "incarnation": 99}, REFUSED),  # the rank is taken
    ({"generation": 0}, REFUSED),  # older than the one of rank 0, which is 1
]

# What two ranks announce, and the known features in START; None: it is empty.
STARTS = [
    ((0, 0), None),
    ((1, 0), None),
    ((0xFE, 0xFE), None),
    ((1, 1), 1),
    ((9, 1), 1),
    ((9, 9), 9),
    ((2**64 - 1, 1 << 63 | 1), 1),
]

# Frames of a connection that has WELCOME but not START; the code of ABORT.
EARLY = [
    ("DATA", data([1]), PROTO),
    ("KEPT", wire.frame(KEPT), PROTO),
    ("VIEW without retain", view([0, 1]), PROTO),
    ("HELLO again", wire.hello(), PROTO),
    ("PROOF", wire.frame(wire.PROOF), PROTO),
    ("WELCOME", wire.frame(wire.WELCOME), PROTO),
    ("a wrong header checksum", wire.frame(wire.PING, header_sum=1), PROTO),
    ("type 22", wire.frame(22), PROTO),
    ("PING of 4,097 bytes", wire.frame(wire.PING, payload_len=4097), PROTO),
    ("PROBE without rejoin", wire.frame(wire.PROBE, bytes(KIB64)), PROTO),
]

# The same with rejoin and the feature `probe`.
PROBES = [
    ("no byte", [wire.frame(wire.PROBE)], PROTO),
    ("fewer bytes than a chunk", [wire.frame(wire.PROBE, bytes(KIB64 - 1))], PROTO),
    ("more bytes than a chunk", [wire.frame(wire.PROBE, bytes(KIB64 + 1))], PROTO),
    ("twice", [wire.frame(wire.PROBE, bytes(KIB64))] * 2, PROTO),
    ("with flags", [wire.frame(wire.PROBE, bytes(KIB64), flags=wire.ROOT)], PROTO),
]

# Frames of rank 1 of a running job; the code of the ABORT that both ranks get.
RULES = [
    ("dtype 10", [data([1], dtype=10)], PROTO),
    ("dtype 255", [data([1], dtype=255)], PROTO),
    ("op 5", [data([1], op=5)], PROTO),
    ("op 15", [data([1], op=15)], PROTO),
    ("op 17", [data([1], op=17)], PROTO),
    ("WIDE with float32", [data([1], flags=wire.WIDE)], PROTO),
    ("WIDE with a broadcast", [data([1], flags=wire.WIDE, op=wire.BROADCAST)], PROTO),
    ("ROOT with a sum", [data([1], flags=wire.ROOT)], PROTO),
    ("a priority that the job does not have", [data([1], priority=1)], PROTO),
    ("chunk_elems 0", [data([1], chunk_elems=0)], PROTO),
    ("chunk_elems that are too few", [data([1], chunk_elems=ELEMS - 1)], PROTO),
    ("chunk_elems of another dtype", [data([1], chunk_elems=2 * ELEMS)], PROTO),
    ("chunk_elems that are too many", [data([1], chunk_elems=ELEMS + 1)], PROTO),
    ("chunk_elems 2^32 - 1", [data([1], chunk_elems=0xFFFFFFFF)], PROTO),
    ("a chunk past the end", [data([1], chunk=1)], PROTO),
    ("a chunk past the end of nothing", [data([], chunk=1, count=0)], PROTO),
    ("a payload that is too short", [data([1], count=2)], PROTO),
    ("a payload that is too long", [data([1, 2], count=1)], PROTO),
    ("no payload", [data([], count=1)], PROTO),
    ("noise", [b"\xaa" * 64], PROTO),
    ("version 3", [data([1], version=3)], PROTO),
    ("16 MiB", [data([1], payload_len=16 << 20)], PROTO),
    ("more than 16 MiB", [data([1], payload_len=(16 << 20) + 1)], PROTO),
    ("operation 2^63", [data([1], seq=1 << 63)], PROTO),
    ("operation 2^64 - 1", [data([1], seq=(1 << 64) - 1)], PROTO),
    ("count 2^64 - 1", [data([1], count=(1 << 64) - 1)], PROTO),
    ("a payload of a broadcast without ROOT", [data([1], op=wire.BROADCAST)], PROTO),
    ("a broadcast with ROOT and no payload", [data([], count=1, op=wire.BROADCAST, flags=wire.ROOT)], PROTO),
    ("a chunk twice", [data([1]), data([1])], PROTO),
    ("chunks in the wrong order", [data([1], chunk=1, count=ELEMS + 1), data([1] * ELEMS, count=ELEMS + 1)], PROTO),
    ("operations in the wrong order", [data([1], seq=1), data([1], seq=0)], PROTO),
    ("another generation", [data([1], generation=1)], PROTO),
    ("more than the window", [data([1], seq=i) for i in range(17)], PROTO),
    ("HAVE without retain", [data([], count=1, kind=HAVE)], PROTO),
    ("KEPT without FETCH", [data([1], kind=KEPT)], PROTO),
    ("VIEW without retain", [view([0, 1])], PROTO),
    ("a wrong header checksum", [wire.frame(wire.PING, header_sum=1)], PROTO),
    ("a wrong payload checksum", [data([1], flags=wire.CHECKED, payload_sum=1)], PROTO),
    ("ABORT with a wrong payload checksum", [wire.frame(wire.ABORT, b"\x12\x01x", flags=4, payload_sum=1)], PROTO),
    *((f"{name}, which only a reducer sends", [wire.frame(kind)], PROTO)
      for name, kind in (("RESULT", wire.RESULT), ("START", wire.START), ("WELCOME", wire.WELCOME), ("FETCH", FETCH),
                         ("REFUSED", wire.REFUSED), ("WAITING", wire.WAITING), ("RESUME", RESUME), ("DRAIN", DRAIN),
                         ("LATE", LATE), ("CHALLENGE", wire.CHALLENGE))),
    ("HELLO again", [wire.hello()], PROTO),
    ("PROOF", [wire.frame(wire.PROOF)], PROTO),
    ("PROBE", [wire.frame(wire.PROBE, bytes(KIB64))], PROTO),
    ("up without its feature", [encoded([1], 1, 0)], PROTO),
    ("down without its feature", [encoded([1], 0, 2)], PROTO),
    ("CREDIT, which only reducers send", [wire.frame(wire.CREDIT, count=1)], PROTO),
    ("NONFINITE without its feature", [wire.frame(wire.NONFINITE, pb.Nonfinite(nan_operations=1))], PROTO),
    ("a reduce-scatter without its feature", [sharded([1])], PROTO),
    ("an all-gather without its feature", [sharded([1], op=24, flags=wire.ROOT)], PROTO),
    ("RELAY without its feature", [relayed([1])], PROTO),
    ("an ABORT of its own", [wire.frame(wire.ABORT, pb.Abort(code=MISMATCH, message="rank 1: enough"))], MISMATCH),
]  # fmt: skip

# The same in a job with the feature `nonfinite`.
NONFINITES = [
    ("bytes that are no message", [wire.frame(wire.NONFINITE, b"\xff")], PROTO),
    ("a wrong payload checksum", [wire.frame(wire.NONFINITE, b"\x08\x01", flags=4, payload_sum=1)], PROTO),
]

# The same in a job with the feature `encodings`.
BLOCKED = {"chunk_elems": KIB64 // 2, "up": 2, "down": 2}  # what is right for fp8
ENCODINGS = [
    *((f"up {wire}", [data([1], up=wire)], PROTO) for wire in range(6, 16)),
    *((f"down {wire}", [data([1], down=wire)], PROTO) for wire in range(6, 8)),
    ("fp8 of int32", [data([1], dtype=2, **BLOCKED)], PROTO),
    ("fp8 of uint8", [data([1], dtype=1, **BLOCKED)], PROTO),
    ("fp8 of float64", [data([1, 2], dtype=8, **{**BLOCKED, "count": 1})], PROTO),
    ("int8 results of int32", [data([1], dtype=2, down=3)], PROTO),
    ("bf16 of float16", [data([1], dtype=6, up=1, chunk_elems=KIB64 // 2, count=2)], PROTO),
    ("bf16 of bfloat16", [data([1], dtype=9, down=1, chunk_elems=KIB64 // 2, count=2)], PROTO),
    ("fp16 sums of float16", [encoded([1], 4, 0, dtype=6)], PROTO),
    ("fp16 averages of bfloat16", [encoded([1], 4, 0, dtype=9, op=4)], PROTO),
    ("fp16 results of float16", [encoded([1], 4, 4, dtype=6, op=4)], PROTO),
    ("int4 of int8", [data([1], dtype=0, up=5, chunk_elems=KIB64 // 2)], PROTO),
    *((f"fp8 with op {op}", [encoded([1], 2, 2, op=op)], PROTO) for op in (1, 2, 3)),
    ("fp8 with a broadcast", [encoded([1], 2, 2, op=wire.BROADCAST, flags=wire.ROOT)], PROTO),
    ("WIDE with up", [encoded([1], 2, 0, dtype=6, flags=wire.WIDE)], PROTO),
    ("chunk_elems without encodings", [encoded([1], 1, 1, chunk_elems=ELEMS)], PROTO),
    ("chunk_elems without decoded_bytes", [encoded([1], 2, 2, chunk_elems=KIB64)], PROTO),
    ("chunk_elems of the narrower direction", [encoded([1], 2, 0, chunk_elems=KIB64 // 2)], PROTO),
    ("chunk_elems of no whole blocks", [encoded([1], 2, 2, chunk_elems=KIB64 // 2 - 64)], PROTO),
    ("chunk_elems 0", [encoded([1], 2, 2, chunk_elems=0)], PROTO),
    *((f"{blocks.WIRES[up]}, {change} bytes more", [encoded([1] * n, up, up, change=change)], PROTO)
      for up in range(1, 6) for n in (1, 2, 128, 129) for change in (-1, 1)),
    ("fp8 without scales", [encoded([1] * 129, 2, 2, change=-4)], PROTO),
    ("HAVE without retain", [wire.frame(HAVE, count=1, dtype=7, **BLOCKED)], PROTO),
]  # fmt: skip

# The same in a job with the features `sharded` and `encodings`.
SHARDED = [
    ("a reduce-scatter of 0 parts", [sharded([1, 2], parts=0)], PROTO),
    ("an all-gather of 0 parts", [sharded([1, 2], op=24, parts=0, flags=wire.ROOT)], PROTO),
    ("parts that are not equal", [sharded([1], count=3)], PROTO),
    ("more parts than elements", [sharded([1], parts=3)], PROTO),
    ("more than 2^20 parts", [sharded([], count=0, parts=(1 << 20) + 1)], PROTO),
    ("2^32 - 1 parts", [sharded([1], count=(1 << 32) - 1, parts=(1 << 32) - 1)], PROTO),
    *((f"op {op}", [sharded([1], op=op)], PROTO) for op in (13, 15, 25, 31)),
    ("a chunk past the end", [sharded([1], chunk=2)], PROTO),
    ("a chunk past the end of nothing", [sharded([], count=0, chunk=2)], PROTO),
    ("all parts at once", [sharded([1, 2])], PROTO),
    ("a reduce-scatter without a payload", [sharded([])], PROTO),
    ("a payload of an all-gather without ROOT", [sharded([1], op=24)], PROTO),
    ("an all-gather with ROOT and no payload", [sharded([], op=24, flags=wire.ROOT)], PROTO),
    ("ROOT with a sum", [data([1], flags=wire.ROOT)], PROTO),
    ("WIDE with float32", [sharded([1], flags=wire.WIDE)], PROTO),
    ("WIDE with an all-gather", [sharded([1], op=24, dtype=6, chunk_elems=2 * ELEMS, flags=3)], PROTO),
    ("an encoded all-gather", [encoded([1], 1, 1, op=24, tensors=1, flags=wire.ROOT)], PROTO),
    ("an encoded maximum", [encoded([1], 1, 1, op=10, tensors=1, flags=wire.ROOT)], PROTO),
    ("a part of two blocks in one", [encoded([1] * 256, 2, 2, tensors=2, op=8)], PROTO),
    ("chunks in the wrong order", [sharded([1], chunk=1), sharded([1], chunk=0)], PROTO),
    ("HAVE without retain", [sharded([], kind=HAVE)], PROTO),
]  # fmt: skip

# The same after rank 0 has sent sharded([1], flags=ROOT). Code -5.
SCATTERED = [
    ("another owner", [sharded([1], flags=wire.ROOT)]),
    ("another number of parts", [sharded([1, 2], parts=1)]),
    ("another op", [sharded([1], op=11)]),
    ("an all-gather", [sharded([1], op=24, flags=wire.ROOT)]),
    ("an all-reduce", [data([1, 2])]),
    ("a broadcast", [data([1, 2], op=wire.BROADCAST, flags=wire.ROOT, tensors=2)]),
    ("another count", [sharded([1, 2], count=4)]),
]

# The same in a job with retain: what rank 0 has sent, what rank 1 sends, the code.
OWNERS = [
    ("HAVE with ROOT", [], [sharded([], kind=HAVE, flags=wire.ROOT)], CUT),
    ("HAVE with a payload", [], [sharded([1], kind=HAVE)], CUT),
    ("HAVE of a rank that is not the owner", [sharded([1], flags=wire.ROOT)], [sharded([], kind=HAVE)], MISMATCH),
    ("DATA of another owner than that of HAVE", [sharded([], kind=HAVE)], [sharded([1], flags=wire.ROOT)], MISMATCH),
    ("HAVE of two ranks", [sharded([], kind=HAVE)], [sharded([], kind=HAVE)], MISMATCH),
    ("no owner", [sharded([1])], [sharded([1])], MISMATCH),
    ("an all-gather without an owner", [sharded([], op=24)], [sharded([], op=24)], MISMATCH),
]

# The same in a job of two groups with the features `relays` and `sharded`: rank 0 is in the first one, rank 1 in the
# second. The reducer is r0 of r0 and r1.
RELAYED = [
    ("a home that is no reducer", [relayed([1], 2)], PROTO),
    ("reducer 65535 as home", [relayed([1], 65535)], PROTO),
    ("a lane of the home that no reducer has", [relayed([1], 1, 64)], PROTO),
    ("the reducer itself as home", [relayed([1], 0)], PROTO),
    ("RELAY on a broadcast", [relayed([1], op=wire.BROADCAST, flags=wire.RELAY | wire.ROOT)], PROTO),
    ("RELAY on a reduce-scatter", [relayed([1], op=8, tensors=1, flags=wire.RELAY | wire.ROOT)], PROTO),
    ("RELAY and a payload that is too short", [relayed([1], count=2)], PROTO),
    ("HAVE with RELAY", [relayed([], count=1, kind=HAVE)], PROTO),
    ("KEPT with RELAY", [relayed([1], kind=KEPT)], PROTO),
    ("no RELAY and another generation", [data([1], generation=1 << 16)], PROTO),
]  # fmt: skip

# The same with retain: what rank 0 has sent, what rank 1 sends, the code.
ROUTES = [
    ("HAVE with RELAY", [], [relayed([], count=1, kind=HAVE)], CUT),
    ("a home that is no reducer", [], [relayed([1], 2)], CUT),
    ("RELAY, and not on rank 0", [data([1])], [relayed([1])], MISMATCH),
]

# Fields of the HELLO of an uplink to such a job, which differ from those of reducer r1 that
# relays for the second group; the code of REFUSED.
UPLINKS = [
    ({"incarnation": 99}, REFUSED),  # another start of the job
    ({"generation": 1}, REFUSED),
    ({"job": "another"}, REFUSED),
    ({"reducer": "r1"}, REFUSED),
    ({"group": 0}, INVALID),
    ({"group": 3}, INVALID),
    ({"relay": 257}, INVALID),
    ({"groups": 3}, MISMATCH),
    ({"config_digest": 8}, MISMATCH),
    ({"world_size": 3}, MISMATCH),
    ({"chunk_bytes": 32768}, MISMATCH),
    ({"lane": 1, "lanes": 2}, MISMATCH),
]

# Frames of such an uplink: it alone gets ABORT, and the ranks go on.
BY_UPLINK = [
    ("HAVE", [data([], count=1, kind=HAVE)]),
    ("KEPT", [data([1], kind=KEPT)]),
    ("RELAY", [relayed([1])]),
    ("a broadcast", [data([1], op=wire.BROADCAST, flags=wire.ROOT)]),
    ("a part of a reduce-scatter", [sharded([1])]),
    ("another generation", [data([1], generation=1)]),
    ("a payload that is too short", [data([1], count=2)]),
    ("VIEW of 257 reducers", [view([0] * 257)]),
    ("LOAD", [wire.frame(wire.LOAD)]),
    ("NONFINITE", [wire.frame(wire.NONFINITE, pb.Nonfinite(nan_operations=1))]),
    ("HELLO again", [wire.hello()]),
    ("RESULT", [wire.frame(wire.RESULT)]),
    ("noise", [b"\xaa" * 64]),
]

# The same after rank 0 has sent encoded([1], 2, 3). The sentence names both ranks.
OTHERWISE = [
    ("as it is", [data([1])]),
    ("as int8", [encoded([1], 3, 3)]),
    ("with the result as fp8", [encoded([1], 2, 2)]),
    ("with encodings exchanged", [encoded([1], 3, 2)]),
]

# Encodings up and down of sums that are right.
SUMS = [(1, 1), (2, 2), (3, 3), (4, 4), (5, 5), (2, 1), (0, 3), (3, 0), (5, 4), (4, 0), (4, 5)]

# The same after rank 0 has sent data([1], name_hash=5).
DIFFERENT = [
    ("another count", [data([1, 2])], MISMATCH),
    ("another dtype", [data([1], dtype=2)], MISMATCH),
    ("another op", [data([1], op=2, name_hash=5)], MISMATCH),
    ("another name", [data([1], name_hash=6)], MISMATCH),
    ("no name", [data([1])], MISMATCH),
    ("a group", [data([1], name_hash=5, tensors=2)], MISMATCH),
    ("other chunk_elems", [data([1], name_hash=5, chunk_elems=4)], PROTO),
    ("a broadcast", [data([1], op=wire.BROADCAST, flags=wire.ROOT)], MISMATCH),
    ("another operation in its place", [data([1], seq=5)], MISMATCH),
    ("GOODBYE while rank 0 waits", [wire.frame(wire.GOODBYE)], CLOSED),
]

# The same in a job with retain and two reducers.
RETAIN = [
    ("VIEW of no reducers", [view([])], CUT),
    ("VIEW of 257 reducers", [view([0] * 257)], CUT),
    ("VIEW with three starts", [view([0, 1], [0, 0, 0])], CUT),
    ("VIEW with five starts", [view([0, 1], [0] * 5)], CUT),
    ("VIEW with more than 2^20 losses", [view([0, (1 << 20) + 1])], CUT),
    ("VIEW that is no message", [wire.frame(VIEW, b"\xff" * 20)], CUT),
    ("two VIEWs of different length", [view([0, 1]), view([0, 1, 0])], CUT),
    ("VIEW that says nothing new", [view([0, 0])], CUT),
    ("DATA between VIEW and RESUME", [view([0, 1]), data([1])], CUT),
    ("HAVE between VIEW and RESUME", [view([0, 1]), data([], count=1, kind=HAVE)], CUT),
    ("KEPT between VIEW and RESUME", [view([0, 1]), data([1], kind=KEPT)], CUT),
    ("HAVE with flags", [data([], count=1, kind=HAVE, flags=wire.ROOT)], CUT),
    ("HAVE with a payload", [data([1], kind=HAVE)], CUT),
    ("VIEW with shares, without their feature", [view([0, 0], epoch=1, shares=[1, 1])], CUT),
]

# The same with the feature `shares`.
SHARES = [
    ("an epoch without shares", [view([0, 0], epoch=1)], CUT),
    ("too few", [view([0, 0], epoch=1, shares=[1])], CUT),
    ("too many", [view([0, 0], epoch=1, shares=[1, 1, 1])], CUT),
    ("without an epoch", [view([0, 1], shares=[1, 1])], CUT),
    ("0", [view([0, 0], epoch=1, shares=[1, 0])], CUT),
    ("65,536", [view([0, 0], epoch=1, shares=[65536, 1])], CUT),
    ("2^32 - 1", [view([0, 0], epoch=1, shares=[1, 0xFFFFFFFF])], CUT),
    ("more than 2^20 epochs", [view([0, 0], epoch=(1 << 20) + 1, shares=[1, 1])], CUT),
    ("others in the same epoch", [view([0, 0], epoch=1, shares=[1, s]) for s in (1, 2)], CUT),
    ("others in the same epoch, with a loss", [view([0, i], epoch=1, shares=[1, 1 + i]) for i in (0, 1)], CUT),
    ("DATA before RESUME", [view([0, 0], epoch=1, shares=[1, 1]), data([1])], CUT),
]

# VIEW of rank 1 after it has read that of rank 0, which has the shares 2 and 3 in epoch 5;
# whether both get RESUME; else both get ABORT, code -13.
EPOCHS = [
    ("the same", view([0, 0], epoch=5, shares=[2, 3]), True),
    ("others", view([0, 0], epoch=5, shares=[3, 2]), False),
    ("others, with a loss", view([0, 1], epoch=5, shares=[2, 4]), False),
]

# Frames of rank 1 of a running job, after which its connection ends; whether the job has
# retain; the code for rank 0.
ENDS = [
    ("without GOODBYE", [], False, PEER),
    ("within a header", [data([1])[:30]], False, PEER),
    ("within a payload", [data([1, 2])[:66]], False, PEER),
    ("after a contribution", [data([1])], False, PEER),
    ("without GOODBYE, with retain", [], True, CUT),
    ("within a payload, with retain", [data([1, 2])[:66]], True, CUT),
    ("between VIEW and RESUME", [view([0, 1])], True, CUT),
]

# Frames of the only rank of a running job, after which it falls silent; the code of
# ABORT.
SILENT = [
    ("before START", {"world_size": 2}, [], PEER),
    ("after START", {}, [], PEER),
    ("within a header", {}, [data([1])[:30]], PEER),
    ("within a payload", {}, [data([1, 2])[:66]], PEER),
    ("after VIEW, with retain", {"retain": True}, [view([0, 1])], CUT),
]


def _mac(secret, hello, challenge, side="worker", binding=b""):
    return wire.mac(secret, side, binding, hello, challenge)


def _proof(mac, **frame):
    return wire.frame(wire.PROOF, pb.Proof(mac=mac), **frame)


# What follows CHALLENGE, as a function of the secret and of the payloads of HELLO and
# CHALLENGE; the code of REFUSED.
PROOFS = [
    ("a random proof", lambda *_: _proof(os.urandom(32)), REFUSED),
    ("a proof of zeros", lambda *_: _proof(bytes(32)), REFUSED),
    ("another secret", lambda s, h, c: _proof(_mac(s + b"x", h, c)), REFUSED),
    ("the label of the reducer", lambda s, h, c: _proof(_mac(s, h, c, "reducer")), REFUSED),
    ("another nonce", lambda s, h, c: _proof(_mac(s, h, b"\x0a\x20" + bytes(32))), REFUSED),
    ("another HELLO", lambda s, h, c: _proof(_mac(s, h + b"x", c)), REFUSED),
    ("HELLO and CHALLENGE exchanged", lambda s, h, c: _proof(_mac(s, c, h)), REFUSED),
    ("a binding on a plain connection", lambda s, h, c: _proof(_mac(s, h, c, binding=bytes(32))), REFUSED),
    ("31 bytes", lambda s, h, c: _proof(_mac(s, h, c)[:31]), PROTO),
    ("33 bytes", lambda s, h, c: _proof(_mac(s, h, c) + b"x"), PROTO),
    ("no proof", lambda *_: wire.frame(wire.PROOF), PROTO),
    ("PROOF of 65 bytes", lambda *_: wire.frame(wire.PROOF, payload_len=65), PROTO),
    ("PROOF that is no message", lambda *_: wire.frame(wire.PROOF, b"\xff" * 34), PROTO),
    ("a wrong header checksum", lambda s, h, c: _proof(_mac(s, h, c), header_sum=1), PROTO),
    ("a wrong payload checksum", lambda s, h, c: _proof(_mac(s, h, c), flags=4, payload_sum=1), PROTO),
    ("HELLO in place of PROOF", lambda *_: wire.hello(), PROTO),
    ("DATA in place of PROOF", lambda *_: data([1]), PROTO),
    ("CHALLENGE in place of PROOF", lambda s, h, c: wire.frame(wire.CHALLENGE, c), PROTO),
]
# HELLOs that get no CHALLENGE.
UNPROVEN = [
    ({"job": "conformance"}, REFUSED),
    ({"job": "conformance", "nonce": bytes(31)}, PROTO),
    ({"job": "conformance", "nonce": bytes(33)}, PROTO),
    ({"job": "nobody", "nonce": bytes(32)}, REFUSED),
    ({"job": "../conformance", "nonce": bytes(32)}, REFUSED),
]
