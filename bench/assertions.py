#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what the assertions cost that are always on (common/assert.h), on loopback.

Two builds of the same tree take turns, one of them with -DRS_WITHOUT_ASSERTIONS. A run is reduction-bench with its own
reducers; its cost is the processor time, user and system, of all its processes. The order within a pair changes from
pair to pair. The table has the median over the pairs of the ratio of both, and its quartiles.
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
    p.add_argument("--sizes", default="4K:3000,1M:60", help="SIZE:ITERATIONS of each row (default %(default)s)")
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
    subprocess.run([str(pathlib.Path(build) / "bin" / "reduction-bench"), "-b", size, "-e", size, "-n", iterations,
                    "--check", "0", "--inplace", "no", "--ranks", args.ranks, "--local-reducers", args.reducers],
                   stdout=subprocess.DEVNULL, check=True, timeout=600)
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
    print(f"{'size':>6} {'with (s)':>9} {'without (s)':>11} {'cost':>8}   quartiles")
    for row in args.sizes.split(","):
        size, iterations = row.split(":")
        pairs = []
        for i in range(args.pairs):
            times = {}
            for build in sorted([args.build, args.without], reverse=i % 2 == 1):
                times[build] = run(build, size, iterations, args)
            pairs.append((times[args.build], times[args.without]))
        costs = [100 * (with_them / without - 1) for with_them, without in pairs]
        low, middle, high = statistics.quantiles(costs, n=4)
        print(f"{size:>6} {statistics.median(p[0] for p in pairs):>9.2f} "
              f"{statistics.median(p[1] for p in pairs):>11.2f} {middle:>+7.1f}%   {low:+.1f}% .. {high:+.1f}%",
              flush=True)


if __name__ == "__main__":
    sys.exit(main())
