#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# run: beside-others
"""The HTTP port of reducers and agents: paths, rights, TLS, metrics, health; and Debian's Prometheus reading them."""

import json
import os
import pathlib
import re
import shutil
import socket
import ssl
import subprocess
import time
import unittest
import urllib.error
import urllib.parse
import urllib.request

import certs
import harness
import prometheus

HAS_HTTP = b"libmicrohttpd.so" in pathlib.Path(harness.binary("reduction-server")).read_bytes()
TOKEN = "read-token-of-a-test"
HTTP = ("--http", "127.0.0.1:0")
GRPC = ("--grpc", "127.0.0.1:0") if harness.HAS_GRPC else ()
DEPLOY = harness.ROOT / "deploy"

# Sums once for each line of its input.
SUMS = harness.python("""
    import os, numpy, reduction, worker
    with reduction.Communicator() as comm:
        worker.say("open")
        while worker.listen():
            comm.all_reduce(numpy.full(100000, os.environ.get("VALUE", 1), dtype="float32"))
            worker.say("sum")
    """)
# Ends in the way that its environment names.
ENDS = harness.python("""
    import os, numpy, reduction, worker
    with reduction.Communicator() as comm:
        x = numpy.ones(1000, dtype="float32")
        comm.all_reduce(x)
        worker.say("open")
        end = os.environ["END"] if comm.rank else ""
        try:
            if end == "abort":
                comm.abort("a test")
            elif end == "nan":
                x[5] = numpy.nan
            comm.all_reduce(x[:7] if end == "mismatch" else x)
            worker.listen()
        except reduction.ReductionError as e:
            worker.say("error", message=str(e))
    """)
# Sums until its input has a line.
STEADY = harness.python("""
    import sys, threading, time
    import numpy, reduction, worker
    with reduction.Communicator() as comm:
        told = threading.Event()
        threading.Thread(target=lambda: (sys.stdin.readline(), told.set()), daemon=True).start()
        worker.say("open")
        stop = numpy.zeros(1, numpy.float32)
        while not stop[0]:
            comm.all_reduce(numpy.ones(100000, dtype="float32"))
            stop[0] = told.is_set()
            comm.all_reduce(stop)
            time.sleep(0.01)
    """)


def get(address, path, headers=None, method="GET"):
    """(status, content type, text)"""
    request = urllib.request.Request(f"http://{address}{path}", headers=headers or {}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=20 * harness.SCALE) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as e:
        with e:
            return e.code, e.headers["Content-Type"], e.read().decode()


def http_of(proc):
    return proc.wait_text(r"\bhttp-ready\b.*?address=(\S+)").group(1)


def grpc_of(proc):
    return proc.wait_text(r"\bgrpc-ready\b.*?address=(\S+)").group(1)


def ctl(*words):
    """Returns what reductionctl prints."""
    env = {**os.environ, **harness.sanitizer_env(["reductionctl"])}
    return subprocess.run([harness.binary("reductionctl"), *words], capture_output=True, text=True, check=True,
                          env=env).stdout  # fmt: skip


def run_until_end(c, end, config):
    """Runs a job of two ranks until it has ended in this way."""
    ranks = c.start_workers(2, ENDS, {"END": end}, config)
    for rank in ranks:
        rank.said("open")
    if end == "kill":
        ranks[1].kill()
    for rank in ranks:
        if rank.running():
            rank.tell()
    for rank in ranks:
        rank.wait()


def samples(text):
    """{name and labels: value} of Prometheus' text."""
    lines = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    return {key: float(value) for key, value in lines}


def until(good, what, timeout=30):
    deadline = time.monotonic() + timeout * harness.SCALE
    while not (found := good()):
        assert time.monotonic() < deadline, f"no {what}"
        time.sleep(0.05)
    return found


@unittest.skipUnless(HAS_HTTP, "this build has no HTTP (libmicrohttpd-dev)")
class Port(unittest.TestCase):
    def test_history(self):
        """The process keeps it, whether somebody looks or not."""
        with harness.Cluster(agents=1, config={"agent": {"single_node": "reducers", "http": "127.0.0.1:0"}},
                             server_args=HTTP) as c:  # fmt: skip
            ranks = c.start_workers(1, STEADY)
            ranks[0].said("open")

            def samples(p):
                return json.loads(get(http_of(p), "/history")[2])["samples"]

            for p in (*c.reducers, *c.agents):
                *_, last = until(lambda: (s := samples(p)) and s[-1]["bytes_in_per_s"] and s, "samples")  # noqa: B023
                self.assertLess(abs(last["unix_ms"] / 1000 - time.time()), 60 * harness.SCALE)
                self.assertGreater(last["bytes_out_per_s"], 0)
                self.assertEqual(last["jobs"], 1)
            self.assertEqual(json.loads(get(http_of(c.reducers[0]), "/status")[2])["samples"], [])
            ranks[0].tell()
            c.wait_all(ranks)

    def test_paths(self):
        with harness.Cluster(server_args=HTTP) as c:
            at = http_of(c.reducers[0])
            self.assertEqual(get(at, "/healthz"), (200, "text/plain; charset=utf-8", "ok\n"))
            self.assertEqual(get(at, "/readyz")[0], 200)
            self.assertEqual(get(at, "/readyz", method="HEAD")[::2], (200, ""))
            status, kind, text = get(at, "/status")
            self.assertEqual((status, kind), (200, "application/json"))
            self.assertEqual(json.loads(text)["http_address"], at)
            events = json.loads(get(at, "/events")[2])
            self.assertIn("http-ready", [e["name"] for e in events])
            status, kind, text = get(at, "/metrics")
            self.assertEqual((status, kind), (200, "text/plain; version=0.0.4; charset=utf-8"))
            self.assertIn("\nreduction_jobs 0\n", text)
            values = samples(text)
            self.assertTrue(0 < values["process_cpu_seconds_total"] < 3600, values)
            memory = [values[f"process_{kind}_memory_bytes"] for kind in ("resident", "virtual")]
            self.assertTrue(0 < memory[0] < memory[1], values)
            self.assertTrue(3 < values["process_open_fds"] < values["process_max_fds"], values)
            self.assertEqual(values["process_start_time_seconds"], values["reduction_start_time_seconds"])
            status, kind, text = get(at, "/metrics", {"Accept": "application/openmetrics-text; version=1.0.0"})
            self.assertEqual(kind, "application/openmetrics-text; version=1.0.0; charset=utf-8")
            self.assertTrue(text.endswith("# EOF\n"))
            self.assertEqual(get(at, "/nothing")[0], 404)
            self.assertEqual(get(at, "/drain", method="POST")[0], 405)
            self.assertEqual(get(at, "/status", {"Host": "evil.example"})[0], 403)
            self.assertEqual(get(at, "/")[1], "text/html; charset=utf-8")

    def test_metrics_of_a_job_are_those_of_its_status(self):
        with harness.Cluster(lanes=2, server_args=HTTP) as c:
            at = http_of(c.reducers[0])
            ranks = c.start_workers(2, SUMS)
            for _ in range(3):
                for rank in ranks:
                    rank.tell("more")
            for rank in ranks:
                rank.wait_text(r'(?:"what": "sum"[\s\S]*){3}', stream="out")
            job = '{reduction_job="test"}'
            metrics = until(
                lambda: (m := samples(get(at, "/metrics")[2])).get(f"reduction_chunk_sending_seconds_count{job}")
                == m.get(f"reduction_job_chunks_total{job}") and m,
                "job whose results are all sent",
            )
            status = json.loads(get(at, "/status")[2])["jobs"][0]
            chunks = status["chunks"]
            self.assertEqual(chunks, metrics[f"reduction_job_chunks_total{job}"])
            self.assertGreater(chunks, 0)
            over = f'{{reduction_job="test",transport="{c.transport}"}}'
            self.assertEqual(metrics[f"reduction_job_contributions_total{over}"], 2 * chunks)
            self.assertEqual(sum(r["last_chunks"] for r in status["ranks"]), chunks)
            for kind in ("waiting", "summing", "sending"):
                self.assertEqual(sum(status[kind]["counts"]), chunks)
                self.assertEqual(metrics[f"reduction_chunk_{kind}_seconds_count{job}"], chunks)
            self.assertEqual(metrics['reduction_job_state{reduction_job="test",state="running"}'], 1)
            self.assertEqual(metrics['reduction_events_total{event="job-started"}'], 1)
            events = {e["event"]: int(e["count"]) for e in json.loads(get(at, "/status")[2])["events"]}
            self.assertEqual(events["job-started"], 1)
            if shutil.which("promtool"):
                text = get(at, "/metrics")[2]
                done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True)
                self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
            for rank in ranks:
                rank.tell()
            c.wait_all(ranks)

    def test_ended_jobs(self):
        """Each job is counted with the way in which it has ended. A connection that says nothing is no worker."""
        with harness.Cluster(server_args=HTTP) as c:
            at = http_of(c.reducers[0])

            def counts(name):
                found = re.findall(rf'^reduction_{name}_total{{reason="(.*)"}} (.*)$', get(at, "/metrics")[2], re.M)
                return {reason: int(n) for reason, n in found if n != "0"}

            ended = {}
            for end, fail, reason in (
                ("finish", False, "finished"), ("kill", False, "rank-lost"), ("kill", True, "rank-lost"),
                ("abort", False, "aborted"), ("mismatch", False, "mismatch"), ("nan", False, "non-finite"),
            ):  # fmt: skip
                with self.subTest(end=end, failover=not fail):
                    job = {"name": f"{end}-{fail}", "detect_nonfinite": "fail"}
                    config = {"job": {**job, "failover": "fail"} if fail else job}
                    run_until_end(c, end, config)
                    ended[reason] = ended.get(reason, 0) + 1
                    until(lambda: counts("ended_jobs") == ended, f"end by {reason} in {counts('ended_jobs')}")
            self.assertEqual(counts("refused_connections"), {})
            host, port = c.address(0).rsplit(":", 1)
            socket.create_connection((host, int(port))).close()
            with socket.create_connection((host, int(port))) as s:
                s.send(b"GET / HTTP/1.1\r\n")
            until(lambda: counts("refused_connections"), "refusal")
            self.assertEqual(counts("refused_connections"), {"protocol": 1})

    def test_nan(self):
        """Each reducer knows which rank sent NaN: its log, status, metrics and reductionctl."""
        with harness.Cluster(reducers=2, server_args=[*HTTP, *GRPC]) as c:
            ranks = c.start_workers(2, ENDS, {"END": "nan"})
            for rank in ranks:
                rank.said("open")
            for reducer in c.reducers:
                line = reducer.wait_text(r"warn +nonfinite job=test generation=0 rank=1 found=\"(.*)\"")
                self.assertRegex(line.group(1), r"rank 1 \(pid .* sent NaN: element 5 of all-reduce 1$")
                job = json.loads(get(http_of(reducer), "/status")[2])["jobs"][0]
                self.assertEqual((job["nan_operations"], job["infinite_operations"]), (1, 0))
                self.assertEqual(job["nonfinite"], line.group(1))
                series = 'reduction_job_nonfinite_operations_total{reduction_job="test",value="nan"}'
                self.assertEqual(samples(get(http_of(reducer), "/metrics")[2])[series], 1)
                if harness.HAS_GRPC:
                    self.assertIn("first NaN or infinity: " + line.group(1), ctl("status", grpc_of(reducer)))
            for rank in ranks:
                rank.tell()
            c.wait_all(ranks)

    def test_rights(self):
        with harness.Cluster(start=False) as c:
            token = c.dir / "token"
            token.write_text(TOKEN + "\n")
            token.chmod(0o600)
            c.server_config = {"security": {"read_token": str(token)}, "server": {"http": "127.0.0.1:0"}}
            c.start_reducer(0)
            at = http_of(c.reducers[0])
            for path in ("/metrics", "/status", "/events"):
                self.assertEqual(get(at, path)[0], 401, path)
                self.assertEqual(get(at, path, {"Authorization": "Bearer wrong"})[0], 401, path)
                self.assertEqual(get(at, path, {"Authorization": f"Bearer {TOKEN}"})[0], 200, path)
            for path in ("/", "/healthz", "/readyz"):
                self.assertEqual(get(at, path)[0], 200, path)

    def test_clients_that_stall_or_send_garbage(self):
        with harness.Cluster(server_args=HTTP) as c:
            at = http_of(c.reducers[0])
            host, port = at.rsplit(":", 1)
            held = [socket.create_connection((host, int(port)), timeout=20) for _ in range(8)]
            parts = (b"GET /status HTTP/1.1\r\nX: ", b"\x00\xff\r\n\r\n", b"GET", b"PRI * HTTP/2.0\r\n\r\n")
            for i, s in enumerate(held):
                s.sendall(parts[i % 4])
            self.assertEqual(get(at, "/status")[0], 200)
            for s in held:
                s.close()
            self.assertEqual(get(at, "/" + "x" * 20000)[0], 414)

    def test_page(self):
        page = (harness.ROOT / "common/host/http/page.html").read_text()
        # nothing from outside, and no way for a name to become HTML
        self.assertNotRegex(page, r"(src|href)=\"?(https?:)?//|@import|url\(")
        self.assertNotRegex(page, r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function")
        with harness.Cluster(server_args=HTTP) as c:
            at = http_of(c.reducers[0])
            with urllib.request.urlopen(f"http://{at}/", timeout=20 * harness.SCALE) as answer:
                self.assertEqual(answer.read().decode(), page)
                policy = answer.headers["Content-Security-Policy"]
                self.assertEqual(answer.headers["X-Content-Type-Options"], "nosniff")
            self.assertIn("default-src 'none'", policy)
            self.assertIn("connect-src 'self'", policy)

    @unittest.skipIf(harness.SAN, "the page is tried with the default build")
    @unittest.skipUnless(shutil.which("chromium"), "Debian's package chromium is not installed")
    def test_page_in_a_browser(self):
        with harness.Cluster(server_args=HTTP) as c:
            at = http_of(c.reducers[0])
            run = "<img/src=x/onerror=alert(1)>"  # in the events
            ranks = c.start_workers(2, SUMS, {"REDUCTION_RUN": run}, config={"job": {"name": "resnet"}})
            for rank in ranks:
                rank.tell("more")
            for rank in ranks:
                rank.said("sum")
            argv = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
                    f"--user-data-dir={c.dir}/chromium", "--virtual-time-budget=3000", "--dump-dom", f"http://{at}/"]
            done = subprocess.run(argv, capture_output=True, text=True, timeout=60 * harness.SCALE)
            status = json.loads(get(at, "/status")[2])
            self.assertNotIn("CONSOLE", done.stderr)
            shown = dict(re.findall(r'data-field="(\w+)">([^<]*)<', done.stdout))
            job = status["jobs"][0]
            self.assertIn("<h2>Job resnet</h2>", done.stdout)
            self.assertIn("&lt;img/src=x/onerror=alert(1)&gt;", done.stdout)
            self.assertNotIn("<img", done.stdout)
            self.assertEqual(shown["operations"], str(job["operations"]))
            self.assertEqual(shown["chunks"], str(job["chunks"]))
            self.assertEqual(shown["joined"], "2 of 2")
            self.assertEqual(shown["connections"], f"{status['connections']} of {status['connections_max']}")
            for rank in ranks:
                rank.tell()
            c.wait_all(ranks)

    def test_ready_ends_with_the_drain(self):
        with harness.Cluster(server_args=HTTP) as c:
            at = http_of(c.reducers[0])
            ranks = c.start_workers(2, SUMS)
            for rank in ranks:
                rank.said("open")
            c.reducers[0].signal(harness.signal.SIGTERM)
            until(lambda: get(at, "/readyz")[0] == 503, "readyz with 503")
            self.assertEqual(get(at, "/healthz")[0], 200)
            self.assertIn("\nreduction_draining 1\n", get(at, "/metrics")[2])
            for rank in ranks:
                rank.tell()
            c.wait_all(ranks)


@unittest.skipUnless(HAS_HTTP, "this build has no HTTP (libmicrohttpd-dev)")
class Tls(unittest.TestCase):
    """server.http_tls and agent.http_tls."""

    def start(self, c, mode, **security):
        """Starts a reducer with the certificate r0; returns the address of its port."""
        self.tls = certs.Folder(c.dir / "tls", "reducer:r0,localhost,127.0.0.1", "client:prometheus")
        token = harness.write_whole(c.dir / "token", TOKEN + "\n")
        pathlib.Path(token).chmod(0o600)
        c.server_config = {
            "server": {"http": "127.0.0.1:0", "http_tls": mode},
            "security": {**self.tls.own("r0"), "read_token": str(token), **security},
        }
        c.start_reducer(0)
        return http_of(c.reducers[0])

    def get(self, at, path, token=TOKEN, client=None, newest=None):
        """(status, text); client: the name of its certificate."""
        context = self.tls.client_context(client, alpn=None, newest=newest)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        request = urllib.request.Request(f"https://{at}{path}", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=20 * harness.SCALE, context=context) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as e:
            with e:
                return e.code, e.read().decode()

    def certificate(self, at):
        host, port = at.rsplit(":", 1)
        return ssl.get_server_certificate((host, int(port)), timeout=20 * harness.SCALE)

    def test_token_over_tls(self):
        with harness.Cluster(start=False) as c:
            at = self.start(c, "on")
            self.assertIn("\nreduction_jobs 0\n", self.get(at, "/metrics")[1])
            self.assertEqual(self.get(at, "/metrics", token=None)[0], 401)
            self.assertEqual(self.get(at, "/status", token="wrong-token-of-a-test")[0], 401)
            self.assertEqual(self.get(at, "/healthz", token=None), (200, "ok\n"))
            # neither without TLS nor with an old version
            with self.assertRaises((OSError, ValueError)):
                get(at, "/healthz")
            with self.assertRaises(OSError):
                self.get(at, "/healthz", newest=ssl.TLSVersion.TLSv1_2)

    @unittest.skipUnless(shutil.which("curl"), "Debian's package curl is not installed")
    def test_curl(self):
        with harness.Cluster(start=False) as c:
            at = self.start(c, "mutual")
            curl = ["curl", "-sS", "--max-time", str(20 * harness.SCALE), "-H", f"Authorization: Bearer {TOKEN}"]
            own = ["--cert", self.tls.file("prometheus.pem"), "--key", self.tls.file("prometheus.key")]

            def run(*args):
                return subprocess.run([*curl, *args, f"https://{at}/metrics"], capture_output=True, text=True)

            self.assertIn("\nreduction_jobs 0\n", run("--cacert", self.tls.file("ca.pem"), *own).stdout)
            self.assertIn("expected a client's certificate", run("--cacert", self.tls.file("ca.pem")).stdout)
            self.assertEqual(run(*own).returncode, 60)  # the authority is not known

    def test_certificates_of_clients(self):
        with harness.Cluster(start=False) as c:
            at = self.start(c, "mutual")
            self.tls.expired("old")
            other = certs.Folder(c.dir / "other", "client:stranger")
            for name in ("stranger.pem", "stranger.key"):
                shutil.copy(other.file(name), self.tls.file(name))
            self.assertEqual(self.get(at, "/metrics", client="prometheus")[0], 200)
            self.assertEqual(self.get(at, "/metrics", client="prometheus", token="wrong-token-of-a-test")[0], 401)
            for client in (None, "old", "stranger", "r0"):  # r0: a certificate for servers
                with self.subTest(client):
                    self.assertEqual(self.get(at, "/metrics", client=client)[0], 403)
            self.assertEqual(self.get(at, "/readyz", token=None)[0], 200)  # as probes of Kubernetes come

    def test_reload(self):
        with harness.Cluster(start=False) as c:
            at = self.start(c, "on")
            before = self.certificate(at)
            held = socket.create_connection(at.rsplit(":", 1), timeout=20 * harness.SCALE)
            self.tls.make("reducer:new,localhost,127.0.0.1")
            for kind in ("pem", "key"):
                shutil.copy(self.tls.file(f"new.{kind}"), self.tls.file(f"r0.{kind}"))
            c.reducers[0].signal(harness.signal.SIGHUP)
            c.reducers[0].wait_text(r"\breload\b.*taken over")  # until then old connections may end
            self.assertNotEqual(self.certificate(at), before)
            self.assertEqual(held.recv(1), b"")
            held.close()
            self.assertEqual(self.get(at, "/metrics")[0], 200)
            # bad files change nothing
            pathlib.Path(self.tls.file("r0.pem")).write_text("nothing\n")
            now = self.certificate(at)
            c.reducers[0].signal(harness.signal.SIGHUP)
            c.reducers[0].wait_text(r"\breload\b.*kept the old configuration")
            self.assertEqual(self.certificate(at), now)

    @unittest.skipIf(harness.SAN, "the library to preload has no sanitizer")
    def test_a_certificate_that_only_openssl_knows(self):
        """libmicrohttpd cannot start then, and closes its socket. No other descriptor is closed in its place."""
        with harness.Cluster(start=False) as c:
            self.start(c, "on")  # which makes files
            config = c.dir / "odd.yaml"
            config.write_text(json.dumps(c.server_config))
            argv = [harness.binary("reduction-server"), "--lanes", "1", "--listen", "127.0.0.1:0", "--config", config]
            p = c.start("odd", argv, {"LD_PRELOAD": str(harness.BUILD / "tests" / "e2e" / "shim_close.so")})
            at = http_of(p)
            before = self.certificate(at)
            subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:brainpoolP256r1",
                            "-nodes", "-keyout", self.tls.file("r0.key"), "-out", self.tls.file("r0.pem"), "-days", "9",
                            "-subj", "/CN=r0", "-addext", "subjectAltName=DNS:r0"],
                           check=True, capture_output=True)  # fmt: skip
            p.signal(harness.signal.SIGHUP)
            p.wait_text(r"\breload\b.*libmicrohttpd cannot serve")
            self.assertEqual(self.certificate(at), before)
            # libmicrohttpd 1.0 (Debian 13) itself closes this socket twice, after
            # MHD_TLS_init() has failed
            version = subprocess.run(["pkg-config", "--modversion", "libmicrohttpd"], capture_output=True, text=True)
            self.assertEqual(p.err.count("is not open"), 0 if version.stdout.startswith("0.") else 1, version.stdout)

    def test_an_agent(self):
        with harness.Cluster(start=False, agents=1) as c:
            self.start(c, "on")
            own = {**self.tls.own("r0"), "tls": "off"}
            c.start_agent(0, config={"agent": {"http": "127.0.0.1:0", "http_tls": "mutual"}, "security": own})
            at = http_of(c.agents[0])
            self.assertEqual(self.get(at, "/status", client="prometheus", token=None)[0], 200)
            self.assertEqual(self.get(at, "/status", token=None)[0], 403)
            before = self.certificate(at)
            self.tls.make("reducer:new,localhost,127.0.0.1")
            for kind in ("pem", "key"):
                shutil.copy(self.tls.file(f"new.{kind}"), self.tls.file(f"r0.{kind}"))
            c.agents[0].signal(harness.signal.SIGHUP)
            c.agents[0].wait_text(r"\breload\b.*new jobs use")
            self.assertNotEqual(self.certificate(at), before)

    def test_addresses_that_other_machines_reach(self):
        with harness.Cluster(start=False) as c:
            self.start(c, "on")
            own = self.tls.own("r0")
            token = {"read_token": str(c.dir / "token")}
            open_http = {"listen": "127.0.0.1:0", "http": "0.0.0.0:0"}
            for server, security, good in (
                ({}, token, False),
                ({"http_tls": "on"}, own, False),
                ({"http_tls": "on"}, {**own, **token}, True),
                ({"http_tls": "mutual"}, own, True),
                ({"insecure": True}, {}, True),
                ({"http_insecure": True}, {}, True),
            ):
                with self.subTest(server):
                    path = harness.write_whole(
                        c.dir / "open.yaml", json.dumps({"server": {**open_http, **server}, "security": security})
                    )
                    argv = [harness.binary("reduction-server"), "--check", "--config", path]
                    env = {**os.environ, **harness.sanitizer_env(argv)}
                    done = subprocess.run(argv, capture_output=True, text=True, env=env)
                    self.assertEqual(done.returncode == 0, good, done.stderr)
                    if not good:
                        self.assertIn("is not a loopback address: set server.http_tls to mutual", done.stderr)
            # the port of the workers stays as it is
            argv = [harness.binary("reduction-server"), "--check", "--listen", "0.0.0.0:0", "--http", "0.0.0.0:0",
                    "--http-insecure"]
            env = {**os.environ, **harness.sanitizer_env(argv)}
            done = subprocess.run(argv, capture_output=True, text=True, env=env)
            self.assertIn("server.listen: 0.0.0.0:0 is not a loopback address", done.stderr)
            self.assertNotIn("set server.http_tls", done.stderr)


# A Prometheus for each test of a sanitizer would test Prometheus.
@unittest.skipIf(harness.SAN, "Prometheus is tried with the default build")
@unittest.skipUnless(HAS_HTTP, "this build has no HTTP (libmicrohttpd-dev)")
@unittest.skipUnless(shutil.which("prometheus"), "Debian's package prometheus is not installed")
class Prometheus(unittest.TestCase):
    def test_two_reducers_and_an_agent(self):
        on_reducers = {"agent": {"single_node": "reducers", "http": "127.0.0.1:0"}}
        with harness.Cluster(reducers=2, agents=1, lanes=2, server_args=HTTP, config=on_reducers) as c:
            daemons = [*c.reducers, *c.agents]
            query = prometheus.Prometheus(c, [http_of(d) for d in daemons]).query
            ranks = c.start_workers(2, STEADY)
            for rank in ranks:
                rank.said("open")
            until(lambda: len(query("up == 1")) == 3, "three targets that are up")
            self.assertEqual(query("up == 0"), [])
            chunks = 'sum(rate(reduction_job_chunks_total{reduction_job="test"}[10s]))'
            until(lambda: (r := query(chunks)) and float(r[0]["value"][1]) > 0, "chunks")
            self.assertEqual(len(query("reduction_agent_reducer_connected == 1")), 2)
            board = json.loads((DEPLOY / "grafana" / "reduction.json").read_text())
            for panel in board["panels"]:
                for target in panel["targets"]:
                    # as Grafana replaces its variables
                    what = target["expr"].replace("$reduction_job", "test").replace("$__rate_interval", "10s")
                    with self.subTest(panel=panel["title"], query=what):
                        until(lambda: query(what), f"data of {panel['title']}")  # pylint: disable=W0640
            for rank in ranks:
                rank.tell()
            c.wait_all(ranks)

    def test_mutual_tls_and_a_token(self):
        with harness.Cluster(start=False) as c:
            tls = certs.Folder(c.dir / "tls", "reducer:r0,localhost,127.0.0.1", "client:prometheus")
            token = pathlib.Path(harness.write_whole(c.dir / "token", TOKEN + "\n"))
            token.chmod(0o600)
            c.server_config = {"server": {"http": "127.0.0.1:0", "http_tls": "mutual"},
                               "security": {**tls.own("r0"), "read_token": str(token)}}  # fmt: skip
            c.start_reducer(0)
            at = http_of(c.reducers[0])
            own = {"ca_file": tls.file("ca.pem"), "cert_file": tls.file("prometheus.pem"),
                   "key_file": tls.file("prometheus.key")}  # fmt: skip
            how = {"scheme": "https", "authorization": {"credentials_file": str(token)}, "tls_config": own}
            query = prometheus.Prometheus(c, [at], how).query
            until(lambda: query("up == 1"), "target that is up")
            self.assertEqual(query("reduction_jobs")[0]["value"][1], "0")

    def test_names_in_the_files_exist(self):
        """Every metric that rules and dashboard use is one that the code writes."""
        code = "".join(f.read_text() for f in (harness.ROOT / "common" / "host" / "http").glob("metrics*.c"))
        table = (DEPLOY / "metrics.md").read_text()
        for name in re.findall(r'"(reduction_\w+_\w+)"', code):
            self.assertRegex(table, rf"`{name}(_total)?`")
        text = "".join((DEPLOY / f).read_text() for f in ("prometheus/reduction.rules.yml", "grafana/reduction.json"))
        for name in sorted(set(re.findall(r"\breduction_\w+_\w+\b", text))):
            self.assertIn(f'"{re.sub("_(total|bucket)$", "", name)}"', code)


if __name__ == "__main__":
    harness.main()
