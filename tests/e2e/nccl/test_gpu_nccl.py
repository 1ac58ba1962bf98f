#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan
"""The part nccl of check-gpu (tests/gpu) judges rightly. NCCL and the GPU are fakes; plugin and reducers are real."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import harness

FAKE = harness.BUILD / "tests/gpu/fake"
TUNING = "node0:4711:4719 [0] NCCL INFO AllReduce: {} Bytes -> Algo {} proto SIMPLE channel{{Lo..Hi}}={{0..1}}\n"
NUMBER = "node0:4711:4719 [0] NCCL INFO AllReduce: {} Bytes -> Algo {} proto 2 time 57.166668\n"  # NCCL 2.23
LOADED = """\
node0:4711:4719 [0] NCCL INFO NET/Plugin: Loaded net plugin reduction (v11)
node0:4711:4719 [0] NCCL INFO NET/Plugin: Loaded collnet plugin reduction (v11)
node0:4711:4719 [0] NCCL INFO Using network reduction
"""
USED = LOADED + """\
node0:4711:4720 [0] NCCL INFO CollNet 00/0 : 0 [receive] via COLLNET/reduction/0
node0:4711:4720 [0] NCCL INFO CollNet 00/0 : 0 [send] via COLLNET/reduction/0
node0:4711:4719 [0] NCCL INFO Connected Collnet Chains
"""


@unittest.skipIf(harness.SAN, "the checks use the default build")
class Part(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.root = pathlib.Path(folder.name)
        for path in ("tests/gpu/gpu-nccl", "bin/reduction-server", "lib/libnccl-net-reduction.so"):
            to = cls.root / ("lib" if path.endswith(".so") else "bin")
            to.mkdir(exist_ok=True)
            shutil.copy(harness.BUILD / path, to)

    def part(self, *args, broken="", fails=False):
        """Returns the rows of the part, by the names of the checks."""
        env = {**os.environ, "LD_LIBRARY_PATH": str(FAKE), "REDUCTION_NCCL": str(FAKE / "libnccl.so.2"),
               "FAKE_NCCL": broken}
        done = subprocess.run([self.root / "bin/gpu-nccl", *map(str, args)], env=env, capture_output=True, text=True,
                              timeout=240 * harness.SCALE)
        self.assertEqual(done.returncode, int(fails), done.stdout + done.stderr)
        return {row["check"]: row for row in map(json.loads, done.stdout.splitlines())}

    def test_passes(self):
        """All but the comparison on links, whose other side is a fake too."""
        for check, names in (("results", ["results, 2 ranks", "results, 4 ranks"]),
                             ("abort", ["ncclCommAbort, 4 ranks"]),
                             ("many", ["many operations, 4 ranks"]),
                             ("loss", ["a reducer is killed, 4 ranks"])):
            with self.subTest(check=check):
                rows = self.part("--only", check, "--ops", 160)
                self.assertEqual({name: row["result"] for name, row in rows.items()}, dict.fromkeys(names, "ok"))

    def test_loopback(self):
        rows = self.part("--only", "loopback", "--bytes", 1 << 20)
        self.assertEqual(rows["loopback, CollNet"]["result"], "ok")
        self.assertEqual(rows["loopback, CollNet to NCCL_NET=Socket"]["result"], "info")
        self.assertGreater(rows["loopback, CollNet to NCCL_NET=Socket"]["value"], 0)

    def test_wrong_result(self):
        row = self.part("--only", "results", broken="wrong", fails=True)["results, 4 ranks"]
        self.assertRegex(row["note"], r"int8 sum, element 0 of 1: -?\d+ was expected, found -?\d+")

    def test_slow_abort(self):
        row = self.part("--only", "abort", broken="stuck", fails=True)["ncclCommAbort, 4 ranks"]
        self.assertEqual(row["result"], "fail")
        self.assertGreater(row["value"], 5)

    def test_not_used(self):
        row = self.part("--only", "loopback", "--bytes", 1 << 20, broken="ring", fails=True)["loopback, CollNet"]
        self.assertIn("the reducers were not used", row["note"])

    def test_logs(self):
        """Lines as NCCL 2.28 and 2.23 write them, which prove that the reducers were used, or do not."""
        good = USED + TUNING.format(4096, "COLLNET_CHAIN") + TUNING.format(67108864, "COLLNET_CHAIN")
        numbered = USED + NUMBER.format(4096, 3) + NUMBER.format(67108864, 3)
        for text, want in (
            (good, "Algo COLLNET_CHAIN"),
            (numbered, "Algo 3 proto 2"),
            ("", "cannot be read or is empty"),
            (LOADED, 'no line has "via COLLNET/reduction/"'),
            (good.replace("COLLNET/reduction", "COLLNET/SHARP"), 'no line has "via COLLNET/reduction/"'),
            (USED, 'no line has "AllReduce: ... Algo COLLNET_CHAIN"'),
            (good + TUNING.format(8192, "RING"), "AllReduce: 8192 Bytes -> Algo RING"),
            *((numbered + NUMBER.format(8192, n), f"AllReduce: 8192 Bytes -> Algo {n} proto 2") for n in (0, 1, 2, 33)),
            (good + "node0:1:1 [0] NCCL WARN Cannot initialize CollNet, using point-to-point network instead\n",
             "Cannot initialize CollNet"),
        ):
            with self.subTest(want=want, text=text[-100:]):
                log = self.root / "log"
                log.write_text(text)
                row = self.part("--judge", log, fails=text not in (good, numbered))["log"]
                self.assertIn(want, row["note"])


if __name__ == "__main__":
    harness.main()
