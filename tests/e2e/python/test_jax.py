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
TYPES = (
    "bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 bfloat16 float32 float64 complex64 complex128"
).split()
_FOUND = subprocess.run([harness.PYTHON, "-c", "import jaxlib.version"], capture_output=True).returncode == 0
DEBIANS_TORCH = subprocess.run(["/usr/bin/python3", "-c", "import torch"], capture_output=True).returncode == 0
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

    def end(self, workers):
        for w in workers:
            self.assertEqual(w.wait(120), 0, w.report())

    def run_all(self, cluster, world_size, *args, **env):
        workers = self.start(cluster, world_size, *args, **env)
        self.end(workers)
        return workers

    def test_collectives(self):
        """The bits of each result are those of NumPy, with reducers and with gloo."""
        for world_size in (2, 3, 4):
            with self.subTest(world_size=world_size), harness.Cluster(reducers=2) as c:
                for w in self.run_all(c, world_size, "collectives"):
                    self.assertGreater(w.said("checked")["count"], 100)
        with harness.Cluster(reducers=0) as c:
            self.run_all(c, 4, "collectives", JAX_CPU_COLLECTIVES_IMPLEMENTATION="gloo")

    def test_collectives_of_many_processes(self):
        """Each number of processes has a part of the types: two cores need long enough to compile for 8."""
        for world_size in (5, 6, 7, 8):
            types = TYPES[world_size - 5 :: 4]
            with self.subTest(world_size=world_size), harness.Cluster(reducers=3) as c:
                for w in self.run_all(c, world_size, "collectives", *types):
                    self.assertGreater(w.said("checked")["count"], 20)
        with harness.Cluster(reducers=0) as c:
            self.run_all(c, 8, "collectives", *types, JAX_CPU_COLLECTIVES_IMPLEMENTATION="gloo")

    def test_bfloat16_on_the_wire(self):
        """XLA widens bfloat16 to float32. `wire: bf16` narrows it again: half the bytes, and the same bits."""
        received = {}
        for wire in ("same", "bf16"):
            config = {"job": {"wire": wire}}
            with harness.Cluster(reducers=2, config=config, server_args=("--http", "127.0.0.1:0")) as c:
                for w in self.run_all(c, 2, "encoded"):
                    w.said("right")
                received[wire] = c.received_bytes()
        self.assertGreater(received["same"], 16 << 20)
        self.assertAlmostEqual(received["bf16"] / received["same"], 0.5, delta=0.02)

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

    def test_two_trainings_of_one_name(self):
        """Only the run tells them apart, which process 0 draws and the coordinator's store carries."""
        with harness.Cluster(reducers=2, config=harness.SOON) as c:

            def start(value):
                env = {"MASTER_ADDR": "", "MASTER_PORT": "", "COORDINATOR": f"127.0.0.1:{free_port()}"}
                return self.start(c, 2, "own", value, **env)

            first = start(1)
            for w in first:
                w.said("own sums", 60)
            for w in start(100):
                self.assertNotEqual(w.wait(), 0, w.report())
                self.assertIn("two trainings use the job name test: rank ", w.err)
            for w in first:
                w.tell()
                w.tell()
            self.end(first)
            third = start(100)
            for w in third:
                w.tell()
                w.tell()
            self.end(third)
            runs = set(re.findall(r"job-started job=test generation=0 run=(jax@\S+) world_size=2", c.reducers[0].err))
            self.assertEqual(len(runs), 2, c.reducers[0].err)

    @unittest.skipUnless(DEBIANS_TORCH, "Debian's torch is not installed, which has torchrun")
    def test_torchrun_restarts_all(self):
        """The real torchrun starts programs of another Python. Rank 1 fails once. Debian's torchrun fails with its own
        defaults of --redirects and --tee."""
        with harness.Cluster(reducers=2) as c:
            torchrun = ["/usr/bin/python3", "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
            torchrun += ["--max_restarts=1", "--redirects=0:1,1:1", "--tee=0:1,1:1", f"--log_dir={c.dir}/logs"]
            env = {"REDUCTION_MODE": "direct", "REDUCTION_CONFIG": c.write_config("job.yaml"), "JAX_PLATFORMS": "cpu"}
            argv = [*torchrun, "--no_python", harness.PYTHON, str(PROGRAM), "train", "30", "0", "fails"]
            launcher = c.start("torchrun", argv, harness.worker_env() | env)
            self.end([launcher])
            for rank in (0, 1):
                for attempt, last in ((0, 14), (1, 29)):
                    (log,) = c.dir.glob(f"logs/*/attempt_{attempt}/{rank}/stdout.log")
                    self.assertIn(f'"number": {last},', log.read_text().splitlines()[-1], launcher.report())
            for generation in (0, 1):
                c.reducers[0].wait_text(rf"job-started job=test generation={generation} run=jax@\S+ world_size=2")

    def test_started_anew_with_fewer_processes(self):
        """A rank is lost, the others end, and the launcher starts the rest of them."""
        with harness.Cluster(reducers=2) as c:
            workers = self.start(c, 3, "train", 10000, 0.02)
            workers[0].wait_text('"number": 10,', 60, "out")
            workers[1].kill()
            for w in (workers[0], workers[2]):
                self.assertNotEqual(w.wait(), 0)
            workers = self.run_all(c, 2, "train", 200, 0, TORCHELASTIC_RESTART_COUNT=1)
            losses = [self.losses(w) for w in workers]
            self.assertEqual(losses[0], losses[1])
            self.assertLess(losses[0][-1], 0.5 * losses[0][0])
            self.assertRegex(c.reducers[0].err, r"job-started job=test generation=1 run=jax@\S+ world_size=2")

    def test_slurm(self):
        """What srun sets on two nodes with a task each: jax and the library find all they need there."""
        with harness.Cluster(reducers=2) as c, socket.socket() as probe:
            job = next(j for j in range(1000, 5000) if probe.connect_ex(("127.0.0.1", 61440 + j % 4096)) != 0)

            def env(rank):
                none = dict.fromkeys(("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "REDUCTION_MODE"), "")
                slurm = {"JOB_ID": job, "STEP_ID": 0, "STEP_NODELIST": "localhost,n1", "NTASKS": 2, "PROCID": rank,
                         "LOCALID": 0, "NODEID": rank, "STEP_NUM_NODES": 2, "STEP_NUM_TASKS": 2,
                         "STEP_TASKS_PER_NODE": "1(x2)"}  # fmt: skip
                return none | {f"SLURM_{k}": v for k, v in slurm.items()} | {"JAX_PLATFORMS": "cpu"}

            workers = c.start_workers(2, [harness.PYTHON, PROGRAM, "train", 30, 0], env)
            self.end(workers)
            self.assertEqual(self.losses(workers[0]), self.losses(workers[1]))
            self.assertIn("nodes=2", workers[0].err)
            c.reducers[0].wait_text(r"job-started job=test generation=0 run=jax@\S+ world_size=2")

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
