#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what a job loses while strangers abuse the reducer that serves it, or the agent of its node.

For each kind of abuse (tests/e2e/abuse.py does it, one process) three runs in turn: the job alone; with the abuse aimed
at another reducer (agent) of the same machine, which costs the job processor time and nothing else; and with the abuse
aimed at its own. What a reducer can do about abuse is to make "own" as good as "other". Each run starts fresh reducers.
A line of JSON for each kind goes to standard output and to a file: medians with the smallest and largest, the ratios of
medians, the reducer's (agent's) memory before and at its peak, and how many lines it logged in a second.
"""

import argparse
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import compare
from daemon import Daemon

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))
import abuse  # noqa: E402

MEMORY = 4 << 30  # limits.memory of the reducers, as by default
RANKS = 4
WARMUP = 1.5  # seconds from a job's start, in which the abuse begins, until its speed is measured


def parse_arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default="build/default", help="folder of the build (default %(default)s)")
    p.add_argument("--out", default="build/bench/abuse.jsonl", help="file of JSON lines (default %(default)s)")
    p.add_argument("--kinds", default=",".join(abuse.KINDS + abuse.LOCAL_KINDS),
                   help="which, separated by commas (default: all: %(default)s)")
    p.add_argument("--seconds", type=float, default=2, help="measured in each run (default %(default)s)")
    p.add_argument("--repeats", type=int, default=3, help="runs of each (default %(default)s)")
    p.add_argument("--bytes", default="1M", help="of one all-reduce (default %(default)s)")
    p.add_argument("--lanes", default="1", help="threads of a reducer (default %(default)s: the job shares its one)")
    return p.parse_args()


def daemon(args, folder, name, argv):
    return Daemon([str(pathlib.Path(args.build) / "bin" / argv[0]), *argv[1:]], pathlib.Path(folder) / f"{name}.log")


def reducer(args, folder, name):
    config = pathlib.Path(folder) / "server.yaml"
    config.write_text(f"limits: {{memory: {MEMORY}}}\n", encoding="ascii")
    return daemon(args, folder, name, ["reduction-server", "--config", str(config), "--listen", "127.0.0.1:0",
                                       "--lanes", args.lanes])  # fmt: skip


def agent(args, folder, name, address):
    config = pathlib.Path(folder) / "job.yaml"
    config.write_text(json.dumps({"reducers": [{"id": "r0", "address": address}]}), encoding="ascii")
    return daemon(args, folder, name, ["reduction-agent", "--config", str(config), "--socket", f"{folder}/{name}.sock"])


def through_reducer(args, target):
    """A job that reduction-load plays: its processes, and what its end is to be given to for MB/s of each rank."""
    command = [str(pathlib.Path(args.build) / "bench" / "reduction-load"), "--json", "--ranks", str(RANKS), "--bytes",
               args.bytes, "--address", target.address, "--seconds", str(args.seconds), "--warmup",
               str(WARMUP), "--timeout", "100"]  # fmt: skip

    def speed(out):
        row = json.loads(out)
        if row["wrong"]:
            sys.exit(f"{row['wrong']} results were wrong")
        return row["gib_per_s"] * 2**30 / RANKS / 1e6

    return [subprocess.Popen(command, stdout=subprocess.PIPE, text=True)], speed


WORKER = """
import sys, time
import numpy, reduction
warmup, seconds, n = float(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
with reduction.Communicator() as comm:
    x, phase = numpy.ones(n, "float32"), numpy.zeros(1, "float32")
    for length in (warmup, seconds):
        started, done = time.monotonic(), 0
        phase[0] = 0
        while not phase[0]:
            for _ in range(20):
                comm.all_reduce(x, op="max")
            done += 20
            phase[0] = time.monotonic() - started > length
            comm.all_reduce(phase, op="max")
    print(done * n * 4 / (time.monotonic() - started) / 1e6)
"""


def through_agent(args, target):
    """As through_reducer, for RANKS local ranks; the agent's reducer does little for one node."""
    units = {"K": 10, "M": 20, "G": 30}
    n = int(args.bytes.rstrip("KMG")) << units.get(args.bytes[-1], 0)
    env = {**os.environ, "REDUCTION_AGENT": target.address, "WORLD_SIZE": str(RANKS), "LOCAL_WORLD_SIZE": str(RANKS),
           "REDUCTION_CONFIG": target.command[2], "PYTHONPATH": str(ROOT / "agent" / "python"),
           "REDUCTION_LIBRARY": str(pathlib.Path(args.build).resolve() / "lib" / "libreduction.so.0"),
           "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # fmt: skip
    ranks = [
        subprocess.Popen(["/usr/bin/python3", "-c", WORKER, str(WARMUP), str(args.seconds), str(n // 4)],
                         stdout=subprocess.PIPE, env={**env, "RANK": str(r), "LOCAL_RANK": str(r)}, text=True)
        for r in range(RANKS)
    ]  # fmt: skip
    return ranks, float


def run(args, kind, where):
    """One run: (MB/s, what the abuser counted, memory before, memory at most, lines logged in a second)."""
    local = kind.startswith("local-")
    with tempfile.TemporaryDirectory(prefix="reduction-") as folder, reducer(args, folder, "own") as own, \
            reducer(args, folder, "other") as other:  # fmt: skip
        if not local:
            return measure(args, kind, where, own, other, through_reducer)
        with agent(args, folder, "agent", own.address) as a, agent(args, folder, "agent2", other.address) as b:
            return measure(args, kind, where, a, b, through_agent)


def end_of(job, target):
    """MB/s of each rank, once all have ended."""
    processes, speed = job
    out = [p.communicate()[0] for p in processes]
    if any(p.returncode for p in processes):
        sys.exit(f"the job failed:\n{target.log.read_text()[-2000:]}")
    return speed(out[0])


def measure(args, kind, where, own, other, start):
    end_of(start(argparse.Namespace(**{**vars(args), "seconds": 0.1}), own), own)  # pages of the program, and caches
    begun = r"\bjob-(?:ready|started) job=(?:default|load-0)\b.*"
    jobs = len(re.findall(begun, own.log.read_text()))
    before, lines, started, abuser = own.memory()[0], own.lines(), time.monotonic(), None
    job = start(args, own)
    try:
        while len(re.findall(begun, own.log.read_text())) < 2 * jobs:  # an abuser might take the last place
            time.sleep(0.01)
            if time.monotonic() > started + 60:
                sys.exit(f"the job did not start:\n{own.log.read_text()[-2000:]}")
        if where != "alone":
            target = own if where == "own" else other
            program = str(ROOT / "tests" / "e2e" / "abuse.py")
            abuser = subprocess.Popen([sys.executable, program, kind, target.address], stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, text=True)  # fmt: skip
        speed = end_of(job, own)
        logged = (own.lines() - lines) / (time.monotonic() - started)
        counts = json.loads(abuser.communicate()[0].splitlines()[-1]) if abuser else None
        return speed, counts, before, own.memory()[1], logged
    finally:
        for p in [*job[0], *([abuser] if abuser else [])]:
            if p.poll() is None:
                p.kill()
                p.wait()


def spread(values):
    return {"median": round(statistics.median(values), 1), "min": round(min(values), 1), "max": round(max(values), 1)}


def row_of(kind, runs):
    row = {"kind": kind, "repeats": len(runs["own"])}
    for where, found in runs.items():
        row[f"algbw_MBps_{where}"] = spread([r[0] for r in found])
    own, other, alone = (row[f"algbw_MBps_{w}"]["median"] for w in ("own", "other", "alone"))
    row["own_to_other"], row["own_to_alone"] = round(own / other, 3), round(own / alone, 3)
    row["done_per_s"] = round(statistics.median(r[1].get("done", 0) / r[1]["seconds"] for r in runs["own"]))
    row["rss_before"], row["rss_peak"] = max(r[2] for r in runs["own"]), max(r[3] for r in runs["own"])
    row["log_lines_per_s"] = round(max(r[4] for r in runs["own"]), 1)
    return row


def main():
    args = parse_arguments()
    for kind in args.kinds.split(","):
        if kind not in abuse.KINDS + abuse.LOCAL_KINDS:
            sys.exit(f"--kinds: found \"{kind}\", expected some of {', '.join(abuse.KINDS + abuse.LOCAL_KINDS)}")
    out = pathlib.Path(args.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("w", encoding="ascii") as f:
        f.write(json.dumps(compare.machine()) + "\n")
        for kind in args.kinds.split(","):
            runs = {"alone": [], "other": [], "own": []}
            for _ in range(args.repeats):
                for where, found in runs.items():
                    found.append(run(args, kind, where))
            row = row_of(kind, runs)
            f.write(json.dumps(row) + "\n")
            f.flush()
            print(json.dumps(row), flush=True)
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
