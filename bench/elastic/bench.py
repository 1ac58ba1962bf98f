#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Reducers that come and go while a job runs all-reduces without end, in a laboratory of shaped links
(bench/net/lab.py). The configuration lists --most slots. The job starts with --least reducers; the others come one
after another in random order, and leave one after another in another order (SIGTERM: they drain, or with --kill are
killed). For each number of reducers the algorithm bandwidth stands beside what `reductionctl plan` predicts, and for
each change

    share    seconds from the reducer's line `listening` to rank 0's line `slot-taken`; from its SIGTERM to `slot-empty`
    start    seconds from START (`job-started` of the reducer) to `slot-taken`
    longer   seconds by which the longest operation at the change exceeds the slower median before and after it

Prints a line of JSON for each, a table, and whether each is within its bar. Needs root. Exit status: 0 all are, 1 one
is not, an error or a wrong sum, 2 wrong usage, 77 the laboratory cannot be made.
"""

import argparse
import contextlib
import datetime
import json
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench/net"))

import lab as net  # noqa: E402

MIB = 1 << 20
SHARE_S, LONGER_S, PLAN = 1.0, 0.3, 0.10  # the bars
SETTLE_S = 1.0  # after a change, before an operation counts as undisturbed

WORKER = """
import select, sys, time
import numpy as np
import reduction
size, world = int(sys.argv[1]), int(sys.argv[2])
with reduction.Communicator() as comm:
    x = np.empty(size // 4, np.float32)
    comm.barrier()
    going = True
    while going:
        x[:] = comm.rank
        x[-1] = comm.rank == 0 and bool(select.select([sys.stdin], [], [], 0)[0])
        begun = time.time()
        comm.all_reduce(x)
        ended = time.time()
        if comm.rank == 0:
            print(f"op {begun:.6f} {ended:.6f}", flush=True)
        if x[0] != world * (world - 1) / 2 or x[-2] != x[0]:
            print("wrong", flush=True)
        going = not x[-1]
"""


def parse_arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--n", type=int, default=8, help="workers (default 8)")
    p.add_argument("--least", type=int, default=2, help="reducers at the start and the end (default 2)")
    p.add_argument("--most", type=int, default=8, help="slots (default 8)")
    p.add_argument("--rate", default="250mbit", help="of each link (default 250mbit)")
    p.add_argument("--bytes", type=int, default=8, help="MiB of an operation (default 8)")
    p.add_argument("--seconds", type=float, default=8, help="with each number of reducers (default 8)")
    p.add_argument("--seed", type=int, default=1, help="of the orders (default 1)")
    p.add_argument("--kill", action="store_true", help="reducers leave by SIGKILL")
    p.add_argument("--cc", default="cubic", help="congestion control (default cubic)")
    p.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "default")
    p.add_argument("--out", type=pathlib.Path, default=ROOT / "build" / "bench" / "elastic.jsonl")
    args = p.parse_args()
    args.build = args.build.resolve()
    if not 1 <= args.least < args.most:
        p.error(f"found --least {args.least} and --most {args.most}, expected 1 <= least < most")
    return args


def plan(args, k):
    """Returns the MB/s that the planner predicts for k reducers."""
    done = subprocess.run(
        [args.build / "bin/reductionctl", "plan", "--workers", str(args.n), "--bandwidth", args.rate, "--reducers",
         str(k), "--bytes", f"{args.bytes}MiB", "--json"],
        capture_output=True, text=True, check=True)  # fmt: skip
    return args.bytes * MIB / json.loads(done.stdout)["time_s"] / 1e6


def seconds_of(line):
    """Returns the time of a line of a log, as of time.time()."""
    return datetime.datetime.fromisoformat(line.split()[0].replace("Z", "+00:00")).timestamp()


class Run:
    """One job in one laboratory. ops are (begin, end) of rank 0's operations; phases are (reducers, since, until)."""

    def __init__(self, args, lab, folder):
        self.args, self.lab, self.dir = args, lab, pathlib.Path(folder)
        self.ops, self.wrong, self.phases, self.changes, self.servers = [], 0, [], [], {}

    def log(self, name):
        path = self.dir / f"{name}.log"
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def wait_line(self, name, pattern, since=0.0, limit=30):
        """Returns the first line of a log that matches and is not older than `since`."""
        until = time.monotonic() + limit
        while True:
            for line in self.log(name).splitlines():
                if re.search(pattern, line) and seconds_of(line) >= since - 0.001:
                    return line
            if time.monotonic() > until:
                raise net.LabError(f"{name}.log has no line {pattern}, last words: {self.log(name)[-600:]}")
            time.sleep(0.05)

    def start_reducer(self, j):
        """Starts the reducer of slot j; returns the time at which it listens."""
        begun = time.time()
        with open(self.dir / f"r{j}.log", "a", encoding="utf-8") as out:
            command = [self.args.build / "bin/reduction-server", "--insecure", "--lanes", 1, "--listen",
                       f"{self.lab.address(self.args.n + j)}:7600"]  # fmt: skip
            self.servers[j] = self.lab.popen(self.args.n + j, command, stdout=out, stderr=out,
                                             stdin=subprocess.DEVNULL)  # fmt: skip
        return seconds_of(self.wait_line(f"r{j}", "listening", begun))

    def start_workers(self):
        reducers = [{"id": f"r{j}", "address": f"{self.lab.address(self.args.n + j)}:7600"}
                    for j in range(self.args.most)]  # fmt: skip
        text = {"job": {"name": "elastic", "min_reducers": self.args.least}, "reducers": reducers}
        (self.dir / "job.yaml").write_text(json.dumps(text), encoding="ascii")
        self.workers = []
        for rank in range(self.args.n):
            env = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(self.args.n), REDUCTION_RUN="elastic",
                       REDUCTION_CONFIG=str(self.dir / "job.yaml"), REDUCTION_MODE="direct",
                       PYTHONPATH=str(ROOT / "agent/python"),
                       REDUCTION_LIBRARY=str(self.args.build / "lib/libreduction.so"))  # fmt: skip
            command = [sys.executable, "-c", WORKER, self.args.bytes * MIB, self.args.n]
            with open(self.dir / f"w{rank}.log", "w", encoding="utf-8") as err:
                self.workers.append(self.lab.popen(rank, command, stdout=subprocess.PIPE, stderr=err, text=True,
                                                   stdin=subprocess.PIPE, env=env))  # fmt: skip

    def read(self):
        for line in self.workers[0].stdout:
            word = line.split()
            if word[0] == "op":
                self.ops.append((float(word[1]), float(word[2])))
            self.wrong += word[0] == "wrong"

    def rest(self, k):
        """Lets the job run with k reducers, and notes the phase."""
        since = time.time()
        time.sleep(self.args.seconds)
        if self.workers[0].poll() is not None:
            raise net.LabError(f"rank 0 has ended: {self.log('w0')[-600:]}")
        self.phases.append((k, since, time.time()))

    def come(self, j, k):
        at = self.start_reducer(j)
        taken = seconds_of(self.wait_line("w0", rf"slot-taken reducer=r{j} |reducer-back reducer=r{j} ", at))
        started = seconds_of(self.wait_line(f"r{j}", "job-started", at))
        self.changes.append({"what": "comes", "reducer": f"r{j}", "k": k, "at": at, "share": round(taken - at, 3),
                             "start": round(taken - started, 3)})  # fmt: skip

    def leave(self, j, k):
        at = time.time()
        if self.args.kill:
            self.servers[j].kill()
        else:
            self.servers[j].terminate()
        gone = seconds_of(self.wait_line("w0", rf"(slot-empty|reducer-lost|reducer-left) reducer=r{j} ", at))
        self.servers[j].wait(60)
        self.changes.append({"what": "leaves", "reducer": f"r{j}", "k": k, "at": at, "share": round(gone - at, 3)})

    def measure(self):
        slots = list(range(self.args.most))
        order = random.Random(self.args.seed)
        order.shuffle(slots)
        here, coming = slots[: self.args.least], slots[self.args.least :]
        for j in here:
            self.start_reducer(j)
        self.start_workers()
        reader = threading.Thread(target=self.read)
        reader.start()
        until = time.monotonic() + 60
        while not self.ops:
            if self.workers[0].poll() is not None or time.monotonic() > until:
                raise net.LabError(f"the job does not start: {self.log('w0')[-600:]}")
            time.sleep(0.05)
        self.rest(len(here))
        for j in coming:
            here.append(j)
            self.come(j, len(here))
            self.rest(len(here))
        order.shuffle(here)
        while len(here) > self.args.least:
            self.leave(here.pop(), len(here))
            self.rest(len(here))
        self.workers[0].stdin.write("\n")
        self.workers[0].stdin.flush()
        reader.join()
        for w in self.workers:
            if w.wait(60):
                raise net.LabError(f"a rank has ended with exit status {w.returncode}")

    def undisturbed(self, phase):
        """Returns the durations of the operations that lie in a phase, after it has settled."""
        _, since, until = phase
        return [end - begin for begin, end in self.ops if begin >= since + SETTLE_S and end <= until]

    def phase_rows(self):
        for phase in self.phases:
            took = self.undisturbed(phase)
            predicted = plan(self.args, phase[0])
            measured = self.args.bytes * MIB * len(took) / sum(took) / 1e6 if took else 0.0
            yield {"part": "throughput", "k": phase[0], "MBps": round(measured, 2), "plan_MBps": round(predicted, 2),
                   "ratio": round(measured / predicted, 3), "ops": len(took),
                   "ok": abs(measured / predicted - 1) <= PLAN}  # fmt: skip

    def change_rows(self):
        medians = [statistics.median(self.undisturbed(phase)) for phase in self.phases]
        for i, change in enumerate(self.changes):
            near = [end - begin for begin, end in self.ops
                    if end > change["at"] and begin < self.phases[i + 1][1] + SETTLE_S]  # fmt: skip
            longer = max(near) - max(medians[i], medians[i + 1])
            row = {"part": "change", **{k: v for k, v in change.items() if k != "at"}, "longer": round(longer, 3)}
            yield {**row, "ok": longer <= LONGER_S and row.get("start", 0) <= SHARE_S}


def table(rows):
    text = ["| reducers | MB/s | planned | of it | |", "|---|---|---|---|---|"]
    text += [f"| {r['k']} | {r['MBps']} | {r['plan_MBps']} | {r['ratio']:.0%} | {'' if r['ok'] else 'NOT OK'} |"
             for r in rows if r["part"] == "throughput"]  # fmt: skip
    text += ["", "| change | reducers after it | share after | after START | longest operation | |", "|---" * 6 + "|"]
    text += [f"| {r['reducer']} {r['what']} | {r['k']} | {r['share']:.2f} s | "
             f"{'%.3f s' % r['start'] if 'start' in r else ''} | {r['longer']:+.2f} s | {'' if r['ok'] else 'NOT OK'} |"
             for r in rows if r["part"] == "change"]  # fmt: skip
    return "\n".join(text)


def main():
    args = parse_arguments()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    with net.only_one_measures(), tempfile.TemporaryDirectory() as folder:
        with net.Lab(args.n + args.most, rate=args.rate, queue_ms=5, cc=args.cc, build=args.build) as lab:
            run = Run(args, lab, folder)
            run.measure()
        rows = [*run.phase_rows(), *run.change_rows()]
    shape = {"n": args.n, "rate": args.rate, "bytes": args.bytes * MIB, "seed": args.seed, "kill": args.kill,
             "wrong": run.wrong}  # fmt: skip
    with open(args.out, "a", encoding="ascii") as f:
        for row in rows:
            line = json.dumps({**shape, **row})
            print(line, flush=True)
            f.write(line + "\n")
    print(table(rows))
    return 0 if all(r["ok"] for r in rows) and not run.wrong else 1


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        try:
            sys.exit(main())
        except net.LabError as e:
            print(f"bench-elastic: {e}", file=sys.stderr)
            sys.exit(e.code)
    sys.exit(130)
