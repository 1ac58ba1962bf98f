#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# run: beside-others
"""TLS between workers and reducers: right sums, failover and return as without it, and nobody gets in who should not:
each with a sentence for the one that is refused, a line in the log, and no harm to others.
"""

import os
import re
import shutil
import signal
import socket
import ssl
import tempfile
import threading
import time
import unittest

import certs
import harness
import test_failover
import wire

WORKER = harness.python("""
    import numpy, reduction, worker
    def run():
        with reduction.Communicator() as comm:
            x = numpy.full(100_000, comm.rank + 1.0)
            comm.all_reduce(x)
            worker.say("sum", value=float(x[0]), same=bool((x == x[0]).all()))
    worker.say("end", **worker.attempt(run))
    """)
LOCALHOST = "reducer:localhost,127.0.0.1"
ACCESS = [{"certificate": "team-a", "jobs": "a*"}, {"certificate": "*.team-b.example", "jobs": "test"}]


class Tls(unittest.TestCase):
    """With one authority, certificates of a reducer and of two teams, and another authority with the same names."""

    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.mkdtemp(prefix="reduction-")
        cls.addClassCleanup(shutil.rmtree, cls.dir)
        names = [LOCALHOST, "client:team-a", "client:node1.team-b.example"]
        cls.good = certs.Folder(f"{cls.dir}/good", *names, "reducer:elsewhere")
        cls.foreign = certs.Folder(f"{cls.dir}/foreign", *names)

    def cluster(self, server=None, config=None, **more):
        """Reducers with TLS, and a configuration for workers; leaves with the test."""
        server = self.good.reducer("localhost") if server is None else server
        config = self.good.worker() if config is None else config
        more = {"server_args": ["--log-level", "debug"], **more}
        c = harness.Cluster(config=config, server_config=server, **more)
        self.addCleanup(c.__exit__, None, None, None)
        return c.__enter__()

    def mutual(self, **more):
        server = {**self.good.reducer("localhost", mutual=True), "access": ACCESS}
        return self.cluster(server, self.good.worker("node1.team-b.example"), **more)

    def summed(self, workers):
        for w in workers:
            self.assertEqual(w.said("end")["message"], "", w.report())
            self.assertEqual((w.said("sum")["value"], w.said("sum")["same"]), (3.0, True))

    def refused(self, *cases):
        """Each case (cluster, configuration, sentence, words in the log): a worker with this configuration cannot join,
        and reads why; the reducer's log says so too, unless it has said as much as it does in a second already: then
        the next try is told. All try at the same time, since none gives up before its time is over."""
        for last in (False, False, True):
            tries = [c.start_worker(0, 1, WORKER, config={**harness.SOON, **(config or {})})
                     for c, config, _, _ in cases]
            unsaid = []
            for worker, (c, config, at_worker, at_reducer) in zip(tries, cases):
                self.assertRegex(worker.said("end")["message"], at_worker)
                line = rf"connection-refused peer=127.* reason=\".*{at_reducer}"
                c.reducers[0].wait_text(line if last else rf"{line}|suppressed event=connection-refused")
                if not re.search(line, c.reducers[0].err):
                    unsaid.append((c, config, at_worker, at_reducer))
            cases = unsaid


class Right(Tls):
    def test_operations_of_all_kinds(self):
        for agents in (0, 2):
            for cluster in (self.cluster, self.mutual):
                with self.subTest(agents=agents, cluster=cluster.__name__):
                    c = cluster(reducers=2, lanes=2, agents=agents)
                    test_failover.Job(self, c, cases=60).done()

    def test_large(self):
        """Many records in flight both ways, sockets that are full, chunks that are no multiple of a record."""
        c = self.mutual(reducers=2, lanes=2)
        test_failover.Job(self, c, cases=12, largest=300_000 if harness.SLOW else 3_000_000, in_flight=4).done()

    def test_later_lanes_resume(self):
        c = self.mutual(lanes=4)
        debug = {"logging": {"level": "debug"}}
        workers = c.start_workers(2, WORKER, config={**debug})
        self.summed(workers)
        for w in c.wait_all(workers) and workers:
            self.assertEqual(len(re.findall("reducer-connected", w.err)), 4)
            self.assertEqual(len(re.findall("reducer-connected .*TLS session resumed", w.err)), 3)

    def test_lost_and_back(self):
        """One reducer dies and returns, another one dies then."""
        for agents in (0, 2):
            with self.subTest(agents=agents):
                config = {**self.good.worker("node1.team-b.example"), "sharding": {"chunk_bytes": "4KiB"}}  # fmt: skip
                server = {**self.good.reducer("localhost", mutual=True), "access": ACCESS}
                c = self.cluster(server, config, reducers=2, lanes=2, agents=agents)
                job = test_failover.Job(self, c, gates={10: 0, 40: 3, 80: 1})
                job.at_gate(10)
                c.reducers[0].kill()
                job.go(10)
                job.at_gate(40)
                c.start_reducer(0)
                job.back(0)
                job.go(40)
                job.at_gate(80)
                c.reducers[1].kill()
                job.go(80)
                job.done()

    def test_drained(self):
        c = self.cluster(reducers=2)
        job = test_failover.Job(self, c, cases=60, gates={10: 0, 40: 1})
        job.at_gate(10)
        c.reducers[1].signal(signal.SIGTERM)
        job.go(10)
        job.at_gate(40)
        self.assertEqual(c.reducers[1].wait(), 0)
        job.go(40)
        job.done()

    def test_server_name_of_the_configuration(self):
        c = self.cluster(self.good.reducer("elsewhere"))
        reducers = [{"id": "r0", "address": c.address(0), "tls_name": "elsewhere"}]
        self.summed(c.start_workers(2, WORKER, config={"reducers": reducers}))


class Refused(Tls):
    def test_certificates_of_reducers(self):
        cases = [
            (self.good.reducer("elsewhere"), "its certificate is for elsewhere, not for the name or address"),
            (self.foreign.reducer("localhost"),
             r"its certificate \(localhost,?\) is not accepted: unable to get local issuer certificate"),
        ]  # fmt: skip
        self.refused(*((self.cluster(server), None, rf"reducer r0 \(127.*\): {expected}",
                        "does not accept the certificate") for server, expected in cases))  # fmt: skip

    def test_the_certificate_of_one_of_two_reducers(self):
        """The job does not run on the other reducer alone, and its rank does not wait until timeouts.connect."""
        good, other = self.cluster(), self.cluster(self.good.reducer("elsewhere"))
        reducers = [{"id": "r0", "address": good.address(0)}, {"id": "r1", "address": other.address(0)}]
        worker = good.start_worker(0, 1, WORKER, config={"reducers": reducers})
        said = worker.said("end")
        self.assertRegex(said["message"], r"^reducer r1 \(127.*\): its certificate is for elsewhere, not for")
        self.assertLess(said["seconds"], 30)  # of 60

    def test_certificates_of_workers(self):
        c = self.mutual()
        with test_unharmed(self, c):
            self.refused(
                (c, self.good.worker(), "asks for a certificate: its security.tls is mutual",
                 "it shows no certificate"),
                (c, self.foreign.worker("team-a", authority=self.good.file("ca.pem")),
                 "it does not accept the certificate that it was shown",
                 r"its certificate \(team-a\) is not accepted: unable to get local issuer certificate"),
                (c, self.good.worker("team-a"), "the certificate of team-a may not join job test here",
                 "may not join job test"),
            )  # fmt: skip
            # what team-a may do
            config = {**self.good.worker("team-a"), "job": {"name": "a7"}}
            self.summed(c.start_workers(2, WORKER, config=config))
            config = {**self.good.worker("team-a"), "job": {"name": "b"}}
            self.refused((c, config, "team-a may not join job b", "job b"))

    def test_without_rules_no_worker_joins(self):
        c = self.cluster(self.good.reducer("localhost", mutual=True), self.good.worker("team-a"))
        self.refused((c, None, "may not join job test here: this reducer's configuration has no rules", "no rules"))

    def test_plain_workers(self):
        c = self.cluster()
        with test_unharmed(self, c):
            self.refused((c, {"security": {"tls": "off"}}, "this reducer speaks TLS only", "speaks TLS only"))

    def test_plain_reducers(self):
        c = self.cluster({"security": {"tls": "off"}}, {"security": {"tls": "off"}})
        with test_unharmed(self, c):
            self.refused((c, self.good.worker(), "answered without TLS: .*this reducer does not speak TLS",
                          "does not speak TLS"))  # fmt: skip

    def test_invalid_clients(self):
        """Peers that are no workers. The reasons are those in the log."""
        self.good.expired("late")
        c = self.mutual()
        team = "node1.team-b.example"
        cases = [
            (self.good.client_context(team, newest=ssl.TLSVersion.TLSv1_2), "does not speak TLS 1.3"),
            (self.good.client_context(team, alpn="http/1.1"), "another protocol than reduction/1"),
            (self.good.client_context(team, alpn=None), "another protocol than reduction/1"),
            (self.good.client_context("late"),
             r"its certificate \(localhost\) is not accepted: certificate has expired"),
        ]  # fmt: skip
        with test_unharmed(self, c):
            for context, reason in cases:
                with self.subTest(reason), c.connect(0) as sock:
                    with self.assertRaises((ssl.SSLError, ConnectionError)), context.wrap_socket(sock) as tls:
                        tls.sendall(wire.hello())
                        if not tls.recv(1):  # the alert has come; then the end
                            raise ConnectionError
                    c.reducers[0].wait_text(f"connection-refused .*{reason}")

    def test_invalid_reducers(self):
        """Servers that are no reducers, or the wrong one."""
        self.good.expired("old")
        cases = [
            (self.good.server_context("old"), "its certificate .* is not accepted: certificate has expired"),
            (self.good.server_context("localhost", ssl.TLSVersion.TLSv1_2), "it does not speak TLS 1.3|this version"),
            (None, "it does not speak TLS"),
        ]  # fmt: skip
        c = self.cluster(reducers=0, config={**self.good.worker(), **harness.SOON})
        tries = []
        for context, reason in cases:
            address = self.enterContext(impostor(context))
            reducers = [{"id": "r0", "address": address}]
            tries.append((c.start_worker(0, 1, WORKER, config={"reducers": reducers}), address, reason))
        for worker, address, reason in tries:
            with self.subTest(reason):
                self.assertRegex(worker.said("end")["message"], rf"reducer r0 \({address}\): .*({reason})")
                worker.wait_text(f"tls-failed reducer=r0 .*({reason})")

    def test_truncated(self):
        """An attacker's cut of a connection is not taken as an orderly end."""
        c = self.mutual()
        raw = c.connect(0)
        tls = self.good.client_context("node1.team-b.example").wrap_socket(raw)
        client = wire.Client(tls)
        client.join(world_size=2)
        other = wire.Client(self.good.client_context("node1.team-b.example").wrap_socket(c.connect(0)))
        other.join(rank=1, world_size=2)
        for one in (client, other):
            one.expect(wire.START)
        os.close(tls.detach())
        self.assertRegex(other.reason(wire.ABORT), "rank 0 was lost: it closed the connection without ending TLS first")
        other.sock.close()


class Secrets(Tls):
    """With a secret beside TLS both ends prove that they have it, for this connection."""

    def secured(self):
        folder = tempfile.mkdtemp(dir=self.dir)
        path = f"{folder}/test.secret"
        with open(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600), "w", encoding="utf-8") as f:
            f.write("0123456789abcdef0123456789abcdef")
        server = {**self.good.reducer("localhost"), "server": {"secrets_dir": folder}}
        c = self.cluster(server, self.good.worker(secret=path), lanes=2)
        return c, {"security": {**c.config["security"], "secret": path}}

    def test_sums(self):
        c, _ = self.secured()
        self.summed(c.start_workers(2, WORKER))

    def test_man_in_the_middle(self):
        """It has a certificate that workers accept, and forwards both proofs. They fit no other connection."""
        c, config = self.secured()
        with test_unharmed(self, c), relay(self.good, c.address(0)) as address:
            config = {**config, "reducers": [{"id": "r0", "address": address}], "job": {"name": "test"}}
            self.refused((c, config, "reducer r0 .*(proof|secret)", "(proof|secret)"))


class Slow(Tls):
    def test_handshakes(self):
        """A client that takes too long for TLS is closed in time, whether it is silent, slow, or stops half-way."""
        server = {**self.good.reducer("localhost"), "timeouts": {"handshake": "2500ms"}}
        c = self.cluster(server)
        hello = client_hello(self.good.client_context())
        with test_unharmed(self, c):
            clients = []
            for name, said in (("nothing", b""), ("a byte", hello[:1]), ("half", hello[:100]), ("all", hello)):
                sock = self.enterContext(c.connect(0))
                sock.sendall(said)
                clients.append((name, sock))
            with c.connect(0) as sock, self.assertRaises(OSError):
                for byte in hello * 100:
                    sock.sendall(bytes([byte]))
                    time.sleep(0.02)
            for name, sock in clients:
                with self.subTest(name):
                    wire.Client(sock).closed()
            c.reducers[0].wait_text("no complete TLS handshake came within 2.5 s")

    def test_missing_client_hello(self):
        server = {**self.good.reducer("localhost"), "timeouts": {"handshake": "2s"}}
        c = self.cluster(server)
        with self.good.client_context().wrap_socket(c.connect(0)) as tls:
            self.assertIn("no complete HELLO came within 2.0 s", wire.Client(tls).reason(wire.REFUSED))

    def test_absurd_lengths(self):
        c = self.cluster()
        with c.connect(0) as sock:
            sock.sendall(b"\x16\x03\x01\x40\x00\x01\x01\x00\x00" + bytes(100))
            self.assertIn("ClientHello that is too long", wire.Client(sock).reason(wire.REFUSED))


class Reload(Tls):
    def shown(self, c, context=None):
        """Returns the certificate that the reducer shows."""
        with (context or self.good.client_context()).wrap_socket(c.connect(0)) as tls:
            return tls.getpeercert(binary_form=True)

    def test_certificates(self):
        here = certs.Folder(tempfile.mkdtemp(dir=self.dir) + "/here", LOCALHOST)
        c = self.cluster(here.reducer("localhost"), here.worker())
        with test_unharmed(self, c):
            context = here.client_context()
            first = self.shown(c, context)
            here.make(LOCALHOST)
            c.reducers[0].signal(signal.SIGHUP)
            c.reducers[0].wait_text("reload result=.*taken over")
            second = self.shown(c, context)
            self.assertNotEqual(second, first)
            # a key that does not fit
            shutil.copy(self.foreign.file("localhost.key"), here.file("localhost.key"))
            c.reducers[0].signal(signal.SIGHUP)
            c.reducers[0].wait_text("kept the old configuration.* does not belong to the certificate")
            self.assertEqual(self.shown(c, context), second)

    def test_access(self):
        c = self.mutual()
        config = {**self.good.worker("team-a"), "job": {"name": "b"}}
        self.refused((c, config, "team-a may not join job b", "job b"))
        c._write("server.yaml", {**c.server_config, "access": [{"certificate": "team-?", "jobs": "b"}]})
        c.reducers[0].signal(signal.SIGHUP)
        c.reducers[0].wait_text("access_rules=1")
        self.summed(c.start_workers(2, WORKER, config=config))
        self.refused((c, None, "node1.team-b.example may not join job test", "job test"))

    def test_workers_reload_certificates_when_they_reconnect(self):
        """An agent continues over a change of the authority: its reducer returns with new certificates."""
        here = certs.Folder(tempfile.mkdtemp(dir=self.dir) + "/here", LOCALHOST)
        config = {**here.worker(), "sharding": {"chunk_bytes": "4KiB"}}
        c = self.cluster(here.reducer("localhost"), config, reducers=2)
        job = test_failover.Job(self, c, gates={10: 0, 40: 3})
        job.at_gate(10)
        c.reducers[0].kill()
        job.go(10)
        job.at_gate(40)
        for name in ("ca.pem", "ca.key"):
            os.unlink(here.file(name))
        here.make(LOCALHOST)
        c.start_reducer(0)
        job.back(0)
        job.go(40)
        job.done()


class Start(Tls):
    def test_listening_beyond_loopback(self):
        """A client that must show a certificate is authenticated; one that only checks the server's is not."""
        for mutual, status in ((True, 0), (False, 1)):
            with self.subTest(mutual=mutual):
                server = self.good.reducer("localhost", mutual=mutual)
                c = self.cluster(server, reducers=0)
                p = c.start("reducer", [harness.binary("reduction-server"), "--listen", "0.0.0.0:0",
                                        "--config", c._write("server.yaml", server)])  # fmt: skip
                if mutual:
                    p.wait_text(r"\blistening\b")
                    p.stop()
                else:
                    p.wait_text("is not a loopback address")
                self.assertEqual(p.wait(), status)

    def test_invalid_files(self):
        """Reported at the start, with the same error by the reducer, the agent, a worker and reductionctl."""
        c = self.cluster(reducers=0)
        server = self.good.reducer("localhost", key=self.good.file("elsewhere.key"))
        path = c._write("wrong.yaml", server)
        expected = r"the key in .*/elsewhere.key does not belong to the certificate in .*/localhost.pem"
        for argv in (["reduction-server", "--config", path], ["reductionctl", "check", path]):
            p = c.start(argv[0], [harness.binary(argv[0]), *argv[1:]])
            self.assertEqual(p.wait(), 1)
            self.assertRegex(p.err, expected)
        config = {**self.good.worker("localhost", key=self.good.file("elsewhere.key")),
                  "reducers": [{"id": "r0", "address": "127.0.0.1:1"}]}  # fmt: skip
        self.assertRegex(c.start_worker(0, 1, WORKER, config=config).said("end")["message"], expected)

    def test_check(self):
        c = self.cluster(reducers=0)
        for name, tree, expected in (
            ("reducer", self.good.reducer("localhost"), r"tls: ok: certificate of localhost, valid until 20\d\d-"),
            ("worker", self.good.worker(), "tls: ok: no certificate of its own"),
            ("team", self.good.worker("team-a"), "tls: ok: certificate of team-a, valid until"),
        ):
            p = c.start("check", [harness.binary("reductionctl"), "check", c._write(f"{name}.yaml", tree)])
            self.assertEqual(p.wait(), 0, p.report())
            self.assertRegex(p.out, expected)


class test_unharmed:
    """A job that runs on the cluster during the block, and must end undisturbed."""

    def __init__(self, test, cluster):
        self.job = test_failover.Job(test, cluster, cases=40, gates={10: 0})
        self.job.at_gate(10)

    def __enter__(self):
        return self.job

    def __exit__(self, kind, *_):
        if kind is None:
            self.job.go(10)
            self.job.done()


class impostor:
    """A server that takes connections, speaks TLS as a context says, or HTTP without one, and closes. "host:port" """

    def __init__(self, context):
        self.context = context

    def __enter__(self):
        self.sock = socket.create_server(("127.0.0.1", 0))
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()
        return "127.0.0.1:%d" % self.sock.getsockname()[1]

    def __exit__(self, *_):
        self.sock.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.sock.close()

    def serve(self):
        while True:
            try:
                sock, _ = self.sock.accept()
            except OSError:
                return
            with sock:
                try:
                    if self.context:
                        with self.context.wrap_socket(sock, server_side=True) as tls:
                            tls.recv(1)
                    else:
                        sock.recv(100)
                        sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                        sock.shutdown(socket.SHUT_WR)
                        sock.recv(100_000)
                except OSError:
                    pass  # the worker refuses it, as it should


class relay(impostor):
    """Accepts TLS connections with a certificate of this folder, and forwards to a reducer and back."""

    def __init__(self, folder, address):
        super().__init__(folder.server_context("localhost"))
        self.folder, self.address = folder, address

    def serve(self):
        while True:
            try:
                sock, _ = self.sock.accept()
            except OSError:
                return
            try:
                with sock, self.context.wrap_socket(sock, server_side=True) as worker:
                    host, port = self.address.rsplit(":", 1)
                    with socket.create_connection((host, int(port))) as raw:
                        with self.folder.client_context().wrap_socket(raw) as reducer:
                            self.pump(worker, reducer)
            except OSError:
                pass

    @staticmethod
    def pump(a, b):
        while True:
            for one, other in ((a, b), (b, a)):
                one.settimeout(0.02)
                try:
                    data = one.recv(65536)
                except TimeoutError:
                    continue
                if not data:
                    return
                other.sendall(data)


def client_hello(context):
    """The first bytes of a client."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    try:
        context.wrap_bio(incoming, outgoing).do_handshake()
    except ssl.SSLWantReadError:
        pass
    return outgoing.read()


if __name__ == "__main__":
    harness.main()
