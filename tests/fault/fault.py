#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small network repeatedly while reducers, agents, workers and links fail: fault.py --rounds 200

Each round is drawn from a seed: the ranks, the faults, their times and lengths. Losses and parameters must be equal,
bit by bit, to those of a training without faults. A rank may get an error only after the loss of a worker or an agent;
then all ranks start again from the last checkpoint as the next generation. A round that fails prints its seed;
`--rounds 1 --seed SEED` repeats its events at the same steps. Its logs are kept below --out.

Exit status: 0 all rounds passed, 1 a round failed, 2 wrong usage.
"""

import argparse
import collections
import contextlib
import heapq
import itertools
import json
import pathlib
import re
import shutil
import signal
import sys
import tempfile
import time

import plan
from world import HERE, World, harness

ROUND_LIMIT_S = 120
SLOW = "8mbit"  # of the link of a reducer that is slow


class RoundError(Exception):
    """The failure of a round, as a sentence."""


class Training:
    """The ranks of one round, in any generation."""

    def __init__(self, world, topology, job, folder, options):
        self.world, self.topology, self.job, self.folder, self.options = world, topology, job, folder, options
        self.generation = -1
        self.workers = []
        self.losses = [{} for _ in range(topology.ranks)]  # for each rank: step -> loss
        self.checksums = set()
        self.faults = collections.Counter()  # faults that have happened to it
        self.unsaid = set()  # (rank, step) without a loss, although no fault happened to the rank

    def start(self):
        """Starts all ranks as the next generation, from the last checkpoint."""
        self.generation += 1
        self._excuse()
        topology, options = self.topology, self.options
        words = {"framework": options.framework, "steps": options.steps, "every": 10, "folder": str(self.folder)}
        argv = [harness.PYTHON, HERE / "train.py", json.dumps(words)]
        self.workers = []
        for rank in range(topology.ranks):
            node = topology.node(rank)
            env = {
                "RANK": rank, "WORLD_SIZE": topology.ranks, "LOCAL_RANK": rank % topology.local,
                "LOCAL_WORLD_SIZE": topology.local, "REDUCTION_JOB": self.job, "REDUCTION_RUN": self.job,
                "REDUCTION_GENERATION": self.generation,
                **harness.reach(self.world.socket_path(node) if topology.agents else "direct"),
            }  # fmt: skip
            self.workers.append(self.world.start_worker(f"rank {rank} of {self.job}", argv, node, env))

    def _excuse(self):
        """Allows that a rank was lost in the step before a checkpoint after rank 0 had its sums."""
        saved = max([int(path.stem[4:]) for path in self.folder.glob("step*.checkpoint")], default=0)
        for rank, of in enumerate(self.losses):
            if saved and saved - 1 not in of:
                self.unsaid.add((rank, saved - 1))

    def step(self):
        """Returns the last step that rank 0 has completed, -1 for none."""
        said = re.findall(r'^\{"what": "step", "step": (\d+)', self.workers[0].out, re.M)
        return int(said[-1]) if said else -1

    def is_over(self):
        return not any(w.running() for w in self.workers)

    def collect(self):
        """Reads the output of the ranks; returns the errors that they have got, {rank: sentence}."""
        errors = {}
        for rank, w in enumerate(self.workers):
            ended = w.killed
            if not w.running():
                w.wait()  # until all of its output has been read
            for said in w.objects():
                if said["what"] == "step":
                    self.losses[rank][said["step"]] = said["loss"]
                elif said["what"] == "trained":
                    self.checksums.add(said["checksum"])
                elif said["what"] == "end":
                    ended = True
                    if said["message"]:
                        errors[rank] = said["message"]
            if not ended:
                errors[rank] = f"ended with status {w.code} without a word: {w.err[-300:]}"
        return errors

    def is_trained(self):
        return all(self.options.steps - 1 in of for of in self.losses)


class Director:
    """Applies the events of a round to a training."""

    def __init__(self, world, training, events, detect):
        self.world, self.training = world, training
        self._may_take = 2 * detect + 2 * harness.SCALE  # time until all have detected a loss, on a busy machine
        self.events = collections.deque(events)
        self.deadline = time.monotonic() + ROUND_LIMIT_S * harness.SCALE
        self.lost = None  # the event that has ended a generation
        self.buried = False  # all processes of that generation have ended, and the lost ones run again
        self._due, self._order = [], itertools.count()

    def _after(self, seconds, call, *args):
        heapq.heappush(self._due, (time.monotonic() + seconds, next(self._order), call, args))

    def run(self):
        """Waits until all ranks of a generation have ended; RoundError if that takes too long."""
        while not self.training.is_over():
            now = time.monotonic()
            if now > self.deadline:
                raise RoundError(f"it was not over after {ROUND_LIMIT_S * harness.SCALE} s; rank 0 had done step "
                                 f"{self.training.step()}")
            while self._due and self._due[0][0] <= now:
                _, _, call, args = heapq.heappop(self._due)
                call(*args)
            while self.events and self.training.step() >= self.events[0].step:
                event = self.events.popleft()
                self._after(event.delay, self._begin, event)
            wait = min(self._due[0][0] - now, 0.05) if self._due else 0.05
            self.training.workers[0].wait_more(max(0, wait))
            if self.lost and not self.buried and not self._left():
                self._bury()
        if self.lost and not self.buried:
            self._bury()

    def settle(self):
        """Undoes the events that last until the ranks have ended."""
        for _, _, call, args in sorted(self._due, key=lambda due: due[:2]):
            if call != self._begin:
                call(*args)
        self._due.clear()
        self.world.heal()

    def _begin(self, event):
        world, i = self.world, event.target
        if event.kind in ("kill", "drain", "pause", "stop", "move", "slow") and not world.is_well(i):
            return
        if event.kind == "arrive" and world.reducers[i].running():
            return  # a fault has ended with its start
        self.training.faults[event.kind] += 1
        if event.kind in plan.WORKER + plan.AGENT:
            self._lose(event)
            return
        undo = {"pause": world.go_on, "stop": world.go_on, "arrive": lambda i: None,
                "slow": lambda i: world.slow(i, "none")}.get(event.kind, world.start_reducer)
        if event.kind == "kill":
            world.kill(i)
        elif event.kind == "drain":
            world.drain(i)
            undo = world.restart_drained
        elif event.kind in ("pause", "stop"):
            world.stop(i)
        elif event.kind == "arrive":
            world.start_reducer(i)
        elif event.kind == "move":
            world.move(i)
        elif event.kind == "slow":
            world.slow(i, SLOW)
        elif event.kind == "cut":
            world.cut(event.node, i, event.out, event.back)
            undo = lambda i: world.mend(event.node, i, event.out, event.back)  # noqa: E731
        else:
            world.plug(i, False)
            undo = lambda i: world.plug(i, True)  # noqa: E731
        self._after(event.seconds, undo, i)

    def _lose(self, event):
        """Applies an event to a worker or an agent."""
        self.lost, self._lost_at = event, time.monotonic()
        if event.kind == "worker-kill":
            self.training.workers[event.target].kill()
        elif event.kind == "worker-stop":
            self.training.workers[event.target].signal(signal.SIGSTOP)
        elif event.kind == "worker-cut":
            for i in range(plan.REDUCERS):
                self.world.cut(self.training.topology.node(event.target), i)
        elif event.kind == "agent-kill":
            self.world.agents[event.target].kill()
        else:
            self.world.agents[event.target].signal(signal.SIGSTOP)

    def _is_victim(self, rank):
        topology, event = self.training.topology, self.lost
        return topology.node(rank) == event.target if event.kind in plan.AGENT else rank == event.target

    def must_read(self, rank):
        """Returns the pattern that a rank's error must match; lost ranks may name any cause."""
        if self._is_victim(rank):
            return r"was lost|exited|closed"
        return rf"rank {self.lost.target} \(.*(was lost|exited)"

    def _left(self):
        """Returns the ranks that must still get the error of the loss."""
        return [r for r, w in enumerate(self.training.workers) if w.running() and not self._is_victim(r)]

    def _bury(self):
        """The others have ended; ends the lost ranks, unless they have got an error themselves."""
        self.buried = True
        took = time.monotonic() - self._lost_at
        if took > self._may_take:
            raise RoundError(f"after {self.lost} the last rank has read of it in {took:.1f} s, more than "
                             f"{self._may_take:.1f} s")
        for rank, w in enumerate(self.training.workers):
            if self._is_victim(rank):
                w.kill()
        if self.lost.kind == "worker-cut":
            for i in range(plan.REDUCERS):
                self.world.mend(self.training.topology.node(self.lost.target), i)
        if self.lost.kind in plan.AGENT:
            self.world.agents[self.lost.target].kill()
            self.world.start_agent(self.lost.target)


def train_once(world, drawn, folder, options):
    """Runs a round; returns the Training. Raises RoundError."""
    training = Training(world, drawn.topology, f"fault-{drawn.seed}", folder, options)
    director = Director(world, training, drawn.events, options.detect * harness.SCALE)
    try:
        if drawn.absent is not None:
            world.leave(drawn.absent)
        training.start()
        director.run()
        errors = training.collect()
        if director.lost and not training.is_trained():
            for rank, sentence in errors.items():
                if not re.search(director.must_read(rank), sentence):
                    raise RoundError(f"after {director.lost} rank {rank} has read: {sentence}")
            director.lost, director.buried = None, False
            training.start()
            director.run()
            errors = training.collect()
        elif director.lost:
            errors = {}
        if errors:
            rank, sentence = next(iter(errors.items()))
            raise RoundError(f"rank {rank} of {len(errors)} with an error: {sentence}")
    finally:
        for w in training.workers:
            if w.running():
                w.kill()
        director.settle()
    return training


def compare(training, undisturbed):
    """Raises RoundError if a training is not equal, bit by bit, to one without faults."""
    for rank, (found, expected) in enumerate(zip(training.losses, undisturbed.losses)):
        for step, loss in expected.items():
            if found.get(step) != loss and (step in found or (rank, step) not in training.unsaid):
                raise RoundError(f"rank {rank} has the loss {found.get(step)} at step {step}, undisturbed {loss}")
    if training.checksums != undisturbed.checksums or len(training.checksums) != 1:
        raise RoundError(f"checksums of the parameters are {training.checksums}, undisturbed {undisturbed.checksums}")


def logged(world):
    """Returns how often ranks and agents have logged what happened to reducers."""
    return collections.Counter({word: sum(p.err.count(f" {word} ") for p in world.procs)
                                for word in ("reducer-lost", "reducer-back", "slot-empty", "slot-taken",
                                             "reducer-address", "rebalanced", "relay-joined")})


class Rounds:
    """All rounds, in the same world as long as they pass."""

    def __init__(self, options):
        self.options = options
        self.undisturbed = {}
        self.kinds, self.topologies = collections.Counter(), collections.Counter()
        self.restarts = self.failed = 0
        self.moves = collections.Counter()  # events of reducers in the logs of ranks and agents
        self._stack, self.world = contextlib.ExitStack(), None

    def _enter_world(self):
        if self.world is None:
            o = self.options
            detect = f"{int(1000 * o.detect * harness.SCALE)}ms"
            config = {"job": {"deterministic": True, "min_reducers": 1},
                      "sharding": {"chunk_bytes": "4KiB", "rebalance": "on"},
                      "timeouts": {"detect": detect, "stopped": detect, "connect": "60s"},
                      "logging": {"level": "debug"}}
            if o.groups:
                config["sharding"]["rebalance"] = "off"
                config["groups"] = [{"name": f"rack{g}", "relays": [f"r{r}" for r in range(g, plan.REDUCERS, 2)]}
                                    for g in range(2)]
            folder = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="reduction-fault-"))
            world = World(plan.REDUCERS, plan.NODES, folder, config, links=not o.no_links,
                          group=(lambda node: f"rack{node % 2}") if o.groups else None)
            self.world = self._stack.enter_context(world)
            for node in (0, 1):
                world.start_agent(node)
        return self.world

    def _leave_world(self):
        world, self.world = self.world, None
        self._stack.close()
        if world and world.problems:
            raise RoundError("; ".join(world.problems))

    def _folder(self, name):
        folder = self.world.folder / name
        folder.mkdir()
        return folder

    def _undisturbed(self, topology):
        if topology not in self.undisturbed:
            drawn = plan.Round(f"0-{topology.ranks}-{topology.agents}", self.options.steps, self.options.detect, ())
            drawn.topology = topology
            training = train_once(self.world, drawn, self._folder(f"undisturbed-{len(self.undisturbed)}"), self.options)
            compare(training, training)
            self.undisturbed[topology] = training
        return self.undisturbed[topology]

    def one(self, seed):
        """Runs one round; returns whether it has passed."""
        o, began, folder = self.options, time.monotonic(), None
        world = self._enter_world()
        kinds = [k for k in o.kinds if world.has_links or k not in plan.NEEDS_LINKS]
        drawn = plan.Round(seed, o.steps, o.detect * harness.SCALE, kinds)
        try:
            expected = self._undisturbed(drawn.topology)
            began = time.monotonic()
            folder = self._folder(f"round-{seed}")
            before = logged(world)
            training = train_once(world, drawn, folder, o)
            compare(training, expected)
            if world.problems:
                raise RoundError("; ".join(world.problems))
        except (RoundError, AssertionError) as e:
            self._failed(drawn, e)
            return False
        self.topologies[str(drawn.topology)] += 1
        self.kinds.update(training.faults)
        self.restarts += training.generation
        self.moves.update(logged(world) - before)
        print(f"round {seed}: good, {time.monotonic() - began:.1f} s, {'; '.join(drawn.lines())}", flush=True)
        shutil.rmtree(folder)
        world.sweep()
        return True

    def _failed(self, drawn, e):
        self.failed += 1
        where = pathlib.Path(self.options.out) / f"seed-{drawn.seed}"
        self.world.keep_logs(where)
        (where / "plan.txt").write_text("\n".join([*drawn.lines(), str(e), ""]))
        print(f"round {drawn.seed}: FAILED: {str(e).splitlines()[0]}\n    {'; '.join(drawn.lines())}\n    logs are in "
              f"{where}; --rounds 1 --seed {drawn.seed} repeats it", flush=True)
        with contextlib.suppress(RoundError):
            self._leave_world()  # its state is unknown

    def run(self):
        o, began = self.options, time.monotonic()
        with contextlib.ExitStack() as stack:
            stack.callback(self._stack.close)
            good = sum(self.one(seed) for seed in range(o.seed, o.seed + o.rounds))
            try:
                self._leave_world()
            except RoundError as e:
                self.failed += 1
                print(f"at the end: {e}", flush=True)
        print(json.dumps({
            "rounds": o.rounds, "good": good, "failed": self.failed, "seconds": round(time.monotonic() - began, 1),
            "faults": dict(self.kinds), "seen": dict(self.moves), "generations_restarted": self.restarts,
            "topologies": dict(self.topologies),
        }), flush=True)  # fmt: skip
        return 1 if self.failed or good != o.rounds else 0


def framework():
    """Returns torch if this build can use it."""
    import importlib.util

    has_torch = importlib.util.find_spec("torch") is not None
    return "torch" if has_torch and "thread" not in harness.SAN else "numpy"


def parse_arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=20, help="number of rounds (default %(default)s)")
    p.add_argument("--seed", type=int, default=1, help="seed of the first round (default %(default)s)")
    p.add_argument("--steps", type=int, default=150, help="steps of each training (default %(default)s)")
    p.add_argument("--detect", type=float, default=0.8, help="timeouts.detect in seconds (default %(default)s)")
    p.add_argument("--framework", choices=("torch", "numpy"), default=framework())
    p.add_argument("--kinds", type=lambda t: t.split(","), default=list(plan.KINDS),
                   help=f"faults, of {','.join(plan.KINDS)} (default all)")  # fmt: skip
    p.add_argument("--groups", action="store_true", help="two groups of nodes, for which the reducers relay")
    p.add_argument("--no-links", action="store_true", help="use loopback, without hosts and cut links")
    p.add_argument("--out", default="fault-logs", help="folder for logs of failed rounds (default %(default)s)")
    args = p.parse_args()
    if bad := set(args.kinds) - set(plan.KINDS):
        p.error(f"--kinds: found {', '.join(sorted(bad))}, expected some of {', '.join(plan.KINDS)}")
    if args.steps < 4 or args.rounds < 1:
        p.error("expected at least 4 --steps and 1 round")
    return args


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(Rounds(parse_arguments()).run())
