# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan all-only
"""Trainers that people use, in their packages from PyPI, with gloo and with the backend `reduction`: the weights are
equal bit by bit, and the gradients have gone through the reducers. `make trainers` installs the packages and runs this
program; without that it skips. The programs are in tests/trainers; PyTorch finds the backend as with an installed
wheel, by its entry point."""

import json
import os
import pathlib
import platform
import re
import sys
import tempfile
import unittest

import harness

sys.path.insert(0, str(harness.ROOT / "tests"))
import venv  # noqa: E402  (tests/venv.py)

PROGRAMS = harness.ROOT / "tests/trainers"
TORCHRUN = ["-m", "torch.distributed.run", "--nproc-per-node", 2, "--standalone"]
C10D = ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0"]


def missing(name):
    """Returns why tests with this environment cannot run, or None."""
    if harness.SAN:
        return "too slow with sanitizers"
    if platform.machine() != "x86_64":
        return "PyPI has not all packages for this processor"
    if venv.python(name) is None:
        return f"there are no trainers from PyPI in {venv.FOLDER / name}: make trainers installs them"
    return None


class Page(unittest.TestCase):
    def test_snippets(self):
        """Each line of Python in deploy/trainers.md is a line of a program that the tests run."""
        known = set()
        for program in PROGRAMS.glob("*.py"):
            text = re.sub(r"(common\.)?BACKEND", '"reduction"', program.read_text())
            known |= {line.strip() for line in text.splitlines()}
        page = (harness.ROOT / "deploy/trainers.md").read_text()
        for block in re.findall(r"```python\n(.*?)```", page, re.S):
            for line in block.splitlines():
                self.assertIn(line.strip(), known)


class Trainers(unittest.TestCase):
    environment = "trainers"

    @classmethod
    def setUpClass(cls):
        why = missing(cls.environment)
        if why is not None:
            raise unittest.SkipTest(why)
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        # what an installed wheel has, for a package that is not installed
        known = cls.folder / "reduction-0.0.dist-info"
        known.mkdir()
        (known / "METADATA").write_text("Metadata-Version: 2.1\nName: reduction\nVersion: 0.0\n")
        (known / "entry_points.txt").write_text("[torch.backends]\nreduction = reduction.torch:register\n")

    def run_with(self, backend, argv, cluster, ranks=2, timeout=400, **more):
        """Returns what the ranks have reported."""
        env = {
            **harness.worker_env(), "BACKEND": backend, "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1",
            "DS_ACCELERATOR": "cpu", "TORCH_EXTENSIONS_DIR": venv.FOLDER / self.environment / "extensions",
            "RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled", "TOKENIZERS_PARALLELISM": "false",
            "REDUCTION_CONFIG": cluster.write_config("job.yaml"), "REDUCTION_MODE": "direct",
            "PYTHONPATH": f"{self.folder}:{PROGRAMS}:{harness.worker_env()['PYTHONPATH']}", "HOME": str(cluster.dir),
            "PATH": f"{venv.python(self.environment).parent}:{os.environ['PATH']}", **more,
        }  # fmt: skip
        launcher = cluster.start(backend, [venv.python(self.environment), *argv], {k: str(v) for k, v in env.items()})
        status = launcher.wait(timeout)
        found = [json.loads(line) for line in re.findall(r'\{"weights".*?\}', launcher.out)]
        self.assertEqual((status, len(found)), (0, ranks), launcher.report())
        return found

    def both(self, argv, ranks=2):
        """Runs a program with both backends and compares them."""
        with harness.Cluster(reducers=2, server_args=("--http", "127.0.0.1:0")) as c:
            want = self.run_with("gloo", argv, c, ranks)
            self.assertEqual(c.received_bytes(), 0)
            found = self.run_with("reduction", argv, c, ranks)
            self.assertEqual({x["weights"] for x in want + found}, {want[0]["weights"]})
            self.assertGreaterEqual(c.received_bytes(), 2 * found[0]["gradients"])

    def under_torchrun(self, program, *args):
        self.both([*TORCHRUN, PROGRAMS / program, *args])

    def unchanged(self, program):
        """Runs a program that asks for gloo: as it is, with REDUCTION_REPLACE, and under `-m reduction.torch`."""
        program = PROGRAMS / program
        with harness.Cluster(reducers=2, server_args=("--http", "127.0.0.1:0")) as c:
            want = self.run_with("gloo", [*TORCHRUN, program], c)
            self.assertEqual(c.received_bytes(), 0)
            for argv, env in ([program], {"REDUCTION_REPLACE": "gloo"}), (["-m", "reduction.torch", program], {}):
                before = c.received_bytes()
                found = self.run_with("gloo", [*TORCHRUN, *argv], c, **env)
                self.assertEqual({x["weights"] for x in want + found}, {want[0]["weights"]})
                self.assertGreaterEqual(c.received_bytes() - before, 2 * found[0]["gradients"])


class HuggingFace(Trainers):
    def test_trainer(self):
        self.unchanged("transformers_trainer.py")

    def test_accelerate(self):
        self.under_torchrun("accelerate_loop.py")

    def test_trl(self):
        self.under_torchrun("trl_sft.py")

    def test_peft(self):
        self.under_torchrun("peft_lora.py")


class HuggingFaceOld(Trainers):
    environment = "trainers-4.46"

    def test_trainer(self):
        self.unchanged("transformers_trainer.py")

    def test_accelerate(self):
        self.under_torchrun("accelerate_loop.py")


class Others(Trainers):
    def test_lightning(self):
        self.under_torchrun("lightning_ddp.py")

    def test_fabric(self):
        self.under_torchrun("lightning_fabric.py")

    def test_timm(self):
        self.under_torchrun("timm_ddp.py")

    def test_deepspeed(self):
        for stage in (0, 1, 2):
            self.under_torchrun("deepspeed_zero.py", stage)

    def test_ray(self):
        self.both([PROGRAMS / "ray_train.py"])

    def restarts(self, program, rendezvous):
        """torchrun starts the ranks again after each of 20 killed ranks; the weights are those without a fault."""
        with harness.Cluster(reducers=2) as c:
            argv = ["-m", "torch.distributed.run", "--nproc-per-node", 2, *rendezvous, "--max-restarts", 20,
                    PROGRAMS / program]
            want = self.run_with("gloo", argv, c, KILLS=0, CHECKPOINT=c.dir / "want")
            found = self.run_with("reduction", argv, c, timeout=1500, KILLS=20, CHECKPOINT=c.dir / "found")
            self.assertEqual({x["weights"] for x in want + found}, {want[0]["weights"]})

    def test_restart(self):
        self.restarts("restart.py", ["--standalone"])

    def test_restart_c10d(self):
        self.restarts("restart.py", C10D)

    def test_restart_trainer(self):
        self.restarts("transformers_restart.py", ["--standalone"])

    def test_restart_trainer_c10d(self):
        self.restarts("transformers_restart.py", C10D)

    def test_spawn(self):
        """mp.spawn(): the weights and bytes; and without REDUCTION_MODE the ranks find that they share a node."""
        self.both([PROGRAMS / "spawn.py"])
        with harness.Cluster(reducers=2, server_args=("--http", "127.0.0.1:0")) as c:
            found = self.run_with("reduction", [PROGRAMS / "spawn.py"], c, REDUCTION_MODE="")
            self.assertLess(c.received_bytes(), found[0]["gradients"])  # one node: its sum needs no reducer

    def test_lightning_hook(self):
        self.both([PROGRAMS / "lightning_hook.py"])

    def test_torchft(self):
        self.both([PROGRAMS / "torchft_manager.py"])

    def test_torchft_suite(self):
        """torchft's own tests, with our group."""
        with harness.Cluster() as c:
            env = {**harness.worker_env(), "BACKEND": "reduction", "CUDA_VISIBLE_DEVICES": "", "REDUCTION_CONFIG": "",
                   "REDUCTION_REDUCERS": c.address(0)}  # fmt: skip
            suite = c.start("suite", [venv.python(self.environment), PROGRAMS / "torchft_suite.py"], env)
            status = suite.wait(400)
            found = [row["result"] for row in suite.objects()]
            self.assertEqual((status, found.count("failed")), (0, 0), suite.report())
            self.assertGreater(found.count("passed"), 50)


if __name__ == "__main__":
    harness.main()
