#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Measures how one lane of a reducer is shared among jobs: a small and a large one, and jobs with weights.

The lane is the bottleneck: it adds float16 without vector instructions, over TLS, and has the first core of this
machine for itself; the ranks have the others. With --fifo (root) both have real-time priority, so that other programs
do not disturb. Rates are read from the reducer, which counts them for each job. In each repeat every case runs once,
with a new reducer. Standard output and a file get one line of JSON for each case: for each job its ranks, its weight,
and the rate of one rank in MB/s, median with minimum and maximum; and the ratio of the first job's to the second's,
beside what the weights ask for.
"""

import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

import compare
from daemon import Daemon

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))
import certs  # noqa: E402

WARMUP = 2  # seconds from the start of the jobs until measurement begins

# name of the case, and for each job: its ranks, its weight, window
CASES = [
    ("alone", [(2, 1, 16)]),
    ("equal", [(2, 1, 16), (2, 1, 16)]),
    ("small-large", [(2, 1, 16), (16, 1, 16)]),
    ("small-greedy", [(2, 1, 16), (2, 1, 256)]),
    ("weight-2", [(2, 2, 16), (2, 1, 16)]),
    ("weight-4", [(2, 4, 16), (2, 1, 16)]),
    ("weight-4-large", [(2, 4, 16), (16, 1, 16)]),
]


def parse_arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default="build/default", help="folder of the build (default %(default)s)")
    p.add_argument("--out", default="build/bench/tenants.jsonl", help="file of JSON lines (default %(default)s)")
    p.add_argument("--cases", default=",".join(name for name, _ in CASES),
                   help="cases, comma-separated (default %(default)s)")
    p.add_argument("--seconds", type=float, default=4, help="measured time of a run, in seconds (default %(default)s)")
    p.add_argument("--repeats", type=int, default=3, help="runs of each case (default %(default)s)")
    p.add_argument("--fifo", action="store_true", help="give all processes real-time priority")
    p.add_argument("--cpu", default="scalar", help="kernels of the reducer (default %(default)s)")
    p.add_argument("--dtype", default="float16", help="dtype of the elements (default %(default)s)")
    p.add_argument("--server", help="path of the reducer's program (default bin/reduction-server of the build)")
    return p.parse_args()


class Tenants(Daemon):
    """A reducer and its jobs, with mutual TLS: a weight belongs to a certificate."""

    def __init__(self, args, folder, tls, jobs):
        self.bin = pathlib.Path(args.build) / "bin"
        self.folder, self.tls, self.jobs, self.dtype = pathlib.Path(folder), tls, jobs, args.dtype
        rules = [{"certificate": f"t{i}", "jobs": f"job{i}", "weight": w} for i, (_, w, _) in enumerate(jobs)]
        config = {"server": {"memory": "4GiB"}, **tls.reducer("r", mutual=True), "access": rules}
        self.write("server.yaml", config)
        program = args.server or str(self.bin / "reduction-server")
        cores = sorted(os.sched_getaffinity(0))
        self.prefix = ["chrt", "--fifo", "10"] if args.fifo else []
        self.others = ["taskset", "--cpu-list", ",".join(map(str, cores[1:] or cores))]
        argv = [*self.prefix, "taskset", "--cpu-list", str(cores[0]), program, "--config",
                str(self.folder / "server.yaml"), "--listen", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--lanes", "1",
                "--cpu", args.cpu]  # fmt: skip
        super().__init__(argv, self.folder / "server.log")

    def grpc(self):
        return re.search(r"\bgrpc-ready address=(\S+)", self.log.read_text()).group(1)

    def write(self, name, config):
        (self.folder / name).write_text(json.dumps(config), encoding="utf-8")

    def start(self, i):
        """Starts the ranks of a job, which sum until they are ended."""
        ranks, _, window = self.jobs[i]
        self.write(f"job{i}.yaml", {
            "job": {"name": f"job{i}"}, "sharding": {"window": window}, **self.tls.worker(f"t{i}"),
            "reducers": [{"id": "r0", "address": self.address, "tls_name": "localhost"}],
        })  # fmt: skip
        argv = [*self.prefix, *self.others, str(self.bin / "reduction-bench"), "--config",
                str(self.folder / f"job{i}.yaml"), "--mode", "direct", "--ranks", str(ranks), "-b", "1M", "-e", "1M",
                "-n", "1000000", "-c", "0", "-a", "8", "-d", self.dtype, "--inplace", "only"]  # fmt: skip
        return subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def bytes_in(self):
        """Returns the time, and the bytes that the reducer has from one rank of each job."""
        argv = [str(self.bin / "reductionctl"), "status", self.grpc(), "--json", "--authority",
                self.tls.file("ca.pem"), "--certificate", self.tls.file("t0.pem"), "--key", self.tls.file("t0.key")]
        status = json.loads(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)
        status = status.get("answer", status)
        totals = {j["name"]: int(j["traffic"]["bytes_in"]) for j in status["jobs"]}
        return time.monotonic(), [totals[f"job{i}"] / n for i, (n, _, _) in enumerate(self.jobs)]


def measure(args, folder, tls, jobs):
    """Returns the rate of one rank of each job in MB/s."""
    with Tenants(args, folder, tls, jobs) as reducer:
        started = [reducer.start(i) for i in range(len(jobs))]
        try:
            time.sleep(WARMUP)
            at, first = reducer.bytes_in()
            time.sleep(args.seconds)
            end, last = reducer.bytes_in()
            return [(b - a) / (end - at) / 1e6 for a, b in zip(first, last)]
        finally:
            for p in started:
                p.terminate()
            for p in started:
                p.wait()


def report(case, jobs, rates):
    row = {"case": case, "repeats": len(rates), "jobs": []}
    for i, (ranks, weight, window) in enumerate(jobs):
        mine = [r[i] for r in rates]
        row["jobs"].append({"ranks": ranks, "weight": weight, "window": window,
                            "rank_MBps": round(statistics.median(mine), 2),
                            "min": round(min(mine), 2), "max": round(max(mine), 2)})  # fmt: skip
    if len(jobs) > 1:
        ratios = [r[0] / r[1] for r in rates]
        row["ratio"] = round(statistics.median(ratios), 2)
        row["ratio_min"], row["ratio_max"] = round(min(ratios), 2), round(max(ratios), 2)
        row["ratio_asked"] = jobs[0][1] / jobs[1][1]
    return row


def main():
    args = parse_arguments()
    names = args.cases.split(",")
    cases = [c for c in CASES if c[0] in names]
    if len(cases) != len(names):
        sys.exit(f"tenants: unknown case in {args.cases}: expected some of {', '.join(n for n, _ in CASES)}")
    rates = {name: [] for name, _ in cases}
    with tempfile.TemporaryDirectory() as folder:
        tls = certs.Folder(folder, "reducer:r,localhost,127.0.0.1", "client:t0", "client:t1")
        for _ in range(args.repeats):
            for name, jobs in cases:
                rates[name].append(measure(args, folder, tls, jobs))
    out = pathlib.Path(args.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("w", encoding="ascii") as f:
        f.write(json.dumps(compare.machine()) + "\n")
        for name, jobs in cases:
            row = json.dumps(report(name, jobs, rates[name]))
            f.write(row + "\n")
            print(row)


if __name__ == "__main__":
    main()
