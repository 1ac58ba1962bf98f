# SPDX-License-Identifier: Apache-2.0
"""The faults of a round, drawn from its seed.

One reducer of each round, the survivor, is never lost, because a job needs one; it may pause for a moment. The faults
of the others end after a drawn time, below or above the detection time. A fault of a worker or an agent ends the
generation; one of three rounds has one such fault. In one of four rounds a slot is empty when the training starts, and
a reducer takes it later."""

import random
from typing import NamedTuple

REDUCER = ("kill", "stop", "drain", "cut", "unplug", "move", "slow")  # for any reducer but the survivor
WORKER = ("worker-kill", "worker-stop", "worker-cut")
AGENT = ("agent-kill", "agent-stop")
KINDS = ("pause", *REDUCER, *WORKER, *AGENT, "arrive")
NEEDS_LINKS = ("cut", "unplug", "move", "slow", "worker-cut")

REDUCERS = 4
NODES = 4


class Topology(NamedTuple):
    """The processes of a round: `ranks`, on as many nodes, or with agents on two."""

    ranks: int
    agents: bool

    def node(self, rank):
        return rank // self.local if self.agents else rank

    @property
    def local(self):
        return self.ranks // 2 if self.agents else 1

    def __str__(self):
        return f"{self.ranks} ranks {'on 2 agents' if self.agents else 'direct'}"


TOPOLOGIES = (Topology(2, False), Topology(3, False), Topology(4, False), Topology(2, True), Topology(4, True))


class Event(NamedTuple):
    """When rank 0 prints `step`, and `delay` seconds later, the fault `kind` happens to the reducer, rank or node
    number `target`; it ends after `seconds`. A cut is between the reducer and `node`: of traffic `out` of the node,
    `back` to it, or both."""

    step: int
    delay: float
    kind: str
    target: int
    seconds: float
    node: int = 0
    out: bool = True
    back: bool = True

    def __str__(self):
        whom = "rank " if self.kind in WORKER else "agent " if self.kind in AGENT else "r"
        link = f" from node {self.node}{'' if self.back else ', out only'}{'' if self.out else ', in only'}"
        return (f"{self.kind} {whom}{self.target}{link if self.kind == 'cut' else ''} at step {self.step} + "
                f"{1000 * self.delay:.0f} ms for {1000 * self.seconds:.0f} ms")


class Round:
    """seed -> topology, and events in order. `detect`: seconds; `steps`: of the training; `kinds`: permitted faults."""

    def __init__(self, seed, steps, detect, kinds):
        self.seed = seed
        rng = random.Random(f"round {seed}")
        self.topology = rng.choice(TOPOLOGIES)
        self.survivor = rng.randrange(REDUCERS)
        self._rng, self._steps, self._detect = rng, steps, detect
        self.absent = None  # the reducer whose slot is empty at the start
        if "arrive" in kinds and rng.random() < 0.25:
            self.absent = rng.choice([i for i in range(REDUCERS) if i != self.survivor])
        events = [self._of_reducer(kinds) for _ in range(rng.randrange(1, 5))]
        if self.absent is not None:
            events.append(Event(kind="arrive", target=self.absent, seconds=0, **self._when()))
        if rng.random() < 1 / 3:
            events.append(self._of_worker([k for k in kinds if k in WORKER + AGENT]))
        self.events = sorted(e for e in events if e)

    def _when(self):
        # mostly so early that the fault ends before the training
        last = self._steps if self._rng.random() < 0.2 else max(4, self._steps // 2)
        return {"step": self._rng.randrange(3, last), "delay": self._rng.choice([0, self._rng.uniform(0, 0.02)])}

    def _of_reducer(self, kinds):
        rng, detect = self._rng, self._detect
        may = [k for k in kinds if k in REDUCER]
        others = [i for i in range(REDUCERS) if i != self.survivor]
        when, seconds = self._when(), rng.choice([rng.uniform(0.05, 0.4), rng.uniform(1.2, 2)]) * detect
        if "pause" in kinds and (not may or rng.random() < 0.2):
            return Event(kind="pause", target=rng.randrange(REDUCERS), seconds=rng.uniform(0.02, 0.3) * detect, **when)
        if not may:
            return None
        kind, node = rng.choice(may), self.topology.node(rng.randrange(self.topology.ranks))
        if kind == "slow":  # so long that shares may follow
            seconds = rng.uniform(1, 6)
        out = rng.random() < 0.8
        return Event(kind=kind, target=rng.choice(others), seconds=seconds, node=node, out=out,
                     back=not out or rng.random() < 0.7, **when)

    def _of_worker(self, may):
        rng = self._rng
        may = [k for k in may if self.topology.agents or k not in AGENT]
        if self.topology.agents:
            may = [k for k in may if k != "worker-cut"]  # the ranks of a node have no links of their own
        if not may:
            return None
        kind = rng.choice(may)
        target = self.topology.node(rng.randrange(self.topology.ranks)) if kind in AGENT else (
            rng.randrange(self.topology.ranks))
        return Event(kind=kind, target=target, seconds=0, **self._when())

    def lines(self):
        absent = "" if self.absent is None else f"; r{self.absent} is absent"
        yield f"{self.topology}; r{self.survivor} survives{absent}"
        yield from map(str, self.events)
