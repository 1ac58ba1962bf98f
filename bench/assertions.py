#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what the assertions cost that are always on (common/assert.h), on loopback.

Two builds of the same tree take turns, one of them with -DRS_WITHOUT_ASSERTIONS. A run is reduction-bench with its own
reducers; its cost is the processor time, user and system, of all its processes. The order within a pair changes from
pair to pair. What else runs on the machine only adds to this time, so the smallest one of each build counts. The table
also has the medians.
"""

import argparse
import pathlib
import re
import resource
import statistics
import subprocess
import sys


def parse_arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default="build/default", help="folder of the build (default %(default)s)")
    p.add_argument("--without", default="build/without-assertions/default",
                   help="folder of the build without assertions (default %(default)s)")
    p.add_argument("--sizes", default="4K:8000,1M:200", help="SIZE:ITERATIONS of each row (default %(default)s)")
    p.add_argument("--pairs", type=int, default=15, help="runs of each build and size (default %(default)s)")
    p.add_argument("--ranks", default="4", help="processes (default %(default)s)")
    p.add_argument("--reducers", default="2", help="local reducers (default %(default)s)")
    return p.parse_args()


def processor_time():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(build, size, iterations, args):
    """Returns the processor time of one run, in seconds."""
    before = processor_time()
    done = subprocess.run([str(pathlib.Path(build) / "bin" / "reduction-bench"), "-b", size, "-e", size,
                           "-n", iterations, "--check", "0", "--inplace", "no", "--ranks", args.ranks,
                           "--local-reducers", args.reducers], capture_output=True, text=True, timeout=600)  # fmt: skip
    if done.returncode:
        sys.exit(f"{build}: reduction-bench failed with exit status {done.returncode}: {done.stderr}")
    return processor_time() - before


def assertions(root):
    """Returns the number of assertions in the sources of the product."""
    folders = ["server", "agent", "proto", "common", "config", "deploy"]
    texts = (path.read_text(encoding="utf-8") for folder in folders for path in (root / folder).rglob("*.[ch]"))
    return sum(len(re.findall(r"^\t.*\brs_assert\(", text, re.M)) for text in texts)


def main():
    args = parse_arguments()
    print(f"{assertions(pathlib.Path(__file__).parents[1])} assertions; float32, {args.ranks} ranks, {args.reducers} "
          f"reducers; processor time of {args.pairs} pairs of runs")
    print(f"{'size':>6} {'with (s)':>9} {'without (s)':>11} {'cost':>8}   medians (s)")
    for row in args.sizes.split(","):
        size, iterations = row.split(":")
        times = {args.build: [], args.without: []}
        for i in range(args.pairs):
            for build in sorted(times, reverse=i % 2 == 1):
                times[build].append(run(build, size, iterations, args))
        with_them, without = times.values()
        cost = 100 * (min(with_them) / min(without) - 1)
        print(f"{size:>6} {min(with_them):>9.2f} {min(without):>11.2f} {cost:>+7.1f}%   "
              f"{statistics.median(with_them):.2f}, {statistics.median(without):.2f}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
