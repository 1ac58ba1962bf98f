#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Runs jobs of many kinds for a long time, with faults: soak.py --minutes 60

Two jobs last for the whole run, one direct and one through agents. Short jobs start and end beside them; some lose a
rank on purpose. Meanwhile two of the three reducers are killed, stopped, drained, cut off and started again. Every
minute a line of JSON is written to --out: memory and descriptors of every process, completed operations, faults, and
unexpected errors. At the end comes a verdict: no unexpected error, every result correct, all descriptors closed, and no
growth of memory in processes that lived all the time. Memory is judged after 10 minutes or more and without sanitizers.
Exit status: 0 passed; 1 failed.
"""

import argparse
import collections
import heapq
import itertools
import json
import pathlib
import random
import re
import signal
import sys
import tempfile
import time

from world import HERE, World, harness, memory_of

DIRECT, AGENTS = (0, 1), (2, 3)  # nodes of ranks without and with agents
SAMPLE_S = 5
PARTS = 8
JUDGED_MINUTES = 10  # in shorter runs, one more large job at the end looks like a leak
BRIEF_LIMIT_S = 120  # every short job ends earlier
KINDS = ("kill", "pause", "stop", "drain", "cut", "unplug")


class Job:
    """A running job. `asked`: pattern of its expected errors, or None if none is permitted."""

    def __init__(self, soak, name, nodes, per_node, agents, **plan):
        self.name, self.asked = name, None
        self.started = time.monotonic()
        world = len(nodes) * per_node
        plan = {"seed": name, "local": per_node if agents else 1, "batches": 0, **plan}
        self.workers = []
        for rank in range(world):
            node = nodes[rank // per_node]
            env = {
                "RANK": rank, "WORLD_SIZE": world, "LOCAL_RANK": rank % per_node, "LOCAL_WORLD_SIZE": per_node,
                "REDUCTION_JOB": name, "REDUCTION_RUN": name,
                **harness.reach(soak.world.socket_path(node) if agents else "direct"),
            }  # fmt: skip
            argv = [harness.PYTHON, HERE / "load.py", json.dumps(plan)]
            self.workers.append(soak.world.start_worker(f"{name} rank {rank}", argv, node, env))

    def lose(self, rank):
        """Kills a rank: the others must get an error that names it."""
        self.asked = rf"rank {rank} \(.*(was lost|exited)"
        self.workers[rank].kill()

    def is_over(self):
        return not any(w.running() for w in self.workers)

    def operations(self):
        said = [o["ops"] for o in self.workers[0].objects() if o["what"] == "progress"]
        return said[-1] if said else 0

    def errors(self):
        """Returns sentences about unexpected errors after its end."""
        for w in self.workers:
            if w.killed:
                continue
            w.wait(1)
            ends = [o for o in w.objects() if o["what"] == "end"]
            if w.code != 0 or not ends:
                yield f"{w.name} ended with status {w.code}: {w.err[-500:]}"
                continue
            yield from ends[0]["wrong"]
            message = ends[0]["message"]
            if message and not (self.asked and re.search(self.asked, message)):
                yield f"{w.name}: {message}"
            if self.asked and not message:
                yield f"{w.name} did not read that it must: {self.asked}"


class Soak:
    def __init__(self, world, args, out):
        self.world, self.args, self.out = world, args, out
        self.rng = random.Random(args.seed)
        self.began = time.monotonic()
        self.brief, self.names = [], itertools.count()
        self.ended_ops = 0
        self.errors, self.asked_for = [], 0
        self.faults = collections.Counter()
        self.samples = collections.defaultdict(list)  # process -> [(minutes, KiB, descriptors)]
        self._events, self._order = [], itertools.count()
        self._hurt = {}  # reducer -> its current fault

    # scheduled events by time

    def after(self, seconds, call, *args):
        heapq.heappush(self._events, (time.monotonic() + seconds, next(self._order), call, args))

    def until(self, deadline):
        """Runs all events that are due until then."""
        while self._events and self._events[0][0] < deadline:
            due, _, call, args = heapq.heappop(self._events)
            time.sleep(max(0, due - time.monotonic()))
            call(*args)

    # jobs

    def start_brief(self):
        rng = self.rng
        agents = rng.random() < 0.5
        nodes = AGENTS if agents else DIRECT[: rng.choice([1, 2])]
        job = Job(
            self, f"brief-{next(self.names)}", nodes, 2 if agents else rng.choice([1, 2]), agents,
            cases=rng.randrange(5, 50), largest=rng.choice([1000, 30_000, 300_000]), in_flight=rng.choice([1, 4, 16]),
            batches=rng.randrange(1, 6),
        )  # fmt: skip
        self.brief.append(job)
        if len(job.workers) > 1 and rng.random() < 0.15:
            self.after(rng.uniform(0.5, 3), self.lose_one, job)
        self.after(rng.uniform(*self.args.between_jobs), self.start_brief)

    def lose_one(self, job):
        """If it is running; a job that is still opening may react differently."""
        if job.operations() and not job.is_over() and all(w.running() for w in job.workers):
            self.faults["worker"] += 1
            job.lose(self.rng.randrange(1, len(job.workers)))

    def look_at_jobs(self):
        for job in list(self.brief):
            late = time.monotonic() - job.started > BRIEF_LIMIT_S
            if late and not job.is_over():
                self.fail(f"{job.name} is not over after {BRIEF_LIMIT_S} s")
                for w in job.workers:
                    w.kill()
            if job.is_over():
                self.brief.remove(job)
                self.finish(job)
        for job in self.steady:
            if not all(w.running() for w in job.workers):
                raise SystemExit(self.report_death(job))
        self.after(0.5, self.look_at_jobs)

    def finish(self, job):
        for error in job.errors():
            self.fail(f"{job.name}: {error}")
        self.asked_for += job.asked is not None
        self.ended_ops += job.operations()
        for w in job.workers:
            self.world.forget(w)

    def report_death(self, job):
        for w in job.workers:
            w.kill()
        for error in job.errors():
            self.fail(f"{job.name}: {error}")
        self.line(final=True)
        return f"{job.name}, which was to last, is over: {self.errors[-5:]}"

    def fail(self, sentence):
        self.errors.append(sentence)
        print(f"soak: {sentence}", file=sys.stderr, flush=True)

    # faults

    def make_fault(self):
        rng, detect = self.rng, self.args.detect
        kind = rng.choice(self.args.kinds)
        whole = [i for i in (1, 2) if i not in self._hurt]
        if kind == "pause":
            self.hurt(kind, rng.choice([0, *whole]), rng.uniform(0.02, 0.2) * detect)
        elif whole and not (kind in ("cut", "unplug") and not self.world.has_links):
            self.hurt(kind, rng.choice(whole), rng.choice([rng.uniform(0.05, 0.5), rng.uniform(1.3, 2.5)]) * detect)
        self.after(rng.uniform(*self.args.between_faults), self.make_fault)

    def hurt(self, kind, i, seconds):
        world, rng = self.world, self.rng
        if i in self._hurt:
            return
        self.faults[kind] += 1
        self._hurt[i] = kind
        heal = world.start_reducer
        if kind == "kill":
            world.kill(i)
        elif kind in ("pause", "stop"):
            world.stop(i)
            heal = world.go_on
        elif kind == "drain":
            world.drain(i)
            heal = self.restart_drained
        elif kind == "cut":
            node, out = rng.choice(DIRECT + AGENTS), rng.random() < 0.7
            back = not out or rng.random() < 0.7
            world.cut(node, i, out, back)
            heal = lambda i: world.mend(node, i, out, back)  # noqa: E731
        else:
            world.plug(i, False)
            heal = lambda i: world.plug(i, True)  # noqa: E731
        self.after(seconds, self.mend, i, heal)

    def restart_drained(self, i):
        if self.world.reducers[i].wait(40) != 0:
            self.fail(f"drained reducer r{i} ended with status {self.world.reducers[i].code}")
        self.world.start_reducer(i)

    def mend(self, i, heal):
        heal(i)
        del self._hurt[i]
        self.world.sweep()

    # numbers

    def watched(self):
        named = {f"r{i}": p for i, p in enumerate(self.world.reducers)}
        named |= {f"agent{node}": p for node, p in self.world.agents.items()}
        return named | {w.name: w for job in self.steady for w in job.workers}

    def sample(self):
        minutes = (time.monotonic() - self.began) / 60
        for name, p in self.watched().items():
            if (found := memory_of(p.pid)) is not None:
                self.samples[name, p.pid].append((minutes, *found))
        self.after(min(SAMPLE_S, 1.5 * self.args.minutes), self.sample)  # 40 of a short run

    def line(self, final=False):
        now = {name: memory_of(p.pid) for name, p in self.watched().items()}
        row = {
            "minute": round((time.monotonic() - self.began) / 60, 2),
            "rss_kib": {k: v[0] for k, v in now.items() if v},
            "descriptors": {k: v[1] for k, v in now.items() if v},
            "operations": self.ended_ops + sum(job.operations() for job in [*self.steady, *self.brief]),
            "brief_jobs": {"open": len(self.brief), "ended_by_a_fault_on_purpose": self.asked_for},
            "faults": dict(self.faults),
            "errors": len(self.errors) + len(self.world.problems),
        }
        self.write(row)
        if not final:
            self.after(60, self.line)

    def write(self, row):
        self.out.write(json.dumps(row) + "\n")
        self.out.flush()
        print(json.dumps(row), flush=True)

    # the run

    def run(self):
        for node in AGENTS:
            self.world.start_agent(node)
        self.steady = []
        idle = self.idle()
        self.steady = [
            Job(self, "steady-direct", DIRECT, 1, False, cases=50, largest=1 << 20, in_flight=8),
            Job(self, "steady-agents", AGENTS, 2, True, cases=50, largest=300_000, in_flight=8),
        ]
        for job in self.steady:
            job.workers[0].said("progress", 60)
        self.began = time.monotonic()
        self.start_brief()
        self.look_at_jobs()
        self.sample()
        self.after(60, self.line)
        if self.args.kinds:
            self.after(2, self.make_fault)
        self.until(self.began + 60 * self.args.minutes)
        self.line(final=True)
        self.end(idle)

    def idle(self):
        """Returns the descriptors of the processes without jobs."""
        return {name: memory_of(p.pid)[1] for name, p in self.watched().items()}

    def end(self, idle):
        """Ends all jobs; then all descriptors must be closed."""
        self.world.heal()
        for job in self.steady:
            job.workers[0].tell()
        for job in [*self.steady, *self.brief]:
            for w in job.workers:
                w.wait(60)
            self.finish(job)
        self.steady, self.brief = [], []
        deadline = time.monotonic() + 10 * harness.SCALE
        while (left := {k: [v, idle[k]] for k, v in self.idle().items() if v != idle[k]}):
            if time.monotonic() > deadline:
                break
            time.sleep(0.1)
        rows = [self.verdict_of(*key, of) for key, of in self.samples.items()]
        rows = [r for r in rows if r]
        judged = self.args.minutes >= JUDGED_MINUTES and not harness.SAN
        growing = [r["process"] for r in rows if judged and not r["flat"]]
        self.write({
            "verdict": "good" if not (left or growing or self.errors or self.world.problems) else "bad",
            "errors": self.errors[:20] + self.world.problems[:20],
            "descriptors_not_given_back": left,
            "memory_is_judged": judged,
            "growing": growing,
            "processes": rows,
        })  # fmt: skip

    def verdict_of(self, name, pid, of):
        """Returns whether the memory of a process that lived for most of the run has grown after the first fifth of it.
        Memory in use depends on the open jobs more than on any leak. So the run is divided into PARTS parts, and a line
        is drawn through the minimum of each, when few or no jobs were open."""
        begin = self.args.minutes * 0.2
        of = [s for s in of if s[0] >= begin]
        if not of or (length := of[-1][0] - of[0][0]) < 0.6 * self.args.minutes:
            return None
        parts = [[] for _ in range(PARTS)]
        for s in of:
            parts[min(PARTS - 1, int(PARTS * (s[0] - of[0][0]) / length))].append(s)
        least = [[min(s[k] for s in part) for part in parts if part] for k in (1, 2)]
        grown = [(PARTS - 1) * slope(range(len(row)), row) for row in least]
        return {
            "process": name, "pid": pid, "samples": len(of), "rss_kib_max": max(s[1] for s in of),
            "rss_kib_least": least[0], "rss_kib_grown": round(grown[0]),
            "descriptors_least": least[1], "descriptors_grown": round(grown[1], 2),
            "flat": bool(grown[0] < max(512, 0.01 * least[0][0]) and grown[1] < 2),
        }  # fmt: skip


def slope(x, y):
    """Returns the slope of the least-squares line."""
    mx, my = sum(x) / len(x), sum(y) / len(y)
    spread = sum((a - mx) ** 2 for a in x)
    return sum((a - mx) * (b - my) for a, b in zip(x, y)) / spread if spread else 0.0


def pair(text):
    low, _, high = text.partition("-")
    return float(low), float(high)


def parse_arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--minutes", type=float, default=5)
    p.add_argument("--seed", type=int, default=1, help="seed of all random choices (default %(default)s)")
    p.add_argument("--out", default="soak.jsonl", help="file of JSON lines (default %(default)s)")
    p.add_argument("--detect", type=float, default=3, help="timeouts.detect in seconds (default %(default)s)")
    p.add_argument("--kinds", type=lambda t: [k for k in t.split(",") if k], default=list(KINDS),
                   help=f"faults, of {','.join(KINDS)} (default all)")  # fmt: skip
    p.add_argument("--between-jobs", type=pair, default=(2, 8), metavar="S-S", help="seconds (default 2-8)")
    p.add_argument("--between-faults", type=pair, default=(3, 9), metavar="S-S", help="seconds (default 3-9)")
    args = p.parse_args()
    if bad := set(args.kinds) - set(KINDS):
        p.error(f"--kinds: found {', '.join(sorted(bad))}, expected some of {', '.join(KINDS)}")
    return args


def main():
    args = parse_arguments()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    detect = f"{int(args.detect * harness.SCALE * 1000)}ms"
    config = {"job": {"checksum": True}, "timeouts": {"detect": detect, "connect": "60s"}}
    out = pathlib.Path(args.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="reduction-soak-") as folder, out.open("w", encoding="ascii") as f:
        with World(3, 4, folder, config) as world:
            soak = Soak(world, args, f)
            try:
                soak.run()
            finally:
                if soak.errors or world.problems or sys.exc_info()[0]:
                    world.keep_logs(out.parent / f"{out.stem}-logs")
        for problem in world.problems:
            soak.fail(problem)
    return 1 if soak.errors or json.loads(out.read_text().splitlines()[-1]).get("verdict") != "good" else 0


if __name__ == "__main__":
    sys.exit(main())
