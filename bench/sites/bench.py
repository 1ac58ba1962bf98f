#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Outer steps between sites beside DistributedDataParallel over all of them: agent/examples/sites.py in a laboratory of
shaped links (bench/net/lab.py). Each site is a host with two ranks. Parts:

    curve    the losses of synchronous training with the same batches, in one process, since the sums are the same
    gloo     seconds of an all-reduce of the gradients by gloo over all ranks, as DistributedDataParallel does in a step
    ours     seconds of an all-reduce of a fragment through the reducers
    train    the training with outer steps, for each --every
    kill     the same, while the last site is killed and started again three times

Appends a line of JSON for each to --out, leaves out what is there already, prints a table, and draws the losses. Needs
root and torch. Exit status: 0 success, 1 an error, 2 wrong usage, 77 the laboratory cannot be made.
"""

import argparse
import concurrent.futures
import contextlib
import json
import os
import pathlib
import re
import runpy
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
for folder in ("bench/net", "agent/examples"):
    sys.path.insert(0, str(ROOT / folder))

import lab as net  # noqa: E402
import systems  # noqa: E402
from placement import Placement  # noqa: E402

EXAMPLE = ROOT / "agent/examples/sites.py"
PARTS = ("curve", "gloo", "ours", "train", "kill")
SITES, RANKS = 4, 2
EVERY = 50  # steps between two losses of a curve
KILLS = 3
STORE, GLOO = 29400, 29500


def parse_arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--parts", default=",".join(PARTS), help="comma-separated (default all)")
    p.add_argument("--seeds", type=int, default=3, help="number of seeds (default 3)")
    p.add_argument("--steps", type=int, default=450, help="inner steps (default 450)")
    p.add_argument("--every", default="30,10", help="inner steps between outer steps, comma-separated (default 30,10)")
    p.add_argument("--delay", type=int, default=4, help="least inner steps that an average has time (default 4)")
    p.add_argument("--rows", type=int, default=1, help="sequences of a rank's batch (default 1)")
    p.add_argument("--rate", default="200mbit", help="of each link (default 200mbit)")
    p.add_argument("--rtt", type=float, default=100, help="round trip in ms (default 100)")
    p.add_argument("--limit", type=float, default=900, help="seconds that a training may take (default 900)")
    p.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "default")
    p.add_argument("--out", type=pathlib.Path, default=ROOT / "build" / "bench" / "sites.jsonl")
    p.add_argument("--plots", type=pathlib.Path, help="folder of the drawings")
    args = p.parse_args()
    args.parts, args.build = args.parts.split(","), args.build.resolve()
    for part in args.parts:
        if part not in PARTS:
            p.error(f'--parts: found "{part}", expected {", ".join(PARTS)}')
    if not re.fullmatch(r"[1-9]\d*(,[1-9]\d*)*", args.every):
        p.error(f'--every: found "{args.every}", expected numbers such as 30,10')
    args.every = [int(number) for number in args.every.split(",")]
    if args.seeds < 1 or args.steps < 1 or args.rows < 1:
        p.error("--seeds, --steps and --rows: expected 1 or more")
    return args


def curve(args, seed):
    """Trains in one process: the gradient of all ranks' batches together is the average of theirs."""
    import sites as example
    import torch

    torch.set_num_threads(1)
    data, (model, optimizer) = example.Data(seed), example.new_model(seed)
    found = []
    for step in range(args.steps):
        parts = [data.batch(step, rank, args.rows) for rank in range(SITES * RANKS)]
        batch = [torch.cat(column) for column in zip(*parts)]
        example.train_step(model, optimizer, batch, step, args.steps)
        if (step + 1) % EVERY == 0:
            found.append([step + 1, round(data.loss(model), 5)])
    count = sum(p.numel() for p in model.parameters())
    largest = max(sum(p.numel() for p in (f if isinstance(f, list) else f.parameters())) for f in model.fragments())
    return {"curve": found, "final": round(data.loss(model), 5), "parameters": count, "fragment": largest,
            "torch": torch.__version__}  # fmt: skip


def delay_of(args, every):
    """Returns for how many inner steps an average has time: a sixth of them, but at least --delay."""
    return min(every - 1, max(args.delay, every // 6))


class Run:
    """A laboratory with running reducers, and the processes of the sites in it."""

    def __init__(self, args):
        self.args, self.place = args, Placement(SITES, SITES)
        self.files = tempfile.TemporaryDirectory(prefix="bench-sites-")
        self.lab = net.Lab(2 * SITES, args.rate, delay_us=args.rtt * 500, build=args.build, queue_ms=20)

    def __enter__(self):
        self.lab.start()
        try:
            launch = systems.Launch(self.lab, self.place, 0, 0, 0, self.args.build)
            launch.dir = self.files.name
            systems.Ours().start_servers(launch)
        except BaseException:
            self.lab.stop()
            raise
        return self

    def __exit__(self, *_):
        self.lab.stop()
        self.files.cleanup()

    def start(self, host, command, **env):
        """Starts a Python program in a host; `out` and `err` of the result are the files of its output."""
        known = {"PYTHONPATH": str(ROOT / "agent" / "python"), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1",
                 "REDUCTION_LIBRARY": str(self.args.build / "lib" / "libreduction.so.0"), "USE_LIBUV": "0",
                 "REDUCTION_CONFIG": f"{self.files.name}/job.yaml"}  # fmt: skip
        out, err = (tempfile.NamedTemporaryFile("w+", dir=self.files.name, suffix=f".{w}") for w in ("out", "err"))
        p = self.lab.popen(host, [sys.executable, *command], stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                           env={**os.environ, **known, **{k: str(v) for k, v in env.items()}})  # fmt: skip
        p.out, p.err = pathlib.Path(out.name), pathlib.Path(err.name)
        p.files = out, err
        return p

    def wait(self, processes, limit):
        """Waits until all have ended; a failure, or the time limit, is a LabError with the last words."""
        deadline = time.monotonic() + limit
        while any(p.poll() is None for p in processes):
            for p in processes:  # the others may wait for one that has failed
                if p.poll() or time.monotonic() > deadline:
                    why = f"exit status {p.returncode}" if p.poll() else f"not done after {limit:.0f} s"
                    raise net.LabError(f"{why}, last words: {p.err.read_text(errors='replace')[-1500:]}")
            time.sleep(0.2)
        for p in processes:
            if p.returncode:
                raise net.LabError(f"exit status {p.returncode}: {p.err.read_text(errors='replace')[-1500:]}")

    def start_site(self, site, seed, patience, every, *more):
        """Starts the ranks of a site; returns them, the leader first."""
        args = self.args
        command = [EXAMPLE, "--site", f"site{site}", "--number", site, "--sites", SITES, "--seed", seed, "--store",
                   f"{self.lab.address(SITES)}:{STORE}", "--steps", args.steps, "--rows", args.rows, "--report", EVERY,
                   "--patience", patience, "--sync-every", every, "--delay", delay_of(args, every),
                   *(["--validate"] if site == 0 else []), *more]  # fmt: skip
        return [
            self.start(site, command, RANK=rank, LOCAL_RANK=rank, WORLD_SIZE=RANKS, LOCAL_WORLD_SIZE=RANKS,
                       MASTER_ADDR="127.0.0.1", MASTER_PORT=GLOO, GLOO_SOCKET_IFNAME="lo")
            for rank in range(RANKS)
        ]  # fmt: skip

    def start_store(self):
        store = self.start(SITES, [EXAMPLE, "--serve", f"{self.lab.address(SITES)}:{STORE}"])
        while "ready" not in store.out.read_text():
            if store.poll() is not None:
                raise net.LabError(f"the store has ended: {store.err.read_text()[-500:]}")
            time.sleep(0.05)


def said(process):
    """Returns the complete JSON lines of a leader."""
    lines = process.out.read_text(errors="replace").split("\n")[:-1]
    return [json.loads(line) for line in lines if line.startswith("{")]


def collective(args, system, count, ranks, times, wire=""):
    """Returns the seconds of all-reduces, each those of its slowest rank."""
    with Run(args) as run:
        per = ranks // SITES
        processes = [
            run.start(rank // per, [ROOT / "bench/sites/collective.py", system, count, times, wire], RANK=rank,
                      WORLD_SIZE=ranks, LOCAL_RANK=rank % per, LOCAL_WORLD_SIZE=per, GLOO_SOCKET_IFNAME="eth0",
                      MASTER_ADDR=run.lab.address(0), MASTER_PORT=GLOO)
            for rank in range(ranks)
        ]  # fmt: skip
        run.wait(processes, 240)
        rows = [json.loads(p.out.read_text().splitlines()[-1]) for p in processes]
    return [max(column) for column in zip(*rows)]


def train(args, seed, every):
    with Run(args) as run:
        run.start_store()
        before, began = run.lab.counters(), time.monotonic()
        sites = [run.start_site(site, seed, 30, every) for site in range(SITES)]
        run.wait([p for site in sites for p in site], args.limit)
        spent = time.monotonic() - began
        between = net.counters_between(before, run.lab.counters())
        lines = [said(site[0]) for site in sites]
    ends = [line[-1] for line in lines]
    return {
        "sync_every": every,
        "delay": delay_of(args, every),
        "curve": ends[0]["curve"],
        "final": ends[0]["loss"],
        "seconds": max(e["seconds"] for e in ends),
        "waited": [e["waited"] for e in ends],
        "with_start_s": round(spent, 1),
        "outer_steps": ends[0]["outer"],
        "equal_bits": len({e["bits"] for e in ends}) == 1,
        "mib_sent_by_a_site": round(statistics.fmean(b["tx"] for b in between[:SITES]) / 2**20, 2),
    }


def kill(args, seed):
    """Kills the last site when it has made some outer steps, and starts it again when the others have made more. Ends
    the training when it is back for the last time."""
    more = ("--report", 1, "--steps", 1 << 30)
    with Run(args) as run:
        run.start_store()
        sites = [run.start_site(site, seed, 5, max(args.every), *more) for site in range(SITES)]
        deadline, events = time.monotonic() + args.limit, []

        def outer_steps(site):
            return (said(sites[site][0]) or [{"outer": 0}])[-1]["outer"]

        def until(site, count):
            while outer_steps(site) < count:
                for p in (p for s in sites[: SITES - 1] for p in s):
                    if p.poll() is not None or time.monotonic() > deadline:
                        raise net.LabError(f"a site is too slow, or has ended: {p.err.read_text()[-1500:]}")
                time.sleep(0.1)

        for _ in range(KILLS):
            until(SITES - 1, outer_steps(0) + 1)
            at = outer_steps(0)
            for p in sites[-1]:
                p.kill()
                p.wait()
            killed = time.monotonic()
            until(0, at + 2)
            again = time.monotonic()
            sites[-1] = run.start_site(SITES - 1, seed, 5, max(args.every), *more)
            until(SITES - 1, at + 3)
            events.append({"after_outer_step": at, "others_went_on_s": round(again - killed, 1),
                           "back_s": round(time.monotonic() - again, 1)})  # fmt: skip
        until(SITES - 1, outer_steps(0) + 2)
        lines = [said(site[0]) for site in sites]
    moments = [o["seconds"] for o in lines[0] if o["what"] == "step"]
    return {
        "events": events,
        "steps_done": lines[0][-1]["step"],
        "outer_steps": lines[0][-1]["outer"],
        "longest_step_s": round(max(b - a for a, b in zip(moments, moments[1:])), 2),
        "median_step_s": round(statistics.median(b - a for a, b in zip(moments, moments[1:])), 3),
    }


def read(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def shape_of(args):
    """Returns what a training is: lines of another one do not count."""
    return {"steps": args.steps, "rows": args.rows, "rate": args.rate, "rtt_ms": args.rtt}


def curves(args, seeds):
    """Yields (seed, row) of all seeds, which are computed at the same time."""
    with concurrent.futures.ProcessPoolExecutor(max_workers=max(1, len(seeds))) as pool:
        futures = {pool.submit(curve, args, seed): seed for seed in seeds}
        for future in concurrent.futures.as_completed(futures):
            yield futures[future], future.result()


def tasks(args):
    """Returns (part, seed, steps between outer steps or 0) of all that is to be done, in this order."""
    found = []
    for part in (part for part in PARTS if part in args.parts):
        for every in args.every if part == "train" else [0]:
            found += [(part, seed, every) for seed in range(args.seeds if part in ("curve", "train") else 1)]
    return found


def key_of(row):
    return row["part"], row["seed"], row.get("sync_every", 0)


def measure(args, lines):
    """Does what is missing; yields its lines."""
    shape = shape_of(args)
    lines = [r for r in lines if shape.items() <= r.items()]
    done = {key_of(r) for r in lines}
    facts = next((r for r in lines if r["part"] == "curve"), None)
    missing = [task for task in tasks(args) if task not in done]
    for seed, row in curves(args, [seed for part, seed, _ in missing if part == "curve"]):
        facts = {"part": "curve", "seed": seed, **shape, **row}
        yield facts
    for part, seed, every in missing:
        if part == "curve":
            continue
        if facts is None and part in ("gloo", "ours"):
            raise net.LabError("the part curve must come first: it says how large the model is", 2)
        if part == "gloo":
            row = {"seconds": collective(args, "gloo", facts["parameters"], SITES * RANKS, 8)}
        elif part == "ours":
            row = {"seconds": collective(args, "reducers", facts["fragment"], SITES, 20, "int8")}
        else:
            row = train(args, seed, every) if part == "train" else kill(args, seed)
        yield {"part": part, "seed": seed, **shape, **row}


def summary(lines):
    """Returns lines of Markdown."""
    by = {key_of(r): r for r in lines}
    runs = [r for r in lines if r["part"] == "train" and ("curve", r["seed"], 0) in by]
    text = ["| sync_every | seed | synchronous | outer steps | difference | s | not hidden, mean | equal bits |"]
    text += ["|---" * 8 + "|"]
    for ours in runs:
        hidden = statistics.fmean(ours["waited"]) / ours["seconds"]
        one, two = by["curve", ours["seed"], 0]["final"], ours["final"]
        equal = "yes" if ours["equal_bits"] else "**no**"
        text.append(
            f"| {ours['sync_every']} | {ours['seed']} | {one:.4f} | {two:.4f} | {two / one - 1:+.2%} | "
            f"{ours['seconds']:.0f} | {hidden:.1%} | {equal} |"
        )
    if ("gloo", 0, 0) in by and ("ours", 0, 0) in by:
        for every in sorted({r["sync_every"] for r in runs}, reverse=True):
            own = [r for r in runs if r["sync_every"] == every]
            text += ["", f"With sync_every {every}:", *communication(own, by["gloo", 0, 0], by["ours", 0, 0])]
    if ("kill", 0, 0) in by:
        facts = ("events", "steps_done", "outer_steps", "longest_step_s", "median_step_s")
        text += ["", "A site killed three times: " + json.dumps({k: by["kill", 0, 0][k] for k in facts})]
    return text


def communication(runs, gloo, ours):
    """Returns sentences that compare the seconds of communication, and of the whole trainings."""
    one, two = (statistics.median(r["seconds"]) for r in (gloo, ours))
    steps, operations = runs[0]["steps"], runs[0]["outer_steps"] * 2
    waited = statistics.fmean(statistics.fmean(r["waited"]) for r in runs)
    wall = statistics.fmean(r["seconds"] for r in runs)
    return [
        f"An all-reduce of the gradients by gloo takes {one:.3f} s, times {steps} steps: {one * steps:.0f} s.",
        f"One of a fragment takes {two:.3f} s, times {operations}: {two * operations:.1f} s, "
        f"{one * steps / two / operations:.0f} times less; training waited for {waited:.1f} s.",
        f"Wall time {wall:.0f} s; of the same steps with gloo {wall - waited + one * steps:.0f} s (calculated).",
    ]


def draw(lines, folder):
    """Draws the losses, the mean of all seeds, against tokens."""
    curves = runpy.run_path(str(ROOT / "bench/wire/plot.py"))
    COLOURS, Curves = curves["COLOURS"], curves["Curves"]

    sync = {r["seed"]: r for r in lines if r["part"] == "curve"}
    runs = {"synchronous DDP": list(sync.values())}
    for r in (r for r in lines if r["part"] == "train" and r["seed"] in sync):
        runs.setdefault(f"sync_every {r['sync_every']}, int8", []).append(r)
    if len(runs) == 1:
        return
    series = {}
    for name, own in runs.items():
        columns = zip(*([*r["curve"], [r["steps"], r["final"]]] for r in own))
        series[name] = {c[0][0]: statistics.fmean(v for _, v in c) for c in columns}
    shape = lines[0]
    tokens = SITES * RANKS * shape["rows"] * 64 / 1000
    top = max(max(v.values()) for v in series.values())
    low = min(min(v.values()) for v in series.values())
    chart = Curves("Four sites of two ranks: loss at equal tokens",
                   f"{shape['rtt_ms']:g} ms round trip, {shape['rate']}; seeds: {len(sync)}; nats a letter",
                   (EVERY * tokens, shape["steps"] * tokens), (low - 0.05, top + 0.05))  # fmt: skip
    chart.grid([round(shape["steps"] * tokens * i / 4) for i in range(1, 5)], "thousand letters", "validation loss")
    labels = []
    for (name, found), colour in zip(series.items(), COLOURS.values()):
        chart.line([(chart.x(step * tokens), chart.y(v)) for step, v in sorted(found.items())], colour)
        labels.append((found[max(found)], f"{name}: {found[max(found)]:.3f}", colour, False))
    chart.labels(labels)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sites.svg").write_text(chart.svg(), encoding="utf-8")


def main():
    args = parse_arguments()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    lines = read(args.out)
    with contextlib.ExitStack() as stack:
        if args.parts != ["curve"]:
            stack.enter_context(net.only_one_measures())
            net.check_machine()
        for row in measure(args, list(lines)):
            lines.append(row)
            print(f"# {' '.join(map(str, key_of(row)))}: done", file=sys.stderr)
            with open(args.out, "a", encoding="utf-8") as f:
                f.write(json.dumps(row) + "\n")
    shape = shape_of(args)
    lines = [r for r in lines if shape.items() <= r.items()]
    print("\n".join(summary(lines)))
    if args.plots:
        draw(lines, args.plots)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except net.LabError as error:
        print(f"bench-sites: {error}", file=sys.stderr)
        sys.exit(error.code)
    except KeyboardInterrupt:
        sys.exit(130)
