#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# run: alone no-tsan all-only
"""reductionctl doctor in the network laboratory: each case causes one problem, and doctor names it first, also in a job
that is a day old; it names nothing after the repair."""

import collections
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from concurrent import futures

import harness
from test_control import stubs

sys.path.insert(0, str(harness.ROOT / "bench/net"))
import lab as net  # noqa: E402

TOKEN = "read-token-of-a-test"
REDUCERS, RANKS = 2, 3  # hosts 0 and 1 are reducers, the others ranks
SAMPLES, GOOD = 3, 2  # of so many answers in a row so many are as expected
LOAD = ("lane-busy", "lane-starved")  # other programs on this machine use its cores too
STARVED = 0.4  # share of the time; doctor names a lane from half of it on

SOON = 20  # seconds, after which a fault has a verdict, and a repaired one has none
SLACK = 5  # seconds for programs that this machine starts slowly

# Sums until it is ended; takes PAUSE seconds before each operation, or those that the file
# SLOW has.
RANK = """
import os, pathlib, time
import numpy, reduction
pause, n = float(os.environ.get("PAUSE", 0)), int(os.environ["ELEMENTS"])
slow = pathlib.Path(os.environ.get("SLOW", "/nonexistent"))
with reduction.Communicator() as comm:
    x = numpy.ones(n, numpy.float32)
    while True:
        time.sleep(float(slow.read_text()) if slow.exists() else pause)
        comm.all_reduce(x)
        time.sleep(float(os.environ.get("REST", 0)))
"""

# Stands before the control service of a reducer, whose job seems to be a day old: all of
# its counters have grown evenly in that time.
OLDER = """
import sys
from concurrent import futures
import grpc
folder, address, behind = sys.argv[1:]
sys.path.insert(0, folder)
import reduction_pb2 as pb
DAY_S = 86400
channel = grpc.insecure_channel(behind)
ask = channel.unary_unary("/reduction.v1.Control/Status", pb.StatusRequest.SerializeToString,
                          pb.StatusReply.FromString)
read = channel.unary_stream("/reduction.v1.Control/Events", pb.EventsRequest.SerializeToString, pb.Event.FromString)

def token(context):
    return [(k, v) for k, v in context.invocation_metadata() if k == "authorization"]

def age_traffic(t):
    t.bytes_in += DAY_S * 6000000
    t.bytes_out += DAY_S * 6000000
    t.chunks += DAY_S * 200

def status(request, context):
    m = ask(request, metadata=token(context))
    m.up_ms += DAY_S * 1000
    for job in m.jobs:
        job.age_ms += DAY_S * 1000
        age_traffic(job.traffic)
        for times, us in ((job.waiting, 4000), (job.summing, 50), (job.sending, 1000)):
            times.counts[4] += DAY_S * 200
            times.sum_us += DAY_S * 200 * us
        for rank in job.ranks:
            age_traffic(rank.traffic)
            rank.waited_ms += DAY_S * 20
    return m

def events(request, context):
    yield from read(request, metadata=token(context))

handlers = {"Status": grpc.unary_unary_rpc_method_handler(status, pb.StatusRequest.FromString,
                                                          pb.StatusReply.SerializeToString),
            "Events": grpc.unary_stream_rpc_method_handler(events, pb.EventsRequest.FromString,
                                                           pb.Event.SerializeToString)}
server = grpc.server(futures.ThreadPoolExecutor(4))
server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("reduction.v1.Control", handlers),))
server.add_insecure_port(address)
server.start()
server.wait_for_termination()
"""


def lane_waited():
    """Returns the seconds that the lane of reducer r0 has waited for a core, which shares its core with the shell."""
    for task in pathlib.Path("/proc").glob("[0-9]*/task/[0-9]*"):
        with contextlib.suppress(OSError):
            if (task / "comm").read_text() == "lane 0\n" and len(os.sched_getaffinity(int(task.name))) == 1:
                return int((task / "schedstat").read_text().split()[1]) / 1e9
    return 0.0


def why_not():
    """Why no laboratory can be made here, or None."""
    if harness.SAN:
        return "doctor is tried in the laboratory with the default build"
    if not harness.HAS_GRPC:
        return "this build has no gRPC"
    try:
        net.check_machine()
        net.check_delay(harness.BUILD)
    except net.LabError as e:
        return str(e)
    return None


WHY_NOT = why_not()


@unittest.skipIf(WHY_NOT, WHY_NOT)
class Verdicts(unittest.TestCase):
    @contextlib.contextmanager
    def job(self, pinned=(), rank_env=None, elements=250000, older=False, n=RANKS, k=REDUCERS, relays=None, **links):
        """Runs a job of n ranks and k reducers on links like these; yields a function that returns (exit status,
        findings). With `older` the job seems to be a day old. `relays`: sections of the file with groups."""
        with tempfile.TemporaryDirectory(prefix="reduction-") as name, \
             net.Lab(k + n, build=harness.BUILD, **links) as lab:
            folder = pathlib.Path(name)
            token = folder / "token"
            token.write_text(TOKEN + "\n")
            token.chmod(0o600)
            reducers = [{"id": f"r{i}", "address": f"{lab.address(i)}:7600", "grpc": f"{lab.address(i)}:7601"}
                        for i in range(k)]  # fmt: skip
            mine = {"reducers": [{**r, "lanes": 1} for r in reducers], **relays} if relays else {}
            for i in range(k):
                config = {"server": {"listen": reducers[i]["address"], "grpc": reducers[i]["grpc"], "insecure": True,
                                     "lanes": 1}, "security": {"read_token": str(token)}, **mine}  # fmt: skip
                path = harness.write_whole(folder / f"r{i}.yaml", json.dumps(config))
                with open(folder / f"r{i}.log", "w", encoding="utf-8") as log:
                    lab.popen(i, [*(pinned if i == 0 else ()), harness.binary("reduction-server"), "--config", path],
                              stderr=log)  # fmt: skip
            if older:
                stubs(folder)
                for i, r in enumerate(reducers):
                    behind, r["grpc"] = r["grpc"], f"{lab.address(i)}:7603"
                    lab.popen(i, ["/usr/bin/python3", "-c", OLDER, folder, r["grpc"], behind])
            config = {"job": {"name": "lab"}, "reducers": [{**r, "lanes": 1} for r in reducers],
                      "security": {"read_token": str(token)}, **(relays or {})}  # fmt: skip
            job = harness.write_whole(folder / "job.yaml", json.dumps(config))
            env = {**os.environ, **harness.worker_env(), "REDUCTION_CONFIG": str(job), "WORLD_SIZE": str(n),
                   "REDUCTION_MODE": "direct", "REDUCTION_RUN": "lab", "ELEMENTS": str(elements)}  # fmt: skip
            for rank in range(n):
                with open(folder / f"rank{rank}.log", "w", encoding="utf-8") as log:
                    lab.popen(k + rank, ["/usr/bin/python3", "-c", RANK], stderr=log,
                              env={**env, "RANK": str(rank), **(rank_env(rank) if rank_env else {})})  # fmt: skip

            def ask(seconds=5):
                child = lab.popen(k, [harness.binary("reductionctl"), "doctor", "--json", "--seconds",
                                             str(seconds), job],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # fmt: skip
                out, err = child.communicate(timeout=60 * harness.SCALE)
                return child.returncode, (json.loads(out) if out else {"jobs": 0, "findings": []}), err

            ask.lab, ask.reducers = lab, k
            yield ask

    def looks(self, ask, n, seconds):
        """Yields n answers, which begin a second after the other, as they end. Those that run on when the caller has
        seen enough end by themselves."""
        pool, enough = futures.ThreadPoolExecutor(n), threading.Event()
        looks = [pool.submit(lambda i=i: enough.wait(i) or ask(seconds)) for i in range(n)]
        try:
            for look in looks:
                yield look.result()
        finally:
            enough.set()
            pool.shutdown(wait=False)

    def expect(self, ask, good):
        """Asks until GOOD of the last SAMPLES answers are as expected; returns the last good finding."""
        last = collections.deque(maxlen=SAMPLES)
        for status, found, err in self.looks(ask, 60 * harness.SCALE, 5):
            running = found["jobs"] == ask.reducers
            last.append((running and good(status, found["findings"]), (status, found, err)))
            if sum(bool(g) for g, _ in last) == GOOD:
                return next(g for g, _ in reversed(last) if g)
        self.fail([seen for _, seen in last])

    def first_is(self, ask, verdict, *words):
        def good(status, findings):
            first = next((f for f in findings if f["id"] == verdict or f["id"] not in LOAD), None)
            return status == 3 and first and first["id"] == verdict and all(w in first["what"] for w in words) and first

        return self.expect(ask, good)

    def test_all_is_well(self):
        """Ranks that compute most of the time and wait for nobody."""
        with self.job(rate="200mbit", rank_env=lambda _: {"REST": "0.25"}, elements=50000) as ask:
            self.assertTrue(self.expect(ask, lambda status, findings: status == (3 if findings else 0) and all(
                f["id"] in LOAD for f in findings)))

    def until(self, ask, wanted, good):
        """Asks again and again, from now on, until the findings are good; fails if that takes too long."""
        for _, found, _ in self.looks(ask, SOON + SLACK - 10, 10):
            if good(found["findings"]):
                return
        self.fail((wanted, found))

    def test_faults_and_repairs_in_an_old_job(self):
        with tempfile.TemporaryDirectory(prefix="reduction-") as folder:
            pause = pathlib.Path(folder) / "pause"
            slow = lambda rank: {"SLOW": str(pause)} if rank == 1 else {}  # noqa: E731
            with self.job(rate="100mbit", rank_env=slow, older=True) as ask:
                named = lambda findings: [f for f in findings if f["id"] not in (*LOAD, "sending-slow")]  # noqa: E731
                self.expect(ask, lambda _, findings: not named(findings))  # its start is over, which loses segments
                found = [f for _, found, _ in self.looks(ask, 12, 5) for f in found["findings"]]
                self.assertEqual(named(found), [])
                for verdict, words, begin, end in (
                    ("reducer-slow", "reducer r0 ", lambda: ask.lab.set_rate(0, "30mbit"),
                     lambda: ask.lab.set_rate(0, "100mbit")),
                    ("rank-late", "rank 1 ", lambda: harness.write_whole(pause, "0.2"), pause.unlink),
                ):  # fmt: skip
                    with self.subTest(verdict):
                        is_it = lambda f, v=verdict, w=words: f["id"] == v and w in f["what"]  # noqa: E731
                        begin()
                        self.until(ask, verdict, lambda found: any(map(is_it, found)))  # noqa: B023
                        end()
                        self.until(ask, f"no {verdict}", lambda found: not any(map(is_it, found)))  # noqa: B023

    def test_a_slow_rank(self):
        slow = lambda rank: {"PAUSE": "0.2"} if rank == 1 else {}  # noqa: E731
        with self.job(rate="200mbit", rank_env=slow) as ask:
            first = self.first_is(ask, "rank-late", "rank 1 ")
            self.assertRegex(first["evidence"], r"the others waited for it in \d+\.\d % of the time")

    def test_a_halved_link_of_a_reducer(self):
        with self.job(rate="100mbit", rates={0: "50mbit"}) as ask:
            first = self.first_is(ask, "reducer-slow", "reducer r0 ")
            self.assertRegex(first["evidence"], r"a chunk takes \d+\.\d ms there on average, and \d+\.\d ms on the")

    def test_a_slow_relay(self):
        """A rack waits for its relay, and the other rack for that one's sums: the relay is named, and no rank is. Of a
        slow rank it is the other way round."""
        groups = {"sharding": {"map": {"0-31": "r2"}},
                  "groups": [{"name": "a", "relays": ["r0"]}, {"name": "b", "relays": ["r1"]}]}  # fmt: skip
        group = lambda rank: {"REDUCTION_GROUP": "ab"[rank // 2]}  # noqa: E731
        with self.job(n=4, k=3, relays=groups, rank_env=group, rate="100mbit", rates={0: "30mbit"}) as ask:
            first = self.first_is(ask, "relay-slow", "relay r0 ")
            self.assertRegex(first["evidence"], r"r2: in \d+\.\d % of the time a chunk waited for the sum of relay r0")
            self.until(ask, "no rank", lambda found: all(f["id"] != "rank-late" for f in found))
        slow = lambda rank: {**group(rank), **({"PAUSE": "0.2"} if rank == 1 else {})}  # noqa: E731
        with self.job(n=4, k=3, relays=groups, rank_env=slow, rate="200mbit") as ask:
            self.first_is(ask, "rank-late", "rank 1 ")
            self.until(ask, "no relay", lambda found: all(f["id"] != "relay-slow" for f in found))

    def test_a_lossy_link(self):
        with self.job(rate="200mbit", delay_us=500, loss=(REDUCERS + 2, 40)) as ask:
            first = self.first_is(ask, "retransmissions", "the network to rank 2 ")
            self.assertRegex(first["evidence"], r"\d+ of about \d+ TCP segments were sent again")

    @unittest.skipIf((os.cpu_count() or 1) < 2, "one core: nothing can be pinned beside it")
    def test_a_starved_core(self):
        """How long the lane waits for its core depends on what else this machine does, so the kernel is asked too."""
        core = str(min(os.sched_getaffinity(0)))
        # in one session, since the kernel shares a core among sessions first
        script = 'for i in 1 2 3; do while :; do :; done & done; exec nice "$@"'
        crowd = ["taskset", "-c", core, "sh", "-c", script, "sh"]
        with self.job(pinned=crowd, rate="none") as ask:
            waited, named = 0, []
            deadline = time.monotonic() + 60 * harness.SCALE
            before = (time.monotonic(), lane_waited())
            while not named and waited < 20 and time.monotonic() < deadline:
                _, found, _ = ask()
                named = [f for f in found["findings"] if f["id"] == "lane-starved"]
                time.sleep(0.5)
                now = (time.monotonic(), lane_waited())
                waited = waited + 1 if now[1] - before[1] > STARVED * (now[0] - before[0]) else 0
                before = now
            if not named and waited < 20:
                self.skipTest("this machine does not let the lane wait for its core")
            self.assertTrue(named, "doctor does not say that the lane waits")
            self.assertEqual(named[0]["what"], "lane 0 of the reducer waits for a core that others use")
            self.assertRegex(named[0]["evidence"], r"r0: it waited for a core in \d+\.\d %")


if __name__ == "__main__":
    harness.main()
