# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan
"""The backend `reduction` and what torch can do with a process group: methods, DDP, profiler, compiled code, splits."""

import importlib.util
import os
import subprocess
import unittest

import harness

WORKER = harness.ROOT / "tests/e2e/worker_torch_features.py"
BESIDE = harness.ROOT / "tests/e2e/worker_torch_beside.py"


@unittest.skipIf(importlib.util.find_spec("torch") is None or harness.SAN, "no torch, or too slow with it")
class Features(unittest.TestCase):
    def test_features(self):
        with harness.Cluster(reducers=2) as c:
            c.run(2, [harness.PYTHON, WORKER], timeout=120)

    def test_beside_gloo(self):
        with harness.Cluster(reducers=2) as c:
            for rank in c.run(2, [harness.PYTHON, BESIDE], timeout=240):
                self.assertNotRegex(rank.err, r"reduction/\w+\.py:\d+: \w*Warning")

    def test_place(self):
        """Without the launcher's word the ranks find that they share a node, and sum on it first."""
        program = harness.python("""
            import os
            import torch
            import torch.distributed as dist
            import reduction.torch

            rank = int(os.environ["RANK"])
            dist.init_process_group("reduction", store=dist.FileStore(os.path.abspath("store"), 2), rank=rank,
                                    world_size=2)
            dist.all_reduce(torch.ones(4))
            dist.destroy_process_group()
        """)
        unsaid = {"LOCAL_RANK": "", "LOCAL_WORLD_SIZE": "", "REDUCTION_MODE": "node"}
        with harness.Cluster(reducers=1) as c:
            procs = c.run(2, program, timeout=60, env=unsaid)
        self.assertIn("nodes=1 summed_by=node", "".join(p.err for p in procs))

    def test_who_shards_gpus(self):
        """Tensors on GPUs are NCCL's within a node, and on nodes with several, unless the mode is said."""
        program = harness.python("""
            from reduction.torch_place import Fact, gpus_shard

            def shards(nodes, mode="auto"):
                return gpus_shard([Fact(r, len(nodes), node, -1, 0, "", "") for r, node in enumerate(nodes)], mode)

            assert shards("abc") and shards("abc", "node") and shards("abc", "direct")
            assert not shards("aabb") and shards("aabb", "node") and shards("aabb", "agent")
            assert shards("aabb", "direct") and not shards("aba")
            assert not shards("aa") and not shards("aa", "node") and not shards("aa", "agent")
        """)
        self.assertEqual(subprocess.run(program, env={**os.environ, **harness.worker_env()}).returncode, 0)

    def test_without_numpy(self):
        """PyTorch does not install NumPy."""
        program = harness.python("""
            import os, sys
            sys.modules["numpy"] = None
            import torch
            import torch.distributed as dist
            import reduction.torch

            rank = int(os.environ["RANK"])
            dist.init_process_group("reduction", store=dist.FileStore(os.path.abspath("store"), 2), rank=rank,
                                    world_size=2)
            model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 3))
            model(torch.ones(2, 3)).sum().backward()
            parts = [torch.zeros(3), torch.zeros(3)]
            dist.all_gather(parts, torch.ones(3) * rank)
            x = torch.ones(3, 2).t() * (rank + 1)
            if rank == 0:
                dist.send(x.contiguous(), 1)
            else:
                dist.recv(x := torch.zeros(2, 3), 0)
            dist.broadcast(x, 1)
            assert parts[1].tolist() == [1.0] * 3 and x.tolist() == [[1.0] * 3] * 2, (parts, x)
            with reduction.torch.State() as state:
                state.comm.all_reduce(x)
            assert x.tolist() == [[2.0] * 3] * 2, x
            dist.destroy_process_group()
        """)
        with harness.Cluster(reducers=1) as c:
            c.run(2, program, timeout=60)


if __name__ == "__main__":
    harness.main()
