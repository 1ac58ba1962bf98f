# SPDX-License-Identifier: Apache-2.0
"""Runs PyTorch's own tests of a backend, which are a part of torch, as one rank: worker_torch_suite.py BACKEND NAME...

They are the methods of torch.testing._internal.distributed.distributed_test.DistributedTest._DistTestBase. PyTorch
starts new processes for each test; here the same processes run all of them, each in a new process group with the
backend. The tests are told that it is gloo: so those run that need nothing but tensors on the CPU.
NAME: of tests, with * for any text; with - in front: of tests that are left out. Prints a line of JSON for each test:
its name, passed, failed or skipped, and why.
"""

import fnmatch
import inspect
import json
import logging
import os
import pathlib
import sys
import traceback
import types
import unittest
from datetime import timedelta

import torch.distributed as dist

import reduction.torch  # noqa: F401 registers the backend

rank, n = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
TIMEOUT = timedelta(seconds=60)


def load():
    """Imports PyTorch's tests and what they use."""
    os.environ["BACKEND"] = "gloo"
    # a small package that they need and Debian does not have; these tests do not use what
    # it is for
    sys.modules["expecttest"] = types.SimpleNamespace(TestCase=unittest.TestCase, ACCEPT=False)
    prepare("import")
    from torch.testing._internal import common_distributed
    from torch.testing._internal.common_utils import TestCase
    from torch.testing._internal.distributed import distributed_test

    logging.disable(logging.WARNING)
    return common_distributed.TEST_SKIPS.values(), TestCase, distributed_test


def prepare(name):
    """Prepares a folder for the files by which the ranks of a test wait for each other."""
    folder = pathlib.Path.cwd() / name
    for part in ("barrier", "test_dir", "init_dir"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    os.environ["TEMP_DIR"] = str(folder)


def outcome(case, name, skips):
    """Runs a test. Returns (passed, failed or skipped; why)."""
    try:
        case.setUp()
        getattr(case, name)()
    except unittest.SkipTest as exc:
        return "skipped", str(exc)
    except SystemExit as exc:
        reasons = [skip.message for skip in skips if skip.exit_code == exc.code]
        return ("skipped", reasons[0]) if reasons else ("failed", f"exit status {exc.code}")
    except Exception:
        return "failed", traceback.format_exc()
    return "passed", ""


def main():
    backend, *patterns = sys.argv[1:]
    del sys.argv[1:]  # which the tests read too
    skips, TestCase, suite = load()
    members = {"world_size": n, "rank": rank, "id": lambda self: f"Suite.{self._testMethodName}"}
    Case = type("Suite", (TestCase, suite.DistributedTest._DistTestBase), members)
    for name, _ in inspect.getmembers(Case, inspect.isfunction):
        wanted = [p[0] != "-" for p in patterns if fnmatch.fnmatch(name, p.lstrip("-"))]
        if not wanted or not all(wanted) or not name.startswith("test_"):
            continue
        prepare(name)
        suite.Barrier.barrier_id = 0
        store = dist.FileStore(os.path.abspath(f"store.{name}"), n)
        dist.init_process_group(backend, store=store, rank=rank, world_size=n, timeout=TIMEOUT)
        result, reason = outcome(Case(name), name, skips)
        print(json.dumps({"test": name, "result": result, "reason": reason}), flush=True)
        store.set(f"ended {rank}", "")
        store.wait([f"ended {i}" for i in range(n)], 2 * TIMEOUT)
        if dist.is_initialized():
            dist.destroy_process_group()
    print("done", flush=True)
    sys.stderr.flush()
    os._exit(0)  # gloo's threads and torch's destructors can deadlock (torch 1.13)


if __name__ == "__main__":
    main()
