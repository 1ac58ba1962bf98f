#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan all-only
"""The part torch of check-gpu (tests/gpu) works and judges rightly, with gloo in place of NCCL."""

import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import harness

SMALL = ["--cpu", "--steps", 30, "--width", 16, "--layers", 1, "--rows", 2]


@unittest.skipIf(harness.SAN, "the checks use the default build")
class Part(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.root = pathlib.Path(folder.name)
        shutil.copytree(harness.ROOT / "tests/gpu/pytorch", cls.root / "pytorch")
        shutil.copy(harness.ROOT / "agent/examples/ddp_transformer.py", cls.root / "pytorch")
        (cls.root / "bin").mkdir()
        for path in ("bin/reduction-server", "tests/gpu/gpu-links"):
            shutil.copy(harness.BUILD / path, cls.root / "bin")

    def setUp(self):
        self.path = self.python(self.id())

    def python(self, name, *options):
        """Makes a folder for PATH whose python3 is this one, with options. Returns its path."""
        (self.root / name).mkdir()
        program = self.root / name / "python3"
        program.write_text(f'#!/bin/sh\nexec {harness.PYTHON} {" ".join(options)} "$@"\n')
        program.chmod(0o755)
        return f"{self.root / name}:/usr/bin:/bin"

    def part(self, *args, status=0, path=None):
        """Returns the rows of the part, by the names of the checks."""
        env = {**os.environ, "PATH": path or self.path,
               "PYTHONPATH": f"{harness.ROOT}/agent/python:{harness.ROOT}/tests/e2e",
               "REDUCTION_LIBRARY": str(harness.BUILD / "lib/libreduction.so.0"), "REDUCTION_LINKS": "0"}
        done = subprocess.run([self.root / "pytorch/gpu-torch", *map(str, args)], env=env, capture_output=True,
                              text=True, timeout=280 * harness.SCALE)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return {row["check"]: row for row in map(json.loads, done.stdout.splitlines())}

    @unittest.skipIf(importlib.util.find_spec("torch") is None, "no torch")
    def test_ways(self):
        """Losses are those of gloo. Parameters are equal bit by bit when a reducer is killed and comes back."""
        rows = self.part(*SMALL, "--processes", 2, "--ways", "plugin,hook,group")
        results = {name: row["result"] for name, row in rows.items()}
        self.assertEqual(results, {
            "plugin": "skip", "loss, sockets, 2 processes": "info", "loss, hook, 2 processes": "ok",
            "call of the hook, hook, 2 processes": "info", "step rate, hook, 2 processes": "info",
            "loss, group, 2 processes": "ok", "step rate, group, 2 processes": "info",
            "bits, hook, a reducer is killed": "ok",
        }, rows)  # fmt: skip
        self.assertGreater(rows["call of the hook, hook, 2 processes"]["value"], 0)

    @unittest.skipIf(importlib.util.find_spec("torch") is None, "no torch")
    def test_local(self):
        rows = self.part(*SMALL, "--processes", 4, "--ways", "local", "--no-bits", "--local", "gloo", "--module",
                         "local_group")
        self.assertEqual(rows["loss, local, 4 processes"]["result"], "ok", rows)
        self.assertIn("correctness only", rows["step rate, local, 4 processes"]["note"])

    @unittest.skipIf(importlib.util.find_spec("torch") is None, "no torch")
    def test_finds_errors(self):
        """A rank that fails is a row with its last words; what has no time left says so."""
        rows = self.part(*SMALL, "--processes", 2, "--ways", "hook", "--no-bits", "--module", "nonsense", status=1)
        self.assertIn("No module named 'nonsense'", rows["loss, sockets, 2 processes"]["note"])
        rows = self.part(*SMALL, "--processes", 2, "--ways", "hook", "--no-bits", "--seconds", 5)
        self.assertEqual(rows["loss, sockets, 2 processes"]["note"], "no time is left")

    def test_overlap(self):
        """The share of copies that overlap with the network comes from the timelines of all ranks."""
        traces = self.root / "traces"
        traces.mkdir()
        code = f"import sys; sys.path.insert(0, '{self.root}/pytorch'); import part; print(part.overlap('{traces}'))"

        def said():
            return subprocess.run([harness.PYTHON, "-c", code], check=True, capture_output=True, text=True).stdout

        self.assertEqual(said(), "None\n")
        for rank, (copies, both) in enumerate(((30, 20), (10, 10))):
            about = {"copies_us": copies, "overlap_us": both}
            (traces / f"job.0.{rank}.json").write_text(json.dumps({"traceEvents": [], "otherData": about}))
        self.assertEqual(said(), "75.0\n")

    def test_nothing_here(self):
        """Without a GPU, torch or Python it says so and claims nothing."""
        with tempfile.TemporaryDirectory() as folder:
            os.symlink(shutil.which("dirname"), f"{folder}/dirname")
            rows = self.part(status=77, path=folder)
            self.assertEqual(rows["python"]["note"], "python3 was not found")
        rows = self.part(status=77, path=self.python("bare", "-S"))
        self.assertIn("there is no torch", rows["torch"]["note"])
        if importlib.util.find_spec("torch") is not None:
            rows = self.part(status=77)
            self.assertIn("no GPU here", rows["torch"]["note"])


if __name__ == "__main__":
    harness.main()
