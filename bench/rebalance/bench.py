#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Shares that follow the network: a job runs all-reduces without end while the laboratory (bench/net/lab.py) changes
under it. Each case runs three times in turns: with equal shares that stay (`sharding.rebalance: off`); with shares that
were made for the changed network, which is the best that a fixed map can do (`best`: the first reducer's share is what
the run with equal shares has measured); and with equal shares that follow (`on`). Cases:

    half       the link of the first reducer goes to half its rate, and is repaired later
    path       what rank 1 sends to the first reducer passes at 1/16 of the rate, whatever the connection; the same
    collision  the same for the connections that exist then: others find another way
    cpu        a busy loop takes most of the processor of the first reducer; the same

Prints a line of JSON for each run and a table. Needs root. Exit status: 0 success, 1 an error or a wrong sum, 2 wrong
usage, 77 the laboratory cannot be made.
"""

import argparse
import contextlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench/net"))

import lab as net  # noqa: E402

MIB = 1 << 20
CASES = ("half", "path", "collision", "cpu")
WAYS = ("off", "best", "on")
BURNER, PATIENT = -6, 15  # nice values of the busy loop and of the reducer: 99 % and 1 % of the processor

WORKER = """
import sys, time
import numpy as np
import reduction
size, world, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
with reduction.Communicator() as comm:
    x = np.empty(size // 4, np.float32)
    comm.barrier()
    until = time.monotonic() + seconds
    while True:
        x[:] = comm.rank
        x[-1] = comm.rank == 0 and time.monotonic() > until
        begun = time.monotonic()
        comm.all_reduce(x)
        ended = time.monotonic()
        if comm.rank == 0:
            print(f"op {ended:.6f} {ended - begun:.6f}", flush=True)
        if x[0] != world * (world - 1) / 2 or x[-2] != x[0]:
            print("wrong", flush=True)
        if x[-1]:
            break
print("end", flush=True)
"""


def parse_arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--cases", default="half,path", help="comma-separated (default half,path)")
    p.add_argument("--ways", default=",".join(WAYS), help="comma-separated (default all)")
    p.add_argument("--n", type=int, default=4, help="workers (default 4)")
    p.add_argument("--k", type=int, default=4, help="reducers (default 4)")
    p.add_argument("--rate", default="1gbit", help="of each link (default 1gbit)")
    p.add_argument("--bytes", type=int, default=16, help="MiB of an operation (default 16)")
    p.add_argument("--before", type=float, default=8, help="seconds before the change (default 8)")
    p.add_argument("--changed", type=float, default=20, help="seconds of it (default 20)")
    p.add_argument("--after", type=float, default=16, help="seconds after its end (default 16)")
    p.add_argument("--repeats", type=int, default=1, help="(default 1)")
    p.add_argument("--cc", default="cubic", help="congestion control (default cubic)")
    p.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "default")
    p.add_argument("--out", type=pathlib.Path, default=ROOT / "build" / "bench" / "rebalance.jsonl")
    args = p.parse_args()
    args.build = args.build.resolve()
    for given, known in ((args.cases, CASES), (args.ways, WAYS)):
        for word in given.split(","):
            if word not in known:
                p.error(f'found "{word}", expected some of {", ".join(known)}')
    return args


class Run:
    """One job in one laboratory. ops are (end, duration) of operations."""

    def __init__(self, args, case, way, folder, weight=1.0):
        self.args, self.case, self.way, self.dir = args, case, way, pathlib.Path(folder)
        self.ops, self.wrong, self.lines = [], 0, []
        self.weight = weight  # of the first reducer

    def config(self, lab):
        weights = [self.weight] + [1.0] * (self.args.k - 1)
        reducers = [{"id": f"r{j}", "address": f"{lab.address(self.args.n + j)}:7600", "weight": weights[j]}
                    for j in range(self.args.k)]
        text = {"job": {"name": "rebalance"}, "reducers": reducers,
                "sharding": {"rebalance": "on" if self.way == "on" else "off", "shards": 256},
                "logging": {"level": "info"}}
        (self.dir / "job.yaml").write_text(json.dumps(text), encoding="ascii")

    def start_reducers(self, lab):
        servers = []
        for j in range(self.args.k):
            out = open(self.dir / f"r{j}.log", "w", encoding="utf-8")
            command = [self.args.build / "bin/reduction-server", "--insecure", "--lanes", 1, "--listen",
                       f"{lab.address(self.args.n + j)}:7600"]
            servers.append(lab.popen(self.args.n + j, command, stdout=out, stderr=out, stdin=subprocess.DEVNULL))
        for j, server in enumerate(servers):
            until = time.monotonic() + 30
            while "listening" not in (self.dir / f"r{j}.log").read_text(encoding="utf-8"):
                if time.monotonic() > until or server.poll() is not None:
                    raise net.LabError(f"reducer r{j} does not listen")
                time.sleep(0.05)
        return servers

    def start_workers(self, lab):
        seconds = self.args.before + self.args.changed + self.args.after
        workers = []
        for rank in range(self.args.n):
            env = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(self.args.n), REDUCTION_RUN="rebalance",
                       REDUCTION_CONFIG=str(self.dir / "job.yaml"), REDUCTION_MODE="direct",
                       PYTHONPATH=str(ROOT / "agent/python"),
                       REDUCTION_LIBRARY=str(self.args.build / "lib/libreduction.so"))
            err = open(self.dir / f"w{rank}.log", "w", encoding="utf-8")
            command = [sys.executable, "-c", WORKER, self.args.bytes * MIB, self.args.n, seconds]
            workers.append(lab.popen(rank, command, stdout=subprocess.PIPE, stderr=err, stdin=subprocess.DEVNULL,
                                     text=True, env=env))
        return workers

    def read(self, worker):
        for line in worker.stdout:
            word = line.split()
            if word[0] == "op":
                self.ops.append((float(word[1]), float(word[2])))
            self.wrong += word[0] == "wrong"

    def change(self, lab, servers, begins):
        """Makes the change of the case, or takes it back."""
        first = self.args.n
        if self.case == "half":
            rate = net.parse_rate(self.args.rate)
            lab.set_rate(first, f"{rate / 2e3:g}kbit" if begins else self.args.rate)
        elif self.case in ("path", "collision"):
            ports = lab.ports(1, first) if begins and self.case == "collision" else None
            lab.set_path_rate(1, first, f"{net.parse_rate(self.args.rate) / 16e3:g}kbit" if begins else None, ports)
        elif begins:
            self.burner = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            self.place([self.burner.pid], {0}, BURNER)
            self.place(os.listdir(f"/proc/{servers[0].pid}/task"), {0}, PATIENT)
        else:
            self.burner.kill()
            self.burner.wait()
            self.place(os.listdir(f"/proc/{servers[0].pid}/task"), set(range(os.cpu_count())), 0)

    @staticmethod
    def place(threads, cpus, nice):
        for thread in map(int, threads):
            os.sched_setaffinity(thread, cpus)
            os.setpriority(os.PRIO_PROCESS, thread, nice)

    def measure(self):
        a = self.args
        with net.Lab(a.n + a.k, rate=a.rate, queue_ms=5, cc=a.cc, build=a.build) as lab:
            self.config(lab)
            servers = self.start_reducers(lab)
            workers = self.start_workers(lab)
            reader = threading.Thread(target=self.read, args=(workers[0],))
            reader.start()
            while not self.ops:
                if workers[0].poll() is not None:
                    raise net.LabError((self.dir / "w0.log").read_text(encoding="utf-8")[-500:])
                time.sleep(0.05)
            begun = self.ops[0][0]
            for at, begins in ((a.before, True), (a.before + a.changed, False)):
                time.sleep(max(0, begun + at - time.monotonic()))
                self.change(lab, servers, begins)
            reader.join()
            for w in workers:
                if w.wait(60):
                    raise net.LabError(f"a rank has ended with exit status {w.returncode}")
            self.lines = re.findall(r"(?:rebalanced|unbalanced|slow-path).*", (self.dir / "w0.log").read_text("utf-8"))
        return begun

    def rate(self, begun, since, until):
        """MB/s of the operations that ended in a span of the run: its bytes over the time that they took."""
        took = [d for e, d in self.ops if since <= e - begun < until]
        return len(took) * self.args.bytes * MIB / sum(took) / 1e6 if took else 0.0

    def row(self, begun):
        a = self.args
        back = a.before + a.changed
        return {"case": self.case, "way": self.way, "n": a.n, "k": a.k, "rate": a.rate, "bytes": a.bytes * MIB,
                "before": round(self.rate(begun, 1, a.before), 1),
                "changed": round(self.rate(begun, a.before + 5, back), 1),
                "at_once": round(self.rate(begun, a.before, a.before + 5), 1),
                "after": round(self.rate(begun, back + 10, back + a.after), 1),
                "slowest_ms": round(1e3 * max(d for _, d in self.ops)), "ops": len(self.ops), "wrong": self.wrong,
                "changes": len([x for x in self.lines if x.startswith("rebalanced")]), "lines": self.lines,
                "weight": self.weight,
                "timeline": [round(self.rate(begun, s, s + 1), 1) for s in range(int(back + a.after))]}


def main():
    args = parse_arguments()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    rows = []
    with contextlib.suppress(KeyboardInterrupt), net.only_one_measures():
        for _ in range(args.repeats):
            for case in args.cases.split(","):
                weight = {"half": 0.5, "path": args.n / 16, "collision": args.n / 16}.get(case, 1.0)
                for way in args.ways.split(","):
                    with tempfile.TemporaryDirectory() as folder:
                        run = Run(args, case, way, folder, weight if way == "best" else 1.0)
                        row = run.row(run.measure())
                    if way == "off":
                        weight = round(row["changed"] / row["before"], 3)
                    rows.append(row)
                    with open(args.out, "a", encoding="ascii") as f:
                        f.write(json.dumps(row) + "\n")
                    print(json.dumps(row), flush=True)
    return 1 if any(r["wrong"] for r in rows) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except net.LabError as e:
        print(f"bench-rebalance: {e}", file=sys.stderr)
        sys.exit(e.code)
