# SPDX-License-Identifier: Apache-2.0
"""Connections of tests that may break the rules of the protocol: sockets on top of proto/python/protocol.py."""

import os
import pathlib
import socket
import sys

# its names must not hide those of the test programs
sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[2] / "proto/python"))
try:
    import protocol
    from protocol import CHECKED, RELAY, ROOT, WIDE, Kind, checksum, mac, name_hash, pb  # noqa: F401
except (ImportError, FileNotFoundError) as exc:
    sys.exit(f"{exc}: run deploy/install-deps.sh test")

(HELLO, WELCOME, REFUSED, WAITING, START, DATA, RESULT, PING, ABORT, GOODBYE, VIEW, RESUME, HAVE, FETCH, KEPT, SETTLE,
 DRAIN, LATE, CHALLENGE, PROOF, PROBE, NONFINITE, LOAD, CREDIT) = Kind  # fmt: skip
HEADER, BROADCAST = 64, 16  # bytes; an op


def frame(kind, payload=b"", **fields):
    """Returns the bytes of a frame. payload: bytes or a message. fields: those that differ, or are wrong on purpose."""
    data = payload if isinstance(payload, bytes) else payload.SerializeToString()
    return protocol.encode(kind, data, **fields)


def hello(job="test", rank=0, world_size=1, **other):
    """Returns a HELLO of one lane. other: fields by their names in reduction.proto."""
    fields = dict(lanes=1, chunk_bytes=65536, window=16, config_digest=7, processes=1, reducer="r0",
                  incarnation=rank + 1, software="test", detect_ms=10000, priorities=1)  # fmt: skip
    return frame(HELLO, pb.Hello(job=job, rank=rank, world_size=world_size, **{**fields, **other}))


class Client:
    """A connection to a reducer, closed at the end of a with block."""

    def __init__(self, sock):
        self.sock = sock
        self.header = None  # of the last frame that came: its fields by their names

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()

    def send(self, data):
        self.sock.sendall(data)

    def _read(self, n):
        data = b""
        while len(data) < n:
            more = self.sock.recv(n - len(data))
            if not more:
                return data
            data += more
        return data

    def receive(self):
        """Returns (type, payload) of the next frame except WAITING and PING; None at the end of the connection."""
        while True:
            data = self._read(HEADER)
            if len(data) < HEADER:
                return None
            try:
                self.header = protocol.decode(data)
            except ValueError as exc:
                raise AssertionError(f"the peer has sent a frame with a wrong {exc}") from None
            payload = self._read(self.header["payload_len"])
            if self.header["type"] not in (WAITING, PING):
                return self.header["type"], payload

    def expect(self, kind):
        """Returns the payload of the next frame, which must be of this type."""
        found = self.receive()
        if not found or found[0] != kind:
            raise AssertionError(f"expected a frame of type {kind}, got {found}")
        return found[1]

    def refused(self):
        """Returns the message of the REFUSED that must come next."""
        return pb.Refused.FromString(self.expect(REFUSED))

    def reason(self, kind):
        """Returns the sentence of the REFUSED or ABORT that must come next; then the connection must end."""
        message = {REFUSED: pb.Refused, ABORT: pb.Abort}[kind].FromString(self.expect(kind)).message
        self.closed()
        return message

    def closed(self):
        """Waits until the reducer has closed the connection."""
        try:
            while self.sock.recv(65536):
                pass
        except ConnectionResetError:
            pass
        except socket.timeout:
            raise AssertionError("the reducer has not closed the connection") from None

    def join(self, **values):
        """HELLO and WELCOME."""
        self.send(hello(**values))
        self.expect(WELCOME)

    def be_challenged(self, **values):
        """HELLO with a nonce, and CHALLENGE; returns both payloads."""
        said = hello(nonce=os.urandom(32), **values)
        self.send(said)
        return said[HEADER:], self.expect(CHALLENGE)

    def prove(self, secret, **values):
        """HELLO, CHALLENGE and PROOF; returns the mac that the reducer's WELCOME must have."""
        transcript = self.be_challenged(**values)
        self.send(frame(PROOF, pb.Proof(mac=mac(secret, "worker", b"", *transcript))))
        return mac(secret, "reducer", b"", *transcript)
