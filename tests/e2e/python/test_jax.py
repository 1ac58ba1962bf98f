#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# run: beside-others
"""JAX over reducers: each collective against NumPy and gloo, meshes, training, lost reducers and ranks, what is
refused. Needs jax of PyPI, with REDUCTION_TEST_PYTHON; `make versions-jax` runs it with several versions."""

import json
import re
import socket
import subprocess
import time
import unittest

import harness

PROGRAM = harness.ROOT / "tests/e2e/worker_jax_program.py"
_FOUND = subprocess.run([harness.PYTHON, "-c", "import jaxlib.version"], capture_output=True).returncode == 0
needs_jax = unittest.skipUnless(_FOUND and not harness.SAN, "jax is not installed for this Python, or too slow with it")


def free_port():
    """A port that was free: jax's coordinator does not bind to one that is reserved."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@needs_jax
class Jax(unittest.TestCase):
    def start(self, cluster, world_size, *args, **env):
        env = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port(), "JAX_PLATFORMS": "cpu", **env}
        return cluster.start_workers(world_size, [harness.PYTHON, PROGRAM, *args], env)

    def run_all(self, cluster, world_size, *args, **env):
        workers = self.start(cluster, world_size, *args, **env)
        for w in workers:
            self.assertEqual(w.wait(120), 0, w.report())
        return workers

    def test_collectives(self):
        for world_size in (2, 3, 4):
            with self.subTest(world_size=world_size), harness.Cluster(reducers=2) as c:
                for w in self.run_all(c, world_size, "collectives"):
                    self.assertGreater(w.said("checked")["count"], 150)
        with harness.Cluster(reducers=0) as c:
            self.run_all(c, 4, "collectives", JAX_CPU_COLLECTIVES_IMPLEMENTATION="gloo")

    def test_meshes(self):
        with harness.Cluster(reducers=2) as c:
            for w in self.run_all(c, 4, "meshes"):
                w.said("right")

    def test_other_types_are_refused_by_name(self):
        with harness.Cluster() as c:
            for w in self.run_all(c, 2, "refused"):
                self.assertRegex(w.said("refused")["text"], "Unsupported primitive type.*f16")

    def test_refused_computations(self):
        with harness.Cluster() as c:
            for w in self.run_all(c, 3, "outside"):
                refused = w.said("refused")
                self.assertEqual(refused["devices"], 2)
                self.assertIn("leaves out process 2 of 3", refused["text"])
                self.assertEqual(w.said("accepted")["devices"], 3)

    def test_several_devices(self):
        with harness.Cluster() as c:
            flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
            for w in self.run_all(c, 2, "outside", **flags):
                self.assertIn("reducers need one device in each process", w.said("refused")["text"])

    def test_initialized_again(self):
        with harness.Cluster() as c:
            for w in self.run_all(c, 2, "again", free_port(), free_port(), free_port()):
                w.said("right")

    def test_jax_was_imported_before(self):
        with harness.Cluster() as c:
            (w,) = self.run_all(c, 1, "late")
            self.assertIn("import reduction.jax first", w.said("refused")["text"])

    def losses(self, worker):
        return [line["loss"] for line in worker.objects() if line["what"] == "step"]

    def test_training_is_that_of_gloo(self):
        with harness.Cluster(reducers=2) as c:
            ours = [self.losses(w) for w in self.run_all(c, 4, "train", 200, 0)]
            theirs = self.losses(self.run_all(c, 4, "train", 200, 0, JAX_CPU_COLLECTIVES_IMPLEMENTATION="gloo")[0])
        self.assertEqual(len(theirs), 200)
        self.assertLess(theirs[-1], 0.5 * theirs[0])
        for loss in ours:
            self.assertEqual(loss, ours[0])
        for a, b in zip(ours[0], theirs):
            self.assertAlmostEqual(a, b, delta=2e-4 * theirs[0])

    def test_rank_that_does_not_wait_for_its_last_steps(self):
        """XLA computes on after the end of the program, and another rank reads the result."""
        with harness.Cluster(reducers=2) as c:
            want = self.losses(self.run_all(c, 3, "train", 30, 0)[0])[-1]
            for readers in ([0], [2], []):
                with self.subTest(readers=readers):
                    workers = self.run_all(c, 3, "unread", 30, *readers)
                    for rank, w in enumerate(workers):
                        found = self.losses(w)
                        self.assertEqual(len(found), rank in readers, w.report())
                        for loss in found:
                            self.assertAlmostEqual(loss, want, delta=1e-4 * want)

    def test_transformer_is_that_of_gloo(self):
        """200 steps of a transformer with 30 tensors."""
        argv = [harness.PYTHON, harness.ROOT / "bench/step/worker_jax.py", "--model", "transformer", "--steps", 198]
        ends = {}
        for way in ("mpi", "gloo"):
            env = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port(), "JAX_PLATFORMS": "cpu"}
            with harness.Cluster(reducers=2) as c:
                workers = c.run(2, argv, 120, env | {"JAX_CPU_COLLECTIVES_IMPLEMENTATION": way})
                ends[way] = json.loads(workers[0].out.splitlines()[-1])
        self.assertEqual(ends["mpi"]["tensors"], 30)
        self.assertLess(ends["gloo"]["loss"], 4)  # 5.5 at the start
        self.assertAlmostEqual(ends["mpi"]["loss"], ends["gloo"]["loss"], delta=0.02)

    def test_lost_reducer_is_invisible(self):
        with harness.Cluster(reducers=2) as c:
            want = self.losses(self.run_all(c, 3, "train", 60, 0)[0])
            workers = self.start(c, 3, "train", 60, 0.02)
            workers[0].wait_text('"number": 10,', 60, "out")
            c.reducers[0].kill()
            for w in workers:
                self.assertEqual(w.wait(), 0, w.report())
                for a, b in zip(self.losses(w), want):
                    self.assertAlmostEqual(a, b, delta=1e-4 * want[0])

    def test_lost_rank_ends_the_others(self):
        with harness.Cluster(reducers=2) as c:
            workers = self.start(c, 3, "train", 10000, 0.02)
            workers[2].wait_text('"number": 10,', 60, "out")
            workers[2].kill()
            began = time.monotonic()
            for w in workers[:2]:
                self.assertNotEqual(w.wait(), 0)
                self.assertRegex(w.err, r"MPI error: all-reduce of JAX: rank 2 \(pid \d+ on .*\) was lost: ")
            self.assertLess(time.monotonic() - began, 10 * harness.SCALE)

    def test_jaxlib_looks_up_no_other_names(self):
        find = "import jaxlib, pathlib; print(*pathlib.Path(jaxlib.__file__).parent.glob('*.so'))"
        found = subprocess.run([harness.PYTHON, "-c", find], capture_output=True, text=True, check=True)
        looked_up = set()
        for path in found.stdout.split():
            with open(path, "rb") as file:
                looked_up |= set(re.findall(rb"\0(MPIX?ABI_\w+)(?=\0)", file.read()))
        ours = (harness.ROOT / "agent/jax/interface.txt").read_bytes().split()
        self.assertGreater(len(looked_up), 500)
        self.assertEqual(looked_up - set(ours), set())


if __name__ == "__main__":
    harness.main()
