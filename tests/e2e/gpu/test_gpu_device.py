#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan
"""The part device of check-gpu (tests/gpu) works and judges rightly, on the fake driver of tests/cuda."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import harness

NO_BARS = ["--host-ratio", 1e6, "--whole-ratio", 0, "--call-us", 1e9]  # times on a busy machine claim nothing


@unittest.skipIf(harness.SAN, "the checks use the default build")
class Part(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.root = pathlib.Path(folder.name)
        for to, path in (("bin", "tests/gpu/gpu-device"), ("bin", "bin/reduction-server"),
                         ("bin", "bin/reduction-agent"), ("lib", "lib/libreduction.so.0")):
            (cls.root / to).mkdir(exist_ok=True)
            shutil.copy(harness.BUILD / path, cls.root / to)

    def part(self, *args, env=None, fails=False):
        """Returns the rows of the part, by the names of the checks."""
        env = {**os.environ, "LD_LIBRARY_PATH": str(harness.BUILD / "tests/cuda"), **(env or {})}
        done = subprocess.run([self.root / "bin/gpu-device", *map(str, args)], env=env, capture_output=True, text=True,
                              timeout=240 * harness.SCALE)
        self.assertEqual(done.returncode, int(fails), done.stdout + done.stderr)
        return {row["check"]: row for row in map(json.loads, done.stdout.splitlines())}

    def test_results(self):
        env = {"FAKE_CUDA_SHARED": str(self.root / "engines"), "FAKE_CUDA_RATE": "2000"}  # one GPU for all processes
        rows = self.part("--only", "results", "--most", 8 << 20, env=env)
        names = [f"results, {n} ranks, {way}" for n in (2, 4) for way in ("direct", "agents")]
        self.assertEqual({name: row["result"] for name, row in rows.items()}, dict.fromkeys(names, "ok"))

    def test_streams(self):
        rows = self.part("--only", "streams")
        self.assertEqual([row["result"] for row in rows.values()], ["ok", "ok"])

    def test_wrong_result(self):
        """One copy to the device has a wrong byte."""
        rows = self.part("--only", "results", "--most", 1 << 20, env={"FAKE_CUDA_CORRUPT": "40"}, fails=True)
        self.assertRegex(rows["results, 2 ranks, direct"]["note"],
                         r"^exit status 1: rank \d: u?int\d+ \w+, element 0 of \d+: -?\d+ was expected, found -?\d+$")

    def test_failed_copy(self):
        env = {"FAKE_CUDA_FAIL": "cuMemcpyDtoHAsync_v2:9:700"}
        rows = self.part("--only", "streams", env=env, fails=True)
        self.assertIn("CUDA_ERROR_ILLEGAL_ADDRESS", rows["streams, 2 ranks, agents"]["note"])

    def test_bars(self):
        for args, result in ((NO_BARS, "ok"), (["--host-ratio", 0, "--whole-ratio", 1e6, "--call-us", 0], "fail")):
            with self.subTest(args=args):
                rows = self.part("--only", "speed", "--bytes", 4 << 20, "--rounds", 3, *args, fails=result == "fail")
                self.assertEqual({name: row["result"] for name, row in rows.items()}, dict.fromkeys(
                    ("4096 KiB, GPU to shared host memory", "4096 KiB, whole copies to pieces"), result))
                rows.update(self.part("--only", "call", *args, fails=result == "fail"))
                self.assertEqual({row["result"] for row in rows.values()}, {result})
                self.assertTrue(all(row["value"] > 0 for row in rows.values()), rows)

    def test_timeline(self):
        args = ["--only", "timeline", "--bytes", 4 << 20, "--trace", self.root]
        env = {"FAKE_CUDA_RATE": "2000"}
        for overlap, result in ((0, "ok"), (1.01, "fail")):
            with self.subTest(overlap=overlap):
                rows = self.part(*args, "--overlap", overlap, env=env, fails=result == "fail")
                self.assertEqual({name: row["result"] for name, row in rows.items()}, dict.fromkeys(
                    (f"copies under network, {way}" for way in ("direct", "agents")), result))
                for way in ("direct", "agents"):
                    for rank in range(2):
                        trace = json.loads((self.root / f"{way}.0.{rank}.json").read_text())
                        self.assertEqual(trace["otherData"]["operations"], 7)
                    shown = rows[f"copies under network, {way}"]["value"]
                    self.assertTrue(0 <= shown <= 100, shown)

    def test_sanitizer(self):
        """It is started with the ranks; what it finds is a failure. Without it the check is skipped."""
        row, = self.part("--only", "sanitizer").values()
        self.assertEqual(row["result"], "skip", row)
        for status, result in ((0, "ok"), (86, "fail")):
            tool = self.root / "tools/compute-sanitizer"
            tool.parent.mkdir(exist_ok=True)
            script = f'[ "$1" = --error-exitcode=86 ] || exit 2\nshift\n"$@" || exit 1\nexit {status}\n'
            tool.write_text(f"#!/bin/sh\n{script}")
            tool.chmod(0o755)
            env = {"PATH": f"{tool.parent}:{os.environ['PATH']}"}
            row, = self.part("--only", "sanitizer", env=env, fails=bool(status)).values()
            self.assertEqual(row["result"], result, row)


if __name__ == "__main__":
    harness.main()
