#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Measures steps of a training with sequences of uneven lengths over shaped links, with `sharding.decoupled` and
without.

Each rank draws sequences of its own (bench/uneven/lengths.py says from what), so its passes take longer or shorter than
those of the others. A pass sleeps in place of computing; each bucket of gradients is reduced as it is ready, after each
micro-batch anew, and a step ends with the last result. Off and on take turns in one laboratory, with the same lengths.
A step lasts as long as on its slowest rank. Prints a JSON line for each row, in ms:

    off, on         median over all steps and launches; with _spread, the medians of single launches
    gain            median over the steps of off / on
    bound           median over the steps, calculated: what a step takes if only the own link and the own passes of each
                    rank limit it, without any rank or reducer waiting for another one
    fluid_off, _on  median over the steps, calculated for reduce-scatters: the same, with the reducers' links too;
                    without `decoupled` no rank is more than 256 KiB ahead of the slowest one

A row is WHAT:REDUCERS:MICRO:RATIO: all-reduce or scatter; number of reducers; micro-batches in a step; mean time of a
micro-batch's passes / time of its gradients on a link.

Exit status: 0 success, 1 an error or a wrong sum, 2 wrong usage, 77 the laboratory cannot be made.
"""

import argparse
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench" / "net"))

import lab as net  # noqa: E402
import lengths  # noqa: E402
import systems  # noqa: E402
from placement import Placement  # noqa: E402

RANK = pathlib.Path(__file__).resolve().with_name("rank.py")
PORT = 29500
MIB = 1 << 20
PAYLOAD = 1448 / 1514  # of a packet
ROWS = "all-reduce:4:4:1,scatter:4:4:1,all-reduce:1:1:2,scatter:1:1:2"
LAUNCH_S = 60  # time for starting, in addition to the steps


def parse_arguments():
    p = argparse.ArgumentParser(
        prog="bench-uneven", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--workers", type=int, default=4, help="%(default)s")
    p.add_argument("--rows", default=ROWS, help="comma-separated (%(default)s)")
    p.add_argument("--rate", type=int, default=250, help="rate of links in Mbit/s (%(default)s)")
    p.add_argument("--bytes", type=int, default=4 * MIB, help="of the gradients of a micro-batch (%(default)s)")
    p.add_argument("--batch", type=int, default=1, help="sequences of a micro-batch (%(default)s)")
    p.add_argument("--buckets", type=int, default=8, help="buckets of gradients of a micro-batch (%(default)s)")
    p.add_argument("--steps", type=int, default=12, help="timed steps of a launch (%(default)s)")
    p.add_argument("--repeats", type=int, default=3, help="launches of off and of on (%(default)s)")
    p.add_argument("--seed", type=int, default=1, help="of the lengths (%(default)s)")
    p.add_argument("--cc", default="cubic", help="congestion control (%(default)s)")
    p.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "default")
    args = p.parse_args()
    args.build = args.build.resolve()
    args.line = args.rate * 1e6 / 8 * PAYLOAD
    return args


class Ranks(systems.System):
    """rank.py on each host, beside reducers."""

    name = "reducers"
    moves_bytes = False  # while a pass takes long

    def __init__(self, what, decoupled, plan, args):
        self.what, self.plan, self.args = what, plan, args
        self.ours = systems.Ours()
        self.ours.sections = {"sharding": {"decoupled": f"{args.bytes * args.micro}"}} if decoupled else {}

    def start_servers(self, launch):
        return self.ours.start_servers(launch)

    def start_ranks(self, launch):
        def environment(rank):
            return {
                "RANK": str(rank), "WORLD_SIZE": str(launch.place.n), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1",
                "MASTER_ADDR": launch.lab.address(launch.place.workers[0]), "MASTER_PORT": str(PORT),
                "OMP_NUM_THREADS": "1",
                "REDUCTION_LIBRARY": str(launch.build / "lib/libreduction.so.0"), "REDUCTION_MODE": "direct",
                "REDUCTION_CONFIG": f"{launch.dir}/job.yaml", "PYTHONDONTWRITEBYTECODE": "1",
                "PYTHONPATH": str(ROOT / "agent/python"),
            }  # fmt: skip

        return systems._each_rank(launch, lambda _r: [
            sys.executable, RANK, "--what", self.what, "--bytes", self.args.bytes, "--buckets", self.args.buckets,
            "--plan", json.dumps(self.plan), "--seconds-per-token", self.args.seconds_per_token],
            environment)  # fmt: skip


def run(lab, place, system, args):
    """Returns the seconds of each step of a launch."""
    one = systems.Launch(lab, place, args.bytes, args.steps, 1, args.build)
    one.limit_s = LAUNCH_S + 20 * (args.steps + 1) * args.micro * args.bytes / args.line * max(1, args.ratio)
    with tempfile.TemporaryDirectory(prefix="bench-uneven-") as one.dir:
        servers, ranks = system.start_servers(one), []
        try:
            ranks = system.start_ranks(one)
            rows = system._collect(one, ranks)
        finally:
            for p in ranks + servers:
                net.end(p)
            lab.sweep()
    if not all(row["right"] for row in rows):
        raise net.LabError("a wrong result")
    return [max(times) for times in zip(*(row["times"] for row in rows))]


def ms(seconds):
    return round(seconds * 1e3, 1)


def measure(row, args):
    what, k, args.micro, args.ratio = row.split(":")
    k, args.micro, args.ratio = int(k), int(args.micro), float(args.ratio)
    args.seconds_per_token = args.ratio * args.bytes / args.line / args.batch / lengths.MEAN
    plan = lengths.tokens(args.seed, args.steps, args.micro, args.workers, args.batch)
    place, times = Placement(args.workers, k), {"off": [], "on": []}
    with net.Lab(place.hosts, f"{args.rate}mbit", 5, cc=args.cc, build=args.build) as lab:
        for _ in range(args.repeats):
            for name, found in times.items():
                found.append(run(lab, place, Ranks(what, name == "on", plan, args), args))
    row = {"row": what, "n": args.workers, "k": k, "mbit": args.rate, "bytes": args.bytes, "micro": args.micro,
           "batch": args.batch, "ratio": args.ratio, "unit": "ms"}  # fmt: skip
    for name, found in times.items():
        row[name] = ms(statistics.median(t for launch in found for t in launch))
        each = [statistics.median(launch) for launch in found]
        row[f"{name}_spread"] = [ms(min(each)), ms(max(each))]
    steps = [[statistics.median(step) for step in zip(*found)] for found in (times["off"], times["on"])]
    row["gain"] = round(statistics.median(off / on for off, on in zip(*steps)), 3)
    bucket = args.bytes / args.buckets / args.line
    row["bound"] = ms(statistics.median(
        lengths.bound(step, args.workers, args.seconds_per_token, args.buckets, bucket) for step in plan))  # fmt: skip
    for name, ahead in (("fluid_off", 256 << 10), ("fluid_on", float("inf"))) if what == "scatter" else ():
        row[name] = ms(statistics.median(
            lengths.fluid(step, args.workers, k, args.seconds_per_token, args.buckets, args.bytes, args.line, ahead)
            for step in plan))  # fmt: skip
    row["load"] = round(os.getloadavg()[0], 1)
    print(json.dumps(row), flush=True)


def main():
    args = parse_arguments()
    started = time.monotonic()
    for row in args.rows.split(","):
        measure(row, args)
    print(f"bench-uneven: {time.monotonic() - started:.0f} s", file=sys.stderr)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except net.LabError as e:
        print(f"bench-uneven: {e}", file=sys.stderr)
        sys.exit(e.code)
