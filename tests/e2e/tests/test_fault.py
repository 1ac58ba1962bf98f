#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# run: beside-others all-only
"""The programs of tests/fault: a few rounds and a short soak, and that both detect failures.
"""

import collections
import contextlib
import io
import pathlib
import sys
import tempfile
import types
import unittest
from unittest import mock

import harness

sys.path.insert(0, str(harness.ROOT / "tests/fault"))
import fault  # noqa: E402
import plan  # noqa: E402
import soak  # noqa: E402


# seconds, times SCALE: longer than a thread may have to wait for a processor
DETECT = max(0.8, 3 / harness.SCALE)


def options(**more):
    """Parses like the command line."""
    return types.SimpleNamespace(
        **{"steps": 60, "detect": DETECT, "seed": 7, "rounds": 1, "kinds": list(plan.KINDS), "framework": "numpy",
           "no_links": True, "groups": False} | more  # fmt: skip
    )


def trained(losses, checksums=(5,), unsaid=()):
    return types.SimpleNamespace(losses=losses, checksums=set(checksums), unsaid=set(unsaid))


SEED = 102  # of a round with agents and one without, and six kinds of faults


class Plans(unittest.TestCase):
    rounds = [plan.Round(seed, 60, 1.0, plan.KINDS) for seed in range(500)]

    def test_all_kinds_of_faults_occur(self):
        kinds = collections.Counter(e.kind for r in self.rounds for e in r.events)
        self.assertEqual(set(kinds), set(plan.KINDS))
        self.assertGreater(min(kinds.values()), 5, kinds)
        self.assertEqual({r.topology for r in self.rounds}, set(plan.TOPOLOGIES))

class Judging(unittest.TestCase):
    """Failures must be detected."""

    def test_curves(self):
        good = trained([{0: "0x1p+0", 1: "0x1p-1"}, {0: "0x1p+1", 1: "0x1p+0"}])
        fault.compare(good, good)
        fault.compare(trained([good.losses[0], {0: "0x1p+1"}], unsaid=[(1, 1)]), good)
        for losses, checksums, sentence in (
            ([{0: "0x1p+0", 1: "0x1.0000000000001p-1"}, good.losses[1]], (5,), "rank 0 has the loss .* at step 1"),
            ([good.losses[0], {0: "0x1p+1"}], (5,), "rank 1 has the loss None at step 1"),
            (good.losses, (6,), "checksums of the parameters"),
            (good.losses, (5, 6), "checksums of the parameters"),
        ):
            with self.assertRaisesRegex(fault.RoundError, sentence):
                fault.compare(trained(losses, checksums), good)

        with self.assertRaisesRegex(fault.RoundError, "rank 0 has the loss 0x1p-2 at step 1"):
            fault.compare(trained([{0: "0x1p+0", 1: "0x1p-2"}, good.losses[1]], unsaid=[(0, 1)]), good)

    def test_round_that_fails(self):
        """Its seed is printed, its logs are kept, the others continue, and the exit status is 1."""
        real, runs = fault.train_once, []

        def wrong_once(world, drawn, *rest):
            runs.append(drawn.seed)
            training = real(world, drawn, *rest)
            if drawn.seed == 8:
                training.losses[0][1] = "0x0p+0"
            return training

        with tempfile.TemporaryDirectory() as out, mock.patch.object(fault, "train_once", wrong_once):
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                status = fault.Rounds(options(rounds=3, steps=6, kinds=["pause"], out=out)).run()
            logs = sorted(p.name for p in (pathlib.Path(out) / "seed-8").iterdir())
        self.assertEqual(status, 1, said.getvalue())
        sentence = r"round 7: good, .*\nround 8: FAILED: rank 0 has the loss 0x0p\+0 at step 1, "
        self.assertRegex(said.getvalue(), sentence)
        self.assertIn("--rounds 1 --seed 8 repeats it", said.getvalue())
        self.assertRegex(said.getvalue(), r"round 9: good, ")
        self.assertEqual([r for r in runs if isinstance(r, int)], [7, 8, 9])
        self.assertIn("plan.txt", logs)
        self.assertTrue(any("reducer-r0" in name for name in logs), logs)

    def test_memory_that_grows(self):
        def verdict(kib, descriptors):
            of = [(i / 10, kib(i), descriptors(i)) for i in range(600)]
            return soak.Soak.verdict_of(types.SimpleNamespace(args=options(minutes=60)), "r0", 1, of)

        jobs = [15_000 * (i % 9 == 0) for i in range(400)] + [15_000 * (i % 9 != 0) for i in range(200)]
        self.assertTrue(verdict(lambda i: 40_000 + jobs[i], lambda i: 20 + jobs[i] // 500)["flat"])
        self.assertTrue(verdict(lambda i: 40_000 + min(i, 100) * 50, lambda i: 20)["flat"])  # it is warm then
        self.assertFalse(verdict(lambda i: 40_000 + 5 * i, lambda i: 20)["flat"])
        self.assertFalse(verdict(lambda i: 40_000, lambda i: 20 + i // 30)["flat"])
        of = [(i / 10, 40_000, 20) for i in range(300)]
        short = soak.Soak.verdict_of(types.SimpleNamespace(args=options(minutes=60)), "r1", 1, of)
        self.assertIsNone(short)  # it did not live long enough

@unittest.skipIf(harness.SAN, "test_failover has the same in less time")
class Programs(unittest.TestCase):
    def start(self, program, *words, timeout=200):
        with harness.Cluster(start=False, reducers=0) as c, tempfile.TemporaryDirectory() as out:
            argv = [harness.PYTHON, harness.ROOT / "tests/fault" / program, *words]
            # they are the harness of processes of this build, and load nothing of it
            # themselves
            env = {"REDUCTION_BUILD": str(harness.BUILD), "REDUCTION_SAN": harness.SAN, "LD_PRELOAD": ""}
            p = c.start(program, argv + ["--out", f"{out}/soak.jsonl" if program == "soak.py" else out], env)
            self.assertEqual(p.wait(timeout), 0, p.report())
            return p

    def test_rounds(self):
        p = self.start("fault.py", "--rounds", 2, "--seed", SEED, "--steps", 60, "--detect", DETECT)
        said = p.objects()[-1]
        self.assertEqual(said["good"], 2)
        self.assertGreater(said["seen"]["reducer-lost"], 0)  # something has happened to them
        print(p.out, end="", flush=True)

    def test_soak(self):
        minutes = 0.2 if harness.SLOW else 0.4
        p = self.start("soak.py", "--minutes", minutes, "--between-faults", "0.5-2", "--between-jobs", "1-3")
        rows = p.objects()
        self.assertEqual((rows[-1]["verdict"], rows[-1]["memory_is_judged"]), ("good", False))
        self.assertEqual(rows[0]["errors"], 0)
        self.assertGreater(rows[0]["operations"], 200)
        self.assertGreater(sum(rows[0]["faults"].values()), 2)
        self.assertEqual({r["process"][:2] for r in rows[-1]["processes"]} & {"r0", "ag"}, {"r0", "ag"})



if __name__ == "__main__":
    harness.main()
