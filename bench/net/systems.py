# SPDX-License-Identifier: Apache-2.0
"""The systems that bench-net measures: how each is started in a Lab, so that one rank runs in each worker's host.

A launch runs one size: `warmup` operations, then `iters` timed ones. Failure modes are: a program that fails (its last
lines become the error) and one that hangs. A few percent of the launches of mpirun.openmpi and of MPICH hang: such a
launch is ended if no byte has moved for STALL_S, or after a time limit, and repeated, with ATTEMPTS launches in all.
MPICH also hangs in MPI_Finalize: a program that has printed its row may take END_S to end; then it is ended, and its
row counts.
"""

import json
import math
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time

from lab import LabError, NETWORK, counters_between, end
from meter import ServerMeter

ATTEMPTS = 3
LAUNCH_S = 15  # time for starting, in addition to the operations
STALL_S = 6  # a launch hangs if no byte passes host 0's links for so long before a result
PIECE = 128 << 10  # bytes on which a step of the 2-D ring works at once; the fastest of 64 KiB to 4 MiB
FAR_PIECE = 2 << 20  # the same with round trips of 20 ms between racks; the fastest of 1 MiB to 16 MiB
END_S = 3  # time for ending after the result has been printed
SLOWEST, SLOWEST_OP_S = 1 / 40, 0.05  # of the line's throughput, and seconds: a slower system counts as hung
HERE = pathlib.Path(__file__).resolve().parent


class Hung(LabError):
    """A launch has exceeded its time limit."""


class Launch:
    """One launch: the system to run, and the lab."""

    def __init__(self, lab, place, size, iters, warmup, build):
        self.lab, self.place, self.size, self.iters, self.warmup = lab, place, size, iters, warmup
        self.build = pathlib.Path(build).resolve()
        rate = min((r for r in lab.rate if r), default=8e9) / 8
        self.limit_s = LAUNCH_S + (iters + warmup + 1) * (size / (rate * SLOWEST) + SLOWEST_OP_S)
        self.dir = None  # a temporary folder, empty at the start

    def common(self):
        """Options that reduction-bench and its peers share."""
        return ["-b", str(self.size), "-e", str(self.size), "-n", str(self.iters), "-w", str(self.warmup)]


class System:
    """A measured system. Subclasses define how its processes start."""

    name = "?"
    moves_bytes = True  # over the links, not only through shared memory

    def missing(self, build):
        """Returns a sentence that names what is missing, or None."""
        raise NotImplementedError

    def start_servers(self, _launch):
        """Returns the processes of the servers, ready for use."""
        return []

    def start_helpers(self, _launch):
        """Returns further processes, ready for use, whose CPU time does not count as the servers'."""
        return []

    def start_ranks(self, launch):
        """Returns the processes of the ranks or of their launcher; rows are read from their standard outputs."""
        raise NotImplementedError

    def measure(self, launch):
        """Runs a launch, and repeats it if it hangs. Returns its row with the counters, and how often it hung."""
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
        servers, helpers, ranks = [], [], []
        try:
            servers = self.start_servers(launch)
            helpers = self.start_helpers(launch)
            meter = ServerMeter(servers)
            before, uplinks = launch.lab.counters(), launch.lab.uplinks()
            idle = idle_seconds()
            ranks = self.start_ranks(launch)
            meter.await_running(launch.size, ranks[0], launch.limit_s)
            rows = self._collect(launch, ranks)
            idle = [b - a for a, b in zip(idle, idle_seconds())]
            between = counters_between(before, launch.lab.counters())
            uplinks = counters_between(uplinks, launch.lab.uplinks())
            contributed = launch.size * (launch.iters + launch.warmup) * launch.place.n
            per_byte, cpu = meter.end(contributed)
        finally:
            clean = bool(ranks) and all(p.poll() is not None for p in ranks)
            for p in ranks + helpers + servers:
                end(p)
            if not clean:  # a killed launcher leaves its ranks running, and MPI's ranks poll
                launch.lab.sweep()
        row = max(rows, key=lambda r: r["time_us"]["avg"])  # several rows: each rank has measured its own time
        payload = launch.size * (launch.iters + launch.warmup)
        hosts = [between[h] for h in sorted(set(launch.place.workers))]
        for way in ("tx", "rx"):
            for what in ("payload", "frames"):
                mean = sum(h[f"{way}_payload" if what == "payload" else way] for h in hosts) / len(hosts)
                row[f"{way}_{what}_over_S"] = None if launch.place.loopback else mean / payload
        row["dropped"] = sum(h["dropped"] for h in between)
        row["uplinks"] = [{k: v if k == "dropped" else v / (launch.iters + launch.warmup) for k, v in u.items()}
                          for u in uplinks]  # bytes of one operation
        row["server_cpu_s"], row["server_cpu_s_per_byte"] = cpu, per_byte
        row["busy"] = 1 - idle[0] / idle[1] if idle[1] else None
        return row

    def _collect(self, launch, ranks):
        deadline = time.monotonic() + launch.limit_s
        rows = []
        for r, p in enumerate(ranks):
            out = pathlib.Path(launch.dir) / f"rank{r}.out"
            if not _wait(p, out, deadline, STALL_S if self.moves_bytes else math.inf):
                raise Hung(f"{self.name}: {launch.size} bytes: not done after {launch.limit_s:.0f} s, or no byte moved "
                           f"for {STALL_S} s")
            if p.returncode:
                words = (out.with_suffix(".err").read_text(errors="replace").strip() or "(nothing)")[-600:]
                raise LabError(f"{self.name}: {launch.size} bytes: exit status {p.returncode}, its last words: {words}")
            rows += _rows(out)
        if not rows:
            raise LabError(f"{self.name}: {launch.size} bytes: no result was printed")
        return rows


def _rows(path):
    """Returns the complete JSON lines of a file."""
    lines = path.read_text(errors="replace").split("\n")[:-1]
    return [json.loads(line) for line in lines if line.startswith("{")]


def _wait(p, out, deadline, stall_s):
    """Waits until a rank or launcher has ended, or END_S after its row. Returns False at the deadline, or if no byte
    has moved for stall_s before the row."""
    printed, moved, last = None, time.monotonic(), None
    while time.monotonic() < deadline:
        try:
            p.wait(timeout=0.5)
            return True
        except subprocess.TimeoutExpired:
            printed = printed or (time.monotonic() if _rows(out) else None)
        if printed and time.monotonic() - printed > END_S:
            return True
        now = _traffic(p.pid)
        if now != last:
            moved, last = time.monotonic(), now
        if not printed and time.monotonic() - moved > stall_s:
            return False
    return False


def _traffic(pid):
    """Returns the bytes received and sent so far on all links of a process's host; one of its links is a veth pair."""
    try:
        with open(f"/proc/{pid}/net/dev", encoding="ascii") as f:
            links = [line.partition(":")[2].split() for line in f.readlines()[2:]]
    except OSError:
        return None  # it has just ended
    return [(fields[0], fields[8]) for fields in links]


def _start(launch, host, command, env=None, name="server"):
    """Starts a program with its output in files of the launch's folder."""
    path = pathlib.Path(launch.dir) / name
    with open(f"{path}.out", "w", encoding="utf-8") as out, open(f"{path}.err", "w", encoding="utf-8") as err:
        return launch.lab.popen(host, command, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                env={**os.environ, **(env or {})})


def _each_rank(launch, command_of, env_of=lambda _r: None):
    return [_start(launch, host, command_of(r), env_of(r), f"rank{r}") for r, host in enumerate(launch.place.workers)]


def idle_seconds():
    """Returns idle time and all time of this machine's cores since its start."""
    with open("/proc/stat", encoding="ascii") as f:
        times = [int(t) for t in f.readline().split()[1:9]]
    return times[3] + times[4], sum(times)


class Gloo(System):
    """libgloo's ring."""

    name = "gloo"

    def arguments(self, _launch):
        """Further arguments of the program."""
        return []

    def missing(self, build):
        there = (pathlib.Path(build) / "bench/gloo-ring").exists()
        return None if there else "gloo-ring was not built: libgloo-dev and a C++ compiler are needed"

    def start_ranks(self, launch):
        place, lab = launch.place, launch.lab
        return _each_rank(launch, lambda r: [
            launch.build / "bench/gloo-ring", "--ranks", place.n, "--rank", r, "--store", launch.dir, "--address",
            place.address(lab, place.workers[r]), "--inplace", "no", "--json", *self.arguments(launch),
            *launch.common()])


class Gloo2D(Gloo):
    """A 2-D ring made of groups of libgloo: reduce-scatter within each rack, all-reduce across, all-gather within.
    piece: bytes on which a step works at once; 0: the whole buffer, so that the steps follow each other."""

    def __init__(self, name, piece):
        self.name, self.piece = name, piece

    def arguments(self, launch):
        if not launch.place.racks:
            raise LabError(f"{self.name}: this case has no racks, expected one that has", 2)
        piece = FAR_PIECE if self.piece and launch.place.racks.rtt_ms else self.piece or launch.size
        return ["--racks", launch.place.racks.count, "--piece", piece]


class OpenMPI(System):
    """Open MPI: over TCP with its default algorithm or with its ring, or over shared memory, for one host only."""

    program = "bench/mpi-allreduce-openmpi"

    def __init__(self, name, ring=False, btl="tcp"):
        self.name, self.ring, self.btl = name, ring, btl
        self.moves_bytes = btl == "tcp"

    def missing(self, build):
        there = (pathlib.Path(build) / self.program).exists() and shutil.which("mpirun.openmpi")
        return None if there else f"{self.name}: Open MPI is missing: install openmpi-bin and libopenmpi-dev"

    def variables(self, _launch):
        """Variables of the ranks."""
        return {}

    def arguments(self, launch):
        """Arguments of the program."""
        return launch.common()

    def start_ranks(self, launch):
        place, lab = launch.place, launch.lab
        if not self.moves_bytes and not place.loopback:
            raise LabError(f"{self.name}: shared memory joins the ranks of one host only, expected a loopback case", 2)
        mca = {"pml": "ob1", "btl": f"{self.btl},self", "mpi_yield_when_idle": "1"}
        if self.ring:
            mca |= {"coll_tuned_use_dynamic_rules": "1", "coll_tuned_allreduce_algorithm": "4"}
        if place.loopback:
            mca |= {"btl_tcp_if_include": "lo", "oob_tcp_if_include": "lo"}
            where = ["--oversubscribe"]
        else:
            mca |= {"btl_tcp_if_include": NETWORK, "oob_tcp_if_include": NETWORK, "plm_rsh_agent": HERE / "rsh.sh"}
            where = ["--host", ",".join(f"{lab.address(h)}:1" for h in place.workers)]
        options = [str(word) for key, value in mca.items() for word in ("--mca", key, value)]
        options += [word for key, value in self.variables(launch).items() for word in ("-x", f"{key}={value}")]
        command = ["mpirun.openmpi", "--allow-run-as-root", "--bind-to", "none", *options, *where, "-n", place.n,
                   launch.build / self.program, *self.arguments(launch)]
        env = {"NETLAB_PREFIX": lab.prefix, "TMPDIR": launch.dir}
        return [_start(launch, 0, command, env, "rank0")]


class Mpich(System):
    """MPICH without shared memory."""

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


class TorchWire(System):
    """torch's gloo with fewer bytes, see peers/torch_wire.py. The environment variable BENCH_TORCH names a Python that
    has torch."""

    moves_bytes = False  # while it imports torch, which takes seconds
    START_S = 60

    def __init__(self, how):
        self.how, self.name = how, f"torch-{how}"

    def missing(self, _build):
        python = os.environ.get("BENCH_TORCH")
        return None if python and shutil.which(python) else f"{self.name}: BENCH_TORCH names no Python with torch"

    def start_ranks(self, launch):
        script = HERE.parent / "peers/torch_wire.py"
        launch.limit_s += self.START_S
        return _each_rank(launch, lambda r: [
            os.environ["BENCH_TORCH"], script, self.how, "--bytes", launch.size, "--iters", launch.iters, "--warmup",
            launch.warmup, "--rank", r, "--ranks", launch.place.n, "--store", launch.dir],
            lambda _r: {"GLOO_SOCKET_IFNAME": "lo" if launch.place.loopback else "eth0"})


WIRES = ("bf16", "fp8", "int8")  # each rank connects for itself; with this job.wire
WAYS = ("", "local", "local+malloc", "node", "node+malloc", "agent", "tls", "grpc", "grpc+tls", *WIRES, "2x16")


class Ours(System):
    """Reducers and reduction-bench. sharding: "default" or WINDOWxCHUNK such as 2x32K. way: "" (each rank connects for
    itself, over plain TCP); "local" (the default: the process of local rank 0 serves its host, and with one host
    reducers sum nothing); "node" (the same, but one host uses the reducers too); either with "+malloc" (ordinary memory
    instead of that of reduction_buffer_alloc()); "agent" (as node, with the host's daemon); a transport or an encoding
    for each rank; or "2x16" (as node, with two ranks on each host, and bfloat16)."""

    def __init__(self, sharding="default", way=""):
        self.name = ("reduction" if sharding == "default" else f"reduction:{sharding}") + (f"/{way}" if way else "")
        self.malloc = way.endswith("+malloc")
        way = way.removesuffix("+malloc")
        self.local = 2 if way == "2x16" else 1
        self.node, self.agent = way in ("local", "node", "2x16"), way == "agent"
        self.grpc, self.tls = way.startswith("grpc"), way.endswith("tls")
        self.sections = {"agent": {"single_node": "reducers"}} if way in ("node", "agent", "2x16") else {}
        self.exact = way not in WIRES
        if not self.exact:
            self.sections["job"] = {"name": "bench-net", "wire": way}
        if sharding != "default":
            window, x, chunk = sharding.partition("x")
            if not x or not window.isdigit() or not chunk[:-1].isdigit() or chunk[-1] not in "KM":
                raise LabError(f'sharding: found "{sharding}", expected default or WINDOWxCHUNK such as 4x32K', 2)
            self.sections["sharding"] = {"window": window, "chunk_bytes": f"{chunk}iB"}

    def missing(self, build):
        for name in ("bin/reduction-server", "bin/reduction-bench", "bin/reduction-agent", "bin/reductionctl",
                     *(["lib/libreduction-grpc.so"] if self.grpc else [])):
            if not (pathlib.Path(build) / name).exists():
                return f"{name} was not built"
        return None

    def _write_security(self, launch):
        """Writes certificates and the reducers' file; returns the sections of the job's configuration."""
        job = {"job": {"name": "bench-net", "transport": "grpc" if self.grpc else "tcp"}} if self.grpc else {}
        mine = {"server": {"insecure": "true"}}
        if self.tls:
            addresses = {launch.place.address(launch.lab, host) for host, _ in launch.place.reducers}
            _make_certificates(launch.dir, sorted(addresses))
            job["security"] = {"tls": "on", "authority": f"{launch.dir}/ca.pem"}
            mine["security"] = {"tls": "on", "certificate": f"{launch.dir}/reducer.pem",
                                 "key": f"{launch.dir}/reducer.key"}
        (pathlib.Path(launch.dir) / "reducer.yaml").write_text(json.dumps(mine), encoding="ascii")
        return self.sections | job

    def start_servers(self, launch):
        """Starts the reducers, waits until each listens, and writes the configuration of the ranks."""
        servers, logs = [], []
        launch.place.write_config(launch.lab, launch.dir, launch.build, self._write_security(launch))
        try:
            for j, (host, port) in enumerate(launch.place.reducers):
                address = f"{launch.place.address(launch.lab, host)}:{port}"
                listen = ["--listen", "127.0.0.1:0", "--grpc", address] if self.grpc else ["--listen", address]
                command = [launch.build / "bin/reduction-server", "--config",
                           f"{launch.dir}/{launch.place.server_file}", *listen, "--lanes", 1]
                servers.append(_start(launch, host, command, name=f"r{j}"))
                logs.append(pathlib.Path(launch.dir) / f"r{j}.err")
            for server, log in zip(servers, logs):
                _wait_listening("a reducer", server, log)
        except BaseException:
            for p in servers:
                end(p)
            raise
        return servers

    def start_helpers(self, launch):
        if not self.agent:
            return []
        agents = []
        try:
            for host in sorted(set(launch.place.workers)):
                command = [launch.build / "bin/reduction-agent", "--config", f"{launch.dir}/job.yaml", "--socket",
                           f"{launch.dir}/agent{host}.sock"]
                agents.append(_start(launch, host, command, name=f"agent{host}"))
                _wait_listening("an agent", agents[-1], pathlib.Path(launch.dir) / f"agent{host}.err")
        except BaseException:
            for p in agents:
                end(p)
            raise
        return agents

    def start_ranks(self, launch):
        place = launch.place

        def command(rank):
            way = ["--mode", "node" if self.node else "direct"]
            if self.agent:
                way = ["--agent", f"{launch.dir}/agent{place.workers[rank]}.sock"]
            if self.local > 1:
                way += ["--datatype", "bfloat16"]
            return [launch.build / "bin/reduction-bench", *way, "--config", f"{launch.dir}/job.yaml", "--inplace",
                    "no", "--json", "--timeout", math.ceil(launch.limit_s),
                    *(["--malloc"] if self.malloc else []), "--check", int(self.exact), *launch.common()]

        if self.local > 1:
            return [_start(launch, host, command(h), {
                "RANK": str(h * self.local + i), "WORLD_SIZE": str(place.n * self.local), "LOCAL_RANK": str(i),
                "LOCAL_WORLD_SIZE": str(self.local), "REDUCTION_RUN": "bench"}, f"rank{h * self.local + i}")
                    for h, host in enumerate(place.workers) for i in range(self.local)]
        return _each_rank(launch, command, lambda r: {
            "RANK": str(r), "WORLD_SIZE": str(place.n), "LOCAL_RANK": str(r if place.loopback else 0),
            "LOCAL_WORLD_SIZE": str(place.n if place.loopback else 1), "REDUCTION_RUN": "bench"} |
            place.environment(r))


class Relayed(Ours):
    """Ours in racks, with the configuration `name` of rack_maps.MAPS."""

    UPLINK = 1.5  # times the bytes on the uplinks that the configuration needs; with more its relays are not used

    def __init__(self, setting, name, place):
        super().__init__(setting)
        self.name += f"/{name}"
        self.place = place

    def missing(self, build):
        """As Ours.missing(). A build without groups does not know that section."""
        found = super().missing(build)
        if found or self.place.map.relays is None:
            return found
        done = subprocess.run([pathlib.Path(build) / "bin/reductionctl", "check", "-"], capture_output=True, text=True,
                              input=self.place.yaml(lambda host: f"10.99.0.{host + 1}"))
        why = re.sub(r"^reductionctl: \S+: |, expected.*", "", done.stderr.strip())
        return f"this build does not have its configuration: {why}" if done.returncode else None

    def measure(self, launch):
        row = super().measure(launch)
        carried = max(max(u["up_payload"], u["down_payload"]) for u in row["uplinks"]) / launch.size
        expected = self.place.uplink_per_S()
        if self.place.map.relays is not None and carried > self.UPLINK * expected:
            raise LabError(f"{self.name}: {launch.size} bytes: found {carried:.2f} S on an uplink, expected "
                           f"{expected:.2f} S: the relays were not used")
        return row


def _make_certificates(folder, addresses):
    """Makes an authority, ca.pem, and a certificate for all reducers, reducer.pem and reducer.key."""
    command = [HERE.parents[1] / "deploy/make-certs.sh", folder, ",".join(["reducer:reducer", *addresses])]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise LabError(f"{command[0]}: {done.stderr.strip()}")


def _wait_listening(what, server, log):
    """Waits until a daemon's log contains its address."""
    deadline = time.monotonic() + LAUNCH_S
    while " listening " not in log.read_text():
        if server.poll() is not None or time.monotonic() > deadline:
            raise LabError(f"{what} does not listen, its last words: {log.read_text().strip()[-300:]}")
        time.sleep(0.01)


class BareLoop(System):
    """tcp-loop in place of the reducers: it sends back what it receives and adds nothing. It has as many connections as
    ours: one from each worker to each reducer, with CHUNK bytes in each read and write and WINDOW bytes in flight. On a
    long link twice bandwidth x round trip is in flight, so TCP alone limits it."""

    name = "bare-loop"
    CHUNK = 32 << 10  # bytes; the default of sharding.chunk_bytes
    WINDOW = 128 << 10

    def missing(self, build):
        return None if (pathlib.Path(build) / "bench/tcp-loop").exists() else "tcp-loop was not built"

    def start_servers(self, launch):
        servers = [_start(launch, host, [launch.build / "bench/tcp-loop", "echo", port, self.CHUNK], name=f"r{j}")
                   for j, (host, port) in enumerate(launch.place.reducers)]
        try:
            for j, server in enumerate(servers):
                _wait_listening("an echo", server, pathlib.Path(launch.dir) / f"r{j}.err")
        except LabError:
            for server in servers:
                end(server)
            raise
        return servers

    def start_ranks(self, launch):
        place, lab = launch.place, launch.lab
        echoes = ",".join(f"{place.address(lab, host)}:{port}" for host, port in place.reducers)
        rtt_us = max(lab.delays.get(w, 0) for w in place.workers) + max(lab.delays.get(h, 0) for h, _ in place.reducers)
        window = max(self.WINDOW, int(2 * max(lab.rate) / 8e6 * rtt_us / len(place.reducers)))
        return _each_rank(launch, lambda _: [launch.build / "bench/tcp-loop", "ask", echoes, launch.size,
                                             launch.iters, launch.warmup, window, self.CHUNK])


def peers():
    """Returns all peers by name, in the order of reports."""
    return {s.name: s for s in (
        Gloo(), Gloo2D("gloo-2d", PIECE), Gloo2D("gloo-2d-phased", 0), OpenMPI("ompi-ring", ring=True), OpenMPI("ompi"),
        Mpich(), OpenMPI("ompi-shm", btl="vader"), BareLoop(), TorchWire("bf16"), TorchWire("fp8"))}


def line_MBps(lab, place, build, seconds=1.5):
    """Measures one plain TCP flow from the first worker to another host, of its rack if there are racks; returns MB/s
    of payload."""
    tcp_loop = pathlib.Path(build).resolve() / "bench/tcp-loop"
    to = place.workers[1 if place.racks else -1]
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
