#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Measures how one reducer scales with the number of workers: equal load from 8 to 1,024 ranks, and from many jobs.

Every run starts a new reducer with one lane; reduction-load simulates all ranks in one process. The cases take turns,
so that a slow phase of the machine affects all of them. A number in the table is the median over the repeats, with
minimum and maximum beside it. Compare cases by the reducer's processor time for a GiB: the load generator runs on the
same machine, so throughput is that of both together. Memory is the reducer's peak resident size minus its resident size
after a first small job, beside the sum of the memory bounds that the reducer logs when jobs open. Every run is written
to a file of JSON lines, whose first line describes the machine.
"""

import argparse
import json
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


def parse_arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default="build/default", help="folder of the build (default %(default)s)")
    p.add_argument("--out", default="build/bench/load.jsonl", help="file of JSON lines (default %(default)s)")
    p.add_argument("--cases", default="8,64,256,1024,64x16",
                   help="cases: RANKS, or JOBSxRANKS (default %(default)s)")
    p.add_argument("--seconds", type=float, default=3, help="measured time of a run, in seconds (default %(default)s)")
    p.add_argument("--repeats", type=int, default=5, help="runs of each case (default %(default)s)")
    p.add_argument("--bytes", default="1M", help="size of one all-reduce (default %(default)s)")
    p.add_argument("--chunk", default="32K", help="size of a chunk (default %(default)s)")
    p.add_argument("--window", default="4", help="chunks of a rank in flight (default %(default)s)")
    p.add_argument("--dtype", default="float32", help="dtype of the elements (default %(default)s)")
    p.add_argument("--lanes", default="1", help="lanes of the reducer (default %(default)s)")
    p.add_argument("--silent", default="0", help="further connections that never send HELLO (default %(default)s)")
    p.add_argument("--server", help="path of the reducer's program (default bin/reduction-server of the build)")
    return p.parse_args()


class Reducer(Daemon):
    """A reducer on a free port of this machine."""

    def __init__(self, args, folder):
        config = pathlib.Path(folder) / "server.yaml"
        config.write_text("server: {max_workers: 4096, max_connections: 100000, memory: 16GiB, max_jobs: 4096}\n",
                          encoding="ascii")
        program = args.server or str(pathlib.Path(args.build) / "bin" / "reduction-server")
        command = [program, "--config", str(config), "--listen", "127.0.0.1:0", "--lanes", args.lanes]
        super().__init__(command, pathlib.Path(folder) / "server.log")

    def bound(self):
        """Returns the sum of all jobs' memory bounds in bytes."""
        return sum(map(int, re.findall(r"\bjob-opened job=load-.*\bmemory_bytes=(\d+)", self.log.read_text())))


def run(args, case):
    """Runs once and returns the row. Exits the program if the run fails."""
    jobs, ranks = case
    load = str(pathlib.Path(args.build) / "bench" / "reduction-load")
    command = [load, "--json"]
    for option in ("seconds", "bytes", "chunk", "window", "dtype", "silent"):
        command += [f"--{option}", str(getattr(args, option))]
    command += ["--jobs", str(jobs), "--ranks", str(ranks)]
    with tempfile.TemporaryDirectory(prefix="reduction-") as folder, Reducer(args, folder) as reducer:
        # the first job loads pages of the program itself, which belong to no job
        subprocess.run([load, "--address", reducer.address, "--ranks", "2", "--ops", "2", "--name", "first"],
                       stdout=subprocess.DEVNULL, check=True)
        command += ["--address", reducer.address, "--server-pid", str(reducer.process.pid)]
        found = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        if found.returncode != 0:
            sys.exit(f"failed with exit status {found.returncode}: {' '.join(command)}\n{found.stdout}")
        row = json.loads(found.stdout)
        row["memory"] = row["rss_peak"] - row["rss_before"]
        row["bound"] = reducer.bound()
    return row


def spread(rows, key):
    values = [row[key] for row in rows]
    return statistics.median(values), min(values), max(values)


def print_table(rows, args):
    print(f"\nall-reduce of {args.bytes}B {args.dtype} on loopback, one reducer with {args.lanes} lane, one process "
          f"that plays all ranks, {args.window} chunks of {args.chunk}iB of each in flight;")
    print(f"median [min .. max] of {args.repeats} interleaved runs of {args.seconds:g} s; a GiB counts once for each "
          "rank that contributes it\n")
    print(f"{'jobs':>5} {'ranks':>6}  {'GiB/s':>24}  {'reducer CPU s/GiB':>24}  {'to the first':>12}  {'start s':>8}  "
          f"{'memory MiB':>10}  {'bound MiB':>9}")
    first = None
    for case in dict.fromkeys((row["jobs"], row["ranks"]) for row in rows):
        mine = [row for row in rows if (row["jobs"], row["ranks"]) == case]
        speed, cpu = spread(mine, "gib_per_s"), spread(mine, "server_cpu_s_per_gib")
        first = first or cpu[0]
        print(f"{case[0]:>5} {case[1]:>6}  {speed[0]:>8.2f} [{speed[1]:>5.2f} .. {speed[2]:>5.2f}]  "
              f"{cpu[0]:>8.3f} [{cpu[1]:>5.3f} .. {cpu[2]:>5.3f}]  {first / cpu[0]:>12.2f}  "
              f"{spread(mine, 'start_s')[0]:>8.3f}  {max(r['memory'] for r in mine) / 2**20:>10.1f}  "
              f"{mine[0]['bound'] / 2**20:>9.1f}")
    print("\n\"to the first\": how much of the first line's work a second of the reducer's processor does; memory: "
          "the largest of all runs")


def main():
    args = parse_arguments()
    cases = [tuple(map(int, c.split("x"))) if "x" in c else (1, int(c)) for c in args.cases.split(",")]
    host = compare.machine()
    rows = []
    out = pathlib.Path(args.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    with out.open("w", encoding="ascii") as f:
        f.write(json.dumps(host) + "\n")
        for repeat in range(args.repeats):
            for case in cases:
                print(f"# run {repeat + 1} of {args.repeats}: {case[0]} x {case[1]} ranks, "
                      f"{time.monotonic() - started:.0f} s", file=sys.stderr)
                row = run(args, case)
                row["repeat"] = repeat
                rows.append(row)
                f.write(json.dumps(row) + "\n")
    print_table(rows, args)
    if host["machine"]["load"] > 1:
        print(f"\nThe machine was busy (load {host['machine']['load']:.1f} at the start): the times say less than "
              "usual.")
    print(f"\n{len(rows)} rows in {time.monotonic() - started:.0f} s are in {out}")
    over = [row for row in rows if row["memory"] > row["bound"]]
    for row in over:
        print(f"{row['jobs']} x {row['ranks']} ranks: the reducer grew by {row['memory']} bytes, its bound is "
              f"{row['bound']}")
    return 1 if over else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
