# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan all-only
"""Workers and reducers of the release before this one meet those of this one: `make compat` builds the old ones."""

import unittest

import harness

FOLDER = harness.BUILD.parent / "compat"
OLD = FOLDER / "tree/build/default"
OLD_WORKER = {
    "REDUCTION_LIBRARY": OLD / "lib/libreduction.so.0",
    "PYTHONPATH": FOLDER / "tree/agent/python",
    "REDUCTION_AGENT": "direct",  # what the mode was before there was REDUCTION_MODE
    "REDUCTION_MODE": "",
}
TO = r"""
import os, sys, numpy, reduction
def step(comm, n, dtype):
    world = comm.world_size
    x = numpy.arange(n, dtype=dtype) % 100 + comm.rank
    want = numpy.arange(n, dtype=dtype) % 100 * world + sum(range(world))
    comm.all_reduce(x)
    assert (x == want).all(), (n, dtype)
with reduction.Communicator() as comm:
    for dtype in "float32", "float64", "int32":
        for n in 0, 1, 1000, 300000:
            step(comm, n, dtype)
    x = numpy.full(5000, comm.rank, "float32")
    if not os.environ["MIXED"]:
        comm.broadcast(x, root=1)
        assert (x == 1).all()
    print("half", reduction.library_version(), flush=True)
    sys.stdin.readline()
    for _ in range(20):
        step(comm, 50000, "float32")
    print("done", flush=True)
"""

BROADCAST = """
import numpy, reduction
with reduction.Communicator() as comm:
    x = numpy.full(5000, comm.rank, "float32")
    comm.all_reduce(x)
    print("summed", flush=True)
    comm.broadcast(x, root=1)
"""


def why_not():
    if harness.SAN:
        return "the old programs have no sanitizers"
    if not (FOLDER / "commit").exists():
        return "the release before this one is not built: run make compat"
    return ""


@unittest.skipIf(why_not(), why_not())
class Compat(unittest.TestCase):
    def start_reducer(self, c, i, age):
        """Returns the process."""
        if age == "new":
            c.start_reducer(i)
            return c.reducers[i]
        argv = [OLD / "bin/reduction-server", "--lanes", 2, "--listen", c.address(i)]
        old = c.start(f"old reducer r{i}", argv)
        old.wait_text(r"\blistening\b")
        return old

    def meet(self, reducers, workers, config=None, lose=None, back=None):
        """One job of reducers and workers, each "old" or "new"; `lose` is a reducer that dies between the halves, and
        `back` what comes in its place."""
        with harness.Cluster(reducers=len(reducers), lanes=2, config=config, start=False) as c:
            running = [self.start_reducer(c, i, age) for i, age in enumerate(reducers)]
            # broadcasts have named their root since the old commit, which old reducers
            # refuse if not all ranks do so
            mixed = "1" if len(set(workers)) > 1 and "old" in reducers else ""
            procs = c.start_workers(
                len(workers),
                harness.python(TO),
                env=lambda rank: {"MIXED": mixed, **(OLD_WORKER if workers[rank] == "old" else {})},
            )
            for p in procs:
                p.wait_text(r"\bhalf\b", timeout=60, stream="out")
            if lose is not None:
                running[lose].kill()
            if back:
                for p in procs:
                    p.wait_text(rf"reducer-lost reducer=r{lose}\b", stream="err")
                self.start_reducer(c, lose, back)
                for p in procs:
                    p.wait_text(rf"reducer-back reducer=r{lose}\b", stream="err")
            for p in procs:
                p.tell()
            self.assertEqual(c.wait_all(procs), [0] * len(procs), "".join(p.report() for p in procs))
            for p in procs:
                self.assertIn("done", p.out)
            if lose is not None:
                self.assertTrue(any("reducer-lost" in p.err for p in procs))

    def test_old_workers_and_new_reducers(self):
        self.meet(["new", "new"], ["old", "old", "old"])

    def test_new_workers_and_old_reducers(self):
        self.meet(["old", "old"], ["new", "new", "new"])

    def test_decoupled_ranks_and_old_reducers(self):
        """Old reducers send no CREDIT, and also not one that comes in the place of a new one."""
        decoupled = {"sharding": {"decoupled": "4MiB"}}
        self.meet(["old", "new"], ["new", "new"], decoupled)
        self.meet(["new", "new"], ["new", "new"], decoupled, lose=0, back="old")

    def test_all_mixed(self):
        """In the middle of an upgrade, also in the order of ranks and with checksums."""
        self.meet(["old", "new"], ["old", "new", "old", "new"])
        self.meet(["new", "old"], ["new", "old"], {"job": {"deterministic": True, "checksum": True}})

    def test_mixed_workers_and_old_reducers(self):
        """The one exception of deploy/README.md: a broadcast is an error on all ranks, and no wrong data."""
        with harness.Cluster(reducers=1, lanes=2, start=False) as c:
            argv = [OLD / "bin/reduction-server", "--lanes", 2, "--listen", c.address(0)]
            c.start("old reducer r0", argv).wait_text(r"\blistening\b")
            procs = c.start_workers(2, harness.python(BROADCAST), env=lambda rank: OLD_WORKER if rank else {})
            c.wait_all(procs)
            for p in procs:
                self.assertEqual((p.code, p.out), (1, "summed\n"), p.report())
                self.assertRegex(p.err, "MismatchError: ranks disagree about operation 1: .* a broadcast of 5000")

    def test_mixed_workers_and_new_reducers(self):
        """After the first half of an upgrade in the order of deploy/README.md: reducers first."""
        self.meet(["new", "new"], ["old", "new", "old"])

    def test_an_old_reducer_is_lost(self):
        self.meet(["old", "new"], ["new", "old"], lose=0)

    def test_a_new_reducer_is_lost(self):
        self.meet(["old", "new"], ["new", "old"], lose=1)

    def test_an_old_reducer_takes_the_place_of_a_new_one(self):
        self.meet(["new", "new"], ["new", "new"], lose=1, back="old")

    def test_a_new_reducer_takes_the_place_of_an_old_one(self):
        self.meet(["old", "new"], ["old", "new"], lose=0, back="new")

    def test_baseline(self):
        """With everything newer off, among themselves and with old ones, also when a reducer is lost."""
        config = {"job": {"features": "baseline"}}
        self.meet(["new", "new"], ["new", "new"], config, lose=0, back="new")
        self.meet(["new", "old"], ["new", "new"], config, lose=1, back="old")

    def test_local_protocol(self):
        """An agent serves libraries of its own version of the local protocol, and says so to others."""
        with harness.Cluster(reducers=1, agents=1) as c:
            env = {**OLD_WORKER, "REDUCTION_AGENT": c.socket_path(0)}
            (p,) = c.run(1, harness.python("import reduction\nreduction.Communicator()"), env=env, check=False)
            self.assertNotEqual(p.code, 0)
            self.assertRegex(p.err + c.agents[0].err, r"version \d+ of the local protocol, expected version \d+")


if __name__ == "__main__":
    harness.main()
