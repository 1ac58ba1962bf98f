#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Measures how long a reducer needs from a provider's notice until it has drained, with many jobs on it.

Two reducers serve all jobs. One of them looks for the file of a notice. There is a process for each rank number: it has
this rank of every job, and sums without a pause, job after job; each sum is checked. The time runs from the moment at
which the file appears until the process of the reducer has exited. Afterwards every job must sum on with the other
reducer. Prints one JSON line for each round, and a last one with the median. Exit status 1: a sum was wrong or
missing, a job was not handed over, or a round took longer than --most.
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

from daemon import Daemon

ROOT = pathlib.Path(__file__).resolve().parent.parent
RANK = """
import os, sys, threading
import numpy, reduction
rank, world, jobs, floats = map(int, sys.argv[1:])
stop = threading.Event()
def listen():
    for _ in sys.stdin:
        stop.set()
threading.Thread(target=listen, daemon=True).start()
comms = [None] * jobs
def connect(j):
    comms[j] = reduction.Communicator(rank=rank, world_size=world, job=f"job-{j}", run="bench")
threads = [threading.Thread(target=connect, args=(j,)) for j in range(jobs)]
for t in threads:
    t.start()
for t in threads:
    t.join()
buffers = [numpy.empty(floats, numpy.float32) for _ in range(jobs)]
print("open", flush=True)
n = 0
while True:
    for j, x in enumerate(buffers):
        x[:] = rank + j + n % 5
        x[-1] = stop.is_set()
    for request in [comm.all_reduce(x, async_op=True) for comm, x in zip(comms, buffers)]:
        request.wait()
    for j, x in enumerate(buffers):
        expected = world * (j + n % 5) + world * (world - 1) // 2
        assert (x[:-1] == expected).all(), (rank, j, n, x, expected)
    n += 1
    print("sums", n, flush=True)
    if buffers[0][-1] == world:
        break
for comm in comms:
    comm.close()
print("end", n * jobs, flush=True)
"""


def parse_arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default="build/default", help="folder of the build (default %(default)s)")
    p.add_argument("--jobs", type=int, default=64, help="jobs at the same time (default %(default)s)")
    p.add_argument("--ranks", type=int, default=8, help="ranks of each job (default %(default)s)")
    p.add_argument("--floats", type=int, default=65536, help="elements of one all-reduce (default %(default)s)")
    p.add_argument("--rounds", type=int, default=3, help="rounds, each with new processes (default %(default)s)")
    p.add_argument("--most", type=float, default=10, help="most seconds of a round (default %(default)s)")
    return p.parse_args()


def reach(ranks, word, least):
    """Reads what each rank says until it says `word` with a number of at least `least`; returns the numbers."""
    found = []
    for p in ranks:
        for line in p.stdout:
            said, *number = line.split()
            if said == word and int((number or [0])[0]) >= least:
                found.append(int((number or [0])[0]))
                break
        else:
            sys.exit(f"a rank has ended with status {p.wait()}")
    return found


def run(args, folder):
    """One round. Returns its row."""
    build = pathlib.Path(args.build).resolve()
    notice, config = folder / "notice", folder / "job.yaml"
    server = [str(build / "bin/reduction-server"), "--listen", "127.0.0.1:0"]
    with Daemon([*server, "--notice", str(notice)], folder / "r0.log") as r0, Daemon(server, folder / "r1.log") as r1:
        reducers = [{"id": f"r{i}", "address": r.address} for i, r in enumerate((r0, r1))]
        config.write_text(json.dumps({"reducers": reducers, "timeouts": {"connect": "120s"}}), encoding="ascii")
        env = {**os.environ, "REDUCTION_CONFIG": str(config), "REDUCTION_MODE": "direct", "OMP_NUM_THREADS": "1",
               "REDUCTION_LIBRARY": str(build / "lib/libreduction.so.0"), "REDUCTION_LOG": "error",
               "PYTHONPATH": str(ROOT / "agent/python")}  # fmt: skip
        argv = [sys.executable, "-c", RANK]
        ranks = [subprocess.Popen([*argv, *map(str, (i, args.ranks, args.jobs, args.floats))], env=env, text=True,
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE)
                 for i in range(args.ranks)]  # fmt: skip
        try:
            before = max(reach(ranks, "sums", 3))
            fresh = folder / "notice.new"
            end = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 120))
            fresh.write_text(f"a notice of bench\nbefore {end}\n")
            since = time.monotonic()
            fresh.rename(notice)
            r0.process.wait(args.most * 10)
            took = time.monotonic() - since
            reach(ranks, "sums", before + 5)
            for p in ranks:
                p.stdin.write("stop\n")
                p.stdin.flush()
            sums = reach(ranks, "end", 1)
            codes = [p.wait() for p in ranks]
        finally:
            for p in ranks:
                p.kill()
    said = re.search(r"\bdrained .*?jobs=(\d+) handed_over=(\d+) finished=(\d+) cut=(\d+) took_ms=(\d+)",
                     r0.log.read_text())  # fmt: skip
    jobs, over, finished, cut, took_ms = map(int, said.groups())
    good = (codes == [0] * args.ranks and len(set(sums)) == 1 and (jobs, over) == (args.jobs, args.jobs)
            and took <= args.most)  # fmt: skip
    return {"bench": "drain", "jobs": jobs, "ranks": args.ranks, "notice_to_exit_s": round(took, 3),
            "drain_ms": took_ms, "handed_over": over, "finished": finished, "cut": cut, "sums_checked": sum(sums),
            "good": good}  # fmt: skip


def main():
    args = parse_arguments()
    rows = []
    for _ in range(args.rounds):
        with tempfile.TemporaryDirectory(prefix="reduction-") as folder:
            rows.append(run(args, pathlib.Path(folder)))
        print(json.dumps(rows[-1]), flush=True)
    print(json.dumps({"bench": "drain", "jobs": args.jobs, "ranks": args.ranks, "rounds": len(rows),
                      "notice_to_exit_s": statistics.median(row["notice_to_exit_s"] for row in rows),
                      "worst_s": max(row["notice_to_exit_s"] for row in rows),
                      "good": all(row["good"] for row in rows)}))  # fmt: skip
    return 0 if all(row["good"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
