#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Measures training steps of sharded training on CPUs, on shaped links. The trainings:

    fsdp             PyTorch's FSDP2
    hsdp             the same in groups of --group ranks, between which gradients are all-reduced
    zero1            PyTorch's ZeroRedundancyOptimizer, with DDP
    zero2, zero3     DeepSpeed (needs it in --python)

The systems:

    gloo             the backend gloo
    gloo+async       the same (fsdp and hsdp); an all-gather is started one layer ahead and runs beside what follows
    reducers         the backend `reduction`
    reducers+async   the same; so a reduce-scatter and an all-gather run at the same time

The model is a transformer of 8 layers, whose parameters, all-gathers and reduce-scatters are in bfloat16. Every worker
is a network namespace (bench/net/lab.py); one with several ranks has its agent in the process of local rank 0. A launch
trains for some steps with one system. Systems take turns. The result is the median over all steps of all launches; a
step lasts as long as that of its slowest rank. One more step of each launch is observed: how long gathers, scatters,
and both at once were under way, and what rank 0 called. Prints a line of JSON for each case and system, then a table.
Exit status: 0 success, 1 an error, 2 wrong usage, 77 the laboratory cannot be made, or there is no torch 2.9 or later.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench" / "net"))

import lab as net  # noqa: E402
import step  # noqa: E402
import step_jax  # noqa: E402
import systems  # noqa: E402
from placement import Placement  # noqa: E402
from plot import GREY, GRID, INK  # noqa: E402

WORKER = pathlib.Path(__file__).resolve().with_name("worker_fsdp.py")
SYSTEMS = ("gloo", "reducers", "gloo+async", "reducers+async")
WIDTH_PX, LEFT, TOP, ROW = 900, 220, 56, 20
COLOURS = {"gather": "#0072b2", "scatter": "#e69f00"}
TRAININGS = ("fsdp", "hsdp", "zero1", "zero2", "zero3")
NEEDED = "import torch; assert tuple(map(int, torch.__version__.split('.')[:2])) >= (2, 9)"


def parse_arguments():
    p = argparse.ArgumentParser(
        prog="bench-fsdp", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--python", default=sys.executable, help="a Python with torch (default: the one that runs this)")
    p.add_argument("--workers", default="4,8", help="workers, and as many reducers, comma-separated (default 4,8)")
    p.add_argument("--training", default="fsdp", choices=TRAININGS, help="(default fsdp)")
    p.add_argument("--group", type=int, default=4, help="ranks of a group in hsdp (default 4)")
    p.add_argument("--local", type=int, default=1, help="ranks of each worker (default 1)")
    p.add_argument("--rate", default="250mbit", help="rate of links (default 250mbit)")
    p.add_argument("--width", type=int, default=256, help="width of the transformer, a multiple of 4 (default 256)")
    p.add_argument("--layers", type=int, default=8, help="its layers (default 8)")
    p.add_argument("--systems", "--system", help=f"of {', '.join(SYSTEMS)} (default all that the training has)")
    p.add_argument("--repeats", type=int, default=2, help="launches of each system (default 2)")
    p.add_argument("--steps", type=int, default=5, help="timed steps of a launch (default 5)")
    p.add_argument("--spans", action="store_true", help="print when rank 0's operations of the observed step began and "
                   "ended, in seconds")  # fmt: skip
    p.add_argument("--plot", type=pathlib.Path, help="draw these spans, of the last number of workers (FILE.svg)")
    p.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "default")
    args = p.parse_args()
    if not args.systems:
        args.systems = ",".join(SYSTEMS[: 4 if args.training.endswith("sdp") else 2])
    args.workers, args.systems = [int(n) for n in args.workers.split(",")], args.systems.split(",")
    for word in args.systems:
        if word not in SYSTEMS:
            p.error(f'--systems: found "{word}", expected {", ".join(SYSTEMS)}')
        if word.endswith("+async") and not args.training.endswith("sdp"):
            p.error(f'--systems: found "{word}", expected gloo, reducers with --training {args.training}')
    if args.plot and not args.training.endswith("sdp"):
        p.error(f"--plot: found --training {args.training}, expected fsdp or hsdp")
    for n in args.workers if args.training == "hsdp" else []:
        if n * args.local % args.group or n * args.local == args.group:
            p.error(f"--group: found {args.group}, expected a divisor of {n * args.local} ranks, and fewer")
    return args


def launch(lab, place, system, args):
    """Trains once. Returns what the ranks found, in the order of the ranks."""
    with tempfile.TemporaryDirectory(prefix="bench-fsdp-") as folder:
        one = systems.Launch(lab, place, 16 << 20, args.steps, 1, args.build)
        one.dir = folder
        servers = systems.Ours().start_servers(one) if system.startswith("reducers") else []
        ranks = []
        try:
            for rank in range(place.n * args.local):
                host = place.workers[rank // args.local]
                command = [args.python, WORKER, "--system", system, "--steps", args.steps, "--width", args.width,
                           "--layers", args.layers, "--training", args.training, "--group", args.group]  # fmt: skip
                with open(f"{folder}/{rank}.err", "w", encoding="utf-8") as errors:
                    env = step.environment(lab, place, rank, folder, args, system) | {
                        "WORLD_SIZE": str(place.n * args.local), "LOCAL_RANK": str(rank % args.local),
                        "LOCAL_WORLD_SIZE": str(args.local), "DS_ACCELERATOR": "cpu",
                        "REDUCTION_MODE": "direct" if args.local == 1 else "node",
                    }  # fmt: skip
                    ranks.append(
                        lab.popen(
                            host, command, stdout=subprocess.PIPE, stderr=errors, stdin=subprocess.DEVNULL, env=env
                        )
                    )
            return step_jax.collect(ranks, folder, system)
        finally:
            for p in ranks + servers:
                net.end(p)


def measure(n, args):
    """Runs all systems with n workers, in turn; returns lines."""
    place = Placement(n, n, payload=[net.payload_bits(net.parse_rate(args.rate))] * 2 * n)
    launches = {system: [] for system in args.systems}
    for _ in range(args.repeats):
        with net.Lab(2 * n, args.rate, build=args.build) as lab:
            lab.rate_text = args.rate
            for system in args.systems:
                rows = launch(lab, place, system, args)
                launches[system].append(rows)
                seconds = [max(s) for s in zip(*(r["seconds"] for r in rows))]
                print(f"# n={n} {system}: {statistics.median(seconds):.3f} s", file=sys.stderr)
    return [line_of(n, args, system, found) for system, found in launches.items()]


def line_of(n, args, system, launches):
    """Returns the result of a system: of each launch what its ranks found."""
    seconds = [max(s) for rows in launches for s in zip(*(r["seconds"] for r in rows))]
    line = {
        "training": args.training, "n": n, "ranks": n * args.local, "rate": args.rate, "system": system,
        "mib": round(launches[0][0]["bytes"] / 2**20, 2), "step_s_median": round(statistics.median(seconds), 4),
        "min": round(min(seconds), 4), "max": round(max(seconds), 4),
        "compute_s": round(statistics.median(max(r["compute"] for r in rows) for rows in launches), 4),
    }  # fmt: skip
    for name in ("gather_s", "scatter_s", "both_s"):
        line[name] = round(statistics.median(r[name] for rows in launches for r in rows), 4)
    for name in ("sent", "got"):  # by a worker in a step
        line[f"{name}_mb"] = round(max(r[name] for rows in launches for r in rows) / 1e6, 1)
    line["called"] = launches[0][0]["called"]
    line["loss"] = sum(r["losses"][-1] for r in launches[0]) / len(launches[0])
    if args.spans or args.plot:
        line["spans"] = launches[0][0]["spans"]
    return line


def draw(lines):
    """Returns a drawing: for each system when rank 0's all-gathers and reduce-scatters were under way in a step."""
    kinds = {"gather": "all-gathers", "scatter": "reduce-scatters"}
    end = max(b for line in lines for kind in kinds for _, b in line["spans"][kind])
    scale, height = (WIDTH_PX - LEFT - 20) / end, TOP + len(lines) * 3 * ROW + 20
    n, rate = lines[0]["n"], lines[0]["rate"]
    rows = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH_PX}" height="{height}" font-family="sans-serif" '
            f'font-size="12"><rect width="100%" height="100%" fill="#fff"/>'
            f'<text x="{LEFT}" y="24" fill="{INK}" font-size="15">One step of {lines[0]["training"]}: {n} workers, '
            f'{rate}, {lines[0]["mib"]:g} MiB of parameters</text>']  # fmt: skip
    for second in range(int(end) + 1):
        x = LEFT + second * scale
        rows += [f'<line x1="{x:.1f}" y1="{TOP - 8}" x2="{x:.1f}" y2="{height - 24}" stroke="{GRID}"/>',
                 f'<text x="{x:.1f}" y="{height - 8}" fill="{GREY}" text-anchor="middle">{second} s</text>']
    for i, line in enumerate(lines):
        y = TOP + i * 3 * ROW
        rows.append(f'<text x="8" y="{y + 13}" fill="{INK}" font-weight="bold">{line["system"]}</text>')
        for j, (kind, name) in enumerate(kinds.items()):
            top = y + j * ROW
            rows.append(f'<text x="{LEFT - 8}" y="{top + 13}" fill="{COLOURS[kind]}" text-anchor="end">{name}</text>')
            rows += [f'<rect x="{LEFT + a * scale:.1f}" y="{top}" width="{(b - a) * scale:.1f}" height="{ROW - 4}" '
                     f'fill="{COLOURS[kind]}" stroke="#fff"/>' for a, b in line["spans"][kind]]  # fmt: skip
    return "\n".join(rows) + "\n</svg>\n"


def print_table(lines):
    """Prints the seconds of a step, and how many times faster it is than gloo's of the same kind."""
    print(f"\n{'workers':9}{'system':>16}{'step':>10}{'':>9}{'compute':>10}{'gathers':>10}{'scatters':>10}{'both':>9}"
          f"{'sent, got':>14} MB{'last loss':>12}")  # fmt: skip
    for line in lines:
        like = line["system"].replace("reducers", "gloo")
        base = [x for x in lines if (x["n"], x["system"]) == (line["n"], like)]
        times = f"{base[0]['step_s_median'] / line['step_s_median']:.2f} x" if base else ""
        print(f"{line['n']:<9}{line['system']:>16}{line['step_s_median']:>8.3f} s{times:>9}{line['compute_s']:>8.3f} s"
              f"{line['gather_s']:>8.3f} s{line['scatter_s']:>8.3f} s{line['both_s']:>7.3f} s"
              f"{line['sent_mb']:>8}{line['got_mb']:>6}   {line['loss']:>12.6f}")  # fmt: skip


def main():
    args = parse_arguments()
    args.build = args.build.resolve()
    if subprocess.run([args.python, "-c", NEEDED], capture_output=True).returncode:
        raise net.LabError(f"{args.python} has no torch 2.9 or later: name another with --python", net.CANNOT_RUN_HERE)
    lines = []
    with net.only_one_measures():
        net.check_machine()
        for n in args.workers:
            lines += measure(n, args)
    for line in lines:
        print(json.dumps(line))
    print_table(lines)
    if args.plot:
        args.plot.write_text(draw([line for line in lines if line["n"] == args.workers[-1]]), encoding="utf-8")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except net.LabError as error:
        print(f"bench-fsdp: {error}", file=sys.stderr)
        sys.exit(error.code)
    except KeyboardInterrupt:
        sys.exit(130)
