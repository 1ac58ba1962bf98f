# SPDX-License-Identifier: Apache-2.0
"""The systems that bench-net measures: how each is started in a Lab, so that one rank runs in each worker's host.

A launch runs one size: `warmup` operations, then `iters` timed ones. Failure modes are: a program that fails (its last
words become the error) and one that hangs. A few percent of mpirun.openmpi's launches idle for ever, and MPICH's too:
such a launch is ended after a time limit and made again, ATTEMPTS times in all. MPICH also hangs in MPI_Finalize: a
program that has printed its row may take END_S to end, then it is ended, and the row counts.
"""

import json
import math
import os
import pathlib
import shutil
import subprocess
import tempfile
import time

from lab import LabError, NETWORK, counters_between, cpu_seconds, end

ATTEMPTS = 3
LAUNCH_S = 15  # what starting may take besides the operations
END_S = 3  # what ending may take after the result has been printed
SLOWEST = 1 / 40  # of the line: a system slower than this is taken for hung
PORT = 7600
HERE = pathlib.Path(__file__).resolve().parent


class Hung(LabError):
    """A launch passed its time limit."""


class Placement:
    """Where ranks and reducers run. Reducers are (host, port, weight); on loopback everything is in host 0."""

    def __init__(self, n, k, mixed=False, loopback=False, weights=None):
        self.n, self.k, self.mixed, self.loopback = n, k, mixed, loopback
        self.workers = [0 if loopback else i for i in range(n)]
        self.reducers = [(0 if loopback else n + j, PORT + j, weights[j] if weights else 1) for j in range(k)]
        if mixed:
            self.reducers = mixed_shares(n, k)
        self.hosts = 1 if loopback else n + k

    def address(self, lab, host):
        return "127.0.0.1" if self.loopback else lab.address(host)

    def bound(self):
        """The least T*B/M for equal links of B both ways (design.md), 1 / the share of the line that can be reached."""
        if self.mixed:
            return 2 * self.n * (self.n - 1) / (self.n**2 + self.k * self.n - 2 * self.k)
        return max(1.0, self.n / self.k)


def mixed_shares(n, k):
    """The best division among k reducers' machines and n workers' machines that also run one: D = n^2 + kn - 2k,
    2(n-1)/D for each of the former, (n-k)/D for each of the latter. For k < n."""
    big, small = 2 * (n - 1), n - k
    common = math.gcd(big, small) or 1
    return [(n + j, PORT, big // common) for j in range(k)] + [(i, PORT, small // common) for i in range(n)]


class Launch:
    """One launch: what to run in which lab."""

    def __init__(self, lab, place, size, iters, warmup, build):
        self.lab, self.place, self.size, self.iters, self.warmup = lab, place, size, iters, warmup
        self.build = pathlib.Path(build).resolve()
        rate = min((r for r in lab.rate if r), default=8e9) / 8
        self.limit_s = LAUNCH_S + (iters + warmup + 1) * size / (rate * SLOWEST)
        self.dir = None  # a temporary folder, empty at the start

    def common(self):
        """Options that reduction-bench and its peers share."""
        return ["-b", str(self.size), "-e", str(self.size), "-n", str(self.iters), "-w", str(self.warmup)]


class System:
    """A system under test. Subclasses say how its processes start."""

    name = "?"

    def missing(self, build):
        """What is not there, as a sentence, or None."""
        raise NotImplementedError

    def start_servers(self, _launch):
        """Processes of the servers, ready to be used."""
        return []

    def start_ranks(self, launch):
        """Processes of the ranks or of their launcher; the rows come from their standard outputs."""
        raise NotImplementedError

    def measure(self, launch):
        """Runs a launch, again when it hangs. Returns its row with the counters, and how often it hung."""
        for attempt in range(ATTEMPTS):
            with tempfile.TemporaryDirectory(prefix="bench-net-") as launch.dir:
                try:
                    row = self._measure(launch)
                    row["hung"] = attempt
                    return row
                except Hung as e:
                    last = e
        raise LabError(f"{last}; gave up after {ATTEMPTS} attempts")

    def _measure(self, launch):
        servers, ranks = [], []
        try:
            servers = self.start_servers(launch)
            cpu = sum(cpu_seconds(p.pid) for p in servers)
            before = launch.lab.counters()
            idle = idle_seconds()
            ranks = self.start_ranks(launch)
            rows = self._collect(launch, ranks)
            idle = [b - a for a, b in zip(idle, idle_seconds())]
            between = counters_between(before, launch.lab.counters())
            cpu = sum(cpu_seconds(p.pid) for p in servers) - cpu
        finally:
            for p in ranks + servers:
                end(p)
        row = max(rows, key=lambda r: r["time_us"]["avg"])  # several rows: each rank has its own clock
        payload = launch.size * (launch.iters + launch.warmup)
        hosts = [between[h] for h in sorted(set(launch.place.workers))]
        for way in ("tx", "rx"):
            for what in ("payload", "frames"):
                mean = sum(h[f"{way}_payload" if what == "payload" else way] for h in hosts) / len(hosts)
                row[f"{way}_{what}_over_S"] = None if launch.place.loopback else mean / payload
        row["dropped"] = sum(h["dropped"] for h in between)
        row["server_cpu_s"] = cpu if servers else None
        row["busy"] = 1 - idle[0] / idle[1] if idle[1] else None
        row["contributed"] = payload * launch.place.n
        return row

    def _collect(self, launch, ranks):
        deadline = time.monotonic() + launch.limit_s
        rows = []
        for r, p in enumerate(ranks):
            out = pathlib.Path(launch.dir) / f"rank{r}.out"
            if not _wait(p, out, deadline):
                raise Hung(f"{self.name}: {launch.size} bytes: not done after {launch.limit_s:.0f} s")
            if p.returncode:
                words = (out.with_suffix(".err").read_text(errors="replace").strip() or "(nothing)")[-600:]
                raise LabError(f"{self.name}: {launch.size} bytes: exit status {p.returncode}, its last words: {words}")
            rows += _rows(out)
        if not rows:
            raise LabError(f"{self.name}: {launch.size} bytes: no result was printed")
        return rows


def _rows(path):
    """The complete JSON lines in a file."""
    lines = path.read_text(errors="replace").split("\n")[:-1]
    return [json.loads(line) for line in lines if line.startswith("{")]


def _wait(p, out, deadline):
    """Waits for a rank's or launcher's end, or for END_S after its row. False when neither came before the deadline."""
    printed = None
    while time.monotonic() < deadline:
        try:
            p.wait(timeout=0.5)
            return True
        except subprocess.TimeoutExpired:
            printed = printed or (time.monotonic() if _rows(out) else None)
        if printed and time.monotonic() - printed > END_S:
            return True
    return False


def _start(launch, host, command, env=None, name="server"):
    """Starts a program with its output in files of the launch's folder."""
    path = pathlib.Path(launch.dir) / name
    with open(f"{path}.out", "w", encoding="utf-8") as out, open(f"{path}.err", "w", encoding="utf-8") as err:
        return launch.lab.popen(host, command, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                env={**os.environ, **(env or {})})


def _each_rank(launch, command_of, env_of=lambda _r: None):
    return [_start(launch, host, command_of(r), env_of(r), f"rank{r}") for r, host in enumerate(launch.place.workers)]


def idle_seconds():
    """Idle time and all time of this machine's cores since its start."""
    with open("/proc/stat", encoding="ascii") as f:
        times = [int(t) for t in f.readline().split()[1:9]]
    return times[3] + times[4], sum(times)


class Gloo(System):
    """libgloo's ring."""

    name = "gloo"

    def missing(self, build):
        there = (pathlib.Path(build) / "bench/gloo-ring").exists()
        return None if there else "gloo-ring was not built: libgloo-dev and a C++ compiler are needed"

    def start_ranks(self, launch):
        place, lab = launch.place, launch.lab
        return _each_rank(launch, lambda r: [
            launch.build / "bench/gloo-ring", "--ranks", place.n, "--rank", r, "--store", launch.dir, "--address",
            place.address(lab, place.workers[r]), "--inplace", "no", "--json", *launch.common()])


class OpenMPI(System):
    """Open MPI over TCP: as it comes, or told to use its ring."""

    def __init__(self, ring):
        self.name = "ompi-ring" if ring else "ompi"
        self.ring = ring

    def missing(self, build):
        there = (pathlib.Path(build) / "bench/mpi-allreduce-openmpi").exists() and shutil.which("mpirun.openmpi")
        return None if there else f"{self.name}: Open MPI is missing: install openmpi-bin and libopenmpi-dev"

    def start_ranks(self, launch):
        place, lab = launch.place, launch.lab
        mca = {"pml": "ob1", "btl": "tcp,self", "mpi_yield_when_idle": "1"}
        if self.ring:
            mca |= {"coll_tuned_use_dynamic_rules": "1", "coll_tuned_allreduce_algorithm": "4"}
        if place.loopback:
            mca |= {"btl_tcp_if_include": "lo", "oob_tcp_if_include": "lo"}
            where = ["--oversubscribe"]
        else:
            mca |= {"btl_tcp_if_include": NETWORK, "oob_tcp_if_include": NETWORK, "plm_rsh_agent": HERE / "rsh.sh"}
            where = ["--host", ",".join(f"{lab.address(h)}:1" for h in place.workers)]
        options = [str(word) for key, value in mca.items() for word in ("--mca", key, value)]
        command = ["mpirun.openmpi", "--allow-run-as-root", "--bind-to", "none", *options, *where, "-n", place.n,
                   launch.build / "bench/mpi-allreduce-openmpi", *launch.common()]
        env = {"NETLAB_PREFIX": lab.prefix, "TMPDIR": launch.dir}
        return [_start(launch, 0, command, env, "rank0")]


class Mpich(System):
    """MPICH, kept off shared memory."""

    name = "mpich"

    def missing(self, build):
        there = (pathlib.Path(build) / "bench/mpi-allreduce-mpich").exists() and shutil.which("mpiexec.hydra")
        return None if there else "MPICH is missing: install mpich and libmpich-dev"

    def start_ranks(self, launch):
        place, lab = launch.place, launch.lab
        device = "lo" if place.loopback else "eth0"
        env = {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": device, "MPIR_CVAR_NOLOCAL": "1", "NETLAB_PREFIX": lab.prefix}
        where = [] if place.loopback else ["-launcher", "ssh", "-launcher-exec", HERE / "rsh.sh", "-ppn", 1, "-iface",
                                           device, "-hosts", ",".join(lab.address(h) for h in place.workers)]
        command = ["mpiexec.hydra", *where, "-n", place.n, launch.build / "bench/mpi-allreduce-mpich",
                   *launch.common()]
        return [_start(launch, 0, command, env, "rank0")]


class Ours(System):
    """Reducers and reduction-bench. `sharding` is "default" or WINDOWxCHUNK such as 2x32K."""

    def __init__(self, sharding="default", env=None):
        self.name = "reduction" if sharding == "default" else f"reduction:{sharding}"
        self.sharding = {}
        self.env = env or {}
        if sharding != "default":
            window, x, chunk = sharding.partition("x")
            if not x or not window.isdigit() or not chunk[:-1].isdigit() or chunk[-1] not in "KM":
                raise LabError(f'sharding: found "{sharding}", expected default or WINDOWxCHUNK such as 4x32K', 2)
            self.sharding = {"window": window, "chunk_bytes": f"{chunk}iB"}

    def missing(self, build):
        for name in ("reduction-server", "reduction-bench"):
            if not (pathlib.Path(build) / "bin" / name).exists():
                return f"{name} was not built"
        return None

    def start_servers(self, launch):
        """Starts the reducers, waits until each listens, and writes the configuration of the ranks."""
        servers, logs = [], []
        try:
            for j, (host, port, _) in enumerate(launch.place.reducers):
                address = launch.place.address(launch.lab, host)
                command = [launch.build / "bin/reduction-server", "--listen", f"{address}:{port}", "--lanes", 1]
                servers.append(_start(launch, host, command + ["--insecure"], name=f"r{j}"))
                logs.append(pathlib.Path(launch.dir) / f"r{j}.err")
            for server, log in zip(servers, logs):
                self._wait_listening(server, log)
        except BaseException:
            for p in servers:
                end(p)
            raise
        (pathlib.Path(launch.dir) / "job.yaml").write_text(self._config(launch), encoding="ascii")
        return servers

    @staticmethod
    def _wait_listening(server, log):
        deadline = time.monotonic() + LAUNCH_S
        while " listening " not in log.read_text():
            if server.poll() is not None or time.monotonic() > deadline:
                raise LabError(f"a reducer does not listen, its last words: {log.read_text().strip()[-300:]}")
            time.sleep(0.01)

    def _config(self, launch):
        lines = ["job: {name: bench-net}", "reducers:"]
        for j, (host, port, weight) in enumerate(launch.place.reducers):
            address = launch.place.address(launch.lab, host)
            lines.append(f'  - {{id: r{j}, address: "{address}:{port}", weight: {weight}}}')
        sharding = dict(self.sharding)
        weights = [w for _, _, w in launch.place.reducers]
        if len(set(weights)) > 1:  # so many shards that each weight is met exactly
            sharding["shards"] = round(sum(weights) / min(weights))
        if sharding:
            lines.append("sharding: {" + ", ".join(f"{k}: {v}" for k, v in sharding.items()) + "}")
        return "\n".join(lines) + "\n"

    def start_ranks(self, launch):
        place = launch.place
        command = [launch.build / "bin/reduction-bench", "--agent", "direct", "--config", f"{launch.dir}/job.yaml",
                   "--inplace", "no", "--json", "--timeout", math.ceil(launch.limit_s), *launch.common()]
        return _each_rank(launch, lambda _: command, lambda r: {
            **self.env, "RANK": str(r), "WORLD_SIZE": str(place.n), "LOCAL_RANK": str(r if place.loopback else 0),
            "LOCAL_WORLD_SIZE": str(place.n if place.loopback else 1)})


class BareLoop(System):
    """tcp-loop in the reducers' places: it sends back what it receives and adds nothing."""

    name = "bare-loop"
    WINDOW = 128 << 10

    def missing(self, build):
        return None if (pathlib.Path(build) / "bench/tcp-loop").exists() else "tcp-loop was not built"

    def start_servers(self, launch):
        return [_start(launch, host, [launch.build / "bench/tcp-loop", "echo", port], name=f"r{j}")
                for j, (host, port, _) in enumerate(launch.place.reducers)]

    def start_ranks(self, launch):
        place, lab = launch.place, launch.lab
        echoes = ",".join(f"{place.address(lab, host)}:{port}" for host, port, _ in place.reducers)
        return _each_rank(launch, lambda _: [launch.build / "bench/tcp-loop", "ask", echoes, launch.size,
                                             launch.iters, launch.warmup, self.WINDOW])


def peers():
    """All peers by name, in the order of reports."""
    return {s.name: s for s in (Gloo(), OpenMPI(True), OpenMPI(False), Mpich(), BareLoop())}


def line_MBps(lab, place, build, seconds=1.5):
    """Throughput of one plain TCP flow from the first worker to another host, in MB/s of payload."""
    tcp_loop = pathlib.Path(build).resolve() / "bench/tcp-loop"
    to = place.workers[-1]
    sink = lab.popen(to, [tcp_loop, "sink", 5001], stdout=subprocess.PIPE, text=True)
    flow = lab.popen(place.workers[0], [tcp_loop, "flow", place.address(lab, to), 5001, seconds])
    try:
        out, _ = sink.communicate(timeout=seconds + 20)
        flow.wait(timeout=5)
    except subprocess.TimeoutExpired:
        raise LabError("a plain TCP flow through the lab came to no end") from None
    finally:
        end(sink)
        end(flow)
    return json.loads(out)["MBps"]
