# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan all-only
"""PyTorch's own CUDA tensors, of an unmodified PyTorch from PyPI, on the fake CUDA of tests/torch_cuda. `make
torch-cuda` installs PyTorch and runs this program; without that it skips. Each wrong value is one that a missing wait
can cause, and the last class takes waits away."""

import json
import os
import pathlib
import platform
import subprocess
import sys
import tempfile
import textwrap
import unittest

import harness

sys.path.insert(0, str(harness.ROOT / "tests"))
sys.path.insert(0, str(harness.ROOT / "tests/torch_cuda"))
import programs  # noqa: E402
import venv  # noqa: E402  (tests/venv.py)

NAME = "torch-cuda"
HERE = harness.ROOT / "tests/torch_cuda"


def missing():
    """Returns why the tests cannot run, or None."""
    if harness.SAN:
        return "too slow with sanitizers"
    if platform.machine() != "x86_64":
        return "the fake CUDA has been tried on x86-64 only"
    if venv.python(NAME) is None:
        return "there is no PyTorch with CUDA from PyPI: make torch-cuda installs it"
    return None


NO_PINNING = """
init()
raises(RuntimeError, "cannot pin host memory on GPU 0", dist.all_reduce, torch.ones(1000, device="cuda"))
done()
dist.destroy_process_group()
"""

# NCCL itself cannot run here. What must hold: no rank hangs, and the error says that it
# is NCCL's.
LOCAL_NCCL = """
init(pg_options={"local": "nccl"})
raises(RuntimeError, "NCCL", lambda: dist.all_reduce(torch.ones(10, device="cuda"), async_op=True).wait())
done()
os._exit(0)  # NCCL's threads are in an unknown state
"""


@unittest.skipIf(missing(), missing())
class Cuda(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.fake = pathlib.Path(folder.name)
        real = venv.site_packages(NAME) / "nvidia/cu13/lib/libcudart.so.13"
        if not real.exists():
            raise unittest.SkipTest(f"this PyTorch has another CUDA than 13: {real} is missing")
        subprocess.run([HERE / "build.sh", real, cls.fake], check=True)

    def ranks(self, program, n=2, agents=0, **env):
        """Runs a program on all ranks. Returns its workers and the names of the checks that failed."""
        with harness.Cluster(reducers=2, agents=agents) as c:
            env = {
                "LD_PRELOAD": self.fake / "libcudart.so.13", "LD_LIBRARY_PATH": self.fake, "FAKE_DEVICES": 2,
                "PYTHONPATH": f"{harness.worker_env()['PYTHONPATH']}:{HERE}", **env,
            }  # fmt: skip
            argv = [venv.python(NAME), HERE / "rank.py", textwrap.dedent(program)]
            workers = c.run(n, list(map(str, argv)), timeout=300, env=lambda rank: {**env, "FAKE_SEED": rank + 1})
        wrong = [json.loads(line)["wrong"] for w in workers for line in w.out.splitlines() if line.startswith("{")]
        self.assertEqual(len(wrong), n, [w.out for w in workers])
        return workers, sum(wrong, [])


class Values(Cuda):
    def right(self, program, **options):
        workers, wrong = self.ranks(program, **options)
        self.assertEqual(wrong, [])
        return workers

    def test_operations(self):
        for agents in (0, 2):
            self.right(programs.OPERATIONS, agents=agents)

    def test_sharded(self):
        for agents in (0, 2):
            self.right(programs.SHARDED, agents=agents)

    def test_one_node(self):
        self.right(programs.OPERATIONS, agents=1)

    def test_reused_memory(self):
        self.right(programs.REUSE, FAKE_DELAY_US=50000)

    def test_training(self):
        """DDP's parameters are those of DDP on CPUs with gloo, bit by bit."""
        self.right(programs.TRAINING, NCCL="off")

    def test_sharded_training(self):
        """FSDP2's parameters are those on CPUs, bit by bit."""
        self.right(programs.FSDP)
        self.right(programs.FSDP, n=4, agents=2, REDUCTION_MODE="agent")

    def test_graphs(self):
        self.right(programs.GRAPHS)

    def test_no_pinning(self):
        """Host memory cannot be pinned: every rank gets a sentence, and none hangs."""
        self.right(NO_PINNING, FAKE_RETURN="cuMemHostRegister_v2=2")

    def test_local(self):
        """Sums within the node first, on streams; gloo is in NCCL's place."""
        self.right("import node_group\nHOW = 'stream'\n" + programs.LOCAL, n=4)

    def test_local_nccl(self):
        self.right(LOCAL_NCCL, agents=1)

    def test_end(self):
        """The inner group ends too: torch does not warn at exit."""
        for way in ("shutdown", "abort"):
            for worker in self.right(f"WAY = {way!r}\n" + programs.END):
                self.assertNotIn("destroy_process_group() was not called", worker.err)


class Broken(Cuda):
    """Each wait that is taken away is found: values are wrong."""

    def found(self, program, **env):
        wrong = self.ranks(program, **env)[1]
        self.assertGreater(len(wrong), 0)

    def test_library_waits_for_torch(self):
        self.found(programs.OPERATIONS, FAKE_RETURN="cuStreamWaitEvent=0")
        self.found(programs.SHARDED, FAKE_RETURN="cuStreamWaitEvent=0")

    def test_record_stream(self):
        self.found(programs.REUSE, BREAK="record_stream", FAKE_DELAY_US=50000)


if __name__ == "__main__":
    harness.main()
