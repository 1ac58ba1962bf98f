#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan
"""TLS over gRPC: right sums; refused workers get the reason, without harm to others.

Not under ThreadSanitizer: it reports races in what OpenSSL does for gRPC.
"""

import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import unittest

import certs
import harness
import http2
import test_failover
import test_grpc_port
import test_tls

CLOSED = r"reducer r0 at 127[.0-9]*:\d+: it closed the new connection, and may"
TEAM_B = "node1.team-b.example"
# LeakSanitizer itself crashes at times, on threads of gRPC that are ending
os.environ["LSAN_OPTIONS"] = "use_tls=0:print_suppressions=0"


class GrpcTls(test_tls.Tls):
    def cluster(self, server=None, config=None, **more):
        return super().cluster(server, config, **{"transport": "grpc", **more})


@unittest.skipUnless(harness.HAS_GRPC, "this build has no gRPC")
class Right(GrpcTls):
    def test_sums_direct_and_through_agents(self):
        for agents in (0, 2):
            for cluster in (self.cluster, self.mutual):
                with self.subTest(agents=agents, cluster=cluster.__name__):
                    c = cluster(reducers=2, lanes=2, agents=agents)
                    test_failover.Job(self, c, cases=30).done()
                    self.assertIn("transport=grpc+tls", c.reducers[0].err)

    def test_server_name_of_the_configuration(self):
        c = self.cluster(self.good.reducer("elsewhere"))
        reducers = [{"id": "r0", "address": c.address(0), "tls_name": "elsewhere"}]
        self.summed(c.start_workers(2, test_tls.WORKER, config={"reducers": reducers}))

    def test_lost_and_back(self):
        config = {**self.good.worker(TEAM_B), "sharding": {"chunk_bytes": "4KiB"}}
        server = {**self.good.reducer("localhost", mutual=True), "access": test_tls.ACCESS}
        c = self.cluster(server, config, reducers=2)
        job = test_failover.Job(self, c, gates={10: 0, 40: 3})
        job.at_gate(10)
        c.reducers[0].kill()
        job.go(10)
        job.at_gate(40)
        c.start_reducer(0)
        job.back(0)
        job.go(40)
        job.done()

    def test_weight(self):
        """The rule that admits a worker gives its connections a weight, which status shows."""
        rules = [{"certificate": "nobody", "jobs": "*", "weight": 9},
                 {"certificate": "*.team-b.example", "jobs": "test", "weight": 2.5}]
        server = {**self.good.reducer("localhost", mutual=True), "access": rules}
        c = self.cluster(server, self.good.worker(TEAM_B))
        job = test_failover.Job(self, c, gates={10: 0})
        job.at_gate(10)
        own = self.good.own("team-a")
        shown = subprocess.run([harness.binary("reductionctl"), "status", "--json", c.address(0), "--authority",
                                own["authority"], "--certificate", own["certificate"], "--key", own["key"]],
                               check=True, capture_output=True, text=True,
                               env=harness.sanitizer_env(["reductionctl"])).stdout  # fmt: skip
        status = json.loads(shown)["jobs"][0]
        self.assertEqual(status["weight"], 2.5)
        self.assertGreater(int(status["served_us"]), 0)
        job.go(10)
        job.done()

    def test_certificates_reload(self):
        """On SIGHUP the reducer uses its new certificate for new connections; an invalid one changes nothing."""
        folder = tempfile.mkdtemp(prefix="reduction-")
        self.addCleanup(shutil.rmtree, folder)
        names = certs.Folder(folder, "reducer:old", "reducer:new")
        server = names.reducer("old")
        files = {k: shutil.copy(v, f"{folder}/shown-{k}") for k, v in server["security"].items()
                 if k in ("certificate", "key")}
        c = self.cluster({"security": {**server["security"], **files}}, names.worker())

        def joins(name, config=None):
            config = {**(config or {}), "reducers": [{"id": "r0", "address": c.address(0), "tls_name": name}]}
            said = c.start_worker(0, 1, test_tls.WORKER, config=config).said("end")
            return said["message"] == ""

        self.assertTrue(joins("old"))
        self.assertFalse(joins("new", harness.SOON))
        fresh = names.reducer("new")["security"]
        shutil.copy(fresh["certificate"], files["certificate"])  # and the key not yet
        c.reducers[0].signal(signal.SIGHUP)
        c.reducers[0].wait_text("reload .*kept the old configuration")
        self.assertTrue(joins("old"))
        shutil.copy(fresh["key"], files["key"])
        c.reducers[0].signal(signal.SIGHUP)
        c.reducers[0].wait_text("reload .*taken over")
        self.assertTrue(joins("new"))
        self.assertFalse(joins("old", harness.SOON))


@unittest.skipUnless(harness.HAS_GRPC, "this build has no gRPC")
class Refused(GrpcTls):
    def test_other_versions_of_tls(self):
        host, port = self.cluster().address(0).rsplit(":", 1)
        for version, good in ((ssl.TLSVersion.TLSv1_2, False), (ssl.TLSVersion.TLSv1_3, True)):
            context = ssl.create_default_context(cafile=self.good.file("ca.pem"))
            context.minimum_version = context.maximum_version = version
            context.set_alpn_protocols(["h2"])
            with self.subTest(version), socket.create_connection((host, int(port)), timeout=20 * harness.SCALE) as s:
                if good:
                    with context.wrap_socket(s, server_hostname="localhost") as tls:
                        self.assertEqual((tls.version(), tls.selected_alpn_protocol()), ("TLSv1.3", "h2"))
                else:
                    with self.assertRaises(OSError):
                        context.wrap_socket(s, server_hostname="localhost")

    def fails(self, *cases):
        """Each case (cluster, configuration, sentence): a worker with this configuration gets this reason."""
        tries = [c.start_worker(0, 1, test_tls.WORKER, config={**harness.SOON, **(config or {})})
                 for c, config, _ in cases]
        for worker, (_, _, expected) in zip(tries, cases):
            with self.subTest(expected):
                self.assertRegex(worker.said("end")["message"], expected)

    def test_certificates_of_reducers(self):
        self.fails(*((self.cluster(server), None, r"reducer r0 \(127.*\): .*(certificate|handshake|TLS)")
                     for server in (self.good.reducer("elsewhere"), self.foreign.reducer("localhost"))))

    def test_certificates_of_reducers_are_errors_at_once(self):
        late = {"timeouts": {"connect": "10min"}}
        for server, expected in ((self.good.reducer("elsewhere"), "its certificate is for another name"),
                                 (self.foreign.reducer("localhost"), "its certificate is not accepted")):
            with self.subTest(expected):
                said = self.cluster(server).start_worker(0, 1, test_tls.WORKER, config=late).said("end")
                self.assertRegex(said["message"], rf"^reducer r0 \(127.*\): {expected}")

    def test_certificates_of_workers(self):
        c = self.mutual()
        with test_tls.test_unharmed(self, c):
            self.fails(
                (c, self.good.worker(), f"{CLOSED} expect a certificate"),
                (c, self.foreign.worker("team-a", authority=self.good.file("ca.pem")),
                 f"{CLOSED} not accept this side's certificate"),
                (c, self.good.worker("team-a"), "the certificate of team-a may not join job test here"),
            )
            c.reducers[0].wait_text(r"connection-refused .*transport=grpc\+tls .*reason=\".*team-a may not join")
            config = {**self.good.worker("team-a"), "job": {"name": "a7", "transport": "grpc"}}
            self.summed(c.start_workers(2, test_tls.WORKER, config=config))

    def test_huge_messages(self):
        c = self.cluster()
        context = ssl.create_default_context(cafile=self.good.file("ca.pem"))
        context.set_alpn_protocols(["h2"])
        test_grpc_port.huge_messages(
            self, c, lambda: context.wrap_socket(http2.connect(c.address(0)), server_hostname="localhost"))

    def test_plain_workers_and_plain_reducers(self):
        c = self.cluster()
        with test_tls.test_unharmed(self, c):
            self.fails((c, {"security": {"tls": "off"}}, f"{CLOSED} speak TLS only"))
        c = self.cluster({"security": {"tls": "off"}}, {"security": {"tls": "off"}})
        with test_tls.test_unharmed(self, c):
            self.fails((c, self.good.worker(), r"reducer r0 \(127.*\): the peer speaks no TLS, and this side does"))


if __name__ == "__main__":
    harness.main()
