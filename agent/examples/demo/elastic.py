#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The demo of reducers that come and go: four ranks train on real data while reducers start, drain and are killed.
Then the same training runs with reducers that stay. Both must have the same losses and weights, bit for bit. A drawing
shows the losses, the number of reducers, and the time of each step.

Everything runs on this machine, on loopback, in a temporary folder, and is ended with the demo, also on Ctrl-C.
"""

import argparse
import datetime
import json
import pathlib
import re
import signal
import statistics
import sys
import time

import numpy as np
from demo import ROOT, Demo, DemoError, clean_environment, raise_interrupt, reserve_port, say
from elastic_plot import draw

TRAIN = pathlib.Path(__file__).resolve().with_name("elastic_train.py")
RANKS, SLOTS, LEAST = 4, 4, 2
CHANGES = (("start", 2), ("start", 3), ("drain", 0), ("kill", 1), ("start", 0), ("start", 1), ("drain", 3), ("kill", 2))
LIMIT_S = 60  # for each thing that is waited for, also on a slow machine
LINES = {"start": "slot-taken|reducer-back", "drain": "slot-empty", "kill": "reducer-lost"}
WORDS = {"start": "starts", "drain": "drains (SIGTERM)", "kill": "is killed (SIGKILL)"}


class Elastic(Demo):
    """One training after another. `changes` are (seconds since the epoch, what, slot) of when rank 0 knew of it."""

    def __init__(self, args):
        super().__init__(args)
        self.held = [reserve_port() for _ in range(SLOTS)]  # a slot keeps its address
        self.reducers, self.changes, self.log_read = {}, [], 0

    def prepare(self):
        from sklearn.datasets import load_digits

        digits = load_digits()
        np.savez(self.dir / "digits.npz", images=(digits.data / 16).astype(np.float32), labels=digits.target)
        ports = [held.getsockname()[1] for held in self.held]
        reducers = [{"id": f"r{i}", "address": f"127.0.0.1:{port}"} for i, port in enumerate(ports)]
        tree = {"job": {"name": "elastic", "min_reducers": LEAST, "deterministic": True}, "reducers": reducers}
        self.config.write_text(json.dumps(tree))

    def start_reducer(self, slot):
        address = "127.0.0.1:%d" % self.held[slot].getsockname()[1]
        argv = [self.build / "bin" / "reduction-server", "--listen", address]
        self.reducers[slot] = self.start(f"reducer r{slot}", argv)
        self.wait_log(self.reducers[slot], r"(\blistening\b)")

    def start_ranks(self, name, *more):
        self.workers, self.outs = [], [self.dir / f"{name}-{rank}.json" for rank in range(RANKS)]
        for rank, out in enumerate(self.outs):
            env = clean_environment()
            env.update(RANK=str(rank), WORLD_SIZE=str(RANKS), REDUCTION_RUN=name, REDUCTION_MODE="direct",
                       REDUCTION_CONFIG=str(self.config), PYTHONPATH=str(ROOT / "agent" / "python"),
                       REDUCTION_LIBRARY=str(self.build / "lib" / "libreduction.so.0"), PYTHONDONTWRITEBYTECODE="1",
                       OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")  # fmt: skip
            argv = [sys.executable, TRAIN, "--data", self.dir / "digits.npz", "--out", out, *more]
            self.workers.append(self.start(f"rank {rank} {name}", argv, env))
        self.log_read = 0

    def check_ranks(self):
        for p in self.workers:
            if p.status():
                raise DemoError(f"{p.name} ended with exit status {p.status()}:{p.last_lines()}")

    def wait_change(self, pattern):
        """Waits for a new line in the log of rank 0; returns its time."""
        deadline = time.monotonic() + LIMIT_S
        while True:
            text = self.workers[0].log.read_text("utf-8", "replace")
            match = re.compile(rf"^(\S+)Z .*({pattern}).*\n", re.M).search(text, self.log_read)
            if match:
                self.log_read = match.end()
                return datetime.datetime.fromisoformat(match[1] + "+00:00").timestamp()
            self.check_ranks()
            if time.monotonic() > deadline:
                raise DemoError(f"rank 0 does not log {pattern}:{self.workers[0].last_lines()}")
            time.sleep(0.02)

    def change(self, what, slot):
        """Makes a change, waits until the job knows, and lets it run for a while."""
        at = time.time()
        if what == "start":
            self.start_reducer(slot)
        else:
            self.reducers[slot].signal(signal.SIGTERM if what == "drain" else signal.SIGKILL)
        known = self.wait_change(rf"({LINES[what]}) reducer=r{slot} ")
        self.changes.append((known, what, slot))
        say(f"  r{slot} {WORDS[what]:22} the job knows after {max(0, known - at):.2f} s")
        time.sleep(self.args.rest)

    def wait_ranks(self):
        deadline = time.monotonic() + LIMIT_S
        while any(p.status() is None for p in self.workers):
            self.check_ranks()
            if time.monotonic() > deadline:
                raise DemoError(f"the ranks are not done after {LIMIT_S} s:{self.workers[0].last_lines()}")
            time.sleep(0.02)
        self.check_ranks()
        return [json.loads(out.read_text()) for out in self.outs]

    def with_changes(self):
        for slot in range(LEAST):
            self.start_reducer(slot)
        until = self.dir / "until"
        self.start_ranks("elastic", "--until", until)
        for slot in range(LEAST, SLOTS):
            self.wait_change(f"slot-empty reducer=r{slot} ")
        time.sleep(self.args.rest)
        for what, slot in CHANGES:
            self.change(what, slot)
        until.touch()
        return self.wait_ranks()

    def without(self, steps):
        for slot, p in self.reducers.items():
            if p.status() is not None:
                self.start_reducer(slot)
        self.start_ranks("undisturbed", "--steps", steps)
        return self.wait_ranks()


def compare(ours, other):
    """Prints both trainings side by side; returns whether they are equal, bit for bit."""
    steps, took = ours[0]["steps"], [s[1] for s in ours[0]["steps"]]
    same = sum(a[2] == b[2] for a, b in zip(steps, other[0]["steps"]))
    digests = {r["digest"] for r in ours + other}
    say(f"  {'steps':42}{len(steps):>10}")
    say(f"  {'of these with the same loss, bit for bit':42}{same:>10}")
    say(f"  {'loss of the first and the last step':42}{steps[0][2]:>10.4f}{steps[-1][2]:>10.4f}")
    say(f"  {'different weights at the end, of 8 ranks':42}{len(digests) - 1:>10}")
    say(f"  {'median step, longest step':42}{1e3 * statistics.median(took):>7.0f} ms{1e3 * max(took):>7.0f} ms")
    return same == len(steps) == len(other[0]["steps"]) and len(digests) == 1


def run(args):
    """The whole demo; returns the exit status."""
    started, demo = time.monotonic(), Elastic(args)
    try:
        demo.prepare()
        say(f"{RANKS} ranks train a perceptron on handwritten digits. The job has {SLOTS} slots for reducers, and")
        say(f"starts with {LEAST} of them.")
        say()
        say("1. Reducers come and go")
        ours = demo.with_changes()
        say()
        say(f"2. The same training with {SLOTS} reducers that stay")
        other = demo.without(len(ours[0]["steps"]))
        say()
        say("3. Compared")
        equal = compare(ours, other)
        args.plot.parent.mkdir(parents=True, exist_ok=True)
        args.plot.write_text(draw(ours[0]["steps"], other[0]["steps"], demo.changes, LEAST), encoding="utf-8")
        say()
        say("  Reducers that came and went have changed no bit of this training." if equal
            else "  The trainings DIFFER.")  # fmt: skip
        say(f"  {args.plot} shows both. The demo took {time.monotonic() - started:.0f} s.")
        return 0 if equal else 1
    except DemoError as exc:
        print(f"\ndemo-elastic: {exc}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ndemo-elastic: interrupted; ending what was started", file=sys.stderr)
        return 130
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        demo.close()


def parse_arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "default", help="folder of the build")
    p.add_argument("--rest", type=float, default=1.2, help="seconds between two changes (default 1.2)")
    p.add_argument("--plot", type=pathlib.Path, default=ROOT / "build" / "demo-elastic.svg", help="file of the drawing")
    return p.parse_args()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, raise_interrupt)
    signal.signal(signal.SIGHUP, raise_interrupt)
    sys.exit(run(parse_arguments()))
