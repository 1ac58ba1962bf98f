#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Measures libreduction-mpi.so with Open MPI. Prints one JSON line for each row. The systems of a row take turns.

    links   MPI_Allreduce of one program, 4 hosts and 4 reducers on links of 1 Gbit/s: with reducers, with Open MPI's
            ring and with its own choice; medians in MB/s, and ours divided by the best of the others. Needs root
    small   the same with smaller calls: from which size up should the library take a call (REDUCTION_MPI_MIN_BYTES)?
    passed  ns of an all-reduce of 4 bytes, 2 ranks on one host, with the library (which passes it on) and without
"""

import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "net"))
import lab as net  # noqa: E402
import placement  # noqa: E402
import systems  # noqa: E402

LIBRARY = "lib/libreduction-mpi.so"
MIB = 1 << 20
SMALL = (16 << 10, 64 << 10, 256 << 10, MIB)


class ThroughReducers(systems.OpenMPI):
    """The program of the other systems, with the library and reducers."""

    def __init__(self):
        super().__init__("reducers")
        self.servers = systems.Ours()

    def start_servers(self, launch):
        return self.servers.start_servers(launch)

    def variables(self, launch):
        return {"LD_PRELOAD": launch.build / LIBRARY, "REDUCTION_CONFIG": f"{launch.dir}/job.yaml",
                "REDUCTION_MPI": "required", "REDUCTION_MPI_MIN_BYTES": 1}  # fmt: skip


def parse_arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", type=pathlib.Path, default="build/default", help="folder of the build (%(default)s)")
    p.add_argument("--repeats", type=int, default=3, help="runs of each system (%(default)s)")
    p.add_argument("--bytes", default=str(16 * MIB), help="sizes of the row links, with commas (%(default)s)")
    p.add_argument("--rows", default="links,small,passed", help="rows to measure (%(default)s)")
    args = p.parse_args()
    args.build = args.build.resolve()
    return args


def measure_links(args):
    measure_sizes(args, "links", map(int, args.bytes.split(",")))


def measure_small(args):
    measure_sizes(args, "small", SMALL)


def measure_sizes(args, name, sizes):
    """Measures each size with each system, in one laboratory."""
    place = placement.Placement(4, 4)
    known = [ThroughReducers(), systems.OpenMPI("ompi-ring", ring=True), systems.OpenMPI("ompi")]
    if missing := known[0].missing(args.build):
        sys.exit(f"bench-mpi: {missing}")
    with net.Lab(place.hosts, "1gbit", 5, build=args.build) as lab:
        for size in sizes:
            speeds = {s.name: [] for s in known}
            iters = max(4, min(200, 64 * MIB // size))
            for _ in range(args.repeats):
                for s in known:
                    row = s.measure(systems.Launch(lab, place, size, iters, max(1, iters // 4), args.build))
                    speeds[s.name].append(round(row["algbw"] * 1e3, 1))
            medians = {system: round(statistics.median(v), 1) for system, v in speeds.items()}
            best = max(v for system, v in medians.items() if system != "reducers")
            print(json.dumps({"row": name, "bytes": size, "unit": "MB/s", **medians, "runs": speeds,
                              "ratio": round(medians["reducers"] / best, 3), "load": os.getloadavg()[0]}), flush=True)


def measure_passed(args):
    """The least time of all runs: others of this machine only add to it."""
    program = args.build / "tests/mpi/table-openmpi"
    found = {"mpi": [], "passed_on": []}
    for _ in range(args.repeats):
        for name, times in found.items():
            library = ["-x", f"LD_PRELOAD={args.build / LIBRARY}"] if name == "passed_on" else []
            argv = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", "2", "--mca",
                    "btl_vader_single_copy_mechanism", "none", *library, program, "time"]
            done = subprocess.run(argv, capture_output=True, text=True, timeout=120)
            line = re.search(r"^4 bytes: (\d+) ns$", done.stdout, re.M)
            if not line:
                sys.exit(f"bench-mpi: no time was printed: {done.stderr.strip()[-600:]}")
            times.append(int(line[1]))
    best = {name: min(times) for name, times in found.items()}
    print(json.dumps({"row": "passed", "unit": "ns", **best, "more": best["passed_on"] - best["mpi"], "runs": found,
                      "load": os.getloadavg()[0]}), flush=True)


def main():
    args = parse_arguments()
    rows = {"links": measure_links, "small": measure_small, "passed": measure_passed}
    for name in args.rows.split(","):
        if name not in rows:
            sys.exit(f"bench-mpi: row {name}: known are {', '.join(rows)}")
        rows[name](args)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except net.LabError as e:
        sys.exit(f"bench-mpi: {e}")
