#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# run: beside-others grpc
"""A process that is stopped for longer than the detection time (a debugger, SIGSTOP, a frozen container) is late and
not lost while its machine acknowledges: nothing fails, and the sums are right when it continues. Where
acknowledgements prove nothing, behind a proxy or over gRPC, it is lost. Power-off is in test_worker_loss."""

import signal
import time
import unittest

import harness
from test_path import NarrowPath

DETECT = 2  # seconds
TIMEOUTS = {"timeouts": {"detect": f"{DETECT}s", "connect": f"{30 * harness.SCALE}s"}}
COUNT = 8_000_000  # float32: more than all sockets and windows on the way hold

# Sums once for each line of input. It says so when its large operation has begun.
RANK = harness.python("""
    import numpy, reduction, worker
    def run():
        with reduction.Communicator() as comm:
            worker.say("open")
            number = 0
            while n := int(worker.listen()):
                x = numpy.full(n, comm.rank + 1, "float32")
                request = comm.all_reduce(x, async_op=True)
                number += 1
                worker.say(f"begun {number}")
                request.wait()
                worker.say(f"sum {number}", value=float(x.min()), all=bool((x == x[0]).all()))
    worker.say("end", **worker.attempt(run))
    """)


class Stopped(unittest.TestCase):
    def start(self, c, ways, **more):
        ranks = [c.start_worker(rank, len(ways), RANK, env=harness.reach(way) | env, **more)
                 for rank, (way, env) in enumerate(ways)]
        for rank in ranks:
            rank.said("open")
        return ranks

    def begin(self, ranks, n):
        for rank in ranks:
            rank.tell(str(n))

    def end(self, ranks, number=1):
        """All have the sum of this operation, counted from 1."""
        want = len(ranks) * (len(ranks) + 1) / 2
        for rank in ranks:
            found = rank.said(f"sum {number}", timeout=60)
            self.assertEqual((found["value"], found["all"]), (want, True))

    def leave(self, ranks):
        self.begin(ranks, 0)
        for rank in ranks:
            self.assertIsNone(rank.said("end")["error"])
            self.assertEqual(rank.wait(), 0, rank.report())

    def stop(self, victim, others, number=1):
        """Stops a process for several detection times. The others neither get this sum nor fail, which takes time to
        see."""
        victim.signal(signal.SIGSTOP)
        try:
            with self.assertRaises(AssertionError):
                others[0].wait_text(f'"(sum {number}|end)"', timeout=3 * DETECT / harness.SCALE, stream="out")
        finally:
            victim.signal(signal.SIGCONT)

    def cluster(self, **more):
        return harness.Cluster(reducers=2, transport="tcp", config=TIMEOUTS, server_config=TIMEOUTS, **more)

    def test_idle(self):
        """It has nothing to send or receive: its kernel acknowledges heartbeats."""
        with self.cluster() as c:
            ranks = self.start(c, [("direct", {})] * 3)
            self.begin([ranks[0], ranks[2]], 1000)
            for rank in (ranks[0], ranks[2]):
                rank.said("begun 1")
            self.stop(ranks[1], [ranks[0], ranks[2]])
            for i in range(2):
                c.reducers[i].wait_text(
                    rf'rank-stopped job=test generation=0 rank=1 label="pid {ranks[1].pid} on .*" silent_ms=[23]\d\d\d '
                    'reason="its machine acknowledges, but its process sends nothing')
            self.begin([ranks[1]], 1000)
            self.end(ranks)
            self.leave(ranks)

    def test_during_traffic(self):
        """Its receive buffers fill, and its kernel answers window probes only."""
        with self.cluster() as c:
            ranks = self.start(c, [("direct", {})] * 2)
            self.begin(ranks, COUNT)
            ranks[1].said("begun 1")
            self.stop(ranks[1], ranks[:1])
            self.end(ranks)
            self.leave(ranks)

    def test_again_and_again(self):
        with self.cluster() as c:
            ranks = self.start(c, [("direct", {})] * 2)
            for number in (1, 2, 3):
                self.begin(ranks[:1], 1000)
                self.stop(ranks[1], ranks[:1], number)
                self.begin(ranks[1:], 1000)
                self.end(ranks, number)
            self.leave(ranks)

    def test_local_ranks(self):
        """Two nodes of two ranks: with agents, of which one is stopped as well, and without."""
        for agents in (2, 0):
            with self.subTest(agents=agents), self.cluster(agents=agents) as c:
                places = [{"LOCAL_RANK": str(i % 2), "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": str(i // 2),
                           "GROUP_WORLD_SIZE": "2"} for i in range(4)]  # fmt: skip
                ranks = self.start(c, [(c.socket_path(i // 2) if agents else "node", places[i]) for i in range(4)])
                # local rank 0 runs the node's part of the engine if there is no agent
                stopped = [(ranks[3], ranks[:3]), (ranks[0], ranks[1:])] + [(a, ranks) for a in c.agents[1:]]
                for number, (victim, others) in enumerate(stopped, 1):
                    self.begin(ranks, COUNT)
                    others[0].said(f"begun {number}")
                    self.stop(victim, others, number)
                    self.end(ranks, number)
                if agents:
                    c.agents[1].wait_text(rf"client-stopped pid={ranks[3].pid} job=test local_rank=1 ")
                self.leave(ranks)

    def test_longer_than_allowed(self):
        limit = {"timeouts": TIMEOUTS["timeouts"] | {"stopped": f"{2 * DETECT}s"}}
        with harness.Cluster(reducers=2, transport="tcp", config=limit, server_config=limit) as c:
            ranks = self.start(c, [("direct", {})] * 2)
            self.begin(ranks[:1], 1000)
            since = time.monotonic()
            ranks[1].signal(signal.SIGSTOP)
            said = ranks[0].said("end", timeout=30)
            self.assertRegex(said["message"], rf"rank 1 .* was lost: nothing was heard from it for {2 * DETECT}\.")
            self.assertGreater(time.monotonic() - since, 1.5 * DETECT)  # from the last heartbeat on
            ranks[1].kill()

    def test_acknowledgements_that_prove_nothing(self):
        with self.cluster() as c:
            behind = [NarrowPath(c.address(i), False, False) for i in range(2)]
            for path in behind:
                self.addCleanup(path.close)
            self.lost(c, {"reducers": [{"id": f"r{i}", "address": p.address} for i, p in enumerate(behind)]})
        if harness.HAS_GRPC:
            server = TIMEOUTS | {"server": {"grpc": "127.0.0.1:0"}}
            with harness.Cluster(reducers=2, transport="grpc", config=TIMEOUTS, server_config=server) as c:
                self.lost(c, None)

    def lost(self, c, config):
        ranks = self.start(c, [("direct", {})] * 2, config=config)
        self.begin(ranks[:1], 1000)
        ranks[1].signal(signal.SIGSTOP)
        self.assertRegex(ranks[0].said("end", timeout=30)["message"],
                         rf"rank 1 \(pid .*\) was lost: nothing was heard from it for {DETECT}\.0 s")  # fmt: skip
        self.assertNotIn("rank-stopped", c.reducers[0].err + c.reducers[1].err)
        ranks[1].kill()


if __name__ == "__main__":
    harness.main()
