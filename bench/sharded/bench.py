#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Measures reduce-scatter and all-gather over shaped links, alone and both at once, as sharded training uses them, and
an all-reduce beside them. The reducers' processor time is in ns for each byte that a worker sends or gets, and their
memory is that of the largest process.

Systems take turns in one laboratory; the number of a launch is bytes / median time of a call, and a call lasts as long
as that of its slowest rank. Rates are MB/s of the full tensor: of all parts. Prints a JSON line for each row, and then
the bounds: what the links allow a ring (gloo and MPI) and reducers, calculated. The systems:

    reducers    libreduction
    gloo        torch's gloo, with a group for each kind (needs --python with torch)
    gloo-one    the same with one group for both kinds, as FSDP has it
    ompi        Open MPI: MPI_Ireduce_scatter_block and MPI_Iallgather

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
import systems  # noqa: E402
from placement import Placement  # noqa: E402

WORKER = pathlib.Path(__file__).resolve().with_name("worker.py")
WHAT = ("scatter", "gather", "both", "all-reduce")
PORT = 29500
MIB = 1 << 20
LAUNCH_S = 60  # time for starting, in addition to the operations
PAYLOAD = 1448 / 1514  # of a packet


def parse_arguments():
    p = argparse.ArgumentParser(
        prog="bench-sharded", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--python", default=sys.executable, help="a Python with torch, for gloo (default: this one)")
    p.add_argument("--workers", default="4,8", help="workers, and as many reducers, comma-separated (%(default)s)")
    p.add_argument("--rate", type=int, default=250, help="rate of links in Mbit/s (%(default)s)")
    p.add_argument("--bytes", type=int, default=16 * MIB, help="bytes of all parts (%(default)s)")
    p.add_argument("--what", default=",".join(WHAT), help="%(default)s")
    p.add_argument("--systems", default="reducers,gloo,gloo-one,ompi", help="%(default)s")
    p.add_argument("--repeats", type=int, default=3, help="launches of each system (%(default)s)")
    p.add_argument("--iters", type=int, default=4, help="timed calls of a launch (%(default)s)")
    p.add_argument("--cc", default="cubic", help="congestion control (%(default)s)")
    p.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "default")
    args = p.parse_args()
    args.build = args.build.resolve()
    return args


def bound(what, n, line, reducers):
    """Returns what the links allow, in MB/s of the full tensor: of the busier direction of a worker's link."""
    if reducers:
        return line * {"scatter": 1, "gather": n / (n - 1), "both": n / (n + 1), "all-reduce": 1}[what]
    return line * n / (n - 1) / (2 if what in ("both", "all-reduce") else 1)


class Python(systems.System):
    """worker.py on each host."""

    moves_bytes = False  # while it imports torch, which takes seconds

    def __init__(self, name, what, args):
        self.name, self.what, self.args = name, what, args

    def start_servers(self, launch):
        return systems.Ours().start_servers(launch) if self.name == "reducers" else []

    def start_ranks(self, launch):
        place, lab = launch.place, launch.lab

        def environment(rank):
            return {
                "RANK": str(rank), "WORLD_SIZE": str(place.n), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1",
                "MASTER_ADDR": lab.address(place.workers[0]), "MASTER_PORT": str(PORT), "OMP_NUM_THREADS": "1",
                "REDUCTION_LIBRARY": str(launch.build / "lib/libreduction.so.0"), "REDUCTION_MODE": "direct",
                "REDUCTION_CONFIG": f"{launch.dir}/job.yaml", "PYTHONDONTWRITEBYTECODE": "1",
                "GLOO_SOCKET_IFNAME": "eth0", "PYTHONPATH": str(ROOT / "agent/python"),
            }  # fmt: skip

        python = self.args.python if self.name.startswith("gloo") else sys.executable
        return systems._each_rank(launch, lambda _r: [
            python, WORKER, "--system", self.name, "--what", self.what, "--bytes", launch.size, "--iters",
            launch.iters], environment)  # fmt: skip


class OpenMPI(systems.OpenMPI):
    """The same in C over Open MPI."""

    program = "bench/mpi-sharded-openmpi"

    def __init__(self, name, what):
        super().__init__(name)
        self.what = what

    def arguments(self, launch):
        return ["--what", self.what, "--bytes", launch.size, "--iters", launch.iters]


def resident(pid):
    """Returns the most MiB that a process has had in memory."""
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmHWM")) / 1024


def run(lab, place, system, args):
    """Returns the seconds of each call of a launch, and the reducers' ns for each byte and MiB."""
    one = systems.Launch(lab, place, args.bytes, args.iters, 1, args.build)
    one.limit_s = LAUNCH_S + (args.iters + 1) * args.bytes / (args.rate * 1e6 / 8) * 8
    with tempfile.TemporaryDirectory(prefix="bench-sharded-") as one.dir:
        servers, ranks = system.start_servers(one), []
        cpu = sum(net.cpu_seconds(p.pid) for p in servers)
        try:
            ranks = system.start_ranks(one)
            rows = system._collect(one, ranks)
            cpu = sum(net.cpu_seconds(p.pid) for p in servers) - cpu
            memory = max((resident(p.pid) for p in servers), default=0)
        finally:
            for p in ranks + servers:
                net.end(p)
            lab.sweep()
    if not all(row["right"] for row in rows):
        raise net.LabError(f"{system.name}: a wrong result")
    moved = args.bytes * (args.iters + 1) * place.n
    return [max(times) for times in zip(*(row["times"] for row in rows))], cpu / moved * 1e9, memory


def measure(n, args):
    place = Placement(n, n)
    line = args.rate / 8 * PAYLOAD
    with net.Lab(place.hosts, f"{args.rate}mbit", 5, cc=args.cc, build=args.build) as lab:
        for what in args.what.split(","):
            speeds, cpu, memory = {}, [], []
            for _ in range(args.repeats):
                for name in args.systems.split(","):
                    mpi = name.startswith("ompi")
                    if mpi and what == "all-reduce":
                        continue  # bench-net has it
                    if name == "gloo-one" and what != "both":
                        continue  # it is gloo
                    times, *used = run(lab, place, OpenMPI(name, what) if mpi else Python(name, what, args), args)
                    speeds.setdefault(name, []).append(args.bytes / 1e6 / statistics.median(times))
                    if name == "reducers":
                        cpu.append(used[0])
                        memory.append(used[1])
            row = {"row": what, "n": n, "bytes": args.bytes, "mbit": args.rate, "unit": "MB/s"}
            for name, found in speeds.items():
                row[name] = round(statistics.median(found), 1)
                row[f"{name}_spread"] = [round(min(found), 1), round(max(found), 1)]
            row["ring_bound"] = round(bound(what, n, line, False), 1)
            row["reducers_bound"] = round(bound(what, n, line, True), 1)
            row["reducers_ns_per_byte"] = round(statistics.median(cpu), 2) if cpu else None
            row["reducers_mib"] = round(max(memory)) if memory else None
            row["load"] = round(os.getloadavg()[0], 1)
            print(json.dumps(row), flush=True)


def main():
    args = parse_arguments()
    started = time.monotonic()
    for n in args.workers.split(","):
        measure(int(n), args)
    print(f"bench-sharded: {time.monotonic() - started:.0f} s", file=sys.stderr)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except net.LabError as e:
        print(f"bench-sharded: {e}", file=sys.stderr)
        sys.exit(e.code)
