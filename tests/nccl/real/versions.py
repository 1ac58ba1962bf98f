#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the NCCL plugin with NCCL itself, without a GPU, for many versions of NCCL, and prints a table.

    versions.py [--ci] [--versions 2.27.5,2.30.7] [--scenarios lost,abort] [--cache FOLDER] [--keep FOLDER] [--jobs 4]

Exit status: 0 if all cells are "ok" or explained, also with one line "skipped: ..." if NCCL cannot be installed here.
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "e2e")]
import harness  # pylint: disable=wrong-import-position
import wheels  # pylint: disable=wrong-import-position

ALL = ("2.20.5", "2.21.5", "2.22.3", "2.23.4", "2.24.3", "2.25.1", "2.26.2", "2.27.3", "2.27.5", "2.28.9", "2.29.7",
       "2.30.7", "2.31.2", "2.32.3")
CI = ("2.21.5", "2.26.2", "2.27.5", "2.28.9", "2.29.7", "2.30.7", "2.32.3")  # what PyTorch pins, and the newest
PLUGIN = harness.BUILD / "lib" / "libnccl-net-reduction.so"
RANK = harness.BUILD / "tests" / "nccl" / "real" / "rank"
TOPOLOGY = HERE / "topology.xml"

ALWAYS = {
    "NCCL_NET_PLUGIN": "reduction",
    "NCCL_SOCKET_IFNAME": "lo",
    "NCCL_MAX_NCHANNELS": "2",
    "NCCL_DEBUG": "INFO",
    "NCCL_DEBUG_SUBSYS": "INIT,NET,TUNING",
    # what the emulated GPU does not have
    "NCCL_CUMEM_ENABLE": "0",
    "NCCL_CUMEM_HOST_ENABLE": "0",
    "NCCL_NVLS_ENABLE": "0",
    "NCCL_P2P_DISABLE": "1",
    "NCCL_RAS_ENABLE": "0",
    "NCCL_MNNVL_ENABLE": "0",
}


def number(version):
    """Returns (2, 27, 5)."""
    return tuple(int(n) for n in version.split("."))


class Run:
    """The ranks of one scenario with one version of NCCL."""

    def __init__(self, args, cluster, version, scenario):
        self.cluster, self.version, self.scenario = cluster, number(version), scenario
        self.home, self.plugin = args.cache / version, args.plugin
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=cluster.dir))
        self.procs = []

    def start(self, ranks, per_node=1, env=None, config=None):
        """Starts the ranks, `per_node` on each node. `config` may have another configuration for some ranks."""
        forced = "allreduce:collnetchain" if self.version >= (2, 24) else "CollnetChain"
        common = {**ALWAYS, "NCCL_COLLNET_ENABLE": "1", "NCCL_ALGO": forced, **(env or {})}
        common["LD_LIBRARY_PATH"] = f"{self.plugin.parent}:{RANK.parent}"
        for rank in range(ranks):
            mine = {"REDUCTION_CONFIG": (config or {}).get(rank) or self.config()}
            mine["NCCL_HOSTID"] = f"node{rank // per_node}"
            mine["FAKE_BUS"] = f"{0x17 + rank % per_node:x}"
            argv = [RANK, self.home / "libnccl.so.2", self.home / "layout.txt", self.folder, rank, ranks, self.scenario]
            if harness.SAN == "thread":  # libnccl is not built with it, and it orders the accesses to buffers
                tsan = harness.sanitizer_env(argv)["TSAN_OPTIONS"]
                mine["TSAN_OPTIONS"] = f"{tsan}:ignore_noninstrumented_modules=1"
            full = {k: v for k, v in {**common, **mine}.items() if v is not None}
            self.procs.append(harness.Proc(f"rank {rank}", [str(a) for a in argv], full, cwd=self.folder))
        return self

    def config(self, bandwidth="100Gbit"):
        """Returns the path of the configuration. By default the reducers have links on which two are enough for eight
        nodes."""
        reducers = [{"id": f"r{i}", "address": self.cluster.address(i), "lanes": 1, "bandwidth": bandwidth}
                    for i in range(len(self.cluster.reducers))]
        return self.cluster.write_config(f"{bandwidth}.yaml", {"reducers": reducers})

    def end(self, limit):
        """Waits for all ranks, for `limit` seconds at most, and ends those that still run."""
        until = time.monotonic() + limit * harness.SCALE / 2
        for p in self.procs:
            while p.running() and time.monotonic() < until:
                time.sleep(0.02)
            if p.running():
                p.kill()
            else:
                p.wait()
        return self

    @property
    def out(self):
        """What all ranks said."""
        return "".join(p.out for p in self.procs)

    @property
    def log(self):
        """NCCL's log."""
        return "".join(p.out + p.err for p in self.procs)

    def cells(self, name):
        """Returns what the ranks said of a cell."""
        return re.findall(rf"^cell {re.escape(name)} rank \d+: (.*)$", self.out, re.M)

    def report(self):
        """Returns all that the ranks wrote."""
        return "".join(f"--- {p.name}, exit status {p.code}\n{p.out}{p.err}" for p in self.procs)

    def trouble(self):
        """Returns a few words for what went wrong."""
        for p in self.procs:
            if p.killed:
                return "no end"
            if p.code and p.code < 0:
                return f"signal {-p.code}"
        for pattern in (r"^rank \d+: (.*)$", r"^real: pid \d+: (.*)$", r"NCCL WARN (.*)$"):
            found = re.search(pattern, self.log, re.M)
            if found:
                return found[1][:110]
        return "no word"

    def judge(self, name, ranks):
        """Returns "ok" if all ranks said so, else what is wrong."""
        said = self.cells(name)
        if said == ["ok"] * ranks:
            return "ok"
        if said and set(said) == {"not in this version"}:
            return "-"
        return self.trouble()


def chosen(log, what="AllReduce"):
    """Returns the algorithms that NCCL chose."""
    return set(re.findall(rf"{what}: \d+ Bytes -> Algo (\w+)", log))


def run_sums(args, cluster, version):
    r = Run(args, cluster, version, "sums").start(2).end(120)
    names = ("sums", "two communicators", "finalize", "init again")
    yield from ((name, r.judge(name, 2), r) for name in names)


def run_nodes(args, cluster, version):
    r = Run(args, cluster, version, "nodes").start(4, per_node=2).end(120)
    yield "two ranks on a node", r.judge("nodes", 4), r


def run_split(args, cluster, version):
    r = Run(args, cluster, version, "split").start(4).end(60)
    for name in ("split in halves", "split, all ranks", "the parent after"):
        yield name, r.judge(name, 4), r


def run_grow(args, cluster, version):
    r = Run(args, cluster, version, "grow").start(3).end(60)
    yield "grow", r.judge("grow", 3), r


def run_net(args, cluster, version):
    """Broadcast, all-gather, reduce-scatter, send and receive: NCCL connects over the plugin's network."""
    r = Run(args, cluster, version, "net").start(2, env={"NCCL_ALGO": None}).end(60)
    said = r.judge("net", 2)
    ways = set(re.findall(r"Channel \d+/(\d) : .* via NET/(\w+)", r.log))
    yield "other operations connect", said if ways == {("0", "reduction"), ("1", "reduction")} else f"{said} {ways}", r


def run_shrink(args, cluster, version):
    r = Run(args, cluster, version, "shrink").start(3).end(60)
    said = r.cells("shrink")
    yield "shrink", "-" if "not in this version" in said else r.judge("shrink", 2), r


def _times(r, name):
    """Returns the slowest abort of a cell; None: one has not returned."""
    said = r.cells(name)
    times = [float(t) for t in re.findall(r"abort returned 0 after ([\d.]+) s", "\n".join(said))]
    return max(times, default=0.0) if len(times) == said.count("aborting") > 0 else None


def run_lost(args, cluster, version):
    r = Run(args, cluster, version, "lost").start(3).end(25)
    said = [s for s in r.cells("lost") if "asynchronous" in s]
    told = len(said) == 2 and all(s.startswith("asynchronous error 6") for s in said)
    yield "lost rank: error", "ok" if told else said[0] if said else r.trouble(), r
    took = _times(r, "lost")
    yield "lost rank: abort", "ok" if took is not None and took < 10 else "does not return", r


def run_abort(args, cluster, version):
    r = Run(args, cluster, version, "abort").start(3).end(25)
    took = _times(r, "abort of one rank")
    yield "abort of one rank", "ok" if took is not None and took < 10 else "does not return", r
    r = Run(args, cluster, version, "abort-all").start(3).end(15)
    took = _times(r, "abort of all ranks")
    yield "abort of all ranks", "ok" if took is not None and took < 10 else "does not return", r


def run_plain(args, cluster, version):
    """REDUCTION_CONFIG and NCCL_NET_PLUGIN alone. 2.27 reads the third variable before it loads the plugin."""
    env = {"NCCL_ALGO": None, "NCCL_COLLNET_ENABLE": "1" if number(version)[:2] == (2, 27) else None}
    r = Run(args, cluster, version, "plain").start(2, env=env).end(60)
    said = r.judge("plain", 2)
    used = "has joined, summed by" in r.log and re.search(r"closed after \d+ all-reduces", r.log)
    yield "two variables", said if used or said != "ok" else "the reducers were not used", r


def run_tuner(args, cluster, version):
    """Four nodes and two reducers: all-reduces of 64 KiB and more go through them if their links are fast enough."""
    for name, bandwidth, want in (("tuner, fast reducers", "100Gbit", {65536: True, 16 << 20: True}),
                                  ("tuner, slow reducers", "10Gbit", {16 << 20: False})):
        r = Run(args, cluster, version, "choose")
        config = r.config(bandwidth)
        r.start(4, env={"NCCL_ALGO": None}, config=dict.fromkeys(range(4), config)).end(30)
        lines = re.findall(r"(\d+) Bytes -> Algo (\w+)", r.log)
        found = {int(n): algorithm.startswith("COLLNET") or algorithm in ("2", "3") for n, algorithm in lines}
        said = r.judge("choose", 4)
        silent = number(version)[:2] == (2, 21)  # it does not write what a tuner has chosen
        right = said == "ok" and found and all(found.get(n, w if silent else None) == w for n, w in want.items())
        yield name, "ok" if right else f"through reducers: {found}; {said}", r


def run_apart(args, cluster, version):
    """Two trainings with one name, at the same reducers at the same time: neither gets the other's ranks or sums."""
    both = [Run(args, cluster, version, "plain").start(2) for _ in range(2)]
    said = [r.end(90).judge("plain", 2) for r in both]
    jobs = [set(re.findall(r"communicator (\S+): rank \d of 2 has joined", r.log)) for r in both]
    apart = all(jobs) and not jobs[0] & jobs[1]
    yield "two trainings, one name", "ok" if said == ["ok", "ok"] and apart else f"{said} {jobs}", both[0]


def run_mismatch(args, cluster, version):
    """The plugin says what is wrong on that node; the others do not join reducers, and all end with an error."""
    env = {"NCCL_ALGO": None}
    for name, first, more in (("configuration missing", (2, 20), {}),
                              ("and mismatch ignored", (2, 30), {"NCCL_IGNORE_COLLNET_MISMATCH": "1",
                                                                 "NCCL_IGNORE_NET_MISMATCH": "1"})):
        if number(version) < first:
            continue
        r = Run(args, cluster, version, "init").start(3, env={**env, **more}, config={2: "/nonexistent.yaml"}).end(6)
        warned = re.search(r"WARN.*/nonexistent.yaml", r.log)
        ended = all(p.code == 1 for p in r.procs)
        joined = "has joined, summed by" in r.log
        mixed = "; mixed devices" if "Detected mixed local CollNet device counts" in r.log else ""
        yield name, "ok" if warned and ended and not joined else f"joined: {joined}; {r.trouble()}{mixed}", r


def _direct(args, cluster, version, ranks):
    """A machine with NVSwitch, where NCCL can send all-gathers and reduce-scatters through the reducers."""
    env = {"NCCL_ALGO": None, "NCCL_TOPO_FILE": TOPOLOGY, "FAKE_CAPABILITY": "9"}
    r = Run(args, cluster, version, "direct").start(ranks, env=env).end(90)
    large = re.search(r"(?:AllGather|ReduceScatter): 262144 Bytes -> Algo (?:COLLNET_DIRECT|2)\b", r.log)
    yield f"NVSwitch, {ranks} nodes", large[0] if large else r.judge("direct", ranks), r
    if number(version) < (2, 24):
        return  # NCCL_ALGO holds for all operations
    env["NCCL_ALGO"] = "allreduce:collnetchain;allgather:collnetdirect;reducescatter:collnetdirect"
    r = Run(args, cluster, version, "shards").start(ranks, env=env).end(120)
    said = r.judge("shards", ranks)
    used = re.findall(r"closed after 0 all-reduces of 0 bytes, and \d+ slices of all-gathers", r.log)
    ways = chosen(r.log, "AllGather") | chosen(r.log, "ReduceScatter")
    yield f"shards, {ranks} nodes", said if said != "ok" or len(used) == ranks else f"{len(used)} used; {ways}", r


def run_direct(args, cluster, version):
    yield from _direct(args, cluster, version, 4)


def run_direct8(args, cluster, version):
    yield from _direct(args, cluster, version, 8)


def run_reducers(args, cluster, version):
    for victims in ((1,), (0, 1)):
        r = Run(args, cluster, version, "reducers").start(2)
        deadline = time.monotonic() + 60
        while not (r.folder / "half").exists() and time.monotonic() < deadline and r.procs[0].running():
            time.sleep(0.01)
        for i in victims:
            cluster.reducers[i].kill()
        (r.folder / "killed").touch()
        r.end(90)
        said = r.cells("reducers")
        want = "ok" if len(victims) == 1 else "abort returned 0"
        good = [s for s in said if s.startswith(want)]
        yield ("one of two reducers killed" if len(victims) == 1 else "all reducers killed",
               "ok" if len(good) == 2 else r.trouble(), r)
        for i in victims:
            cluster.start_reducer(i)


SCENARIOS = {
    "sums": run_sums,
    "nodes": run_nodes,
    "plain": run_plain,
    "tuner": run_tuner,
    "apart": run_apart,
    "split": run_split,
    "shrink": run_shrink,
    "grow": run_grow,
    "net": run_net,
    "lost": run_lost,
    "abort": run_abort,
    "reducers": run_reducers,
    "mismatch": run_mismatch,
    "direct": run_direct,
    "direct8": run_direct8,
}
CI_SCENARIOS = ("sums", "plain", "lost", "direct")
SAN_SCENARIOS = ("sums", "plain", "lost", "abort", "reducers")  # with sanitizers in the plugin

# What NCCL itself does not do: cells, versions from and to, what was said, why.
EXPLAINED = (
    (r"lost rank: error|all reducers killed", (2, 26), (2, 28), r"no asynchronous error|no end",
     "NCCL drops the error that a plugin returns; a watchdog has to end the program"),
    (r"tuner, slow reducers", (2, 20), (2, 21), r"True", "NCCL asks no tuner"),
    (r"abort of .*", (2, 23), (2, 26), r"does not return",
     "NCCL's progress thread does not look at the abort flag, and waits for what the aborted kernel has not sent"),
    (r"two ranks on a node", (2, 31), (3, 0), r"invalid usage",
     "\"No algorithm/protocol\": NCCL wants as many network devices as ranks on a node, and the plugin has one"),
    (r"configuration missing", (2, 24), (2, 26), r"signal 6",
     "after ncclCommInitRank has failed, NCCL frees its job twice (ncclCommInitJobFree)"),
    (r"configuration missing", (2, 30), (3, 0), r"joined: False; no end; mixed devices",
     "\"Detected mixed local CollNet device counts\" on one rank; the others go on connecting to it"),
    (r"configuration missing|and mismatch ignored", (2, 20), (3, 0), r"joined: False; no end|signal 11",
     "NCCL waits without a deadline for connections of ranks whose ncclCommInitRank has failed; launchers end them"),
    (r"split, all ranks|the parent after", (2, 22), (2, 24), r"signal 11",
     "NCCL starts the kernel of a child that has no CollNet: ncclCommSplit needs NCCL_ALGO without CollnetChain"),
    (r"split, all ranks", (2, 24), (2, 31), r"invalid usage",
     "a child with the nodes of its parent has no CollNet; an error because NCCL_ALGO allows nothing else"),
)


def explain(name, version, said):
    """Returns the sentence for a cell that is not "ok"; None: nobody expects it."""
    for cells, first, end, words, why in EXPLAINED:
        if re.fullmatch(cells, name) and first <= number(version) < end and re.search(words, said):
            return why
    return None


def show(cells, versions, scenarios):
    """Prints the table, and below it what is not "ok". Returns whether all of that is explained."""
    notes, good = {}, True
    print(" " * 28 + "".join(f"{v:>8}" for v in versions))
    names = dict.fromkeys(n for s in scenarios for v in versions for n in cells[v, s])
    for name in names:
        line = f"{name:28}"
        for version in versions:
            said = next((cells[version, s][name] for s in scenarios if name in cells[version, s]), "-")
            if said not in ("ok", "-"):
                why = explain(name, version, said)
                good &= why is not None
                note = why or f"NOT EXPECTED: {said}"
                said = f"({notes.setdefault(note, len(notes) + 1)})"
            line += f"{said:>8}"
        print(line)
    for note, n in notes.items():
        print(f"({n}) {note}")
    return good


def run_scenario(args, version, scenario):
    """Runs it with reducers of its own. Returns what is said of each cell. A cell that nobody expects gets a second
    run: processors may be busy."""
    for last in (False, True):
        began, cells = time.monotonic(), {}
        with harness.Cluster(reducers=2) as cluster:
            for name, said, r in SCENARIOS[scenario](args, cluster, version):
                report = re.search(r"(ERROR|WARNING): \w+Sanitizer.*|.*: runtime error: .*", r.report())
                said = cells[name] = report[0] if report else said
                print(f"{version:7} {name:28} {time.monotonic() - began:5.1f} s  {said}", flush=True)
                if args.keep:
                    args.keep.mkdir(parents=True, exist_ok=True)
                    (args.keep / f"{version}-{name.replace(' ', '-')}.log").write_text(r.report())
        if last or all(said in ("ok", "-") or explain(name, version, said) for name, said in cells.items()):
            break
    return cells


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--ci", action="store_true")
    parser.add_argument("--versions", default="")
    parser.add_argument("--scenarios", default="", help=f"of {', '.join(SCENARIOS)}")
    parser.add_argument("--cache", type=pathlib.Path,
                        default=pathlib.Path(os.environ.get("NCCL_CACHE", harness.ROOT / "build" / "nccl")))
    parser.add_argument("--plugin", type=pathlib.Path, default=PLUGIN, help="another build of the plugin")
    parser.add_argument("--keep", type=pathlib.Path, help="folder for the logs")
    parser.add_argument("--jobs", type=int, default=4, help="scenarios at a time; each has 2 to 10 processes")
    args = parser.parse_args()
    args.cache = args.cache.resolve()
    names = args.versions.split(",") if args.versions else CI if args.ci else ALL
    few = SAN_SCENARIOS if harness.SAN else CI_SCENARIOS
    scenarios = args.scenarios.split(",") if args.scenarios else few if args.ci else tuple(SCENARIOS)
    try:
        for version in names:
            wheels.library(args.cache, version)
    except wheels.Missing as why:
        print(f"skipped: {why}")
        return 0
    began = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        started = {(v, s): pool.submit(run_scenario, args, v, s) for v in names for s in scenarios}
        cells = {key: future.result() for key, future in started.items()}
    good = show(cells, names, scenarios)
    print(f"{len(names)} versions in {time.monotonic() - began:.0f} s")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
