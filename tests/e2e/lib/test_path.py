#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# run: beside-others
"""A path to a reducer that drops large messages, in one direction or both, as one with a too small MTU does: every rank
reads that the path is to blame, and where."""

import contextlib
import json
import re
import socket
import threading
import time
import unittest

import harness
from test_control import GRPC, ctl

LARGE = 1400  # bytes: larger messages are dropped
DETECT = {"timeouts": {"detect": "5s"}}  # a rank that stands still for less than half of it knows that it was heard

SERVER = {**DETECT, **(GRPC if harness.HAS_GRPC else {})}

# Sums once for each line of input: so many elements.
SUMS = harness.python("""
    import numpy, reduction, worker
    def run():
        with reduction.Communicator() as comm:
            worker.say("open")
            while n := int(worker.listen()):
                x = comm.all_reduce(numpy.full(n, comm.rank + 1, "float32"))
                worker.say("sum", value=float(x.min()), all=bool((x == x[0]).all()))
    worker.say("end", **worker.attempt(run))
    """)


class NarrowPath:
    """Forwards to an address, each connection until a message is too large. Everything behind it is lost too."""

    def __init__(self, address, out, back):
        """out, back: drops large messages in this direction."""
        host, port = address.rsplit(":", 1)
        self.to, self.narrow = (host, int(port)), [out, back]
        self.dropped = threading.Semaphore(0)  # once for each connection that a message was too large for
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.sockets = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                a = self.listener.accept()[0]
                self.sockets.append(a)
                b = socket.create_connection(self.to)
                self.sockets.append(b)
                for i, (source, sink) in enumerate(((a, b), (b, a))):
                    threading.Thread(target=self._pump, args=(source, sink, i), daemon=True).start()

    def _pump(self, source, sink, direction):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if self.narrow[direction] and len(data) > LARGE:
                    self.dropped.release()
                    return
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def close(self):
        for s in [self.listener, *self.sockets]:
            s.close()


class Path(unittest.TestCase):
    def narrow(self, cluster, reducer, out, back):
        path = NarrowPath(cluster.address(reducer), out, back)
        self.addCleanup(path.close)
        return path

    def start(self, cluster, addresses):
        """Two ranks. Rank 0 connects to these addresses."""
        where = [{"id": f"r{i}", "address": a} for i, a in enumerate(addresses)]
        ranks = [cluster.start_worker(0, 2, SUMS, config={"reducers": where}), cluster.start_worker(1, 2, SUMS)]
        for rank in ranks:
            rank.said("open")
        return ranks

    def begin(self, ranks, n):
        for rank in ranks:
            rank.tell(str(n))

    def end(self, ranks):
        for rank in ranks:
            found = rank.said("sum", timeout=40)
            self.assertEqual((found["value"], found["all"]), (3.0, True))

    def test_the_only_reducer(self):
        small = r"small messages pass and large ones do not \(no answer to 32768 bytes\): check the MTU and the filters"
        heard = r"reducer r0 \(%s\) says that nothing was heard from rank 0, which hears the reducer: "
        silent = r"reducer r0 \(%s\) was lost: nothing was heard from it for 5000 ms; if it runs, "
        for out, back in ((True, False), (False, True), (True, True)):
            with (
                self.subTest(out=out, back=back),
                harness.Cluster(reducers=1, transport="tcp", config=DETECT, server_config=SERVER) as c,
            ):
                address = self.narrow(c, 0, out, back).address
                ranks = self.start(c, [address])
                self.begin(ranks, 10)
                self.end(ranks)
                self.begin(ranks, 300000)
                ends = [rank.said("end", timeout=30) for rank in ranks]
                self.assertEqual([e["error"] for e in ends], ["PeerLostError"] * 2, ends)
                self.assertNotIn("rank 0 (", ends[0]["message"])
                if not out:
                    self.assertRegex(ends[0]["message"], silent % address + small)
                    self.assertRegex(ends[1]["message"], "rank 0: " + silent % address + small)
                else:  # whoever is first
                    self.assertRegex(ends[0]["message"], f"({heard % address}|{silent % address})" + small)
                    self.assertRegex(ends[1]["message"],
                                     r"rank 0 \(.*\) was lost: nothing was heard from it for 5.0 s; "
                                     r"only small messages have come from it: if it runs, check the MTU|"
                                     rf"rank 0: ({heard % address}|{silent % address}){small}")  # fmt: skip

                if harness.HAS_GRPC:
                    ready = c.reducers[0].wait_text(r"\bgrpc-ready\b.*?address=(\S+)").group(1)
                    found = self.doctor(ready, "reducer-path")
                    self.assertEqual(found["what"], "generation 0 has ended: large messages did not get through")

    def doctor(self, address, want):
        """Waits until doctor finds this, and returns it."""
        deadline = time.monotonic() + 30 * harness.SCALE
        while True:
            found = json.loads(ctl("doctor", "--json", "--seconds", "5", address)[1])["findings"]
            for f in found:
                if f["id"] == want:
                    return f
            self.assertLess(time.monotonic(), deadline, found)
            time.sleep(0.1)

    def test_one_of_two_reducers(self):
        """The training goes on, and the logs and doctor say why it is slower. The reducer does not come back, which
        would stop the training again, until large messages pass."""
        for transport, out in (("tcp", True), ("tcp", False), ("grpc", True)):
            if transport == "tcp" or harness.HAS_GRPC:
                with self.subTest(transport=transport, out=out):
                    self.one_of_two_reducers(transport, out, not out)

    def one_of_two_reducers(self, transport, out, back):
        with harness.Cluster(reducers=2, transport=transport, config=DETECT, server_config=SERVER) as c:
            path = self.narrow(c, 1, out, back)
            ranks = self.start(c, [c.address(0), path.address])
            self.begin(ranks, 300000)
            lost = ranks[0].wait_text(r"reducer-(lost|left) reducer=r1.*").group(0)
            self.assertIn("small messages pass and large ones do not (no answer to 32768 bytes)", lost)
            self.end(ranks)
            for _ in range(3):  # the first loss, then two attempts
                self.assertTrue(path.dropped.acquire(timeout=60 * harness.SCALE))
                self.begin(ranks, 300000)
                self.end(ranks)
            self.assertEqual(len(re.findall(r"reducer-(?:lost|left) ", ranks[0].err)), 1)
            self.assertNotIn("reducer-back", ranks[0].err)
            if harness.HAS_GRPC:
                address = c.reducers[0].wait_text(r"\bgrpc-ready\b.*?address=(\S+)").group(1)
                found = self.doctor(address, "reducer-path")
                self.assertIn("large messages do not get through to reducer r1", found["what"])
                self.assertIn("ping -M do", found["action"])
            path.narrow = [False, False]
            for rank in ranks:
                rank.wait_text("reducer-back reducer=r1", timeout=60)
            self.begin(ranks, 300000)
            self.end(ranks)
            for rank in ranks:
                rank.tell("0")
            c.wait_all(ranks)


if __name__ == "__main__":
    harness.main()
