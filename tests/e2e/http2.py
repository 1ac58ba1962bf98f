# SPDX-License-Identifier: Apache-2.0
"""A minimal gRPC client that reads only on request, which no library does."""

import select
import socket
import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM, END_HEADERS, ACK = 1, 4, 1
INITIAL_WINDOW = 4  # of SETTINGS
CHECK, WATCH = "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"
EXCHANGE, STATUS = "/reduction.v1.Reducer/Exchange", "/reduction.v1.Control/Status"


def frame(kind, flags=0, stream=0, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def hello(window=65535):
    """Returns the first bytes of a connection. window: bytes of a stream's response that the peer may send."""
    return PREFACE + frame(SETTINGS, payload=struct.pack(">HI", INITIAL_WINDOW, window))


def _literal(name, value):
    return b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


def call(stream, path, message=b"", end=True):
    """Returns a call on this stream (odd, greater than all before) with one message; None: with none yet."""
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


CALLS = 8  # that a reducer accepts on a connection at the same time


def crowd(stack, address, path, n=CALLS):
    """Starts n calls whose responses cannot get further than their headers, on connections that the ExitStack
    closes."""
    sockets = [stack.enter_context(connect(address)) for _ in range(n // CALLS)]
    for s in sockets:
        s.sendall(hello(0) + b"".join(call(1 + 2 * i, path) for i in range(CALLS)))
        begun(s, CALLS)
    return sockets


def begun(s, n):
    """Waits until n calls have response headers, which no window limits."""
    streams = set()
    for kind, _, stream, _ in frames(s):
        streams |= {stream} if kind == HEADERS else set()
        if len(streams) == n:
            return
    raise AssertionError(f"the connection has ended, with answers to {len(streams)} of {n} calls")


def ask(s, path, message, n):
    """Makes n calls with this message, in turn. Returns the number that ended before the connection did."""
    i = 0
    try:
        s.sendall(hello(1 << 20) + frame(WINDOW_UPDATE, payload=struct.pack(">I", 1 << 30)))
        incoming = frames(s)
        for i in range(n):
            s.sendall(call(1 + 2 * i, path, message))
            for _, flags, stream, _ in incoming:
                if stream == 1 + 2 * i and flags & END_STREAM:
                    break
            else:
                return i
    except OSError:
        return i
    return n


def deluge(s, path, size, go_on=lambda: True):
    """Makes a call with one message of so many bytes, as fast as the peer accepts them. Returns the number of accepted
    bytes when the peer ends the call or the connection, or when go_on() returns False."""
    initial, longest = 65535, 16384
    windows, sent = {0: initial - 5, 1: initial - 5}, 0
    try:
        s.sendall(hello() + call(1, path, None) + frame(DATA, 0, 1, b"\0" + struct.pack(">I", size)))
        incoming = frames(s, idle=True)
        while sent < size and go_on():
            n = min(longest, size - sent, *windows.values())
            if n > 0:
                s.sendall(frame(DATA, 0, 1, bytes(n)))
                sent += n
                windows = {stream: left - n for stream, left in windows.items()}
            found = next(incoming, (GOAWAY, 0, 0, b""))
            if found is None:
                if n <= 0:
                    select.select([s], [], [], 0.1)
                continue
            kind, flags, stream, payload = found
            if kind == WINDOW_UPDATE:
                windows[stream] += int.from_bytes(payload, "big")
            elif kind == SETTINGS and not flags & ACK:
                longest = 1 << 20  # which a reducer takes from then on
                for key, value in struct.iter_unpack(">HI", payload):
                    if key == INITIAL_WINDOW:
                        windows[1] += value - initial
                        initial = value
            elif kind in (GOAWAY, RST_STREAM) or (kind == HEADERS and flags & END_STREAM):
                break
    except OSError:
        pass
    return sent


def _readable(s):
    return getattr(s, "pending", int)() or select.select([s], [], [], 0)[0]


def frames(s, idle=False):
    """Yields (kind, flags, stream, payload); answers PINGs and SETTINGS. Ends with the connection. idle: yields None if
    there is nothing to read now."""
    data = b""
    while True:
        while len(data) >= 9 and len(data) >= 9 + (n := int.from_bytes(data[:3], "big")):
            kind, flags, stream = struct.unpack(">BBI", data[3:9])
            payload, data = data[9 : 9 + n], data[9 + n :]
            if kind in (PING, SETTINGS) and not flags & ACK:
                s.sendall(frame(kind, ACK, 0, payload if kind == PING else b""))
            yield kind, flags, stream, payload
        while idle and not _readable(s):
            yield None
        more = s.recv(65536)
        if not more:
            return
        data += more
