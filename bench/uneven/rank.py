#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""One rank of bench/uneven/bench.py: its gradients are ready at the times that lengths.py says, and it sleeps in
between. Rank and world size are in the variables of torchrun. Prints one JSON line: the seconds of each step, and
whether the results are right."""

import argparse
import json
import os
import pathlib
import sys
import time

import lengths
import numpy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "sharded"))
from worker import Reducers  # noqa: E402


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--what", choices=["all-reduce", "scatter"], required=True)
    p.add_argument("--bytes", type=int, required=True, help="of the gradients of a micro-batch")
    p.add_argument("--buckets", type=int, required=True)
    p.add_argument("--plan", required=True, help="JSON of lengths.tokens()")
    p.add_argument("--seconds-per-token", type=float, required=True)
    args = p.parse_args()
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    plan = json.loads(args.plan)
    count = args.bytes // 4 // args.buckets // world * world
    grads = (numpy.arange(count, dtype=numpy.float32) % 509) + rank
    want = (numpy.arange(count, dtype=numpy.float32) % 509) * world + world * (world - 1) // 2
    each = args.buckets * len(plan[0])
    part = count // world
    sums = [numpy.zeros(part if args.what == "scatter" else count, numpy.float32) for _ in range(each)]
    system = Reducers()
    call = system.scatter if args.what == "scatter" else system.all_reduce
    mine = want[rank * part : (rank + 1) * part] if args.what == "scatter" else want
    times, right = [], True
    for step in [plan[0], *plan]:  # the first one warms up
        ready = lengths.ready(step, rank, args.seconds_per_token, args.buckets)
        system.barrier()
        start, works = time.perf_counter(), []
        for at, into in zip(ready, sums):
            time.sleep(max(0, start + at - time.perf_counter()))
            works.append(call(grads, into))
        for work in works:
            system.wait(work)
        times.append(time.perf_counter() - start)
        right &= all(bool((x == mine).all()) for x in sums)
    system.close()
    print(json.dumps({"rank": rank, "times": times[1:], "right": right}), flush=True)


if __name__ == "__main__":
    main()
