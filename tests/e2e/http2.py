# SPDX-License-Identifier: Apache-2.0
"""A client of gRPC that does no more than its user wants, and reads only when told: what no library would do."""

import socket
import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY = 0, 1, 3, 4, 6, 7
END_STREAM, END_HEADERS, ACK = 1, 4, 1
INITIAL_WINDOW = 4  # of SETTINGS
CHECK, WATCH = "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"
EXCHANGE = "/reduction.v1.Reducer/Exchange"


def frame(kind, flags=0, stream=0, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def hello(window=65535):
    """What a connection begins with. window: bytes of a stream's answer that the peer may send."""
    return PREFACE + frame(SETTINGS, payload=struct.pack(">HI", INITIAL_WINDOW, window))


def _literal(name, value):
    return b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


def call(stream, path, message=b"", end=True):
    """A call on this stream (odd, greater than all before) with one message; None: with none yet."""
    fields = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "r", "te": "trailers",
              "content-type": "application/grpc"}
    said = frame(HEADERS, END_HEADERS, stream, b"".join(_literal(*field) for field in fields.items()))
    if message is None:
        return said
    return said + frame(DATA, END_STREAM if end else 0, stream, b"\0" + struct.pack(">I", len(message)) + message)


def connect(address, timeout=20):
    host, port = address.rsplit(":", 1)
    s = socket.create_connection((host, int(port)), timeout=timeout)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return s


CALLS = 8  # that a reducer takes on a connection at the same time


def crowd(stack, address, path, n=CALLS):
    """n calls whose answers get no further than their headers, on connections that the stack closes."""
    sockets = [stack.enter_context(connect(address)) for _ in range(n // CALLS)]
    for s in sockets:
        s.sendall(hello(0) + b"".join(call(1 + 2 * i, path) for i in range(CALLS)))
        begun(s, CALLS)
    return sockets


def begun(s, n):
    """Waits until n calls have the headers of an answer, which no window holds up."""
    streams = set()
    for kind, _, stream, _ in frames(s):
        streams |= {stream} if kind == HEADERS else set()
        if len(streams) == n:
            return
    raise AssertionError(f"the connection has ended, with answers to {len(streams)} of {n} calls")


def frames(s):
    """(kind, flags, stream, payload) as they come; PINGs and SETTINGS are answered. Ends with the connection."""
    data = b""
    while True:
        while len(data) >= 9 and len(data) >= 9 + (n := int.from_bytes(data[:3], "big")):
            kind, flags, stream = struct.unpack(">BBI", data[3:9])
            payload, data = data[9 : 9 + n], data[9 + n :]
            if kind in (PING, SETTINGS) and not flags & ACK:
                s.sendall(frame(kind, ACK, 0, payload if kind == PING else b""))
            yield kind, flags, stream, payload
        more = s.recv(65536)
        if not more:
            return
        data += more
