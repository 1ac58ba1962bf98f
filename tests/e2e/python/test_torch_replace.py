# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan
"""REDUCTION_REPLACE and `python -m reduction.torch`: programs that ask for gloo get the backend `reduction`."""

import importlib.util
import pathlib
import sys
import tempfile
import unittest

import harness

PROGRAM = """
import os, sys
import torch
import torch.distributed as dist

def main():
    rank, n = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", store=dist.FileStore(os.path.abspath("store"), n), rank=rank, world_size=n)
    from reduction.torch import communicator
    groups = [dist.group.WORLD, dist.new_group(list(range(n)))]
    for group in groups:
        x = torch.ones(4) * (rank + 1)
        dist.all_reduce(x, group=group)
        assert x.tolist() == [n * (n + 1) / 2] * 4, x
        assert dist.get_backend(group) == "gloo", dist.get_backend(group)
        assert communicator(group).stats().ops_done > 0
    found = [None] * n
    dist.all_gather_object(found, rank)
    assert found == list(range(n))
    print("replaced", sys.argv[1:], flush=True)
    sys.stderr.flush()
    os._exit(0)

if __name__ == "__main__":
    main()
"""
START = "import reduction.torch, runpy, sys; del sys.argv[0]; runpy.run_path(sys.argv[0], run_name='__main__')"


@unittest.skipIf(importlib.util.find_spec("torch") is None or harness.SAN, "no torch, or too slow with it")
class Replace(unittest.TestCase):
    def run_with(self, argv, env):
        with tempfile.TemporaryDirectory(prefix="reduction-") as folder, harness.Cluster(reducers=1) as c:
            program = pathlib.Path(folder) / "program.py"
            program.write_text(PROGRAM)
            procs = c.run(2, [harness.PYTHON, *argv, str(program), "an argument"], timeout=60, env=env)
        logs = [p.err.count("torch-backend-replaced") for p in procs]
        self.assertEqual(logs, [1, 0])
        for p in procs:
            self.assertTrue(p.out.endswith("replaced ['an argument']\n"), p.report())

    def test_wrapper(self):
        self.run_with(["-m", "reduction.torch"], {})

    def test_variable(self):
        """As the entry point of an installed wheel does it: the package is imported before the program begins."""
        self.run_with(["-c", START], {"REDUCTION_REPLACE": "gloo"})

    def test_another_rank_is_named(self):
        """Rank 1 does not come to the replaced group: rank 0 names it after 10 s, and fails after its timeout."""
        program = harness.python("""
            import datetime, os
            import reduction.torch
            import torch.distributed as dist
            rank = int(os.environ["RANK"])
            if rank == 1:
                os._exit(0)  # instead of a group of gloo, which aborts the process in torch 1.13
            try:
                dist.init_process_group("gloo", store=dist.FileStore(os.path.abspath("store"), 2), rank=rank,
                                        world_size=2, timeout=datetime.timedelta(seconds=12))
            except RuntimeError as exc:
                print(exc, flush=True)
            os._exit(0)
        """)
        with harness.Cluster(reducers=1) as c:
            first = c.run(2, program, timeout=60, env=lambda rank: {} if rank else {"REDUCTION_REPLACE": "gloo"})
        self.assertIn("waiting for rank 1 of 2", first[0].err)
        self.assertIn("REDUCTION_REPLACE is set here", first[0].err)
        self.assertIn("rank 1 of 2 has not made this process group", first[0].out)


if __name__ == "__main__":
    harness.main()
