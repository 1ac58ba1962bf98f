# SPDX-License-Identifier: Apache-2.0
"""Faults of real processes, and what must show each of them. A fault is a generator: it starts what is healthy, yields,
and then makes the fault. `expected` says what shows it."""

import collections
import contextlib
import ctypes
import datetime
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import urllib.request
from concurrent import futures

import certs
import harness
import prometheus
from test_http import GRPC, HTTP, TOKEN, grpc_of, http_of, until

sys.path.insert(0, str(harness.ROOT / "bench/net"))
import lab as net  # noqa: E402

LIBC = ctypes.CDLL(None, use_errno=True)

# Sums as a training does, until its input has a line. The file FAULT says what to do in the
# next step: "abort", "nan", or the seconds that it takes.
STEADY = harness.python("""
    import os, pathlib, sys, threading, time
    import numpy, reduction, worker
    count, pause = int(os.environ.get("COUNT", 100000)), float(os.environ.get("PAUSE", 0.05))
    fault = pathlib.Path(os.environ.get("FAULT", "/nonexistent"))
    with reduction.Communicator() as comm:
        told = threading.Event()
        threading.Thread(target=lambda: (sys.stdin.readline(), told.set()), daemon=True).start()
        worker.say("open")
        stop = numpy.zeros(1, numpy.float32)
        while not stop[0]:
            word = fault.read_text() if fault.exists() else ""
            if word == "abort":
                comm.abort("<b>the loss & more</b>")
            comm.all_reduce(numpy.full(count, "nan" if word == "nan" else 1, dtype="float32"))
            stop[0] = told.is_set()
            comm.all_reduce(stop)
            time.sleep(float(word) if word[:1].isdigit() else pause)
    """)


def get(address, path):
    request = urllib.request.Request(f"http://{address}{path}", headers={"Authorization": f"Bearer {TOKEN}"})
    with urllib.request.urlopen(request, timeout=20 * harness.SCALE) as answer:
        return answer.read().decode()


class World:
    """A cluster with HTTP and gRPC in which one fault is made."""

    def __init__(self, c):
        self.c = c
        self.word = c.dir / "fault"
        self.http = [http_of(r) for r in c.reducers]
        self.grpc = [grpc_of(r) for r in c.reducers]
        self.ranks = []
        self.how = None  # as Prometheus reads them
        self.quiet = False  # no alert and no finding may follow

    def target(self):
        """The configuration for reductionctl: all reducers, also those that are dead."""
        return self.c.write_config("asked.yaml", {"reducers": [
            {"id": f"r{i}", "address": self.c.address(i), "grpc": at} for i, at in enumerate(self.grpc)]})  # fmt: skip

    def job(self, n=2, name="job", ill=1, start=True, config=None, **env):
        """Ranks of which rank `ill` does what tell() says."""
        config = {**(config or {}), "job": {"name": name, **(config or {}).get("job", {})}}
        ranks = self.c.start_workers(n, STEADY, lambda r: {**env, **({"FAULT": self.word} if r == ill else {})}, config)
        self.ranks += ranks
        for rank in ranks if start else []:
            rank.said("open")
        return ranks

    def tell(self, word):
        harness.write_whole(self.word, word)


BUSY = 0.1  # share of a core: how much ranks fill depends on the machine
Fault = collections.namedtuple("Fault", "name steps options lab alone root expected")
FAULTS = []


def fault(name, options=None, lab=None, alone=False, root=False, **expected):
    """options: arguments of the cluster, or a function that gets it before it starts, and a stack for what is undone
    after its end. lab: the links of the laboratory in which it is made. alone: it takes a core. root: only root can
    make it. expected: alert, its name; doctor, the name of a finding; event, of the log; metric, a query that is true;
    page, a path and what its data contain; jobs, what reductionctl prints. Without an entry a column says nothing."""

    def add(function):
        FAULTS.append(Fault(name, function, options or {}, lab, alone or bool(lab), root or bool(lab), expected))
        return function

    return add


@fault("rank killed", alert="JobFailed", doctor="job-ended", event="job-aborted .*rank 1 .*was lost",
       metric="reduction_lost_ranks_total > 0", page=("/jobs", "rank-lost"), jobs="rank 1 .*was lost")
def rank_killed(w):
    ranks = w.job()
    yield
    ranks[1].kill()


@fault("rank stopped (SIGSTOP)", alert="RankMissing", doctor="rank-missing", event="rank-late .*rank=1",
       metric="reduction_job_missing_seconds > 1", page=("/status", r'"missing_ms":[1-9]\d{3}'))
def rank_stopped(w):
    ranks = w.job()
    yield
    ranks[1].signal(signal.SIGSTOP)


@fault("rank slow", alert="RankLate", doctor="rank-late", metric="reduction_job_latest_rank_waiting_ratio > 0.2",
       page=("/status", r'"waited_permil":[2-9]\d\d'))
def rank_slow(w):
    w.job()
    yield
    w.tell("0.3")


@fault("rank missing at the start", doctor="ranks-not-there", metric="reduction_job_joined_ranks < reduction_job_ranks",
       page=("/status", '"state":"GATHERING"'))
def rank_not_there(w):
    yield
    w.c.start_worker(0, 2, STEADY, config={"job": {"name": "job"}})


@fault("job aborted by a rank", alert="JobFailed", doctor="job-ended", event="job-aborted .*the loss",
       metric='reduction_ended_jobs_total{reason="aborted"} > 0', page=("/jobs", "the loss"),
       jobs="the loss")
def job_aborted(w):
    w.job()
    yield
    w.tell("abort")


@fault("NaN", alert="NaN", event="nonfinite .*NaN", metric='reduction_job_nonfinite_operations_total{value="nan"} > 0',
       page=("/status", "sent NaN"), doctor="nan")
def nan(w):
    w.job()
    yield
    w.tell("nan")


@fault("ranks disagree", alert="Refusals", doctor="refused", event="connection-refused .*world size",
       metric='reduction_refused_connections_total{reason="mismatch"} > 0', page=("/status", r'"count":[1-9]'))
def mismatch(w):
    w.c.start_worker(0, 2, STEADY, config={"job": {"name": "job"}})
    yield
    w.c.start_worker(1, 4, STEADY, config={"job": {"name": "job"}})


def secret_options(c, _):
    folder = pathlib.Path(c.dir) / "secrets"
    folder.mkdir()
    for name, text in (("job.secret", "a" * 64), ("other", "b" * 64)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o600)
    return {"server_config": {"server": {"secrets_dir": str(folder)}}}


@fault("wrong secret", secret_options, alert="Refusals", doctor="refused", event="connection-refused .*secret",
       metric="reduction_refused_connections_total > 0", page=("/status", r'"count":[1-9]'))
def wrong_secret(w):
    yield
    w.job(config={"security": {"secret": str(w.c.dir / "secrets" / "other")}}, start=False)


@fault("one of two reducers killed", {"reducers": 2}, alert="ReducerLost", doctor="no-answer",
       event="reducer-lost", metric="reduction_job_lost_reducers > 0", page=("/status", '"lost":.{"'))
def reducer_killed(w):
    w.job()
    yield
    w.c.reducers[1].kill()


@fault("all reducers killed", {"reducers": 2}, alert="ReducerDown", doctor="no-answer", metric="up == 0",
       jobs="connection refused")
def all_reducers_killed(w):
    w.job()
    yield
    for r in w.c.reducers:
        r.kill()


@fault("reducer killed and started again", {"reducers": 2}, alert="Restarts",
       metric="changes(reduction_start_time_seconds[1m]) > 0", event="reducer-(?:back|return)")
def reducer_restarted(w):
    w.job()
    yield
    w.c.reducers[1].kill()
    port = {"--http": w.http[1], "--grpc": w.grpc[1]}
    args = list(w.c.server_args)
    for i, word in enumerate(args):
        if word in port:
            args[i + 1] = port[word]
    w.c.server_args = args
    w.c.start_reducer(1)


@fault("reducer drains", {"server_config": {"timeouts": {"drain": "5s"}}}, doctor="no-answer", event="drain",
       metric="reduction_draining == 1", page=("/status", '"draining":true'))
def drains(w):
    w.job()
    yield
    w.c.reducers[0].signal(signal.SIGTERM)


@fault("memory for jobs nearly used", {"server_config": {"server": {"memory": "9MiB"}}}, alert="MemoryNearLimit",
       doctor="memory", metric="reduction_memory_bytes / reduction_memory_limit_bytes > 0.9",
       page=("/status", '"memory_bytes":"?8'))
def memory(w):
    yield
    w.job()


@fault("no memory left (OOM)", alert="Refusals", doctor="refused", event="connection-refused .*memory",
       metric="reduction_refused_connections_total > 0", page=("/status", r'"count":[1-9]'))
def oom(w):
    pid = w.c.reducers[0].pid
    used = int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    yield
    subprocess.run(["prlimit", f"--pid={pid}", f"--as={used + (1 << 20)}"], check=True)
    w.job(start=False)


def certificate(c, **left):
    tls = certs.Folder(pathlib.Path(c.dir) / "tls", "reducer:r0,localhost,127.0.0.1")
    today = datetime.datetime.now(datetime.timezone.utc)
    times = [today + datetime.timedelta(days=d) + datetime.timedelta(**left) for d in (-365, 0)]
    tls.valid("r0", *(f"{time:%Y%m%d%H%M%SZ}" for time in times))
    c.config = {"security": {"tls": "on", "authority": tls.file("ca.pem")}}
    return {"server_config": {"security": {**tls.own("r0"), "tls": "on"}}}


@fault("certificate ends in 5 days", lambda c, _: certificate(c, hours=120), alert="CertificateEnds",
       doctor="certificate-ends", event="certificate-ends",
       metric="reduction_certificate_expiry_timestamp_seconds - time() < 6 * 86400")
def certificate_ends(w):
    yield


@fault("certificate has expired", lambda c, _: certificate(c, seconds=10), alert="CertificateEnds",
       doctor="no-answer", event="certificate-ends", metric="reduction_certificate_expiry_timestamp_seconds < time()")
def certificate_ended(w):
    yield


@fault("reducer stopped (SIGSTOP)", {"reducers": 2}, alert="ReducerDown", doctor="no-answer", event="reducer-lost",
       metric="up == 0")
def reducer_stopped(w):
    w.job()
    yield
    w.c.reducers[1].signal(signal.SIGSTOP)


def pinned(w, burners):
    core = str(min(os.sched_getaffinity(0)))
    subprocess.run(["taskset", "-a", "-p", "-c", core, str(w.c.reducers[0].pid)], check=True, capture_output=True)
    for i in range(burners):
        w.c.start(f"program {i}", ["taskset", "-c", core, "sh", "-c", "while :; do :; done"])


@fault("lane without a core", alert="LaneStarved", doctor="lane-starved", alone=True,
       metric="reduction_lane_starved_ratio > 0.2", page=("/status", r'"starved_permil":[2-9]\d\d'))
def starved(w):
    w.job(PAUSE=0, COUNT=1000000)
    yield
    pinned(w, 4)


@fault("lane busy", alone=True, alert="LaneBusy", metric=f"reduction_lane_busy_ratio > {BUSY}",
       page=("/status", r'"busy_permil":[2-9]\d\d'))
def busy(w):
    yield
    w.job(n=4, PAUSE=0, COUNT=1000000)


def full_disk(c, stack):
    folder = pathlib.Path(c.dir) / "state"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "full", folder], check=True)
    stack.callback(subprocess.run, ["umount", "-l", folder], check=True)
    return {"server_config": {"server": {"state_dir": str(folder)}}}


@fault("disk of the state folder full", full_disk, root=True, event="record-lost .*No space",
       page=("/jobs", '"finished"'), jobs="finished", metric='reduction_ended_jobs_total{reason="finished"} > 0')
def disk_full(w):
    ranks = w.job()
    yield
    folder = w.c.dir / "state"
    with open(folder / "other", "wb", buffering=0) as f:
        try:
            while f.write(bytes(512)):
                pass
        except OSError:
            pass
    for rank in ranks:
        rank.tell()
    w.c.wait_all(ranks)


def clock(c, _):
    """Reducers whose clock follows the file `clock`."""
    path = pathlib.Path(c.dir) / "clock"
    path.write_bytes(bytes(8))
    env = {"LD_PRELOAD": str(harness.BUILD / "tests" / "e2e" / "shim_clock.so"), "REDUCTION_CLOCK": str(path)}
    start = c.start
    return {"start": lambda name, argv, more=None: start(name, argv, env if name.startswith("reducer") else more)}


def step_clock(w, seconds):
    """The next page has the new time. Nothing else may show the step: an alert or a finding would be false."""
    with open(w.c.dir / "clock", "r+b") as f:
        f.write(seconds.to_bytes(8, "little", signed=True))
    until(lambda: abs(json.loads(get(w.http[0], "/status"))["unix_ms"] / 1000 - time.time() - seconds) < 60, "new time")
    w.quiet = True


@fault("clock set an hour ahead", clock)
def clock_ahead(w):
    w.job()
    yield
    step_clock(w, 3600)


@fault("clock set an hour back", clock)
def clock_back(w):
    w.job()
    yield
    step_clock(w, -3600)


@fault("link of a reducer slow", lab={"rate": "200mbit"}, doctor="reducer-slow")
def slow_link(w):
    w.job(COUNT=250000, PAUSE=0)
    yield
    w.lab.set_rate(0, "20mbit")


@fault("network loses packets", lab={"rate": "200mbit", "delay_us": 500, "loss": (3, 40)}, alert="Retransmissions",
       doctor="retransmissions", metric="sum(rate(reduction_job_retransmitted_segments_total[10s])) > 1",
       page=("/status", r'"retransmits":[1-9]\d\d'))
def lost_packets(w):
    yield
    w.job(COUNT=250000, PAUSE=0)


class Watch:
    """Looks at everything that may show a fault, again and again, until all of it does."""

    def __init__(self, w, prometheus, expected):
        self.w, self.prometheus, self.expected = w, prometheus, expected
        self.target = w.target()
        self.seen, self.doctor = {}, None
        self.found = {}  # the last answer of each column, for a report
        self.false = []

    def run(self, began, timeout):
        while len(self.seen) < len(self.expected):
            for column, want in self.expected.items():
                if column not in self.seen and getattr(self, f"see_{column}")(want):
                    self.seen[column] = round(time.monotonic() - began, 1)
            if time.monotonic() - began > timeout:
                break
            self.w.c.reducers[0].wait_more(0.1)
        if self.doctor:
            self.doctor.kill()
            self.doctor.communicate()
        return self.seen

    def false_alarms(self):
        """What doctor and Prometheus say after a fault of which they have nothing to say."""
        while not self.see_doctor(None):
            self.w.c.reducers[0].wait_more(0.1)
        load = ("lane-busy", "lane-starved")  # other programs use the cores too
        return [f for f in self.found["doctor"] if f not in load] + sorted(self.prometheus.firing())

    def see_alert(self, want):
        self.found["alert"] = sorted(self.prometheus.firing())
        return any(name == "Reduction" + want for name, _ in self.found["alert"])

    def see_doctor(self, want):
        if not self.doctor:
            argv = [harness.binary("reductionctl"), "doctor", "--json", "--seconds", "5", self.target]
            self.doctor = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if self.doctor.poll() is None:
            return False
        out, err = self.doctor.communicate()
        self.doctor = None
        self.found["doctor"] = [f["id"] for f in json.loads(out)["findings"]] if out else err
        return want is None or want in self.found["doctor"]

    def see_event(self, want):
        self.found["event"] = "".join(p.err for p in self.w.c.reducers + self.w.ranks)
        return re.search(want, self.found["event"])

    def see_metric(self, want):
        return self.prometheus.query(want)

    def see_page(self, want):
        path, text = want
        self.found["page"] = "".join(get(at, path) for at, r in zip(self.w.http, self.w.c.reducers) if r.running())
        return re.search(text, self.found["page"])

    def see_jobs(self, want):
        argv = [harness.binary("reductionctl"), "jobs", self.target]
        done = subprocess.run(argv, capture_output=True, text=True)
        self.found["jobs"] = done.stdout + done.stderr
        return re.search(want, self.found["jobs"])


def impatient_rules():
    """The shipped rules. Alerts wait for 1 s, and a rank is missing after 3 s."""
    text = prometheus.impatient(prometheus.RULES.read_text())
    for old, new in (("missing_seconds > 30", "missing_seconds > 3"), ("busy_ratio) > 0.9", f"busy_ratio) > {BUSY}")):
        assert old in text
        text = text.replace(old, new)
    return text


def inside(lab, host, work, *args):
    """Calls a function in the network of a host of the laboratory; the processes that it starts are there too."""

    def enter():
        with open(f"/run/netns/{lab.namespace(host)}", encoding="ascii") as network:
            if LIBC.setns(network.fileno(), 0):
                raise OSError(ctypes.get_errno(), "setns")
        return work(*args)

    with futures.ThreadPoolExecutor(1) as pool:
        return pool.submit(enter).result()


class LabWorld(World):
    """Two reducers and two ranks, each on a host of its own in the network laboratory."""

    def __init__(self, c, lab):
        self.lab = lab
        token = pathlib.Path(harness.write_whole(c.dir / "token", TOKEN + "\n"))
        token.chmod(0o600)
        c.config = {"security": {"read_token": str(token)}}
        c.server_config = {**c.config, "server": {"insecure": True, "http_insecure": True}}
        for i in range(len(c.reducers)):
            c._addresses[i] = f"{lab.address(i)}:7600"  # pylint: disable=protected-access
            c.server_args = ["--http", f"{lab.address(i)}:7603", "--grpc", f"{lab.address(i)}:7601"]
            inside(lab, i, c.start_reducer, i)
        super().__init__(c)
        self.how = {"authorization": {"credentials_file": str(token)}}

    def job(self, n=2, **env):
        config = {"job": {"name": "job"}}
        self.ranks = [inside(self.lab, 2 + r, self.c.start_worker, r, n, STEADY, env, config) for r in range(n)]
        for rank in self.ranks:
            rank.said("open")


def watch_fault(fault_, w, timeout):
    """Makes a fault; returns the Watch that has looked at it. All processes are ended."""
    p = prometheus.Prometheus(w.c, w.http, w.how, impatient_rules())
    until(lambda: p.query("min(count_over_time(up[1m])) > 1"), "two looks at the reducers")
    steps = fault_.steps(w)
    next(steps)
    watch = Watch(w, p, fault_.expected)
    began = time.monotonic()
    assert next(steps, None) is None
    watch.run(began, timeout)
    watch.false = watch.false_alarms() if w.quiet else []
    for proc in w.c._procs:  # pylint: disable=protected-access
        proc.kill()
    return watch


def show_in_lab(fault_, timeout):
    with net.Lab(4, build=harness.BUILD, **fault_.lab) as lab, harness.Cluster(reducers=2, start=False) as c:
        return inside(lab, 2, watch_fault, fault_, LabWorld(c, lab), timeout)


def show(fault_, timeout):
    """Starts what a fault needs, and makes it; returns the Watch that has looked at it."""
    if fault_.lab:
        return show_in_lab(fault_, timeout)
    lazy = callable(fault_.options)
    with contextlib.ExitStack() as after, contextlib.ExitStack() as stack:
        c = harness.Cluster(start=False, server_args=[*HTTP, *GRPC], **({} if lazy else fault_.options))
        stack.enter_context(c)
        for key, value in fault_.options(c, after).items() if lazy else ():
            setattr(c, key, value)
        for i in range(len(c.reducers)):
            c.start_reducer(i)
        return watch_fault(fault_, World(c), timeout)
