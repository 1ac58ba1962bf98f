# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan all-only
"""`reduction.nccl_log` judges lines of NCCL 2.23 and 2.28 and of the plugin, and the example says what it finds."""

import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import harness

sys.path.insert(0, str(harness.ROOT / "agent/python"))
from reduction.nccl_log import judge, own_log  # noqa: E402

I = "node0:4711:4719 [0] NCCL INFO "
LOADED = f"{I}NET/Plugin: Loaded collnet plugin reduction (v11)\n{I}Using network reduction\n"
JOINED = LOADED + f"""\
{I}CollNet 00/0 : 0 [receive] via COLLNET/reduction/0
{I}CollNet 00/0 : 0 [send] via COLLNET/reduction/0
{I}Connected Collnet Chains
"""
CHOSEN = I + "AllReduce: {} Bytes -> Algo {} proto SIMPLE channel{{Lo..Hi}}={{0..1}}\n"
NUMBER = I + "AllReduce: {} Bytes -> Algo {} proto 2 time 57.166668\n"  # NCCL 2.23
TUNER = I + "NET/reduction: all-reduces of 42500 bytes or more go through the reducers, if NCCL can do that\n"
CLOSED = I + "NET/reduction: communicator resnet@{}: rank 0 is closed after {} all-reduces of 1048576 bytes\n"
SOCKET = f"{I}NET/Plugin: Could not find: reduction libnccl-net-reduction.so\n{I}Using network Socket\n"
FAILED = I.replace("INFO", "WARN") + "Cannot initialize CollNet, using point-to-point network instead\n"


WITHOUT_NUMPY = """
import builtins, runpy, sys
real = builtins.__import__
def no_numpy(name, *args, **kwargs):
    if name.split(".")[0] == "numpy":
        raise ImportError("there is no NumPy")
    return real(name, *args, **kwargs)
builtins.__import__ = no_numpy
runpy.run_module("reduction.nccl_log", run_name="__main__")
"""


class Judge(unittest.TestCase):
    def test_without_numpy(self):
        """A machine that only reads logs needs no NumPy."""
        with tempfile.TemporaryDirectory() as folder:
            log = pathlib.Path(folder, "log")
            log.write_text(JOINED + CLOSED.format("0f", 20))
            done = subprocess.run([sys.executable, "-c", WITHOUT_NUMPY, str(log)], capture_output=True, text=True,
                                  env={**os.environ, **harness.worker_env()}, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("20 all-reduces of 1 communicators went through", done.stdout)

    def test_used(self):
        chain = CHOSEN.format(4096, "COLLNET_CHAIN")
        for text, why in (
            (JOINED + chain + CLOSED.format("0f", 2000), "2000 all-reduces of 1 communicators went through"),
            (JOINED + CLOSED.format("0f", 20) + CLOSED.format("1f", 0) + CLOSED.format("2f", 5), "25 all-reduces of 2"),
            (JOINED + chain, "such as: " + chain.strip()),
            (JOINED + CHOSEN.format(4096, "COLLNET_DIRECT"), "COLLNET_DIRECT"),
            (JOINED + CHOSEN.format(4096, "COLLNET_CHAIN").replace("\n", " cgaClusterSize 4\n"), "cgaClusterSize"),
            (JOINED + NUMBER.format(4096, 3), "Algo 3 proto 2"),
            (JOINED + NUMBER.format(4096, 2), "Algo 2 proto 2"),
            (JOINED + TUNER + CHOSEN.format(42499, "RING") + CLOSED.format("0f", 3), "3 all-reduces of 1"),
        ):
            with self.subTest(why=why):
                verdict = judge(text)
                self.assertTrue(verdict.used, verdict)
                self.assertIn(why, verdict.why)

    def test_not_used(self):
        for text, why in (
            ("\n", "the log is empty"),
            (SOCKET + CHOSEN.format(4096, "RING"), "the plugin was not loaded: NCCL uses the network Socket"),
            (LOADED + CHOSEN.format(4096, "RING"), "no communicator uses CollNet"),
            (JOINED.replace("COLLNET/reduction", "COLLNET/SHARP"), "another plugin: SHARP"),
            (JOINED + FAILED, "could not use CollNet: " + FAILED.strip()),
            (JOINED + CHOSEN.format(64, "COLLNET_CHAIN") + CHOSEN.format(8192, "RING") + CLOSED.format("0f", 1),
             "AllReduce: 8192 Bytes -> Algo RING"),  # a subgroup without CollNet
            (JOINED + TUNER + CHOSEN.format(42500, "RING") + CLOSED.format("0f", 3), "42500 Bytes -> Algo RING"),
            *((JOINED + NUMBER.format(64, 3) + NUMBER.format(8192, n), f"AllReduce: 8192 Bytes -> Algo {n}")
              for n in (0, 1, 4, 5, 6, 13)),  # Tree, Ring, NVLS, NVLSTree, PAT, none
            (JOINED + CLOSED.format("0f", 0), "never reduced"),
            (JOINED, "has no all-reduce"),
        ):  # fmt: skip
            with self.subTest(why=why):
                verdict = judge(text)
                self.assertFalse(verdict.used, verdict)
                self.assertIn(why, verdict.why)

    def test_own_log(self):
        with mock.patch("socket.gethostname", return_value="node0.cluster.example"):
            with mock.patch.dict(os.environ, NCCL_DEBUG_FILE="/tmp/nccl.%h.%p"):
                self.assertEqual(own_log(), f"/tmp/nccl.node0.{os.getpid()}")
            with mock.patch.dict(os.environ, NCCL_DEBUG_FILE="/tmp/nccl.log"):
                self.assertIsNone(own_log())

    def test_program(self):
        with tempfile.TemporaryDirectory() as folder:
            good, bad = pathlib.Path(folder, "good"), pathlib.Path(folder, "bad")
            good.write_text(JOINED + CLOSED.format("0f", 7))
            bad.write_text(SOCKET)
            for files, status in (([good], 0), ([good, bad], 1), ([], 2)):
                argv = [harness.PYTHON, "-m", "reduction.nccl_log", *files]
                done = subprocess.run(argv, cwd=harness.ROOT / "agent/python", capture_output=True, text=True)
                self.assertEqual(done.returncode, status, done.stdout + done.stderr)
                self.assertEqual("bad: NOT used: the plugin" in done.stdout, bad in files, done.stdout)


@unittest.skipIf(importlib.util.find_spec("torch") is None or harness.SAN, "no torch, or too slow with it")
class Example(unittest.TestCase):
    def test_says_that_it_is_not_used(self):
        """Without NCCL it trains over gloo; with REDUCTION_REQUIRED=1 that is an error."""
        with harness.Cluster(reducers=1) as c:
            for required, status in (("0", 0), ("1", 1)):
                env = {"REDUCTION_REQUIRED": required, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0",
                       "OMP_NUM_THREADS": "1", "USE_LIBUV": "0"}  # Debian's PyTorch has none
                (p,) = c.start_workers(1, [harness.PYTHON, harness.ROOT / "agent/examples/ddp_transformer.py",
                                           "--steps", "1"], env=env)
                self.assertEqual(p.wait(100), status, p.report())
                self.assertIn("CollNet carried the all-reduces: NO: there is no log of NCCL", p.out)


if __name__ == "__main__":
    harness.main()
