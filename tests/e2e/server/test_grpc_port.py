#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# run: beside-others
"""A reducer's gRPC port with unauthenticated and too many clients; and errors of programs without the gRPC library.
"""

import contextlib
import os
import pathlib
import re
import shutil
import socket
import subprocess
import threading
import unittest

import harness
import http2

WORKER = harness.python("""
    import numpy, reduction, worker
    def run():
        with reduction.Communicator() as comm:
            worker.say("sum", value=float(comm.all_reduce(numpy.ones(5, numpy.float32))[0]))
    worker.say("end", **worker.attempt(run))
    """)

# sums until rank 0 gets a line of input
JOB = harness.python("""
    import threading, numpy, reduction, worker
    def run():
        told = threading.Event()
        threading.Thread(target=lambda: (worker.listen(), told.set()), daemon=True).start()
        with reduction.Communicator() as comm:
            x, right, rounds, end = numpy.empty(1 << 17, numpy.float32), True, 0, 0
            while not end:
                x[0], x[1:] = told.is_set(), comm.rank + 1
                comm.all_reduce(x)
                right, rounds, end = right and bool((x[1:] == 3).all()), rounds + 1, x[0]
                if rounds == 1:
                    worker.say("begun")
            worker.say("sums", right=right)
    worker.say("end", **worker.attempt(run))
    """)
HUGE = 1 << 30  # bytes of a message: they take seconds, and the reducer looks every 50 ms


def memory(pid, name):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(rf"^{name}:\s+(\d+) kB", status, re.M).group(1)) << 10


def huge_messages(test, c, connect):
    """Unauthenticated peers send queries and streams with endless messages, beside a job over gRPC: they are cut off,
    the log has the peer and the reason, the reducer keeps no memory of it, and the job gets its sums. connect: as these
    peers do."""
    reducer, sent = c.reducers[0], []
    workers = c.start_workers(2, JOB)
    workers[0].said("begun")
    before = memory(reducer.pid, "VmRSS")

    def strange(path):
        for _ in range(3):
            with connect() as s:
                sent.append(http2.deluge(s, path, HUGE))

    threads = [threading.Thread(target=strange, args=(path,)) for path in (http2.CHECK, http2.EXCHANGE) * 2]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    test.assertEqual(len(sent), 12)
    test.assertLess(max(sent), HUGE)
    reducer.wait_text(r"connection-refused peer=127\S+ transport=grpc\S* reason=.it sent more than an unauthenticated ")
    if not harness.SAN:  # a sanitizer keeps what was freed
        test.assertLess(memory(reducer.pid, "VmHWM") - before, HUGE)
    workers[0].tell()
    for w in workers:
        test.assertEqual(w.said("end")["message"], "", w.report())
        test.assertTrue(w.said("sums")["right"])


@unittest.skipUnless(harness.HAS_GRPC, "this build has no gRPC")
class Port(unittest.TestCase):
    def error(self, c, transport, address):
        config = {"job": {"transport": transport}, **harness.SOON, "reducers": [{"id": "r0", "address": address}]}
        return c.start_worker(0, 1, WORKER, config=config).said("end")["message"]

    def test_the_wrong_port(self):
        with harness.Cluster(transport="grpc") as c:
            tcp = c.reducers[0].wait_text(r"\blistening\b.*?address=(\S+)").group(1)
            self.assertRegex(self.error(c, "grpc", tcp), "does not speak gRPC")
            c.reducers[0].wait_text("connection-refused .*it speaks HTTP/2: for gRPC there is another port")
            self.assertRegex(self.error(c, "tcp", c.address(0)), "it closed the connection")

    def test_more_workers_than_connections(self):
        with harness.Cluster(transport="grpc", server_config={"server": {"max_connections": 1}}) as c:
            first = c.start_worker(0, 2, WORKER, config={"timeouts": {"connect": "10min"}})  # outlasts the second
            c.reducers[0].wait_text("job-opened")
            second = c.start_worker(1, 2, WORKER, config=harness.SOON)
            self.assertIn("server.max_connections", second.said("end")["message"])
            c.reducers[0].wait_text("connection-refused .*transport=grpc .*server.max_connections")
            first.kill()

    def test_silent_streams_make_room(self):
        """Calls that never send HELLO are ended for others that do."""
        import grpc

        with harness.Cluster(transport="grpc", server_config={"server": {"max_connections": 2}}) as c:
            with grpc.insecure_channel(c.address(0)) as channel:
                method = channel.stream_stream("/reduction.v1.Reducer/Exchange")
                silent = [method(Endless()) for _ in range(2)]
                workers = c.start_workers(1, WORKER)
                self.assertEqual(workers[0].said("end")["message"], "", workers[0].report())
                for call in silent:
                    call.cancel()

    def test_responses_that_are_not_read(self):
        """Unauthenticated clients request the health and do not read the response: workers get their places."""
        server = {"server": {"max_connections": 4}}  # and 192 calls of other methods
        with harness.Cluster(transport="grpc", server_config=server) as c, contextlib.ExitStack() as stack:
            http2.crowd(stack, c.address(0), http2.CHECK, 256)
            workers = c.start_workers(2, WORKER)
            self.assertEqual([w.said("end")["message"] for w in workers], ["", ""])

    def test_huge_messages(self):
        with harness.Cluster(transport="grpc") as c:
            huge_messages(self, c, lambda: http2.connect(c.address(0)))

    def test_many_questions(self):
        """A client with the required right may send any number of queries; others may not."""
        with harness.Cluster(transport="grpc") as c:
            with http2.connect(c.address(0)) as s:
                self.assertEqual(http2.ask(s, http2.STATUS, b"\x7a\xa0\x1f" + bytes(4000), 1000), 1000)
            with http2.connect(c.address(0)) as s:
                self.assertLess(http2.ask(s, http2.CHECK, b"\x7a\xa0\x1f" + bytes(4000), 100000), 100000)
            c.reducers[0].wait_text(r"connection-refused .*more than an unauthenticated connection may: 64 KiB ")

    def test_garbage(self):
        """Bytes that are no HTTP/2, and Pieces that are none; a job beside it is not disturbed."""
        import grpc

        with harness.Cluster(transport="grpc") as c:
            host, port = c.address(0).rsplit(":", 1)
            for data in (b"\0" * 1000, b"GET / HTTP/1.1\r\n\r\n", os.urandom(3000), b"RS\1\1" + b"x" * 200):
                with socket.create_connection((host, int(port)), timeout=10 * harness.SCALE) as s:
                    s.sendall(data)
                    try:
                        while s.recv(65536):
                            pass
                    except ConnectionResetError:
                        pass
            with grpc.insecure_channel(c.address(0)) as channel:
                method = channel.stream_stream("/reduction.v1.Reducer/Exchange")
                foreign = [[b"\xff\xff"], [b"\x0a\x05abc"], [b"\x0a\x40" + b"x" * 64], [b"", b"\x12\x00"]]
                for messages in foreign:
                    with self.subTest(messages):
                        call = method(iter(messages))
                        try:
                            answer = b"".join(call)
                        except grpc.RpcError as e:
                            self.assertNotEqual(e.code(), grpc.StatusCode.OK)
                        else:  # REFUSED
                            self.assertIn(b"RS\1\3", answer)
            worker = c.start_worker(0, 1, WORKER)
            self.assertEqual(worker.said("end")["message"], "", worker.report())

    def test_no_descriptors(self):
        """Connections until the reducer has no descriptor left: afterwards the port is there again."""
        with harness.Cluster(transport="grpc", start=False) as c:
            limit = 200 if "address" not in harness.SAN else 400
            argv = ["prlimit", f"--nofile={limit}:{limit}", harness.binary("reduction-server"), "--lanes", 1,
                    "--listen", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--log-level", "debug"]
            c.reducers[0] = c.start("reducer r0", argv)
            host, port = c.address(0).rsplit(":", 1)
            flood = []
            for _ in range(limit + 60):
                s = socket.socket()
                s.setblocking(False)
                s.connect_ex((host, int(port)))
                flood.append(s)
            c.reducers[0].wait_text("Too many open files")
            for s in flood:
                s.close()
            worker = c.start_worker(0, 1, WORKER)
            self.assertEqual(worker.said("end", 30)["message"], "", worker.report())


class Endless:
    """Messages without an end."""

    def __iter__(self):
        return self

    def __next__(self):
        threading.Event().wait()


class Missing(unittest.TestCase):
    """The programs without libreduction-grpc.so beside them."""

    def test_reducer(self):
        with harness.Cluster(start=False) as c:
            alone = c.dir / "bin"
            alone.mkdir()
            shutil.copy(harness.binary("reduction-server"), alone)
            argv = [alone / "reduction-server", "--listen", "127.0.0.1:0", "--grpc", "127.0.0.1:0"]
            done = subprocess.run(argv, capture_output=True, text=True, timeout=60 * harness.SCALE)
            self.assertEqual(done.returncode, 1)
            self.assertIn(f"there is neither {alone}/libreduction-grpc.so nor {alone}/../lib/libreduction-grpc.so",
                          done.stderr)

    def test_worker(self):
        with harness.Cluster() as c:
            library = c.dir / "libreduction.so.0"
            shutil.copy(os.path.realpath(harness.worker_env()["REDUCTION_LIBRARY"]), library)
            config = {"job": {"transport": "grpc"}}
            worker = c.start_worker(0, 1, WORKER, env={"REDUCTION_LIBRARY": library}, config=config)
            self.assertRegex(worker.said("end")["message"], f"job.transport: there is neither {library.parent}/libred")


if __name__ == "__main__":
    harness.main()
