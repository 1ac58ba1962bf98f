#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# run: beside-others
"""Unauthenticated peers flood, starve and stall a reducer or an agent (abuse.py): memory and log stay within bounds,
refused peers get the reason, and a job beside them continues. bench/abuse.py measures what that job loses.
"""

import contextlib
import datetime
import json
import os
import pathlib
import re
import resource
import socket
import threading
import time
import unittest

import abuse
import harness
import local
import wire

LOAD = str(harness.BUILD / "bench" / "reduction-load")
LIMITS = {"max_jobs": 8, "max_connections": 400, "memory": "64MiB"}
LINES = 5  # log lines in a second, for each event that an unauthenticated peer can cause
SECONDS = 0.5  # seconds of a job
BESIDE = SECONDS if harness.SLOW else 3 * SECONDS  # seconds of a job beside a flood


def memory(pid):
    """Returns resident bytes: now and peak."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return [int(re.search(rf"^{name}:\s+(\d+) kB", status, re.M).group(1)) << 10 for name in ("VmRSS", "VmHWM")]


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


class Base(unittest.TestCase):
    def cluster(self, **more):
        return self.enterContext(harness.Cluster(**more))

    def start_abuse(self, c, kind, address):
        argv = ["/usr/bin/python3", str(harness.ROOT / "tests" / "e2e" / "abuse.py"), kind, address]
        return c.start(kind, ["/bin/sh", "-c", 'ulimit -n "$(ulimit -Hn)"; exec "$@"', "sh", *argv])

    def end_abuse(self, p):
        """Returns its counts."""
        p.tell()
        self.assertEqual(p.wait(), 0, p.report())
        return p.objects()[-1]

    def start_job(self, c, name, **more):
        """Runs a job of four ranks for a while."""
        argv = [LOAD, "--address", c.address(0), "--name", name, "--ranks", 4, "--bytes", "256K", "--json"]
        for option, value in {"seconds": SECONDS, "warmup": 0, **more}.items():
            argv += [f"--{option}", value]
        return c.start(name, argv)

    def end_job(self, p):
        """Checks that its sums are right."""
        self.assertEqual(p.wait(60), 0, p.report())
        row = json.loads(p.out)
        self.assertEqual(row["wrong"], 0)
        self.assertGreater(row["results"], 0)

    def job(self, c, name, **more):
        self.end_job(self.start_job(c, name, **more))

    def job_after(self, c):
        """Runs a job after all others: their connections are closed before their places are free."""
        deadline = time.monotonic() + 20 * harness.SCALE
        p = self.start_job(c, "after", ops=2)
        while p.wait() != 0 and "as many as its server.max_" in p.err and time.monotonic() < deadline:
            p = self.start_job(c, "after", ops=2)
        self.end_job(p)

    def check_log(self, text):
        """Checks that no event has more lines than permitted; a flood is counted."""
        times = [datetime.datetime.fromisoformat(t) for t in re.findall(r"^(\S+)Z ", text, re.M)]
        seconds = 2 + (max(times) - min(times)).total_seconds()  # the first and the last may be parts of seconds
        for event in ("connection-refused", "out-of-descriptors", "client-refused", "client-dropped"):
            found = len(re.findall(rf"\b{event} (peer|pid|reason|advice)=", text))
            self.assertLessEqual(found, LINES * seconds, event)
        self.assertLess(text.count("\n"), 300 * seconds)


class Reducer(Base):
    def kinds(self, kinds, bound, **server):
        for kind in kinds:
            with self.subTest(kind), harness.Cluster(server_config={"server": {**LIMITS, **server}}) as c:
                r = c.reducers[0]
                address = c.address(0)
                if kind in abuse.GRPC_KINDS:
                    address = r.wait_text(r"\bgrpc-ready address=(\S+)").group(1)
                self.job(c, "first", ops=2)
                before, fds = memory(r.pid)[0], descriptors(r.pid)
                job = self.start_job(c, "beside", seconds=BESIDE)
                r.wait_text(r"\bjob-started job=beside")
                p = self.start_abuse(c, kind, address)
                p.wait_text("^started", stream="out")
                self.end_job(job)
                counts = self.end_abuse(p)
                self.assertGreater(counts.get("done", 0), 0, counts)
                self.settles(r, fds)
                self.job_after(c)
                self.check_log(r.err)
                if not harness.SAN:  # a sanitizer's shadow and quarantine do not count
                    most = memory(r.pid)[1] - before
                    self.assertLess(most, (64 << 20) + bound(counts), counts)

    def test_kinds(self):
        """All kinds of abuse.py, each beside a job."""
        self.kinds(abuse.KINDS, lambda counts: 400 * (8 << 10) + (8 << 20))

    @unittest.skipUnless(harness.HAS_GRPC, "this build has no gRPC")
    def test_grpc_kinds(self):
        """All kinds for the gRPC port, beside a job over TCP."""
        self.kinds(abuse.GRPC_KINDS, lambda counts: 2 * 400 * (128 << 10) + (32 << 20),
                   grpc="127.0.0.1:0")

    def settles(self, r, fds):
        """Checks that all connections of the abuse are closed."""
        deadline = time.monotonic() + 20 * harness.SCALE
        while descriptors(r.pid) > fds + 4:  # the thread pool's own
            self.assertLess(time.monotonic(), deadline, f"{descriptors(r.pid)} descriptors, before it were {fds}")
            time.sleep(0.05)

    def test_suppressed_lines_are_counted(self):
        """The log has few lines of a flood, and the number of the others."""
        c = self.cluster(server_config={"server": LIMITS})
        p = self.start_abuse(c, "garbage", c.address(0))
        c.reducers[0].wait_text(r"\bsuppressed event=connection-refused lines=\d+")
        refused = self.end_abuse(p)["refused"]

        def told():
            err = c.reducers[0].err
            said = len(re.findall(r"\bconnection-refused peer=", err))
            return said + sum(map(int, re.findall(r"\bsuppressed event=connection-refused lines=(\d+)", err)))

        deadline = time.monotonic() + 20 * harness.SCALE
        while told() < refused:
            self.assertLess(time.monotonic(), deadline, f"{told()} of {refused} are told")
            c.reducers[0].wait_more(0.1)

    def test_jobs_beyond_the_limit(self):
        c = self.cluster(server_config={"server": {"max_jobs": 2, "max_workers": 8, "memory": "16MiB"}})
        held = [wire.Client(c.connect(0)) for _ in range(2)]
        for i, client in enumerate(held):
            self.addCleanup(client.sock.close)
            client.join(job=f"held{i}", world_size=2, window=1)
        for values, retry, says in (
            ({"job": "third", "window": 1}, True, "runs 2 jobs, as many as its server.max_jobs allows"),
            ({"job": "wide", "world_size": 9}, False,
             "job wide has 9 workers, this reducer's server.max_workers allows 8"),
            ({"job": "held0", "rank": 1, "world_size": 3, "window": 1}, False, "says the world size of job held0 is 3"),
        ):
            with wire.Client(c.connect(0)) as client:
                client.send(wire.hello(**values))
                refused = client.refused()
                self.assertIn(says, refused.message)
                self.assertEqual(refused.retry, retry, refused)

    def test_silent_connections_block_no_worker(self):
        """Silent connections up to the limit, which would last a minute: the oldest are closed."""
        c = self.cluster(server_config={"server": {"max_connections": 50}, "timeouts": {"handshake": "1min"}})
        crowd = [wire.Client(c.connect(0)) for _ in range(120)]
        for client in crowd:
            self.addCleanup(client.sock.close)
        self.assertIn("no HELLO has come yet and this reducer has 50 connections, as many as its "
                      "server.max_connections allows: the place goes to a newer connection",
                      crowd[0].reason(wire.REFUSED))  # fmt: skip
        with wire.Client(c.connect(0)) as client:
            client.join(job="newcomer")
            client.expect(wire.START)
        self.job(c, "beside")
        crowd[-1].send(wire.hello(job="late"))  # among the newest: it still has its place
        crowd[-1].expect(wire.WELCOME)

    def test_limit_of_connections(self):
        """Workers have all places: new workers, many at once, are refused with a reason and retry."""
        c = self.cluster(server_config={"server": {"max_connections": 3}})
        workers = [wire.Client(c.connect(0)) for _ in range(3)]
        for rank, client in enumerate(workers):
            self.addCleanup(client.sock.close)
            client.join(job="full", rank=rank, world_size=4, window=1)
        for _ in range(2):
            crowd = [wire.Client(c.connect(0)) for _ in range(60)]
            for client in crowd:
                refused = client.refused()
                self.assertIn("connections, as many as its server.max_connections allows", refused.message)
                self.assertTrue(refused.retry)
                client.sock.close()
        workers[0].sock.close()
        deadline = time.monotonic() + 20 * harness.SCALE
        while True:  # until the reducer has noticed the free place
            with wire.Client(c.connect(0)) as client:
                client.send(wire.hello(job="full", rank=3, world_size=4, window=1))
                if client.receive()[0] == wire.WELCOME:
                    break
            self.assertLess(time.monotonic(), deadline)

    def start_with(self, c, script, *more):
        """A reducer that a shell script starts, on a port that is known before."""
        argv = [harness.binary("reduction-server"), "--listen", c.address(0), "--lanes", "1", *more]
        c.reducers[0] = c.start("reducer r0", ["/bin/sh", "-c", script, "sh", *argv])
        deadline = time.monotonic() + 20 * harness.SCALE
        while True:
            try:
                c.connect(0).close()
                return c.reducers[0]
            except ConnectionRefusedError:
                self.assertLess(time.monotonic(), deadline, "it does not listen")
                time.sleep(0.02)

    def test_descriptors_run_out(self):
        """Silent connections are closed. If all belong to workers, new ones are refused with a reason."""
        c = self.cluster(start=False)
        r = self.start_with(c, 'ulimit -n 60 && exec "$@"')
        crowd = [wire.Client(c.connect(0)) for _ in range(150)]
        for client in crowd:
            self.addCleanup(client.sock.close)
        self.assertIn("no file descriptors left: the place goes to a newer connection", crowd[0].reason(wire.REFUSED))
        self.job(c, "beside")
        workers = []
        for rank in range(80):
            client = wire.Client(c.connect(0))
            self.addCleanup(client.sock.close)
            client.send(wire.hello(job="full", rank=rank, world_size=80, window=1))
            kind, payload = client.receive()
            if kind == wire.REFUSED:
                break
            workers.append(client)
        self.assertEqual(kind, wire.REFUSED)
        refused = wire.pb.Refused.FromString(payload)
        self.assertIn("this reducer has no file descriptors left", refused.message)
        self.assertTrue(refused.retry)
        self.assertGreater(len(workers), 20)
        for client in workers:
            client.sock.close()
        self.settles(r, 20)
        self.job(c, "after")
        self.assertIn("out-of-descriptors advice=", r.err)
        self.check_log(r.err)

    def test_log_that_nobody_reads(self):
        """Standard error is a pipe that is not read, a full disk, or closed: the reducer serves on."""
        for script in ('exec "$@" 2<>fifo', 'exec "$@" 2>/dev/full', 'exec "$@" 2>&-'):
            with self.subTest(script):
                c = self.cluster(start=False, config={})
                os.mkfifo(c.dir / "fifo")
                r = self.start_with(c, script)
                for _ in range(2):
                    p = self.start_abuse(c, "churn", c.address(0))
                    self.job(c, "beside")
                    self.assertGreater(self.end_abuse(p)["done"], 0)
                filler = b"\0" * 4096
                if "fifo" in script:  # completely full
                    fd = os.open(c.dir / "fifo", os.O_WRONLY | os.O_NONBLOCK)
                    try:
                        while True:
                            os.write(fd, filler)
                    except BlockingIOError:
                        pass
                    os.close(fd)
                self.job(c, "after")
                # no connection has the log's descriptor
                self.assertRegex(os.readlink(f"/proc/{r.pid}/fd/2"), "fifo|/dev/full|/dev/null")
                self.assertEqual(r.stop(), 0, r.report())

    def test_large_job_stops_nobody(self):
        """Memory of a large job is touched in the background: a later job starts first. It is freed as well."""
        # the clients send nothing while memory is touched, which may take long on a busy
        # machine
        c = self.cluster(server_config={"timeouts": {"detect": "10min"}})
        r = c.reducers[0]
        self.job(c, "first", ops=2)
        before = memory(r.pid)[0]
        overtaken = 0
        for i in range(3):
            with wire.Client(c.connect(0)) as large, wire.Client(c.connect(0)) as small:
                large.send(wire.hello(job=f"large{i}", window=500, chunk_bytes=1 << 20))
                large.expect(wire.WELCOME)
                small.join(job=f"small{i}")
                small.expect(wire.START)
                large.sock.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    overtaken -= len(large.sock.recv(1))
                overtaken += 1
            r.wait_text(rf"\bjob-closed job=large{i}")
        # a client that is stopped for a while may be too late once
        self.assertGreater(overtaken, 0, "the large jobs have started first")
        deadline = time.monotonic() + 20 * harness.SCALE
        while not harness.SAN and memory(r.pid)[0] > before + (16 << 20):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)
        with wire.Client(c.connect(0)) as large:  # SIGTERM during the preparation; no job keeps the reducer running
            large.join(job="large", window=500, chunk_bytes=1 << 20)
        self.assertEqual(r.stop(), 0, r.report())
        if "thread" in harness.SAN:
            return  # takes several times the memory and minutes
        with self.subTest("a large job starts in the end"):
            r = c.start_reducer(0)
            with wire.Client(c.connect(0)) as large:
                large.sock.settimeout(60 * harness.SCALE)
                large.join(job="large", window=100, chunk_bytes=1 << 20, detect_ms=600000)
                large.expect(wire.START)
                large.send(wire.frame(wire.GOODBYE))
                large.closed()

    def test_pings_without_end(self):
        """Connections that only send PINGs are closed, with a reason."""
        c = self.cluster(lanes=1)
        p = self.start_job(c, "beside", seconds=1, warmup=0.2)
        with wire.Client(c.connect(0)) as client:
            client.join(job="pings", world_size=2)
            client.sock.settimeout(20 * harness.SCALE)
            with self.assertRaises(OSError):  # a reset, sooner or later
                while True:
                    client.send(wire.frame(wire.PING) * 1024)
        c.reducers[0].wait_text(r"job-closed job=pings")
        self.end_job(p)

    def test_deaf_rank(self):
        """A rank that does not read holds up its own job, within that job's memory, and no other's."""
        c = self.cluster()
        r = c.reducers[0]
        self.job(c, "first", ops=2)
        clients = [wire.Client(c.connect(0)) for _ in range(2)]
        for rank, client in enumerate(clients):
            self.addCleanup(client.sock.close)
            client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.join(job="deaf", rank=rank, world_size=2, detect_ms=600000)
        for client in clients:
            client.expect(wire.START)
        bound = int(r.wait_text(r"\bjob-opened job=deaf .*\bmemory_bytes=(\d+)").group(1))
        before = memory(r.pid)[0]
        count = 1 << 26
        frames = [wire.frame(wire.DATA, bytes(65536), dtype=7, chunk=i, count=count, chunk_elems=16384)
                  for i in range(256)]  # fmt: skip

        def feed(client):  # until the reducer stops reading, because the window is full
            client.sock.settimeout(1)
            try:
                for f in frames:
                    client.send(f)
            except OSError:
                pass

        threads = [threading.Thread(target=feed, args=(client,)) for client in clients]
        for t in threads:
            t.start()
        self.job(c, "beside")
        for t in threads:
            t.join()
        if not harness.SAN:
            self.assertLess(memory(r.pid)[0] - before, bound)


class Agent(Base):
    PROGRAM = """
        import numpy, reduction
        with reduction.Communicator() as comm:
            x = numpy.full(50000, comm.rank + 1, "float32")
            for _ in range({rounds}):
                y = x.copy()
                comm.all_reduce(y)
                assert (y == 3).all()
        print("good")
    """

    def cluster(self, **more):
        config = {"agent": {"max_jobs": 8}, **more}
        return self.enterContext(harness.Cluster(agents=1, config=config))

    def start_local_job(self, c, name, rounds):
        return c.start_workers(2, harness.python(self.PROGRAM.format(rounds=rounds)), config={"job": {"name": name}})

    def end_local_job(self, c, workers):
        c.wait_all(workers)
        self.assertEqual([w.out for w in workers], ["good\n"] * 2)

    def local_job(self, c, name, rounds):
        self.end_local_job(c, self.start_local_job(c, name, rounds))

    def test_kinds(self):
        """All kinds of abuse.py for an agent's socket, each beside a job of its node."""
        for kind in abuse.LOCAL_KINDS:
            with self.subTest(kind), harness.Cluster(agents=1, config={"agent": {"max_jobs": 8}}) as c:
                a = c.agents[0]
                self.local_job(c, "first", 2)
                before, fds = memory(a.pid)[0], descriptors(a.pid)
                job = self.start_local_job(c, "beside", 100 if harness.SLOW else 1500)
                a.wait_text(r"\bjob-ready job=beside")
                p = self.start_abuse(c, kind, c.socket_path(0))
                p.wait_text("^started", stream="out")
                self.end_local_job(c, job)
                counts = self.end_abuse(p)
                self.assertGreater(counts.get("done", 0), 0, counts)
                deadline = time.monotonic() + 20 * harness.SCALE
                while descriptors(a.pid) > fds + 8:
                    self.assertLess(time.monotonic(), deadline, descriptors(a.pid))
                    time.sleep(0.05)
                self.local_job(c, "after", 2)
                self.check_log(a.err)
                if not harness.SAN:
                    # jobs and their engines beside the clients, each of which takes less
                    # than two pages
                    self.assertLess(memory(a.pid)[1] - before, 1100 * (8 << 10) + (48 << 20), counts)

    def test_silent_connections_block_no_worker(self):
        """Silent clients up to the limit, which would last a minute: the oldest are closed."""
        resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        c = self.cluster(timeouts={"handshake": "1min"})
        crowd = [local.Client(c.socket_path(0)) for _ in range(1100)]
        for client in crowd:
            self.addCleanup(client.sock.close)
        kind, code, sentence = crowd[0].last_words()
        self.assertEqual(kind, local.REFUSED)
        self.assertIn("a newer connection takes its place", sentence)
        self.local_job(c, "beside", 5)


@unittest.skipIf(harness.SAN, "needs the C library's own getaddrinfo")
class Names(Base):
    def test_silent_name_servers(self):
        """Opening ends at its timeout, and an agent ends, during a lookup that cannot be cancelled."""
        shim = {"LD_PRELOAD": str(harness.BUILD / "tests" / "e2e" / "shim_lookup.so")}
        program = """
            import reduction
            try:
                reduction.Communicator()
            except reduction.ReductionError as exc:
                print(exc)
        """
        c = self.enterContext(harness.Cluster(start=False))
        silent = {"reducers": [{"id": "r0", "address": "black-hole.example:7600"}], "timeouts": {"connect": "1s"}}
        env = {**shim, "REDUCTION_LOOKUPS": str(c.dir / "direct")}
        w = c.start_worker(0, 1, harness.python(program), env, silent)
        self.assertEqual(w.wait(20), 0, w.report())
        self.assertEqual((c.dir / "direct").read_text(), "x")  # one at a time, not one for each attempt
        self.assertIn("black-hole.example:7600", w.out)

        argv = [harness.binary("reduction-agent"), "--config", c.write_config("a.yaml", silent), "--socket", "a.sock"]
        a = c.start("agent", argv, {**shim, "REDUCTION_LOOKUPS": str(c.dir / "agent")})
        a.wait_text(r"\blistening\b")
        client = local.Client(str(c.dir / "a.sock"), 20)
        self.addCleanup(client.sock.close)
        client.send(local.hello(job="lost", connect_ms=60000))
        client.expect(local.WELCOME)
        deadline = time.monotonic() + 20
        while not (c.dir / "agent").exists():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)
        self.assertEqual(a.stop(), 0, a.report())


if __name__ == "__main__":
    harness.main()
