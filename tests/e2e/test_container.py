# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan
"""The entry point of the container image starts what the environment and the arguments say."""

import os
import pathlib
import subprocess
import tempfile
import unittest

import harness

ENTRY = harness.ROOT / "deploy/container/entry.sh"


@unittest.skipIf(harness.SAN, "the script is that of every build")
class Entry(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="reduction-")
        self.addCleanup(folder.cleanup)
        self.dir = pathlib.Path(folder.name)
        for program in "reduction-server", "reduction-agent", "reductionctl":
            path = self.dir / program
            path.write_text('#!/bin/sh\necho "${0##*/}" "$@"\n')
            path.chmod(0o755)

    def run_entry(self, *args, **env):
        env = {"PATH": f"{self.dir}:{os.environ['PATH']}", **env}
        return subprocess.run([ENTRY, *args], env=env, capture_output=True, text=True)

    def started(self, *args, **env):
        done = self.run_entry(*args, **env)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout.rstrip("\n")

    @unittest.skipIf(os.path.exists("/etc/reduction/reduction.yaml"), "this machine has a configuration")
    def test_roles(self):
        self.assertEqual(self.started(REDUCTION_ROLE="server"), "reduction-server")
        self.assertEqual(self.started("--lanes", "2", REDUCTION_ROLE="server"), "reduction-server --lanes 2")
        self.assertEqual(
            self.started("--check", REDUCTION_ROLE="agent", REDUCTION_CONFIG="/job.yaml"),
            "reduction-agent --config /job.yaml --check",
        )

    def test_commands(self):
        self.assertEqual(self.started("reductionctl", "status", "a:1"), "reductionctl status a:1")
        self.assertEqual(self.started("reduction-server", "--help", REDUCTION_ROLE="agent"), "reduction-server --help")

    def test_no_role(self):
        for env in {}, {"REDUCTION_ROLE": "worker"}:
            done = self.run_entry(**env)
            self.assertEqual(done.returncode, 2)
            self.assertIn(f'found "{env.get("REDUCTION_ROLE", "")}", expected server or agent', done.stderr)


if __name__ == "__main__":
    harness.main()
