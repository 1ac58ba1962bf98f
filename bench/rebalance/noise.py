#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Shares under noise: does `sharding.rebalance: on` keep still where nothing is to be gained? Two jobs run all-reduces
for an hour, at the same time, each in a laboratory of its own (bench/net/lab.py): one with `off`, one with `on`. Both
networks get the same random cross traffic, between hosts of workers and reducers, and a program takes processor time
from both jobs at random. Each second of noise is drawn with a seed, so a run can be repeated.

Prints a line of JSON: how often shares were changed in the hour, and the operations that each job has completed. Needs
root. Exit status: 0 success, 1 an error or a wrong sum, 2 wrong usage, 77 the laboratory cannot be made.
"""

import argparse
import json
import multiprocessing
import pathlib
import random
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import bench as rebalance  # noqa: E402
from bench import net  # noqa: E402

MIB = 1 << 20
PORT = 7800  # of the sinks of cross traffic
WAYS = ("off", "on")

SINK = """
import socket, threading
def drain(c):
    while c.recv(1 << 16):
        pass
s = socket.create_server(("0.0.0.0", %d), backlog=64)
while True:
    threading.Thread(target=drain, args=(s.accept()[0],), daemon=True).start()
""" % PORT

SOURCE = """
import socket, sys, time
until = time.monotonic() + float(sys.argv[2])
with socket.create_connection((sys.argv[1], %d)) as c:
    while time.monotonic() < until:
        c.sendall(bytes(1 << 16))
""" % PORT


def parse_arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--n", type=int, default=4, help="workers (default 4)")
    p.add_argument("--k", type=int, default=4, help="reducers (default 4)")
    p.add_argument("--rate", default="100mbit", help="of each link (default 100mbit)")
    p.add_argument("--bytes", type=int, default=2, help="MiB of an operation (default 2)")
    p.add_argument("--seconds", type=int, default=3600, help="(default 3600)")
    p.add_argument("--every", type=float, default=5, help="mean seconds between two disturbances (default 5)")
    p.add_argument("--seed", type=int, default=1, help="(default 1)")
    p.add_argument("--cc", default="cubic", help="congestion control (default cubic)")
    p.add_argument("--build", type=pathlib.Path, default=rebalance.ROOT / "build" / "default")
    p.add_argument("--out", type=pathlib.Path, default=rebalance.ROOT / "build" / "bench" / "noise.jsonl")
    args = p.parse_args()
    args.build = args.build.resolve()
    args.before, args.changed, args.after = args.seconds, 0, 0
    return args


def disturbances(args):
    """Yields (second, host, other host, seconds, processor): a flow between two hosts, or, if `processor` is not None,
    a busy loop there."""
    draw = random.Random(args.seed)
    at = 5.0
    while (at := at + draw.expovariate(1 / args.every)) < args.seconds - 10:
        source, sink = draw.sample(range(args.n + args.k), 2)
        processor = draw.randrange(2) if draw.random() < 0.25 else None
        yield at, source, sink, draw.uniform(0.5, 4), processor


class Noise(rebalance.Run):
    """One job with its noise, in a process of its own, since a laboratory belongs to a process."""

    def start_workers(self, lab):
        for host in range(self.args.n + self.args.k):
            lab.popen(host, [sys.executable, "-c", SINK], stdin=subprocess.DEVNULL)
        workers = super().start_workers(lab)
        threading.Thread(target=self.disturb, args=(lab,), daemon=True).start()
        return workers

    def disturb(self, lab):
        """One of the two jobs takes processors for both."""
        begun = time.monotonic()
        for at, source, sink, seconds, processor in disturbances(self.args):
            time.sleep(max(0, begun + at - time.monotonic()))
            if processor is None:
                lab.popen(source, [sys.executable, "-c", SOURCE, lab.address(sink), seconds], stdin=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL)
            elif self.way == WAYS[0]:
                subprocess.Popen(["timeout", str(seconds), "nice", "-n", "-10", "taskset", "-c", str(processor),
                                  sys.executable, "-c", "while True: pass"])

    def change(self, lab, servers, begins):
        """The network stays as it is."""


def run_job(args, way, results):
    with tempfile.TemporaryDirectory() as folder:
        run = Noise(args, "noise", way, folder)
        try:
            begun = run.measure()
            spans = range(0, args.seconds, 60)
            results.put({"way": way, "ops": len(run.ops), "wrong": run.wrong, "lines": run.lines,
                         "minutes": [round(run.rate(begun, s, s + 60), 2) for s in spans],
                         "slowest_ms": round(1e3 * max(took for _, took in run.ops))})
        except net.LabError as e:
            results.put({"way": way, "error": str(e), "code": e.code})


def main():
    args = parse_arguments()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    results = multiprocessing.Queue()
    jobs = [multiprocessing.Process(target=run_job, args=(args, way, results)) for way in WAYS]
    for job in jobs:
        job.start()
    found = {r["way"]: r for r in (results.get() for _ in jobs)}
    for job in jobs:
        job.join()
    for way in WAYS:
        if "error" in found[way]:
            raise net.LabError(f"{way}: {found[way]['error']}", found[way]["code"])
    off, on = (found[way] for way in WAYS)
    row = {"case": "noise", "n": args.n, "k": args.k, "rate": args.rate, "bytes": args.bytes * MIB,
           "seconds": args.seconds, "disturbances": len(list(disturbances(args))), "seed": args.seed,
           "ops_off": off["ops"], "ops_on": on["ops"], "loss_percent": round(100 * (1 - on["ops"] / off["ops"]), 2),
           "changes": len([x for x in on["lines"] if x.startswith("rebalanced")]), "wrong": off["wrong"] + on["wrong"],
           "slowest_off_ms": off["slowest_ms"], "slowest_on_ms": on["slowest_ms"],
           "minutes_off": off["minutes"], "minutes_on": on["minutes"], "lines": on["lines"]}
    with open(args.out, "a", encoding="ascii") as f:
        f.write(json.dumps(row) + "\n")
    print(json.dumps(row))
    return 1 if row["wrong"] else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except net.LabError as e:
        print(f"bench-rebalance: {e}", file=sys.stderr)
        sys.exit(e.code)
