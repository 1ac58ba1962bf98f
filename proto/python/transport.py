# SPDX-License-Identifier: Apache-2.0
"""Connections of the reference client: TCP and gRPC, plain and with TLS.

tls: None, or a dict with the paths `authority` and, for mutual TLS, `certificate` and `key`. Python's ssl module has no
exporter, so a secret together with TLS works over gRPC only.
"""

import queue
import select
import socket
import ssl
import threading

import protocol as p

BUSY = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Tcp:
    """A connection: send(), received() as pieces of any size, end() of sending, close()."""

    def __init__(self, address, tls):
        host, port = address.rsplit(":", 1)
        self.sock, self.lock = socket.create_connection((host, int(port)), timeout=5), threading.Lock()
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls:
            context = ssl.create_default_context(cafile=tls["authority"])
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            context.set_alpn_protocols(["reduction/1"])
            if "certificate" in tls:
                context.load_cert_chain(tls["certificate"], tls["key"])
            self.sock = context.wrap_socket(self.sock, server_hostname=host)
        self.sock.setblocking(False)

    def _try(self, call, *args):
        try:
            with self.lock:  # TLS cannot be read and written at the same time
                return call(*args)
        except BUSY:
            return None

    def send(self, data):
        while data:
            n = self._try(self.sock.send, data)
            data = data[n or 0 :]
            if n is None:
                select.select([], [self.sock], [], 0.1)

    def received(self):
        while (data := self._try(self.sock.recv, 1 << 16)) != b"":
            if data is None:
                select.select([self.sock], [], [], 0.1)
            else:
                yield data

    def end(self):
        tls = isinstance(self.sock, ssl.SSLSocket)  # close_notify, or FIN
        try:
            self._try(*([self.sock.unwrap] if tls else [self.sock.shutdown, socket.SHUT_WR]))
        except OSError:
            pass  # the reducer has closed it

    def close(self):
        self.sock.close()


class Grpc:
    """The same as a call: a Piece is the tag 0x0a, a length and the bytes."""

    def __init__(self, address, tls):
        import grpc

        names = ("authority", "key", "certificate")
        files = [open(tls[n], "rb").read() if n in tls else None for n in names] if tls else []
        one = [("grpc.use_local_subchannel_pool", 1)]  # a connection for each lane
        self.channel = (grpc.secure_channel(address, grpc.ssl_channel_credentials(*files), one) if tls
                        else grpc.insecure_channel(address, one))  # fmt: skip
        self.out = queue.SimpleQueue()
        self.call = self.channel.stream_stream("/reduction.v1.Reducer/Exchange")(iter(self.out.get, None))

    def send(self, data):
        for at in range(0, len(data), 1 << 19):
            part = data[at : at + (1 << 19)]
            self.out.put(b"\x0a" + p._varint(len(part)) + part)

    def received(self):
        for piece in self.call:
            yield piece[next(i for i in range(1, 6) if piece[i] < 128) + 1 :]

    def end(self):
        self.out.put(None)

    def close(self):
        self.end()
        self.channel.close()
