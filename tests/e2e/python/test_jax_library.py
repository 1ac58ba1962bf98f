#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# run: beside-others
"""libreduction-jax.so without jax: processes open it as jaxlib does and call all its functions (worker_jax.c), or
import reduction.jax beside a module jax that fails."""

import os
import pathlib
import subprocess
import tempfile
import unittest

import harness

WORKER = str(harness.BUILD / "tests/e2e/worker_jax")
LIBRARY = str(harness.BUILD / "lib/libreduction-jax.so")
INTERFACE = str(harness.ROOT / "agent/jax/interface.txt")


class Library(unittest.TestCase):
    def start(self, cluster, world_size, *more):
        return [
            cluster.start_worker(rank, world_size, [WORKER, LIBRARY, INTERFACE, rank, world_size, *more])
            for rank in range(world_size)
        ]

    def test_all_functions(self):
        for world_size in (1, 2, 3, 4):
            with self.subTest(world_size=world_size), harness.Cluster(reducers=2, lanes=2) as c:
                for worker in self.start(c, world_size):
                    self.assertEqual(worker.wait(), 0, worker.report())

    def test_lost_rank(self):
        with harness.Cluster(reducers=2) as c:
            for worker in self.start(c, 3, "lost")[:-1]:
                self.assertEqual(worker.wait(), 0)
                self.assertRegex(worker.out, r"^1: barrier of JAX: rank 2 \(pid \d+ on .*\) was lost: ")

    def test_closed_while_a_thread_computes(self):
        with harness.Cluster(reducers=2) as c:
            for worker in self.start(c, 3, "busy"):
                self.assertEqual(worker.wait(), 0, worker.report())

    def import_beside(self, jax):
        """Imports reduction.jax beside a module jax with this text. Returns what the process writes to stderr."""
        argv = [harness.PYTHON, "-c", "import reduction.jax"]
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "jax.py").write_text(jax, encoding="utf-8")
            env = os.environ | harness.worker_env() | harness.sanitizer_env(argv)
            env["PYTHONPATH"] = f"{folder}:{env['PYTHONPATH']}"
            done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60 * harness.SCALE)
        self.assertEqual(done.returncode, 1, done.stderr)
        return done.stderr

    def test_jax_cannot_be_imported(self):
        for text in ("raise ModuleNotFoundError('no jax')", "raise SystemExit('no jax')"):
            with self.subTest(text=text):
                said = self.import_beside(text)
                self.assertIn("no jax", said)
                self.assertNotIn("this jaxlib wants another interface", said)

    def test_jaxlib_ends_the_process(self):
        said = self.import_beside("import ctypes; ctypes.CDLL(None).exit(1)")
        self.assertIn("this jaxlib wants another interface", said)


if __name__ == "__main__":
    harness.main()
