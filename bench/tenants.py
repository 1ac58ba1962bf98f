#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Measures how one lane of a reducer is shared among jobs: small and large ones, one that floods it, and weights.

The lane is the bottleneck: it adds float16 without vector instructions, over TLS, and has the first core of this
machine for itself; the ranks have the others. With --fifo (root) both have real-time priority, so that other programs
do not disturb. The reducer counts the bytes of each job and the time that its lane has spent on it. In each repeat
every case runs once, with a new reducer. Standard output and a file get one line of JSON for each case: for each job
the rate of one rank in MB/s and its part of the lane's time, median with minimum and maximum; and the ratio of the
times of the first job's ranks to the second's, beside what the weights ask for.
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
import typing

import compare
from daemon import Daemon

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))
import certs  # noqa: E402

WARMUP = 2  # seconds from the start of the jobs until measurement begins


class Job(typing.NamedTuple):
    ranks: int = 2
    weight: float = 1
    window: int = 16
    bytes: str = "1M"  # of an all-reduce
    pending: int = 8  # all-reduces that are started before one waits for them


CASES = {
    "alone": [Job()],
    "equal": [Job(), Job()],
    "small-large": [Job(), Job(ranks=16)],
    "small-greedy": [Job(), Job(window=256)],
    "flood": [Job(), Job(window=1024, bytes="64", pending=2000)],
    "weight-2": [Job(weight=2), Job()],
    "weight-4": [Job(weight=4), Job()],
    "weight-4-large": [Job(weight=4), Job(ranks=16)],
}


def parse_arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default="build/default", help="folder of the build (default %(default)s)")
    p.add_argument("--out", default="build/bench/tenants.jsonl", help="file of JSON lines (default %(default)s)")
    p.add_argument("--cases", default=",".join(CASES), help="cases, comma-separated (default %(default)s)")
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
        rules = [{"certificate": f"t{i}", "jobs": f"job{i}", "weight": job.weight} for i, job in enumerate(jobs)]
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
        job = self.jobs[i]
        self.write(f"job{i}.yaml", {
            "job": {"name": f"job{i}"}, "sharding": {"window": job.window}, **self.tls.worker(f"t{i}"),
            "reducers": [{"id": "r0", "address": self.address, "tls_name": "localhost"}],
        })  # fmt: skip
        argv = [*self.prefix, *self.others, str(self.bin / "reduction-bench"), "--config",
                str(self.folder / f"job{i}.yaml"), "--mode", "direct", "--ranks", str(job.ranks), "-b", job.bytes,
                "-e", job.bytes, "-n", "1000000", "-c", "0", "-a", str(job.pending), "-d", self.dtype, "--inplace",
                "only"]  # fmt: skip
        return subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def counts(self):
        """Returns the time, and for each job the bytes that the reducer has from a rank and its seconds for it."""
        argv = [str(self.bin / "reductionctl"), "status", self.grpc(), "--json", "--authority",
                self.tls.file("ca.pem"), "--certificate", self.tls.file("t0.pem"), "--key", self.tls.file("t0.key")]
        status = json.loads(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)
        found = {j["name"]: j for j in status["jobs"]}
        return time.monotonic(), [(int(found[f"job{i}"]["traffic"]["bytes_in"]) / job.ranks,
                                   int(found[f"job{i}"]["served_us"]) / job.ranks / 1e6)
                                  for i, job in enumerate(self.jobs)]  # fmt: skip


def measure(args, folder, tls, jobs):
    """Returns for each job the rate of a rank in MB/s, and the part of the lane's time that a rank had."""
    with Tenants(args, folder, tls, jobs) as reducer:
        started = [reducer.start(i) for i in range(len(jobs))]
        try:
            time.sleep(WARMUP)
            at, first = reducer.counts()
            time.sleep(args.seconds)
            end, last = reducer.counts()
            return [((b - a) / (end - at) / 1e6, (d - c) / (end - at)) for (a, c), (b, d) in zip(first, last)]
        finally:
            for p in started:
                p.terminate()
            for p in started:
                p.wait()


def spread(name, values, digits):
    """Returns the median of the values under this name, with minimum and maximum."""
    return {name: round(statistics.median(values), digits), f"{name}_min": round(min(values), digits),
            f"{name}_max": round(max(values), digits)}  # fmt: skip


def report(case, jobs, runs):
    row = {"case": case, "repeats": len(runs), "jobs": []}
    for i, job in enumerate(jobs):
        rates, shares = zip(*(run[i] for run in runs))
        row["jobs"].append({**job._asdict(), **spread("rank_MBps", rates, 2), **spread("rank_lane_time", shares, 4)})
    if len(jobs) > 1:
        row["asked"] = jobs[0].weight / jobs[1].weight
        row.update(spread("lane_time_ratio", [a[1] / b[1] for a, b in runs], 2))
    return row


def main():
    args = parse_arguments()
    cases = {name: CASES.get(name) for name in args.cases.split(",")}
    if None in cases.values():
        sys.exit(f"tenants: unknown case in {args.cases}: expected some of {', '.join(CASES)}")
    runs = {name: [] for name in cases}
    with tempfile.TemporaryDirectory() as folder:
        tls = certs.Folder(folder, "reducer:r,localhost,127.0.0.1", "client:t0", "client:t1")
        for _ in range(args.repeats):
            for name, jobs in cases.items():
                runs[name].append(measure(args, folder, tls, jobs))
    out = pathlib.Path(args.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("w", encoding="ascii") as f:
        f.write(json.dumps(compare.machine()) + "\n")
        for name, jobs in cases.items():
            row = json.dumps(report(name, jobs, runs[name]))
            f.write(row + "\n")
            print(row)


if __name__ == "__main__":
    main()
