#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# run: beside-others
"""The status service of the agent: gRPC clients of other origin, reductionctl, and jobs that have lost reducers."""

import json
import os
import pathlib
import random
import re
import signal
import socket
import stat
import tempfile
import time
import unittest

import harness
from test_control import ctl, stubs

if harness.HAS_GRPC:
    import grpc

READ, ADMIN = "read-token-of-a-test", "admin-token-of-a-test"
# A job on one node is summed by the reducers too, so that they matter.
ON_REDUCERS = {"agent": {"single_node": "reducers"}, "timeouts": {"detect": "5s"}}

# Sums once for each line of its input.
SUMS = harness.python("""
    import numpy, reduction, worker
    with reduction.Communicator() as comm:
        worker.say("open")
        while worker.listen():
            x = numpy.ones(100000, dtype="float32")
            comm.all_reduce(x)
            worker.say("sum", value=float(x[0]))
    """)


@unittest.skipUnless(harness.HAS_GRPC, "this build has no gRPC")
class Status(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="reduction-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.health, cls.health_grpc, cls.pb, cls.pb_grpc = stubs(folder.name)

    def cluster(self, **kwargs):
        """A cluster whose agents have no port yet; start() starts them."""
        kwargs["config"] = ON_REDUCERS | kwargs.get("config", {})
        c = harness.Cluster(start=False, **kwargs)
        c.__enter__()
        self.addCleanup(c.__exit__, None, None, None)
        return c

    def start(self, c, i=0, grpc_address=None, reducers=True):
        """Starts all reducers and agent i; returns the address of its port."""
        for r in range(len(c.reducers) if reducers else 0):
            if not c.reducers[r]:
                c.start_reducer(r)
        where = grpc_address or f"unix:{c.dir}/status{i}.sock"
        c.start_agent(i, {"agent": {**c.config["agent"], "grpc": where}})
        return c.agents[i].wait_text(r"\bgrpc-ready\b.*?address=(\S+)").group(1)

    def channel(self, address):
        channel = grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)])
        self.addCleanup(channel.close)
        return channel

    def status(self, address, **request):
        stub = self.pb_grpc.ControlStub(self.channel(address))
        return stub.Status(self.pb.StatusRequest(**request), timeout=20 * harness.SCALE)

    def status_until(self, address, good):
        deadline = time.monotonic() + 30 * harness.SCALE
        while not good(st := self.status(address)):
            self.assertLess(time.monotonic(), deadline, st)
            time.sleep(0.05)
        return st

    def check(self, address, service=""):
        stub = self.health_grpc.HealthStub(self.channel(address))
        return stub.Check(self.health.HealthCheckRequest(service=service), timeout=20 * harness.SCALE).status

    def refused(self, code, call, *args, **kwargs):
        with self.assertRaises(grpc.RpcError) as caught:
            call(*args, timeout=20 * harness.SCALE, **kwargs)
        self.assertEqual(caught.exception.code(), code, caught.exception.details())
        return caught.exception.details()

    def ctl_ok(self, *args):
        status, out, err = ctl(*args)
        self.assertEqual((status, err), (0, ""), out)
        return out

    def opened(self, c, n=2, **kwargs):
        ranks = c.start_workers(n, SUMS, **kwargs)
        for rank in ranks:
            rank.said("open")
        return ranks

    def sum(self, ranks):
        """One operation, which succeeds."""
        before = [rank.out.count('"what": "sum"') for rank in ranks]
        for rank in ranks:
            rank.tell("more")
        for rank, n in zip(ranks, before):
            rank.wait_text(rf'(?:"what": "sum"[\s\S]*){{{n + 1}}}', stream="out")
            self.assertEqual(set(re.findall(r'"value": ([0-9.]+)', rank.out)), {f"{len(ranks)}.0"})

    def done(self, c, ranks):
        for rank in ranks:
            rank.tell()
        self.assertEqual(c.wait_all(ranks), [0] * len(ranks))

    def test_status_and_health_over_both_kinds_of_socket(self):
        for where in ("127.0.0.1:0", None):
            with self.subTest(where=where or "unix"):
                c = self.cluster(reducers=2, agents=1)
                address = self.start(c, grpc_address=where)
                for service in ("", "reduction.v1.Control"):
                    self.assertEqual(self.check(address, service), self.health.HealthCheckResponse.SERVING)
                stub = self.health_grpc.HealthStub(self.channel(address))
                request = self.health.HealthCheckRequest(service="reduction.v1.Reducer")
                self.assertIn("expected an empty one or reduction.v1.Control",
                              self.refused(grpc.StatusCode.NOT_FOUND, stub.Check, request))
                idle = self.status(address)
                self.assertEqual((idle.grpc_address, idle.agent.pid), (address, c.agents[0].pid))
                self.assertEqual((idle.agent.socket, len(idle.agent.jobs)), (c.socket_path(0), 0))
                self.assertRegex(idle.software, r"^reduction \d")
                self.assertEqual((idle.agent.shm_bytes, idle.agent.shm_max_bytes), (0, 8 << 30))
                ranks = self.opened(c, env={"REDUCTION_RUN": "run-7"})
                self.sum(ranks)
                self.sum(ranks)
                st = self.status(address)
                self.assertGreater(st.agent.shm_bytes, 0)
                self.assertEqual((st.agent.clients, st.agent.clients_max), (2, 1024))
                job = st.agent.jobs[0]
                self.assertEqual((job.name, job.run, job.generation), ("test", "run-7", 0))
                self.assertEqual((job.state, job.reason, job.waiting), (self.pb.AgentJob.RUNNING, "", ""))
                self.assertEqual((job.world_size, job.nodes, job.node_rank), (2, 1, 0))
                self.assertEqual((job.local_ranks, job.joined), (2, 2))
                self.assertEqual((job.operations, job.pending, job.transport), (2, 0, "tcp"))
                self.assertGreater(min(job.bytes_in, job.bytes_out), 2 * 400000)
                self.assertGreater(job.running_ms, 0)
                self.assertEqual([(r.local_rank, r.rank, r.pid, r.attached) for r in job.ranks],
                                 [(i, i, ranks[i].pid, True) for i in range(2)])
                self.assertEqual([(r.id, r.address, r.state, r.lanes, r.lanes_up) for r in job.reducers],
                                 [(f"r{i}", c.address(i), self.pb.AgentReducer.CONNECTED, 1, 1) for i in range(2)])
                self.assertEqual([(r.shards, r.home_shards) for r in job.reducers], [(32, 32)] * 2)
                self.assertEqual((job.reducers_alive, job.degraded_ms), (2, 0))
                self.assertGreater(min(r.rtt_us for r in job.reducers), 0)
                self.assertEqual(len(self.status(address, without_ranks=True).agent.jobs[0].ranks), 0)
                self.assertEqual(len(self.status(address, job="other").agent.jobs), 0)
                self.done(c, ranks)
                self.status_until(address, lambda st: not st.agent.jobs and st.agent.shm_bytes == 0)

    def test_reductionctl(self):
        c = self.cluster(reducers=2, agents=1)
        address = self.start(c)
        ranks = self.opened(c)
        self.sum(ranks)
        out = self.ctl_ok("status", address)
        self.assertRegex(out, rf"^{address}  reduction \S+ agent on \S+ \(pid {c.agents[0].pid}\)  up .*  jobs 1  "
                              r"clients 2  shared memory \S+ \S+ of 8\.00 GiB\n")
        self.assertRegex(out, r"\njob test  generation 0  running for \S+ \S+  node 0 of 1  ranks 2  "
                              r"2 of 2 local ranks  operations 1 \(0 pending\)  sent \S+ KiB  received \S+ KiB\n")
        self.assertRegex(out, r"\n  reducer +address +over +state +since +round trip +shards \(planned\)\n")
        self.assertRegex(out, rf"\n  r1 +{c.address(1)} +\w+ +connected +\d\d:\d\d:\d\d \(\S+ \S+\) .* 32 \(32\)\n")
        self.assertRegex(out, rf"\n +1 +1 +{ranks[1].pid}  \d\d:\d\d:\d\d \(\S+ \S+\) +0\n")
        self.assertNotIn("degraded", out)
        tree = json.loads(self.ctl_ok("status", "--json", address))
        self.assertEqual((tree["asked"], tree["agent"]["jobs"][0]["reducers_alive"]), (address, 2))
        self.assertEqual(tree["agent"]["jobs"][0]["ranks"][1]["pid"], ranks[1].pid)
        self.done(c, ranks)
        status, _, err = ctl("status", f"unix:{c.dir}/nobody.sock")
        self.assertEqual(status, 1)
        self.assertIn("no such file", err.lower())
        status, _, err = ctl("status", "unix:nobody.sock")
        self.assertEqual(status, 2)
        self.assertIn("unix:PATH", err)

    def test_a_lost_reducer_is_visible_until_it_returns(self):
        c = self.cluster(reducers=2, agents=1, server_config={"server": {"grpc": "127.0.0.1:0"}})
        address = self.start(c)
        ranks = self.opened(c)
        self.sum(ranks)
        c.reducers[1].kill()
        self.sum(ranks)
        st = self.status_until(address, lambda st: st.agent.jobs[0].reducers_alive == 1)
        job = st.agent.jobs[0]
        self.assertEqual([r.state for r in job.reducers], [self.pb.AgentReducer.CONNECTED, self.pb.AgentReducer.LOST])
        lost = job.reducers[1]
        self.assertEqual((list(lost.shards_with), lost.shards, lost.home_shards), (["r0"], 0, 32))
        self.assertEqual(job.reducers[0].shards, 64)
        self.assertRegex(lost.why, "connection|closed")
        self.assertEqual(job.degraded_ms, lost.for_ms)
        text = (r"  degraded: 1 of 2 reducers, shares of r1 are with r0 since \d\d:\d\d:\d\d \(\d+ m?s\), because "
                r".*(connection|closed).*\n")
        self.assertRegex(self.ctl_ok("status", address), text)
        reducer = c.reducers[0].wait_text(r"\bgrpc-ready\b.*?address=(\S+)").group(1)
        self.assertRegex(self.ctl_ok("status", reducer), text)  # it knows it from its ranks
        said = json.loads(self.ctl_ok("status", "--json", reducer))["jobs"][0]
        self.assertEqual((said["reducers"], said["reducer"]), (2, "r0"))
        self.assertEqual([(r["index"], r["id"]) for r in said["lost"]], [(1, "r1")])
        c.start_reducer(1)
        c.agents[0].wait_text("reducer-back reducer=r1")
        st = self.status_until(address, lambda st: st.agent.jobs[0].reducers_alive == 2)
        self.assertEqual([(r.shards, r.why) for r in st.agent.jobs[0].reducers], [(32, "")] * 2)
        self.sum(ranks)
        self.assertNotIn("degraded", self.ctl_ok("status", address))
        self.assertNotIn("degraded", self.ctl_ok("status", reducer))
        self.done(c, ranks)

    def test_missing_ranks_are_named(self):
        c = self.cluster(reducers=1, agents=2)
        addresses = [self.start(c, i) for i in range(2)]
        first = c.start_worker(0, 4, SUMS)
        st = self.status_until(addresses[0], lambda st: st.agent.jobs and st.agent.jobs[0].joined == 1)
        job = st.agent.jobs[0]
        self.assertEqual((job.state, len(job.reducers)), (self.pb.AgentJob.GATHERING, 0))
        self.assertRegex(job.waiting, r"^1 of 2 local ranks have not connected: local rank 1; waiting for \d+ s$")
        self.assertEqual([(r.known, r.attached) for r in job.ranks], [(True, True), (False, False)])
        self.assertRegex(self.ctl_ok("status", addresses[0]), r"(?s)gathering for .*  waiting: 1 of 2 .*is not there")
        second = c.start_worker(1, 4, SUMS)
        st = self.status_until(addresses[0], lambda st: "rank 1 of 2" in st.agent.jobs[0].waiting)
        self.assertEqual(st.agent.jobs[0].state, self.pb.AgentJob.STARTING)
        self.assertRegex(st.agent.jobs[0].waiting,
                         r"reducer r0: rank 1 of 2 has not joined job test; waiting for \d+ s")
        self.assertEqual(len(self.status(addresses[1]).agent.jobs), 0)
        ranks = [first, second, c.start_worker(2, 4, SUMS), c.start_worker(3, 4, SUMS)]
        for rank in ranks:
            rank.said("open")
        self.sum(ranks)
        job = self.status(addresses[1]).agent.jobs[0]
        self.assertEqual((job.node_rank, job.nodes, job.world_size, job.waiting), (1, 2, 4, ""))
        self.assertEqual([r.rank for r in job.ranks], [2, 3])
        self.done(c, ranks)

    def test_a_reducer_that_does_not_answer_is_named(self):
        c = self.cluster(reducers=2, agents=1)
        c.start_reducer(0)
        address = self.start(c, reducers=False)  # r1 has an address, but is not started
        ranks = c.start_workers(2, SUMS)
        st = self.status_until(address, lambda st: st.agent.jobs and st.agent.jobs[0].reducers
                               and st.agent.jobs[0].reducers[1].why)
        self.assertEqual(st.agent.jobs[0].reducers[1].state, self.pb.AgentReducer.CONNECTING)
        self.assertIn(f"reducer r1 at {c.address(1)}: ", st.agent.jobs[0].waiting)
        self.assertRegex(self.ctl_ok("status", address), r"\n  r1: .*refused.* \(tried \d+ times?\)\n")
        c.start_reducer(1)
        for rank in ranks:
            rank.said("open")
        self.done(c, ranks)

    def test_a_node_that_sums_alone_says_so(self):
        c = self.cluster(reducers=1, agents=1, config={"agent": {}})
        address = self.start(c)
        ranks = self.opened(c)
        self.sum(ranks)
        job = self.status(address).agent.jobs[0]
        self.assertEqual((job.summed_by_node, job.operations), (True, 1))
        self.assertIn("summed by this node", self.ctl_ok("status", address))
        self.done(c, ranks)

    def test_garbage_disturbs_nobody(self):
        c = self.cluster(reducers=1, agents=1)
        tcp = self.start(c, grpc_address="127.0.0.1:0")
        ranks = self.opened(c)
        rng = random.Random(4711)
        host, port = tcp.rsplit(":", 1)
        held = [socket.create_connection((host, int(port)), timeout=20 * harness.SCALE) for _ in range(20)]
        for s in held:
            try:
                s.sendall(rng.randbytes(rng.randrange(1, 200_000)))
            except OSError:
                pass  # it was closed already
        self.sum(ranks)
        self.assertEqual(self.check(tcp), self.health.HealthCheckResponse.SERVING)
        stub = self.channel(tcp).unary_unary("/reduction.v1.Control/Status")
        self.assertIn("not a message", self.refused(grpc.StatusCode.INVALID_ARGUMENT, stub, b"\xff" * 100))
        unknown = self.channel(tcp).unary_unary("/reduction.v1.Reducer/Exchange")
        self.refused(grpc.StatusCode.UNIMPLEMENTED, unknown, b"")
        self.assertEqual(self.status(tcp).agent.jobs[0].operations, 1)
        for s in held:
            s.close()
        self.sum(ranks)
        self.done(c, ranks)

    def test_tokens(self):
        files = {"read_token": READ, "admin_token": ADMIN}
        for name, text in files.items():
            (self.folder / name).write_text(text + "\n")
            (self.folder / name).chmod(0o600)
        c = self.cluster(reducers=1, agents=1)
        c.config["security"] = {name: str(self.folder / name) for name in files}
        address = self.start(c)
        self.assertEqual(self.check(address), self.health.HealthCheckResponse.SERVING)
        stub = self.pb_grpc.ControlStub(self.channel(address))
        says = self.refused(grpc.StatusCode.UNAUTHENTICATED, stub.Status, self.pb.StatusRequest())
        self.assertIn("send the token from security.read_token", says)
        c.agents[0].wait_text("control-denied peer=unix: method=Status ")
        says = self.refused(grpc.StatusCode.PERMISSION_DENIED, stub.Drain, self.pb.DrainRequest(),
                            metadata=[("authorization", f"Bearer {READ}")])
        self.assertIn("requires that of security.admin_token", says)
        self.assertIn("jobs 0", self.ctl_ok("status", "--token", str(self.folder / "read_token"), address))
        self.assertIn("drains", self.ctl_ok("drain", "--token", str(self.folder / "admin_token"), address))
        self.assertEqual(c.agents[0].wait(), 0)

    def test_reload_drain_and_events(self):
        c = self.cluster(reducers=1, agents=1)
        address = self.start(c)
        ranks = self.opened(c)
        self.assertIn("new jobs use the configuration", self.ctl_ok("reload", address))
        path = pathlib.Path(c.agents[0].argv[c.agents[0].argv.index("--config") + 1])
        good = path.read_text()
        path.write_text("{")
        status, _, err = ctl("reload", address)
        self.assertEqual(status, 1)
        self.assertIn("agent0.yaml", err)
        path.write_text(good)
        health = self.health_grpc.HealthStub(self.channel(address)).Watch(self.health.HealthCheckRequest())
        self.assertEqual(next(health).status, self.health.HealthCheckResponse.SERVING)
        out = self.ctl_ok("drain", "--within", "100", address)
        self.assertRegex(out, r"drains, 1 job may go on for \d+\.\d s\n")
        self.assertEqual(next(health).status, self.health.HealthCheckResponse.NOT_SERVING)
        self.assertEqual(self.check(address, "reduction.v1.Control"), self.health.HealthCheckResponse.SERVING)
        st = self.status(address)
        self.assertTrue(st.draining)
        self.assertGreater(st.drain_left_ms, 30000)
        self.assertIn("was draining already", self.ctl_ok("drain", "--within", "90", address))
        self.assertLessEqual(self.status(address).drain_left_ms, 90000)
        events = self.ctl_ok("events", "--past", address)
        for event in ("job-started job=test", "job-ready job=test", "reload ", "draining by=control-service"):
            self.assertIn(event, events)
        self.sum(ranks)
        self.done(c, ranks)
        self.assertEqual(c.agents[0].wait(), 0)
        self.assertFalse(os.path.exists(address.removeprefix("unix:")))

    def test_the_unix_socket(self):
        c = self.cluster(reducers=1, agents=2)
        address = self.start(c)
        path = address.removeprefix("unix:")
        self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o660)
        argv = [harness.binary("reduction-agent"), "--socket", c.socket_path(1), "--grpc", address]
        second = c.start("second", argv)
        self.assertEqual(second.wait(), 1)
        self.assertRegex(second.err, rf"reduction-agent: agent.grpc: another agent is serving {path}: it holds ")
        self.assertEqual(self.check(address), self.health.HealthCheckResponse.SERVING)
        c.agents[0].kill()
        self.assertTrue(os.path.exists(path))
        self.assertEqual(self.start(c), address)  # takes the stale socket over
        self.assertEqual(self.check(address), self.health.HealthCheckResponse.SERVING)
        self.assertEqual(c.agents[0].stop(), 0)
        self.assertFalse(os.path.exists(path) or os.path.exists(path + ".lock"))
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
            other.bind(path)
            other.listen()
            second = c.start("second", argv)
            self.assertEqual(second.wait(), 1)
            self.assertIn(f"another program is listening on {path}", second.err)
        self.assertTrue(os.path.exists(path))

    def test_wrong_addresses_are_refused(self):
        with harness.Cluster(start=False) as c:
            own = str(c.dir / "a.sock")
            for given, status, says in (
                ("unix:relative", 2, r'--grpc: found "unix:relative", expected host:port .*, or unix:PATH with an'),
                ("unix:/a b", 2, "expected host:port"),
                ("127.0.0.1:70000", 2, "with a port from 0 to 65535"),
                (f"unix:{own}", 1, f"agent.grpc: {own} is also agent.socket, expected another path"),
                (f"unix:{c.dir}/no/a.sock", 1, "create its directory first"),
            ):
                with self.subTest(given=given):
                    agent = c.start("agent", [harness.binary("reduction-agent"), "--socket", own, "--grpc", given])
                    self.assertEqual(agent.wait(), status)
                    self.assertRegex(agent.err, says)
                    self.assertFalse(os.path.exists(own))

    def test_a_second_signal_after_a_drain_ends_at_once(self):
        c = self.cluster(reducers=1, agents=1)
        address = self.start(c)
        self.opened(c)
        self.ctl_ok("drain", "--within", "100", address)
        c.agents[0].signal(signal.SIGTERM)  # the first: the drain goes on
        c.agents[0].wait_text("draining by=SIGTERM")
        self.assertTrue(self.status(address).draining)
        c.agents[0].signal(signal.SIGTERM)
        self.assertEqual(c.agents[0].wait(), 1)
        c.agents[0].killed = True


class WithoutAPort(unittest.TestCase):
    def test_grpc_is_not_loaded(self):
        with harness.Cluster(agents=1) as c:
            self.assertNotIn("libreduction-grpc", pathlib.Path(f"/proc/{c.agents[0].pid}/maps").read_text())


if __name__ == "__main__":
    harness.main()
