#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Everything that is promised of reducers that come and go and of shares that follow, in one table. Runs the parts one
after another and keeps what each prints in a file; the table has all parts whose file is there, so a part can be run
again alone. Parts, with the time that each takes:

    half       a reducer's link goes to half its rate, 1 Gbit/s          2 minutes
    other      a path is slow, a collision, a stolen processor           7 minutes
    noise      random cross traffic and stolen processor time            1 hour
    elastic    reducers come and leave, beside `reductionctl plan`       3 minutes
    fault      200 trainings while reducers come, move, slow down, fail  40 minutes
    drain      a notice that a machine ends, 64 jobs of 8 ranks          1 minute
    cost       instructions that go into watching the links (valgrind)   1 minute

Needs root. Exit status: 0 all bars are met, 1 one is not, or a part has failed, 2 wrong usage.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
PARTS = ("half", "other", "noise", "elastic", "fault", "drain", "cost")
WATCHES = ("stripe_take_load", "rebalance_tick", "load_received", "lane_load_tick")  # inclusive, and none calls another


def parse_arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--parts", default=",".join(PARTS), help="comma-separated, or none: only the table (default all)")
    p.add_argument("--build", type=pathlib.Path, default=ROOT / "build/default")
    p.add_argument("--out", type=pathlib.Path, default=ROOT / "build/bench/come_and_go", help="folder of the results")
    args = p.parse_args()
    args.parts = [] if args.parts == "none" else args.parts.split(",")
    for word in args.parts:
        if word not in PARTS:
            p.error(f'found "{word}", expected some of {", ".join(PARTS)}, or none')
    args.build = args.build.resolve()
    return args


def command(part, build):
    rebalance = ["bench/rebalance/bench.py", "--build", build]
    return {"half": [*rebalance, "--cases", "half"],
            "other": [*rebalance, "--cases", "path,collision,cpu", "--rate", "250mbit", "--bytes", 4],
            "noise": ["bench/rebalance/noise.py", "--build", build],
            "elastic": ["bench/elastic/bench.py", "--build", build],
            "fault": ["tests/fault/fault.py", "--rounds", 200],
            "drain": ["bench/drain.py", "--build", build]}[part]  # fmt: skip


def measure_cost(build):
    """Prints the part of a process's instructions that goes into watching, for each process of an all-reduce."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["valgrind", "-q", "--tool=callgrind", "--trace-children=yes",
                        f"--callgrind-out-file={folder}/%p", build / "bin/reduction-bench", "--ranks", "2",
                        "--local-reducers", "2", "-b", "16M", "-e", "16M", "-n", "10", "-w", "1", "-c", "0"],
                       check=True, stdout=subprocess.DEVNULL)  # fmt: skip
        for path in pathlib.Path(folder).iterdir():
            text = subprocess.run(["callgrind_annotate", "--inclusive=yes", "--threshold=100", path], check=True,
                                  capture_output=True, text=True).stdout  # fmt: skip
            counts = {name: int(count.replace(",", ""))
                      for count, name in re.findall(r"^ *([\d,]+) .*:(PROGRAM TOTALS|\w+)(?: \[.*\])?$",
                                                    text.replace("PROGRAM TOTALS", ":PROGRAM TOTALS"), re.M)}
            if watching := sum(counts.get(name, 0) for name in WATCHES):
                rows.append({"part": "cost", "instructions": counts["PROGRAM TOTALS"], "watching": watching})
    return rows


def run(part, args):
    path = args.out / f"{part}.jsonl"
    if part == "cost":
        rows = measure_cost(args.build)
    else:
        env = os.environ | {"REDUCTION_BUILD": str(args.build)}
        argv = [sys.executable, *map(str, command(part, args.build))]
        done = subprocess.run(argv, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True)
        rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        if not rows:
            sys.exit(f"come_and_go.py: {part} has printed nothing, exit status {done.returncode}")
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="ascii")


def follow_rows(rows, least):
    """Rows of shares that follow: beside the best fixed map from 5 s after the change on."""
    for case in dict.fromkeys(r["case"] for r in rows):
        of = {r["way"]: r for r in rows if r["case"] == case}
        ratio = of["on"]["changed"] / of["best"]["changed"]
        name = {"half": "a reducer's link at half its rate", "path": "one path at 1/16",
                "cpu": "a reducer's processor taken",
                "collision": "one path at 1/16, others are free"}[case]  # fmt: skip
        yield (f"{name}, {of['on']['rate']}", f"{of['off']['changed']} MB/s stays, **{of['on']['changed']}** follows, "
               f"{of['best']['changed']} best fixed map: {ratio:.0%}", f">= {least:.0%}",
               ratio >= least and not any(r["wrong"] for r in of.values()))  # fmt: skip


def noise_rows(rows):
    r = rows[-1]
    yield (f"{r['seconds']} s of noise, {r['disturbances']} disturbances", f"{r['changes']} changes, "
           f"{r['loss_percent']} % fewer operations than `off`", "<= 6 changes, <= 1 %",
           r["changes"] <= 6 and r["loss_percent"] <= 1 and not r["wrong"])  # fmt: skip


def elastic_rows(rows):
    changes, phases = ([r for r in rows if r["part"] == part] for part in ("change", "throughput"))
    good = all(r["ok"] for r in rows) and not any(r["wrong"] for r in rows)
    most, start = max(r["longer"] for r in changes), max(r.get("start", 0) for r in changes)
    ratios = [r["ratio"] for r in phases]
    yield ("k goes 2, 8, 2, n=8, 250 Mbit/s", f"share {start} s after START, longest operation +{most} s, "
           f"{min(ratios):.0%} to {max(ratios):.0%} of the plan", "1.0 s, 0.3 s, within 10 %", good)  # fmt: skip


def fault_rows(rows):
    r = rows[-1]
    seen = ", ".join(f"{n} {what}" for what, n in r["seen"].items())
    yield f"{r['rounds']} trainings with faults", f"{r['good']} with equal bits; {seen}", "all", r["failed"] == 0


def drain_rows(rows):
    r = rows[-1]
    yield f"notice to the end, {r['jobs']} jobs of {r['ranks']} ranks", f"{r['worst_s']} s", "<= 10 s", r["good"]


def cost_rows(rows):
    part = max(r["watching"] / r["instructions"] for r in rows)
    yield ("watching the links (`log`)", f"{100 * part:.2f} % of the instructions of the busiest process, where "
           "valgrind makes all else 100 times slower", "<= 0.5 %", part <= 0.005)  # fmt: skip


def main():
    args = parse_arguments()
    args.out.mkdir(parents=True, exist_ok=True)
    for part in args.parts:
        print(f"come_and_go.py: {part}", file=sys.stderr, flush=True)
        run(part, args)
    good = True
    print("| what happens | result | bar | |\n|---|---|---|---|")
    for part, of in (("half", lambda rows: follow_rows(rows, 0.94)), ("other", lambda rows: follow_rows(rows, 0.9)),
                     ("noise", noise_rows), ("elastic", elastic_rows), ("fault", fault_rows), ("drain", drain_rows),
                     ("cost", cost_rows)):  # fmt: skip
        path = args.out / f"{part}.jsonl"
        if not path.exists():
            continue
        for what, shown, bar, met in of([json.loads(line) for line in path.read_text(encoding="ascii").splitlines()]):
            good &= met
            print(f"| {what} | {shown} | {bar} | {'met' if met else 'NOT MET'} |")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
