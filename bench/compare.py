#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Runs reduction-bench and its peers side by side on loopback and prints one table.

The systems take turns (ours, gloo, ours, gloo, ...) so that a slow phase of the machine affects all of them. A number
in the table is the median over the repeats of a run's average time, with minimum and maximum beside it. Every row of
every run is written to a file of JSON lines, whose first line describes the machine.
"""

import argparse
import json
import os
import pathlib
import platform
import signal
import statistics
import subprocess
import sys
import time


def parse_arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default="build/default", help="folder of the build (default %(default)s)")
    p.add_argument("--out", default="build/bench/loopback.jsonl", help="file of JSON lines (default %(default)s)")
    p.add_argument("--ranks", type=int, default=4, help="processes (default %(default)s)")
    p.add_argument("--reducers", type=int, default=2, help="local reducers (default %(default)s)")
    p.add_argument("--lanes", type=int, default=1, help="lanes of each reducer (default %(default)s)")
    p.add_argument("-b", dest="min", default="4K", help="smallest size (default %(default)s)")
    p.add_argument("-e", dest="max", default="64M", help="largest size (default %(default)s)")
    p.add_argument("-f", dest="factor", default="4", help="factor from one size to the next (default %(default)s)")
    p.add_argument("-n", dest="iters", default="10", help="timed iterations in each run (default %(default)s)")
    p.add_argument("-w", dest="warmup", default="3", help="warm-up iterations in each run (default %(default)s)")
    p.add_argument("--repeats", type=int, default=3, help="runs of each system (default %(default)s)")
    return p.parse_args()


def systems(args):
    """Returns name and command of each system that was built."""
    build = pathlib.Path(args.build)
    common = ["-b", args.min, "-e", args.max, "-f", args.factor, "-n", args.iters, "-w", args.warmup]
    common += ["--ranks", str(args.ranks), "--inplace", "no", "--json"]
    ours = [str(build / "bin" / "reduction-bench"), "--local-reducers", str(args.reducers), "--lanes", str(args.lanes)]
    found = [("reduction", ours + common)]
    if (build / "bench" / "gloo-ring").exists():
        found.append(("gloo-ring", [str(build / "bench" / "gloo-ring")] + common))
    else:
        print("# gloo-ring was not built (libgloo-dev and a C++ compiler are needed): ours alone", file=sys.stderr)
    return found


def run(name, command):
    """Runs once and returns its rows. Exits the program if the run fails."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            out, _ = process.communicate(timeout=600)
        except BaseException:
            process.send_signal(signal.SIGTERM)  # the program then ends its own child processes
            raise
    if process.returncode != 0:
        sys.exit(f"{name} failed with exit status {process.returncode}: {' '.join(command)}")
    return [json.loads(line) for line in out.splitlines() if line.startswith("{")]


def machine():
    """Describes this machine, for the file of results."""
    model = "unknown"
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as f:
        for line in f:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    return {
        "machine": {
            "cpu": model,
            "cores": len(os.sched_getaffinity(0)),
            "kernel": platform.release(),
            "load": os.getloadavg()[0],
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
    }


def spread(rows):
    """Returns median, minimum and maximum of the average times, in microseconds."""
    times = [row["time_us"]["avg"] for row in rows]
    return statistics.median(times), min(times), max(times)


def print_table(names, rows, args):
    print(f"\nall-reduce of float32, sum, {args.ranks} ranks on loopback; ours with {args.reducers} reducers; "
          f"{args.repeats} interleaved runs of {args.iters} iterations")
    print("time in us: median [min .. max] over runs; algbw in GB/s from the median\n")
    head = f"{'size(B)':>10}"
    for name in names:
        head += f"  {name + ' time':>34} {'algbw':>7}"
    print(head + ("  gloo time / ours" if len(names) > 1 else ""))
    for size in sorted({row["bytes"] for row in rows}):
        line = f"{size:>10}"
        medians = []
        for name in names:
            median, low, high = spread([r for r in rows if r["system"] == name and r["bytes"] == size])
            medians.append(median)
            line += f"  {median:>11.0f} [{low:>8.0f} .. {high:>8.0f}] {size / median / 1e3:>7.3f}"
        if len(names) > 1:
            line += f"  {medians[1] / medians[0]:>8.2f}"
        print(line)


def main():
    args = parse_arguments()
    found = systems(args)
    host = machine()
    rows = []
    out = pathlib.Path(args.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    with out.open("w", encoding="ascii") as f:
        f.write(json.dumps(host) + "\n")
        for repeat in range(args.repeats):
            for name, command in found:
                print(f"# run {repeat + 1} of {args.repeats}: {name}, {time.monotonic() - started:.0f} s",
                      file=sys.stderr)
                for row in run(name, command):
                    row["repeat"] = repeat
                    rows.append(row)
                    f.write(json.dumps(row) + "\n")
    print_table([name for name, _ in found], rows, args)
    if host["machine"]["load"] > 1:
        load = host["machine"]["load"]
        print(f"\nThe machine was busy (load {load:.1f} at the start): the times say less than usual.")
    wrong = sum(row["wrong"] or 0 for row in rows)
    print(f"\n{len(rows)} rows in {time.monotonic() - started:.0f} s are in {out}; wrong elements: {wrong}")
    return 1 if wrong else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
