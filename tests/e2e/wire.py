# SPDX-License-Identifier: Apache-2.0
"""The wire protocol of proto/README.md, implemented a second time: tests can break its rules, and it shows that the
specification suffices to write a client."""

import ctypes
import hashlib
import hmac
import os
import socket
import struct

HEADER = struct.Struct("<2sBBBBBBIIQQQIIIIII")  # the last two: payload_sum, header_sum
HELLO, WELCOME, REFUSED, WAITING, START, DATA, RESULT, PING, ABORT, GOODBYE = range(1, 11)
CHALLENGE, PROOF = 19, 20
WIDE, ROOT, CHECKED = 1, 2, 4
BROADCAST = 16

_xxh = ctypes.CDLL("libxxhash.so.0").XXH3_64bits
_xxh.restype = ctypes.c_uint64
_xxh.argtypes = [ctypes.c_char_p, ctypes.c_size_t]

_seeded = ctypes.CDLL("libxxhash.so.0").XXH3_64bits_withSeed
_seeded.restype = ctypes.c_uint64
_seeded.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint64]


def checksum(data):
    return _xxh(data, len(data)) & 0xFFFFFFFF


def chain(data, seed):
    """One step of a configuration's digest."""
    return _seeded(data, len(data), seed)


def name_hash(name):
    return (checksum(name.encode()) or 1) if name else 0


def frame(kind, payload=b"", *, magic=b"RS", version=1, flags=0, priority=0, dtype=0, op=0, length=None, chunk=0,
          seq=0, count=0, ack=0, generation=0, name=0, chunk_elems=0, tensors=0, payload_sum=0,
          header_sum=None):  # fmt: skip
    """Returns the bytes of a frame. Fields that are wrong on purpose are given by name."""
    fields = [magic, version, kind, flags, priority, dtype, op, len(payload) if length is None else length, chunk,
              seq, count, ack, generation, name, chunk_elems, tensors, payload_sum]  # fmt: skip
    if header_sum is None:
        header_sum = checksum(HEADER.pack(*fields, 0)[:60])
    return HEADER.pack(*fields, header_sum) + payload


def _varint(n):
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def pack(fields):
    """Encodes a protobuf message of {number: int, str, bytes, or ("fixed64", int)}."""
    out = b""
    for number, value in fields.items():
        if isinstance(value, tuple):
            out += _varint(number << 3 | 1) + struct.pack("<Q", value[1])
        elif isinstance(value, (str, bytes)):
            data = value.encode() if isinstance(value, str) else value
            out += _varint(number << 3 | 2) + _varint(len(data)) + data
        else:
            out += _varint(number << 3) + _varint(int(value))
    return out


def unpack(data):
    """{number: int or bytes} of a protobuf message without repeated fields; sint32 stays zigzag-coded."""
    found, at = {}, 0

    def varint():
        nonlocal at
        n = shift = 0
        while True:
            byte = data[at]
            at += 1
            n |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return n

    while at < len(data):
        key = varint()
        if key & 7 == 0:
            found[key >> 3] = varint()
        elif key & 7 == 2:
            length = varint()
            found[key >> 3] = data[at : at + length]
            at += length
        else:
            found[key >> 3] = data[at : at + 8]
            at += 8
    return found


def hello(job="test", rank=0, world_size=1, **other):
    """Returns a HELLO of one lane. other: fields by their names in reduction.proto."""
    numbers = {
        "generation": 2, "lane": 5, "lanes": 6, "chunk_bytes": 7, "window": 8, "deterministic": 9, "checksum": 10,
        "processes": 12, "label": 13, "reducer": 14, "software": 16, "detect_ms": 17, "priorities": 18,
        "retain": 19, "rejoin": 20, "nonce": 21, "run": 22,
    }  # fmt: skip
    fields = {1: job, 3: rank, 4: world_size, 6: 1, 7: 65536, 8: 16, 12: 1, 14: "r0", 16: "test", 17: 10000, 18: 1}
    fields[11] = ("fixed64", other.pop("config_digest", 7))
    fields[15] = ("fixed64", other.pop("incarnation", rank + 1))
    fields[23] = ("fixed64", other.pop("features", 0))
    fields.update({numbers[k]: v for k, v in other.items()})
    return frame(HELLO, pack(fields))


def mac(secret, side, hello_payload, challenge_payload, binding=b""):
    """Returns the MAC of a PROOF (side "worker") or a WELCOME ("reducer")."""
    text = f"reduction v1 {side}".encode() + b"\0"
    for part in (binding, hello_payload, challenge_payload):
        text += struct.pack("<Q", len(part)) + part
    return hmac.new(secret, text, hashlib.sha256).digest()


class Client:
    """A connection to a reducer, closed at the end of a with block."""

    def __init__(self, sock):
        self.sock = sock
        self.header = None  # of the last frame that came: (magic, version, kind, ...)

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
            data = self._read(HEADER.size)
            if len(data) < HEADER.size:
                return None
            self.header = HEADER.unpack(data)
            if checksum(data[:60]) != self.header[-1]:
                raise AssertionError("a reducer has sent a frame with a wrong checksum")
            payload = self._read(self.header[7])
            if self.header[2] not in (WAITING, PING):
                return self.header[2], payload

    def expect(self, kind):
        """Returns the payload of the next frame, which must be of this type."""
        found = self.receive()
        if not found or found[0] != kind:
            raise AssertionError(f"expected a frame of type {kind}, got {found}")
        return found[1]

    def reason(self, kind):
        """Returns the sentence of the REFUSED or ABORT that must come next; then the connection must end."""
        text = unpack(self.expect(kind))[2].decode()
        self.closed()
        return text

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
        return said[HEADER.size :], self.expect(CHALLENGE)

    def prove(self, secret, binding=b"", **values):
        """HELLO, CHALLENGE and PROOF; returns the mac that the reducer's WELCOME must have."""
        transcript = *self.be_challenged(**values), binding
        self.send(frame(PROOF, pack({1: mac(secret, "worker", *transcript)})))
        return mac(secret, "reducer", *transcript)
