#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# run: beside-others
"""Common properties of workers with and without agents: the same tests of determinism and of many tensors, and a job
that is started both ways.
"""

import json
import unittest
import zlib

import harness
import oracle
import test_deterministic
import test_many_tensors


class Mixed(unittest.TestCase):
    def test_deterministic(self):
        """Local ranks are summed in their order, then nodes in theirs: the same bits in every round."""
        for partials in ("rounded", "exact"):
            with self.subTest(partials):
                self.check_deterministic(partials)

    def check_deterministic(self, partials):
        job = {"deterministic": True, "partials": partials}
        with harness.Cluster(reducers=2, agents=2, lanes=2, config={"job": job}) as c:
            plan = c.dir / "plan.json"
            cases = test_deterministic.CASES
            plan.write_text(json.dumps({"rounds": test_deterministic.ROUNDS, "cases": cases}))
            workers = c.run(4, [harness.PYTHON, str(test_deterministic.WORKER), str(plan)])
            want = []
            for number, (op, dtype, count) in enumerate(cases):
                parts = [oracle.make(dtype, count, "random", number, rank) for rank in range(4)]
                want.append(zlib.crc32(oracle.fold_nodes(dtype, op, parts, 2, partials == "exact").tobytes()))
            for w in workers:
                for round_, sums in enumerate(w.said("done")["sums"]):
                    self.assertEqual(sums, want, f"{w.name}, round {round_}")

    def test_many_tensors(self):
        for in_flight in ("one", "all"):
            with self.subTest(in_flight), harness.Cluster(reducers=2, agents=2, lanes=2) as c:
                rounds = 2 if harness.SLOW else 4
                test_many_tensors.ManyTensors.run_rounds(self, c, 4, rounds, in_flight, slow_rank=3)

    def test_one_rank_without_agent(self):
        """To the reducers the job of an agent has as many workers as nodes: a rank without agent is refused with a
        reason."""
        member = harness.python("""
            import reduction, worker
            worker.say("ready")
            worker.listen()
            worker.say("end", **worker.attempt(reduction.Communicator))
            """)
        with harness.Cluster(agents=1, server_args=["--log-level", "debug"]) as c:
            node = [
                c.start_worker(rank, 3, member, env={"LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": 2, "GROUP_RANK": 0,
                                                     "GROUP_WORLD_SIZE": 2})
                for rank in range(2)
            ]  # fmt: skip
            alone = c.start_worker(2, 3, member, env=harness.reach("direct"))
            for w in [*node, alone]:
                w.said("ready")
            for w in node:
                w.tell()
            c.reducers[0].wait_text("worker-joined")
            alone.tell()
            said = alone.said("end")
            self.assertEqual(said["error"], "MismatchError")
            self.assertRegex(said["message"], "rank 2 says the world size of job test is 3, rank 0 says 2")
            for w in node:
                self.assertRegex(w.said("end")["message"], "rank 2 says the world size of job test is 3, rank 0 says 2")


if __name__ == "__main__":
    harness.main()
