# SPDX-License-Identifier: Apache-2.0
"""The local protocol of agent/node/core/protocol.h in raw bytes, for messages that the library would not send."""

import array
import socket
import struct

(HELLO, WELCOME, REFUSED, READY, ALLOC, ALLOCED, FREE, SUBMIT, DONE, ABORT, STATS, COUNTERS, GOODBYE,
 FILLED, LANDED, PING, PONG) = range(1, 18)
VERSION = 9
SUM, FLOAT32 = 0, 7


def message(kind, body=b"", version=VERSION, size=None):
    return struct.pack("=HHI", version, kind, 8 + len(body) if size is None else size) + body


def hello(job="test", rank=0, world=1, local_rank=0, local_world=1, node=0, nodes=1, generation=0, connect_ms=10000):
    numbers = (rank, world, local_rank, local_world, node, nodes, generation, 4711, connect_ms, 0)
    return message(HELLO, struct.pack("=64s128s256s10I", job.encode(), b"", b"", *numbers))


def alloc(size):
    return message(ALLOC, struct.pack("=Q", size))


def free(buffer):
    return message(FREE, struct.pack("=II", buffer, 0))


def submit(seq=0, count=1, send=(0, 0), recv=(0, 0), root=0, dtype=FLOAT32, op=SUM, name=b"", missing=0, ring=0,
           counter=0):
    """send and recv: (buffer, offset)."""
    numbers = (seq, count, root, 0, 0, dtype, op, 4, 0, missing, ring, counter, send[1], recv[1], send[0], recv[0])
    return message(SUBMIT, struct.pack("=2Q3I4B5Q2I64s", *numbers, name))


def filled(seq, count):
    return message(FILLED, struct.pack("=QQ", seq, count))


class Client:
    """A connection to an agent."""

    def __init__(self, path, timeout=10):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.sock.settimeout(timeout)
        self.sock.connect(path)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()

    def send(self, data):
        self.sock.send(data)

    def receive(self):
        """Returns (type, body, descriptors) of the next message; type 0 after the agent has closed."""
        try:
            data, control, _, _ = self.sock.recvmsg(2048, socket.CMSG_SPACE(4))
        except ConnectionResetError:
            return self.receive()  # raised once; then come the last messages
        if not data:
            return 0, b"", []
        version, kind, size = struct.unpack_from("=HHI", data)
        assert version == VERSION and size == len(data), (version, size, len(data))
        if kind == PING:
            self.send(message(PONG))
            return self.receive()
        fds = array.array("i")
        for level, what, value in control:
            if level == socket.SOL_SOCKET and what == socket.SCM_RIGHTS:
                fds.frombytes(value)
        return kind, data[8:], list(fds)

    def expect(self, kind):
        """Returns the body of the next message, which must be of this type, and its descriptors."""
        got, body, fds = self.receive()
        assert got == kind, f"got message {got} {body.rstrip(bytes(1))!r}, expected {kind}"
        return body, fds

    def join(self, **who):
        self.send(hello(**who))
        self.expect(WELCOME)
        self.expect(READY)

    def buffer(self, size):
        """Returns (id, descriptor) of new shared memory."""
        self.send(alloc(size))
        body, fds = self.expect(ALLOCED)
        code, buffer, _ = struct.unpack_from("=iIQ", body)
        assert code == 0 and len(fds) == 1, (code, body)
        return buffer, fds[0]

    def last_words(self):
        """Returns (type, code, sentence) of the REFUSED or ABORT after which the agent closes."""
        words = (0, 0, "")
        while True:
            kind, body, _ = self.receive()
            if kind == 0:
                return words
            if kind in (REFUSED, ABORT):
                words = (kind, struct.unpack_from("=i", body)[0], body[8:516].split(b"\0")[0].decode())
