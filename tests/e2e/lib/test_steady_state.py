#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# run: alone
"""Nothing is allocated, locked, mapped or faulted in for a chunk: counted in every thread of real reducers, agents and
workers (shim_count.c), between two moments at which all ranks have all their results."""

import os
import struct
import unittest

import harness

CHUNK = 32 << 10
SMALL, LARGE = 4 << 10, 1 << 20  # bytes of an operation: one chunk, and 32 of them
RINGS = 8 << 20  # of one that goes through a ring, in pieces, when its memory is not the agent's
FEW, MANY = 20, 2020  # operations

# What the kernel may do to a thread on its own during a phase, whatever that does: a page
# that it has moved, or the first use of a page of a stack. A fault for each chunk would
# be 64,640 in the longest phase, one for each operation 2,020.
FAULTS = 16

# An operation is handed from the thread that calls to the one that works on it, and back:
# locks, but as many for one chunk as for many. {(process's kind, thread's name): {kind of
# call: most in an operation}}; nothing else is allowed. Whoever runs an engine, or reads
# the agent's messages, also takes its turn anew after each sleep: in an operation of 32
# chunks that both threads share that is a few times.
DIRECT = {
    ("worker", "main"): {"lock": 24},
    ("worker", "reduction"): {"lock": 24},
}
AGENTS = {
    ("worker", "main"): {"lock": 16},
    ("worker", "reduction"): {"lock": 8},
    ("agent", "main"): {"lock": 12},
    ("agent", "reduction"): {"lock": 24},
}

KINDS = ("allocation", "release", "lock", "mapping")
RECORD = struct.Struct(f"={1 + len(KINDS)}Q")


def threads(pid):
    """{thread id: (name, minor page faults)} of a process."""
    found = {}
    for tid in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{tid}/stat", encoding="utf-8") as f:
            name, fields = f.read().split("(", 1)[1].rsplit(") ", 1)
        found[int(tid)] = (name, int(fields.split()[7]))
    return found


class Counted(harness.Cluster):
    """A cluster whose processes count."""

    def start(self, name, argv, env=None):
        (self.dir / "counts").mkdir(exist_ok=True)
        counting = {
            "LD_PRELOAD": str(harness.BUILD / "tests" / "e2e" / "shim_count.so"),
            "REDUCTION_COUNT": str(self.dir / "counts"),
        }
        return super().start(name, argv, {**(env or {}), **counting})

    def look(self, proc):
        """{thread: {kind: calls so far}} of a process. The thread that a process begins with is called "main"."""
        data = (self.dir / "counts" / str(proc.pid)).read_bytes()
        calls = {r[0]: r[1:] for r in RECORD.iter_unpack(data)}
        found = {}
        for tid, (name, faults) in threads(proc.pid).items():
            counts = dict(zip(KINDS, calls.get(tid, (0,) * len(KINDS))))
            found["main" if tid == proc.pid else f"{name} {tid}"] = {**counts, "fault": faults}
        return found

    def run_ops(self, workers, ops, size, how, first=None):
        """first: the worker that must have as many operations under way as it ever has before the others begin."""
        self.phases = getattr(self, "phases", -1) + 1
        if first:
            first.tell(f"{ops} {size} {how}")
            first.said(f"full {self.phases}")
        for w in workers:
            if w is not first:
                w.tell(f"{ops} {size} {how}")
        for w in workers:
            w.said(f"done {self.phases}", timeout=60)

    def warm(self, workers, size, how):
        """All that is made when it is needed for the first time, as often as it can be needed at a time."""
        self.run_ops(workers, 200, size, how)
        for w in workers if how.endswith("-async") else ():
            self.run_ops(workers, 20, size, how, first=w)

    def phase(self, workers, ops, size, how):
        """All ranks run these operations; returns [(process, thread, {kind: calls during them}), ...]."""
        procs = [p for p in self.reducers + self.agents + workers if p]
        before = [self.look(p) for p in procs]
        self.run_ops(workers, ops, size, how)
        found = []
        for p, then in zip(procs, before):
            for name, now in self.look(p).items():
                was = then.get(name, dict.fromkeys(now, 0))
                found.append((p, name, {kind: now[kind] - was[kind] for kind in now}))
        return found


@unittest.skipIf(harness.SAN, "sanitizers bring their own allocator and locks")
class SteadyState(unittest.TestCase):
    def run_phases(self, how, per_op, agents=0, ranks=2, sizes=(SMALL, LARGE), many=MANY, where="local", **sharding):
        config = {"sharding": {"chunk_bytes": CHUNK, **sharding}, "agent": {"single_node": where}}
        with Counted(reducers=2, lanes=2, agents=agents, config=config) as c:
            workers = c.start_workers(ranks, [str(harness.BUILD / "tests" / "e2e" / "worker_steady")])
            for w in workers:
                w.said("open")
            for size in sizes:
                c.warm(workers, size, how)
            for size in sizes:
                for ops in (FEW, many):
                    found = c.phase(workers, ops, size, how)
                    self.check_counting(found, ops)
                    for p, thread, counts in found:
                        allowed = per_op.get((p.name.split()[0], thread.split()[0]), {})
                        for kind, n in counts.items():
                            most = FAULTS if kind == "fault" else allowed.get(kind, 0) * ops
                            with self.subTest(process=p.name, thread=thread, kind=kind, ops=ops, size=size):
                                self.assertLessEqual(n, most)

    def check_counting(self, found, ops):
        """That something is counted at all, in each thread that is expected to work: one that waits may do the work of
        the engine's."""
        for p, thread, counts in found:
            if p.name.startswith("worker") and thread == "main":
                self.assertGreaterEqual(counts["lock"], ops, (p.name, thread))
        lanes = [thread for p, thread, _ in found if p.name.startswith("reducer") and thread.startswith("lane ")]
        self.assertEqual(len(lanes), 4, "two reducers with two lanes each")

    def test_direct(self):
        self.run_phases("plain", DIRECT)

    def test_direct_several_in_flight(self):
        self.run_phases("plain-async", DIRECT)

    def test_agents(self):
        self.run_phases("buffer", AGENTS, agents=2, ranks=4)

    def test_agents_several_in_flight(self):
        self.run_phases("buffer-async", AGENTS, agents=2, ranks=4)

    def test_agents_private_memory(self):
        self.run_phases("plain-async", AGENTS, agents=1, ranks=2, where="reducers")

    def test_one_node(self):
        self.run_phases("buffer", AGENTS, agents=1, ranks=4)

    def test_one_node_private_memory(self):
        self.run_phases("plain-async", AGENTS, agents=1, ranks=2)

    def run_rings(self, where, agent):
        """Copied piece by piece: locks and messages for each piece of 512 KiB, in a ring that is made once."""
        pieces = RINGS // (512 << 10)
        per_op = {
            ("worker", "main"): {"lock": 16 * pieces},
            ("worker", "reduction"): {"lock": 16 * pieces},
            ("agent", "main"): {"lock": 4 * pieces},
            ("agent", "reduction"): {"lock": agent * pieces},
        }
        self.run_phases("plain-async", per_op, 1, 2, (RINGS,), 220, where, window=8)

    def test_agents_rings(self):
        self.run_rings("reducers", 6)

    def test_one_node_rings(self):
        """What the engine's thread does in steps of 256 KiB takes the turn anew each time, and for each piece that has
        come."""
        self.run_rings("local", 16)


if __name__ == "__main__":
    harness.main()
