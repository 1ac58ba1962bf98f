#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Measures training steps of PyTorch's DistributedDataParallel on shaped links. The systems:

    gloo             the backend gloo
    group            the backend `reduction`, in a program that is otherwise the same
    reducers         gloo and our hook
    gloo+fp16        gloo and DDP's float16 hook
    group+fp16       the backend `reduction` and DDP's float16 hook
    reducers+fp16    gloo and DDP's float16 wrapper around our hook
    reducers+wire:W  gloo and our hook with job.wire W: bf16, fp8 or int8

Every host is a network namespace (bench/net/lab.py). A launch trains a model for some steps with one system. Systems
take turns. The result is the median over all steps of all launches. A step lasts as long as that of its slowest rank.
Prints a line of JSON for each case and system, then a table. Exit status: 0 success, 1 an error, 2 wrong usage, 77 the
laboratory cannot be made.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench" / "net"))

import lab as net  # noqa: E402
import systems  # noqa: E402
from placement import Placement  # noqa: E402

WORKER = pathlib.Path(__file__).resolve().with_name("worker.py")
CASES = {
    f"n{n}-{rate}": (n, rate)
    for n, rate in ((4, "1gbit"), (4, "250mbit"), (4, "100mbit"), (8, "250mbit"), (8, "100mbit"))
}
SYSTEMS = ("gloo", "group", "reducers", "gloo+fp16", "group+fp16", "reducers+fp16")
WIRES = ("reducers+wire:bf16", "reducers+wire:fp8", "reducers+wire:int8")
PORT = 29500
START_S = 60


def parse_arguments():
    p = argparse.ArgumentParser(
        prog="bench-step", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--mib", default="16,64", help="MiB of gradients, multiples of 4, comma-separated (default 16,64)")
    p.add_argument(
        "--cases", default=",".join(CASES), help=f"workers, as many reducers, rate of links; of {', '.join(CASES)}"
    )
    p.add_argument("--systems", default=",".join(SYSTEMS), help="comma-separated (default those without wire)")
    p.add_argument("--repeats", type=int, default=3, help="launches of each system (default 3)")
    p.add_argument("--steps", type=int, default=5, help="timed steps of a launch (default 5)")
    p.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "default")
    p.add_argument(
        "--out", type=pathlib.Path, default=ROOT / "build" / "bench" / "step.jsonl", help="file of JSON lines"
    )
    args = p.parse_args()
    try:
        args.mib = [int(word) for word in args.mib.split(",")]
    except ValueError:
        p.error(f'--mib: found "{args.mib}", expected numbers such as 16,64')
    args.cases, args.systems = args.cases.split(","), args.systems.split(",")
    for option, known in (("cases", CASES), ("systems", SYSTEMS + WIRES)):
        for word in getattr(args, option):
            if word not in known:
                p.error(f'--{option}: found "{word}", expected {", ".join(known)}')
    if any(m < 4 or m % 4 for m in args.mib) or args.repeats < 1 or args.steps < 1:
        p.error("--mib: expected multiples of 4; --repeats and --steps: 1 or more")
    return args


def environment(lab, place, rank, folder, args, system):
    """Returns the environment that a launcher such as torchrun gives to the only rank of a node."""
    return dict(
        os.environ,
        RANK=str(rank),
        WORLD_SIZE=str(place.n),
        LOCAL_RANK="0",
        LOCAL_WORLD_SIZE="1",
        MASTER_ADDR=lab.address(place.workers[0]),
        MASTER_PORT=str(PORT),
        GLOO_SOCKET_IFNAME="eth0",
        USE_LIBUV="0",
        OMP_NUM_THREADS="1",
        PYTHONPATH=str(ROOT / "agent" / "python"),
        PYTHONDONTWRITEBYTECODE="1",
        REDUCTION_LIBRARY=str(args.build / "lib" / "libreduction.so.0"),
        REDUCTION_WIRE=system.partition(":")[2] or "same",
        REDUCTION_CONFIG=f"{folder}/job.yaml",
        REDUCTION_MODE="direct",
    )


def launch(lab, place, system, mib, args):
    """Trains once. Returns (seconds of each step, seconds of compute)."""
    slowest = mib * 2**20 / (net.parse_rate(lab.rate_text) / 8 * 0.2) + 5
    with tempfile.TemporaryDirectory(prefix="bench-step-") as folder:
        one = systems.Launch(lab, place, mib << 20, args.steps, 1, args.build)
        one.dir = folder
        ours = systems.Ours()
        servers = ours.start_servers(one) if not system.startswith("gloo") else []
        ranks = []
        try:
            for rank, host in enumerate(place.workers):
                command = ["/usr/bin/python3", WORKER, "--system", system, "--mib", mib, "--steps", args.steps]
                with open(f"{folder}/{rank}.err", "w", encoding="utf-8") as errors:
                    ranks.append(
                        lab.popen(
                            host,
                            command,
                            stdout=subprocess.PIPE,
                            stderr=errors,
                            stdin=subprocess.DEVNULL,
                            env=environment(lab, place, rank, folder, args, system),
                        )
                    )
            deadline = time.monotonic() + START_S + (args.steps + 3) * slowest
            rows = []
            for rank, p in enumerate(ranks):
                out, _ = p.communicate(timeout=max(1, deadline - time.monotonic()))
                if p.returncode:
                    words = pathlib.Path(f"{folder}/{rank}.err").read_text(errors="replace")[-800:]
                    raise net.LabError(f"{system}, {mib} MiB: rank {rank}: exit status {p.returncode}: {words}")
                rows.append(json.loads(out))
        except subprocess.TimeoutExpired:
            raise net.LabError(f"{system}, {mib} MiB: rank {rank} is not done in time") from None
        finally:
            for p in ranks + servers:
                net.end(p)
    return [max(step) for step in zip(*(r["seconds"] for r in rows))], max(r["compute"] for r in rows)


def measure(n, rate, args):
    """Runs all systems and sizes of one case, in turn; returns lines."""
    samples = {}
    place = Placement(n, n, payload=[net.payload_bits(net.parse_rate(rate))] * 2 * n)
    for repeat in range(args.repeats):
        with net.Lab(2 * n, rate, build=args.build) as lab:
            lab.rate_text = rate
            for mib in args.mib:
                for system in args.systems:
                    seconds, compute = launch(lab, place, system, mib, args)
                    found = samples.setdefault((mib, system), ([], []))
                    found[0].extend(seconds)
                    found[1].append(compute)
                    print(
                        f"# pass {repeat + 1}: n={n} {mib} MiB {system}: {statistics.median(seconds):.3f} s",
                        file=sys.stderr,
                    )
    lines = []
    for (mib, system), (seconds, compute) in samples.items():
        lines.append(
            {
                "n": n,
                "k": n,
                "rate": rate,
                "mib": mib,
                "system": system,
                "steps": len(seconds),
                "step_s_median": round(statistics.median(seconds), 4),
                "min": round(min(seconds), 4),
                "max": round(max(seconds), 4),
                "step_s": [round(x, 4) for x in seconds],
                "compute_s": round(statistics.median(compute), 4),
            }
        )
    return lines


def print_table(lines):
    """Prints the seconds of a step, and how many times faster each system is than gloo (float16: than gloo with
    float16)."""
    systems = [system for system in SYSTEMS + WIRES if any(line["system"] == system for line in lines)]
    print(f"\n{'workers, link, gradients':26}" + "".join(f"{s:>20}" for s in systems) + f"{'compute':>10}")
    by = {(x["n"], x["rate"], x["mib"], x["system"]): x for x in lines}
    for n, rate, mib in dict.fromkeys(k[:3] for k in by):
        row = {s: by[n, rate, mib, s] for s in systems}
        cells = []
        for system, line in row.items():
            base = row.get("gloo+fp16" if system.endswith("+fp16") else "gloo")
            times = f" ({base['step_s_median'] / line['step_s_median']:.2f} x)" if base else ""
            cells.append(f"{line['step_s_median']:.3f} s{times}")
        compute = statistics.median(r["compute_s"] for r in row.values())
        print(f"{f'n={n}, {rate}, {mib} MiB':26}" + "".join(f"{c:>20}" for c in cells) + f"{compute:>8.3f} s")
    print(
        "Medians of whole steps, and how many times faster than gloo with the same gradients; compute: a step without "
        "all-reduce."
    )


def main():
    args = parse_arguments()
    args.build = args.build.resolve()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    lines = []
    with net.only_one_measures():
        net.check_machine()
        for case in args.cases:
            lines += measure(*CASES[case], args)
    args.out.write_text("".join(json.dumps(x) + "\n" for x in lines), encoding="ascii")
    for line in lines:
        print(json.dumps(line))
    print_table(lines)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except net.LabError as error:
        print(f"bench-step: {error}", file=sys.stderr)
        sys.exit(error.code)
    except KeyboardInterrupt:
        sys.exit(130)
