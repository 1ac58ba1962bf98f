# SPDX-License-Identifier: Apache-2.0
# run: beside-others
"""Monitoring and administration of real reducers: reductionctl, and gRPC clients of other origin."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import certs
import harness
import http2

if harness.HAS_GRPC:
    import grpc

GRPC = {"server": {"grpc": "127.0.0.1:0"}}
CLOSED = "it closed the new connection, and may"
READ, ADMIN = "read-token-of-a-test", "admin-token-of-a-test"

# Runs operations until its input has a line; rank SLOW takes PAUSE seconds before each
# operation.
STEADY = harness.python("""
    import os, sys, threading, time
    import numpy, reduction

    rank, slow = int(os.environ["RANK"]), int(os.environ.get("SLOW", -1))
    with reduction.Communicator() as comm:
        print("running", flush=True)
        told = threading.Event()
        threading.Thread(target=lambda: (sys.stdin.readline(), told.set()), daemon=True).start()
        stop = numpy.zeros(1, numpy.float32)
        ops = 0
        while not stop[0]:
            x = numpy.full(100000, rank + 1, numpy.float32)
            if rank == slow:
                time.sleep(float(os.environ["PAUSE"]))
            comm.all_reduce(x)
            assert (x == sum(range(1, comm.world_size + 1))).all()
            stop[0] = told.is_set()
            comm.all_reduce(stop)
            ops += 1
        print("operations", ops, flush=True)
""")


def stubs(folder):
    """Returns the Python modules that protoc makes of our .proto files."""
    plugin = "/usr/bin/grpc_python_plugin"
    proto = harness.ROOT / "proto"
    subprocess.run(
        ["protoc", f"-I{proto}", f"--python_out={folder}", f"--grpc_python_out={folder}",
         f"--plugin=protoc-gen-grpc_python={plugin}", *sorted(map(str, proto.glob("*.proto")))],
        check=True,
    )
    sys.path.insert(0, str(folder))
    try:
        import health_pb2
        import health_pb2_grpc
        import reduction_pb2
        import reduction_pb2_grpc
    finally:
        sys.path.remove(str(folder))
    return health_pb2, health_pb2_grpc, reduction_pb2, reduction_pb2_grpc


def ctl(*args, timeout=20):
    env = {**os.environ, **harness.sanitizer_env(["reductionctl"])}
    done = subprocess.run([harness.binary("reductionctl"), *args], capture_output=True, text=True, env=env,
                          timeout=timeout * harness.SCALE)
    return done.returncode, done.stdout, done.stderr


@unittest.skipUnless(harness.HAS_GRPC, "this build has no gRPC")
class Control(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="reduction-")
        cls.addClassCleanup(cls.folder.cleanup)
        modules = stubs(cls.folder.name)
        cls.health, cls.health_grpc, cls.pb, cls.pb_grpc = modules

    def address(self, cluster, i=0):
        """Returns the gRPC address of reducer i."""
        return cluster.reducers[i].wait_text(r"\bgrpc-ready\b.*?address=(\S+)").group(1)

    def file(self, cluster):
        """Writes a configuration with the gRPC addresses of the reducers."""
        tree = {
            "reducers": [
                {"id": f"r{i}", "address": cluster.address(i), "grpc": self.address(cluster, i)}
                for i in range(len(cluster.reducers))
            ]
        }
        path = cluster.dir / "control.yaml"
        path.write_text(json.dumps(tree))
        return str(path)

    def token(self, name, text, mode=0o600):
        path = pathlib.Path(self.folder.name) / name
        path.write_text(text + "\n")
        path.chmod(mode)
        return str(path)

    def ctl_ok(self, *args):
        status, out, err = ctl(*args)
        self.assertEqual((status, err), (0, ""), out)
        return out

    def status_until(self, address, good, timeout=30):
        """Requests the status until it is as expected."""
        deadline = time.monotonic() + timeout * harness.SCALE
        while True:
            st = json.loads(self.ctl_ok("status", "--json", address))
            if good(st):
                return st
            self.assertLess(time.monotonic(), deadline, st)

    def channel(self, address, options=()):
        # each has its own connection
        channel = grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1), *options])
        self.addCleanup(channel.close)
        return channel

    def stop(self, workers):
        for w in workers:
            w.tell()
        for w in workers:
            self.assertEqual(w.wait(), 0, w.report())

    def test_status_names_the_late_rank(self):
        patient = {"timeouts": {"detect": "10min"}}  # a rank is stopped for as long as it takes to see that
        with harness.Cluster(lanes=2, server_config=GRPC | patient, config=patient) as c:
            address = self.address(c)
            workers = c.start_workers(3, STEADY, {"SLOW": 1, "PAUSE": 0.1})

            def shows(st):  # in a second in which nobody else was late, as anybody may be on a busy machine
                if not st["jobs"] or len(st["jobs"][0]["ranks"]) != 3:
                    return False
                job, (a, b, c) = st["jobs"][0], st["jobs"][0]["ranks"]
                return (job["latest_permil"] > 500 and job["latest_rank"] == 1 and b["late_ms"] > 50
                        and max(a["waited_permil"], c["waited_permil"]) < 200 and job["traffic"]["bytes_in_per_s"] > 0)

            st = self.status_until(address, shows)
            job = st["jobs"][0]
            self.assertEqual((job["name"], job["state"], job["world_size"], job["joined"]), ("test", "RUNNING", 3, 3))
            self.assertEqual([r["rank"] for r in job["ranks"]], [0, 1, 2])
            for rank in job["ranks"]:
                self.assertEqual((rank["lanes"], rank["processes"], rank["transport"]), (2, 1, "tcp"))
                self.assertRegex(rank["peer"], r"^127\.0\.0\.1:\d+$")
                self.assertGreater(rank["traffic"]["bytes_in"], 400000)
            self.assertGreater(job["operations"], 0)
            self.assertEqual((st["address"], st["grpc_address"], st["connections"]), (c.address(0), address, 6))
            self.assertEqual(sum(lane["connections"] for lane in st["lanes"]), 6)
            self.assertEqual(sum(lane["traffic"]["bytes_in"] for lane in st["lanes"]), job["traffic"]["bytes_in"])
            deadline = time.monotonic() + 20 * harness.SCALE
            while True:
                out = self.ctl_ok("status", address)
                rows = [line for line in out.splitlines() if "<- late" in line]
                if [row.split()[0] for row in rows] == ["1"]:
                    break
                self.assertLess(time.monotonic(), deadline, out)
            # a rank that never joins
            os.kill(workers[1].pid, signal.SIGSTOP)
            try:
                missing = lambda st, rank: st["jobs"][0]["ranks"][rank]["missing_ms"]  # noqa: E731
                self.status_until(address, lambda st: missing(st, 1) > 1200 and missing(st, 0) == missing(st, 2) == 0)
                self.assertRegex(self.ctl_ok("status", address), r"\n +1 .*<- late, missing for \d")
                c.reducers[0].wait_text("rank-late job=test generation=0 rank=1 .*late_ranks=1")
            finally:
                os.kill(workers[1].pid, signal.SIGCONT)
            self.stop(workers)
            self.status_until(address, lambda st: not st["jobs"])

    def test_gathering(self):
        with harness.Cluster(server_config=GRPC) as c:
            worker = c.start_worker(2, 3, STEADY)
            st = self.status_until(self.address(c), lambda st: st["jobs"] and st["jobs"][0]["joined"])
            job = st["jobs"][0]
            self.assertEqual((job["state"], job["joined"], job["running_ms"]), ("GATHERING", 1, 0))
            self.assertEqual([r["lanes"] for r in job["ranks"]], [0, 0, 1])
            out = self.ctl_ok("status", "--job", "test", self.address(c))
            self.assertRegex(out, r"job test  generation 0  gathering for \S+ \S+  1 of 3 ranks")
            self.assertEqual(out.count("<- is not there"), 2, out)
            self.assertNotIn("job test", self.ctl_ok("status", "--job", "other", self.address(c)))
            worker.kill()

    def test_drain_moves_a_job(self):
        with harness.Cluster(reducers=2, server_config=GRPC) as c:
            file = self.file(c)
            workers = c.start_workers(2, STEADY)
            for i in range(2):
                self.status_until(self.address(c, i), lambda st: st["jobs"] and st["jobs"][0]["operations"] > 10)
            out = self.ctl_ok("status", file)
            self.assertRegex(out, r"(?s)^r0 \(127.*job test .*\nr1 \(127.*job test ")
            out = self.ctl_ok("drain", "--within", "20", self.address(c, 0))
            self.assertRegex(out, r"^127\S+: drains, 1 job may go on for 20\.0 s\n$")
            self.assertEqual(c.reducers[0].wait(), 0)
            before = self.status_until(self.address(c, 1), lambda st: True)["jobs"][0]["operations"]
            self.status_until(self.address(c, 1), lambda st: st["jobs"][0]["operations"] > before + 10)
            # the one that is gone is an error, the other one is shown nevertheless
            status, out, err = ctl("status", file)
            self.assertEqual(status, 1)
            self.assertRegex(err, r"^reductionctl: r0 \(127\S+\): .+\nreductionctl: 1 of 2 reducers did not answer\n$")
            self.assertIn("r1 (127", out)
            self.stop(workers)

    def test_drain_without_failover(self):
        config = {"job": {"failover": "fail"}}
        with harness.Cluster(server_config=GRPC, config=config) as c:
            workers = c.start_workers(2, STEADY)
            self.status_until(self.address(c), lambda st: st["jobs"] and st["jobs"][0]["operations"])
            self.ctl_ok("drain", self.address(c))
            st = self.status_until(self.address(c), lambda st: True)
            self.assertTrue(st["draining"])
            self.assertEqual(st["jobs"][0]["state"], "DRAINING")
            self.assertTrue(20000 < st["drain_left_ms"] <= 30000)
            c.reducers[0].wait_text("draining by=control-service jobs=1")
            # the second call may have another time limit
            drained = json.loads(self.ctl_ok("drain", "--json", "--within", "0.5", self.address(c)))
            self.assertEqual((drained["already"], drained["jobs"], drained["left_ms"]), (True, 1, 500))
            for w in workers:
                self.assertNotEqual(w.wait(), 0)
                self.assertIn("within its drain timeout of 0.5 s", w.err)
                w.killed = True
            self.assertEqual(c.reducers[0].wait(), 0)

    def test_signal_after_drain(self):
        # a supervisor drains, then says SIGTERM: that is no reason to end with an error
        with harness.Cluster(server_config=GRPC) as c:
            workers = c.start_workers(2, STEADY)
            self.status_until(self.address(c), lambda st: st["jobs"] and st["jobs"][0]["operations"])
            self.ctl_ok("drain", self.address(c))
            c.reducers[0].signal(signal.SIGTERM)
            self.status_until(self.address(c), lambda st: st["draining"])
            self.stop(workers)
            self.assertEqual(c.reducers[0].wait(), 0)

    def test_events_of_a_job(self):
        with harness.Cluster(server_config=GRPC) as c:
            file = self.file(c)
            reader = c.start("events", [harness.binary("reductionctl"), "events", "--json", "--from", "1", file])
            reader.wait_text('"name":"listening"', stream="out")
            workers = c.start_workers(2, STEADY)
            reader.wait_text('"name":"job-started"', stream="out")
            workers[1].kill()
            reader.wait_text('"name":"job-closed"', stream="out")
            workers[0].wait()
            with c.connect(0) as s:
                s.sendall(b"x" * 200)
                reader.wait_text('"name":"connection-refused"', stream="out")
            events = [json.loads(line) for line in reader.out.splitlines()]
            self.assertEqual([e["sequence"] for e in events], list(range(1, len(events) + 1)))
            names = [e["name"] for e in events]
            self.assertEqual(
                [n for n in names if n not in ("listening", "grpc-ready", "few-descriptors", "rank-late")],
                ["job-opened", "job-started", "rank-lost", "job-aborted", "job-closed", "connection-refused"],
            )
            lost = {f["key"]: f["value"] for f in events[names.index("rank-lost")]["fields"]}
            self.assertEqual((lost["job"], lost["rank"], lost["generation"]), ("test", "1", "0"))
            self.assertIn("rank 1", lost["reason"])
            # the same facts as the log, in the same words
            for e in events:
                c.reducers[0].wait_text(rf"{e['level']} +{e['name']} {e['fields'][0]['key']}=")
            past = self.ctl_ok("events", "--past", "--job", "test", self.address(c)).splitlines()
            past = [line for line in past if line.split()[3] != "rank-late"]  # one may stand still for a second
            self.assertEqual([line.split()[3] for line in past],
                             ["job-opened", "job-started", "rank-lost", "job-aborted", "job-closed"])
            self.assertRegex(past[0], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z +\d+ info  job-opened job=test ")
            c.reducers[0].stop()
            self.assertEqual(reader.wait(), 0, reader.report())
            self.assertEqual(json.loads(reader.out.splitlines()[-1])["name"], "drained")

    def test_health(self):
        with harness.Cluster(server_config=GRPC) as c:
            stub = self.health_grpc.HealthStub(self.channel(self.address(c)))
            request, serving = self.health.HealthCheckRequest, self.health.HealthCheckResponse
            for service in "", "reduction.v1.Reducer", "reduction.v1.Control":
                self.assertEqual(stub.Check(request(service=service)).status, serving.SERVING)
            with self.assertRaises(grpc.RpcError) as caught:
                stub.Check(request(service="nobody"))
            self.assertEqual(caught.exception.code(), grpc.StatusCode.NOT_FOUND)
            watch = stub.Watch(request(service="reduction.v1.Reducer"))
            self.assertEqual(next(watch).status, serving.SERVING)
            other = stub.Watch(request(service="nobody"))
            self.assertEqual(next(other).status, serving.SERVICE_UNKNOWN)
            workers = c.start_workers(2, STEADY)
            self.status_until(self.address(c), lambda st: st["jobs"] and st["jobs"][0]["operations"])
            c.reducers[0].signal(signal.SIGTERM)
            self.assertEqual(next(watch).status, serving.NOT_SERVING)
            self.assertEqual(stub.Check(request()).status, serving.NOT_SERVING)
            self.assertEqual(stub.Check(request(service="reduction.v1.Control")).status, serving.SERVING)
            self.stop(workers)
            with self.assertRaises(grpc.RpcError) as caught:
                next(watch)
            self.assertEqual(caught.exception.code(), grpc.StatusCode.UNAVAILABLE)
            self.assertEqual(caught.exception.details(), "this reducer has stopped")
            self.assertEqual(c.reducers[0].wait(), 0)

    def test_a_new_watch_replaces_the_oldest(self):
        """Permanent health watches block no probe: the oldest one ends, even if its client does not read."""
        config = {**GRPC, "timeouts": {"handshake": f"{harness.SCALE}s"}}
        with harness.Cluster(server_config=config) as c:
            address = self.address(c)
            stub = self.health_grpc.HealthStub(self.channel(address))
            request = self.health.HealthCheckRequest()
            first = stub.Watch(request)
            self.assertEqual(next(first).status, 1)
            with contextlib.ExitStack() as stack:
                deaf = http2.crowd(stack, address, http2.WATCH, 64)[0]
                http2.crowd(stack, address, http2.WATCH, 64)
                with self.assertRaises(grpc.RpcError) as caught:
                    next(first)
                self.assertEqual(caught.exception.code(), grpc.StatusCode.RESOURCE_EXHAUSTED)
                self.assertIn("a newer call replaces this one", caught.exception.details())
                ended = next(f for f in http2.frames(deaf) if f[0] == http2.HEADERS and f[1] & http2.END_STREAM)
                self.assertIn(b"the answer was not taken in time", ended[3])
                self.assertEqual(stub.Check(request).status, 1)
                self.assertEqual(next(stub.Watch(request)).status, 1)

    def test_tokens(self):
        read, admin = self.token("read", READ), self.token("admin", ADMIN)
        wrong = self.token("wrong", "some-other-token-of-a-test")
        config = {**GRPC, "security": {"read_token": read, "admin_token": admin}}
        rows = [
            (None, 1, "send the token from security.read_token",
             1, "send the token from security.admin_token"),
            (wrong, 1, "the token is not that of this reducer's security.read_token",
             1, "the token is not that of this reducer's security.admin_token"),
            (read, 0, "", 1, "the token is that of security.read_token"),
            (admin, 0, "", 0, ""),
        ]
        with harness.Cluster(server_config=config) as c:
            address = self.address(c)
            for token, *want in rows:
                args = ["--token", token] if token else []
                for command, code, says in (["status", *want[:2]], ["events", *want[:2]], ["reload", *want[2:]]):
                    past = ["--past"] if command == "events" else []
                    status, out, err = ctl(command, *args, *past, address)
                    self.assertEqual(status, code, err)
                    self.assertIn(says, err)
                    self.assertNotIn("token-of-a-test", out + err)
            c.reducers[0].wait_text("control-denied peer=127.0.0.1:[0-9]+ method=Reload reason=")
            self.assertNotIn("token-of-a-test", c.reducers[0].err)
            # probes need none
            stub = self.health_grpc.HealthStub(self.channel(address))
            self.assertEqual(stub.Check(self.health.HealthCheckRequest()).status, 1)
            # a file names its tokens, and a new one is taken over with SIGHUP
            tree = {"reducers": [{"id": "r0", "address": c.address(0), "grpc": address}], **config}
            file = pathlib.Path(self.folder.name) / "tokens.yaml"
            file.write_text(json.dumps(tree))
            self.ctl_ok("status", str(file))
            self.token("admin", "another-admin-token-of-a-test")
            c.reducers[0].signal(signal.SIGHUP)
            c.reducers[0].wait_text("reload result=.*taken over")
            self.assertIn("the token is not that of", ctl("reload", "--token", self.token("old", ADMIN), address)[2])
            self.ctl_ok("reload", str(file))
            self.token("admin", "short")
            status, out, err = ctl("reload", "--token", self.token("new", "another-admin-token-of-a-test"), address)
            self.assertEqual(status, 1)
            self.assertIn("security.admin_token: ", err)
            self.assertIn("16", err)

    @unittest.skipIf(os.geteuid(), "only root can be another user")
    def test_another_user_without_a_token(self):
        """Any process on the machine may look, but not end the jobs of others."""
        with harness.Cluster(server_config=GRPC) as c:
            address = self.address(c)
            (c.dir / "bin").mkdir()
            (c.dir / "lib").mkdir()
            c.dir.chmod(0o755)
            program = shutil.copy(harness.binary("reductionctl"), c.dir / "bin")
            shutil.copy(harness.BUILD / "lib" / "libreduction-grpc.so", c.dir / "lib")

            def other(method):
                argv = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", program, method, address]
                return subprocess.run(list(map(str, argv)), capture_output=True, text=True, cwd="/", env={
                    **os.environ, **harness.sanitizer_env(["reductionctl"])}, timeout=20 * harness.SCALE)

            for method in ("drain", "reload"):
                self.assertIn("so only root and its own user, on a loopback address, may do this", other(method).stderr)
            self.assertEqual(other("status").returncode, 0)
            self.assertTrue(c.reducers[0].running())
            self.ctl_ok("drain", address)
            self.assertEqual(c.reducers[0].wait(), 0)

    def test_tokens_that_cannot_be_used(self):
        with tempfile.TemporaryDirectory(prefix="reduction-") as folder:
            file = pathlib.Path(folder) / "a.yaml"
            for mode, text, says in (0o644, READ, "admin"), (0o600, "short", "16"), (0o600, READ + " ", "0x20"):
                token = self.token("unfit", text, mode)
                file.write_text(json.dumps({**GRPC, "security": {"admin_token": token}}))
                done = subprocess.run([harness.binary("reduction-server"), "--config", file, "--listen", "127.0.0.1:0"],
                                      capture_output=True, text=True, timeout=20 * harness.SCALE)
                self.assertEqual(done.returncode, 1)
                self.assertIn(f"security.admin_token: {token}", done.stderr)
                self.assertIn(f"security.admin_token: {token}", ctl("check", str(file))[2])
                status, out, err = ctl("status", "--token", token, "127.0.0.1:1")
                self.assertEqual((status, out), (1, ""))
                self.assertIn(token, err)

    @unittest.skipIf("thread" in harness.SAN, "what OpenSSL does for gRPC, which is not built for it, looks like races")
    def test_tls(self):
        ours = certs.Folder(pathlib.Path(self.folder.name) / "ours", "reducer:r0,localhost,127.0.0.1", "client:w")
        other = certs.Folder(pathlib.Path(self.folder.name) / "other", "reducer:r0,localhost,127.0.0.1", "client:w")
        authority = ["--authority", ours.file("ca.pem")]
        with harness.Cluster(server_config={**GRPC, **ours.reducer("r0")}) as c:
            address = self.address(c)
            self.ctl_ok("status", *authority, address)
            for args in (), ("--authority", other.file("ca.pem")):
                status, out, err = ctl("status", *args, address)
                self.assertEqual((status, out), (1, ""), args)
                reason = "its certificate is not accepted" if args else f"{CLOSED} speak TLS only"
                self.assertIn(f"reductionctl: {address}: {reason} (", err)
            # a file says it all
            tree = {"reducers": [{"id": "r0", "address": c.address(0), "grpc": address}], **ours.worker()}
            file = pathlib.Path(self.folder.name) / "tls.yaml"
            file.write_text(json.dumps(tree))
            self.ctl_ok("status", str(file))
            # certificates of another authority are taken over by a reload
            before = pathlib.Path(self.folder.name) / "before.pem"
            before.write_bytes(pathlib.Path(ours.file("ca.pem")).read_bytes())
            for name in "ca.pem", "r0.pem", "r0.key":
                os.replace(other.file(name), ours.file(name))
            self.ctl_ok("reload", "--authority", before, address)
            self.ctl_ok("status", *authority, address)
            self.assertEqual(ctl("status", "--authority", before, address)[0], 1)
        with harness.Cluster(server_config=GRPC) as c:
            address = self.address(c)
            status, out, err = ctl("status", *authority, address)
            self.assertEqual((status, out), (1, ""))
            self.assertIn(f"reductionctl: {address}: the peer speaks no TLS, and this side does (security.tls) (", err)
        mutual = certs.Folder(pathlib.Path(self.folder.name) / "mutual", "reducer:r0,localhost,127.0.0.1", "client:w")
        authority = ["--authority", mutual.file("ca.pem")]
        with harness.Cluster(server_config={**GRPC, **mutual.reducer("r0", mutual=True)}) as c:
            address = self.address(c)
            self.ctl_ok("status", *authority, "--certificate", mutual.file("w.pem"), "--key", mutual.file("w.key"),
                        address)
            status, out, err = ctl("status", *authority, address)
            self.assertEqual((status, out), (1, ""))
            self.assertIn(f"reductionctl: {address}: {CLOSED} expect a certificate (", err)
            foreign = ["--certificate", ours.file("w.pem"), "--key", ours.file("w.key")]
            status, out, err = ctl("status", *authority, *foreign, address)
            self.assertEqual((status, out), (1, ""))
            self.assertIn(f"reductionctl: {address}: {CLOSED} not accept this side's certificate (", err)
            # what options do not say a file does
            tree = {"reducers": [{"id": "r0", "address": c.address(0), "grpc": address}], **mutual.worker("w")}
            file.write_text(json.dumps(tree))
            self.ctl_ok("status", str(file))
            self.ctl_ok("status", *authority, str(file))
            self.ctl_ok("status", "--certificate", mutual.file("w.pem"), "--key", mutual.file("w.key"), str(file))

    def test_readers_that_do_not_read(self):
        with harness.Cluster(server_config=GRPC) as c:
            address = self.address(c)
            pid = c.reducers[0].pid
            control = self.pb_grpc.ControlStub(self.channel(address))
            # the number of unread bytes in flight is the client's choice: as few as
            # HTTP/2 permits
            small = [("grpc.http2.lookahead_bytes", 1024), ("grpc.http2.bdp_probe", 0)]
            slow = [
                self.pb_grpc.ControlStub(self.channel(address, small)).Events(self.pb.EventsRequest())
                for _ in range(20)
            ]
            dead = c.start("events", [harness.binary("reductionctl"), "events", address])
            for i in range(2):  # the first round: memory that is allocated once
                for _ in range(2000):
                    control.Reload(self.pb.ReloadRequest())
                if i == 0:
                    dead.kill()
                    before = resident(pid)
            grown = resident(pid) - before
            self.assertLess(grown, (400 if harness.SAN else 8) << 20)
            # a client that begins to read now gets what was queued, a gap, and the newest
            # events
            newest = int(self.ctl_ok("events", "--past", address).splitlines()[-1].split()[1])
            self.assertGreaterEqual(newest, 4000)
            for call in slow:
                read = []
                while not read or read[-1] < newest:
                    read.append(next(call).sequence)
                self.assertEqual(read[-1000:], list(range(newest - 999, newest + 1)))
                self.assertLess(len(read), newest - 100)
                call.cancel()

    def test_a_silent_reducer_is_reported(self):
        """Its connection stays open and silent, as after the loss of its machine."""
        with harness.Cluster(reducers=2, server_config=GRPC) as c:
            reader = c.start("events", [harness.binary("reductionctl"), "events", "--from", "1", self.file(c)])
            for name in ("r0", "r1"):
                reader.wait_text(f" {name} info  listening", stream="out")
            c.reducers[0].signal(signal.SIGSTOP)
            try:
                reader.wait_text(r"^reductionctl: .*\br0\b", 60)
            finally:
                c.reducers[0].signal(signal.SIGCONT)
            self.assertNotIn("r1", reader.err)
            c.reducers[1].signal(signal.SIGTERM)
            reader.wait_text(" r1 info  draining", stream="out")

    def test_usage(self):
        status, out, err = ctl("status")
        self.assertEqual((status, out), (2, ""))
        self.assertIn("found neither HOST:PORT nor a file, expected one after", err)
        for args, says in (
            (["status", "--watch", "x", "a:1"], '--watch: found "x", expected seconds from 0.1 to 86400'),
            (["drain", "--within", "-1", "a:1"], '--within: found "-1", expected seconds from 0.001 to 86400'),
            (["events", "--from", "0", "a:1"], '--from: found "0", expected the number of an event, at least 1'),
            (["status", "no such file"], 'found "no such file", expected host:port of a reducer\'s or agent\'s gRPC p'),
            (["status", "--key", "k", "a:1"], "found --key alone, expected --certificate and --key together"),
        ):
            status, out, err = ctl(*args)
            self.assertEqual((status, out), (2, ""), err)
            self.assertIn(says, err)
        status, out, err = ctl("drain", "--help")
        self.assertEqual((status, err), (0, ""))
        self.assertIn("Usage: reductionctl drain TARGET [OPTION]...", out)
        self.assertIn("--within", out)
        with tempfile.TemporaryDirectory(prefix="reduction-") as folder:
            file = pathlib.Path(folder) / "a.yaml"
            file.write_text("reducers: [{id: a, address: x.invalid}]\n")  # its gRPC port is 7601 by default
            status, out, err = ctl("status", str(file))
            self.assertEqual((status, out), (1, ""))
            self.assertIn("a (x.invalid:7601): ", err)

    def test_no_grpc_port(self):
        with harness.Cluster() as c:  # a reducer, but no gRPC
            for address in c.address(0), "127.0.0.1:1":
                status, out, err = ctl("status", address, timeout=30)
                self.assertEqual((status, out), (1, ""), err)
                self.assertIn(f"reductionctl: {address}: ", err)
        self.assertIn("connection refused; is gRPC on there (server.grpc or agent.grpc)?\n", err)

    def test_a_file_that_is_missing(self):
        """Its name is not taken for that of a host."""
        for name in "no/job.yaml", "job-that-is-missing.yaml", "job-that-is-missing.yml":
            self.assertEqual(ctl("status", name), (1, "", ctl("check", name)[2]))

    def test_open_port_needs_authentication(self):
        with tempfile.TemporaryDirectory(prefix="reduction-") as folder:
            file = pathlib.Path(folder) / "a.yaml"
            file.write_text('server: {grpc: "0.0.0.0:0"}\n')
            done = subprocess.run([harness.binary("reduction-server"), "--config", file, "--listen", "127.0.0.1:0"],
                                  capture_output=True, text=True, timeout=20 * harness.SCALE)
            self.assertEqual(done.returncode, 1)
            self.assertIn("0.0.0.0:0 is not a loopback address", done.stderr)

    def test_watch(self):
        with harness.Cluster(server_config=GRPC) as c:
            watch = c.start("watch", [harness.binary("reductionctl"), "status", "--watch", "0.1", self.address(c)])
            watch.wait_text(r"(?s)(reduction \d.*jobs 0.*){3}", stream="out")
            c.reducers[0].stop()
            watch.wait_text(r"reductionctl: .*127", stream="err")  # and it goes on asking
            self.assertTrue(watch.running())
            watch.kill()


def resident(pid):
    """Returns the memory of a process in bytes."""
    with open(f"/proc/{pid}/statm", encoding="ascii") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    harness.main()
