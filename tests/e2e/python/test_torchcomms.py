# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan
"""The backend `reducers` of torchcomms, and `reduction` of torch.distributed beside torchcomms. Needs torchcomms 0.3
built from source, since the one of PyPI is empty, and REDUCTION_TEST_PYTHON=PYTHON that has it.
"""

import pathlib
import re
import socket
import subprocess
import tempfile
import textwrap
import unittest

import harness


def _missing():
    """Says why the tests cannot run, or returns ""."""
    if harness.SAN:
        return "torch does not run with the sanitizers' libraries"
    probe = subprocess.run([harness.PYTHON, "-c", "import torchcomms; torchcomms.new_comm"], capture_output=True)
    return "" if probe.returncode == 0 else "torchcomms, or its libraries, is not installed for this Python"


WHY_NOT = _missing()
START = """
import os
import torch, torchcomms
from torchcomms import ReduceOp

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
cpu = torch.device("cpu")

def new(name, **hints):
    return torchcomms.new_comm("reducers", cpu, name=name, hints={f"reduction.{k}": v for k, v in hints.items()})

def part(value, count=3):
    return torch.full((count,), float(value))
"""



def meeting():
    """Returns the environment in which ranks meet at a free port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "GLOO_SOCKET_IFNAME": "lo"}


@unittest.skipIf(WHY_NOT, WHY_NOT)
class Comms(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        known = cls.folder / "reduction-0.0.dist-info"
        known.mkdir()
        (known / "METADATA").write_text("Metadata-Version: 2.1\nName: reduction\nVersion: 0.0\n")
        project = (harness.ROOT / "agent/python/pyproject.toml").read_text()
        found = re.search(r'^\[project\.entry-points\."torchcomms\.backends"\]\n(\w+) = "([\w.]+)"$', project, re.M)
        (known / "entry_points.txt").write_text(f"[torchcomms.backends]\n{found[1]} = {found[2]}\n")

    def run_ranks(self, code, world_size=4):
        with harness.Cluster(reducers=2) as c:
            return c.run(world_size, harness.python(START + textwrap.dedent(code)), env=self.env())

    def env(self, **more):
        """The environment of ranks that find the backend as that of an installed wheel."""
        return {**meeting(), "PYTHONPATH": f"{self.folder}:{harness.worker_env()['PYTHONPATH']}", **more}

    def test_operations(self):
        self.run_ranks("""
            comm = new("all")
            assert (comm.get_rank(), comm.get_size(), comm.get_backend()) == (rank, size, "reducers")
            ones = torch.arange(100_000.0) + rank
            for async_op in (False, True):
                for op, expected in ((ReduceOp.SUM, 4 * torch.arange(100_000.0) + 6), (ReduceOp.AVG,
                                     torch.arange(100_000.0) + 1.5), (ReduceOp.MAX, torch.arange(100_000.0) + 3)):
                    x = ones.clone()
                    work = comm.all_reduce(x, op, async_op=async_op)
                    work.wait()
                    assert torch.equal(x, expected), (op, x, expected)
            x = part(rank)
            comm.broadcast(x, 2, async_op=False)
            assert torch.equal(x, part(2))
            x = part(rank)
            comm.reduce(x, 1, ReduceOp.SUM, async_op=False)
            assert rank != 1 or torch.equal(x, part(6))
            out = [part(-1) for _ in range(size)]
            comm.all_gather(out, part(rank), async_op=False)
            assert all(torch.equal(x, part(i)) for i, x in enumerate(out))
            out = [part(-1, i + 1) for i in range(size)]
            comm.all_gather_v(out, part(rank, rank + 1), async_op=False)
            assert all(torch.equal(x, part(i, i + 1)) for i, x in enumerate(out))
            whole = torch.zeros(3 * size)
            comm.all_gather_single(whole, part(rank), async_op=False)
            assert torch.equal(whole, torch.cat([part(i) for i in range(size)]))
            x = part(-1)
            comm.reduce_scatter(x, [part(10 * i + rank) for i in range(size)], ReduceOp.SUM, async_op=False)
            assert torch.equal(x, part(40 * rank + 6))
            x = part(-1, rank + 1)
            comm.reduce_scatter_v(x, [part(10 * i + rank, i + 1) for i in range(size)], ReduceOp.SUM, async_op=False)
            assert torch.equal(x, part(40 * rank + 6, rank + 1))
            x = part(-1)
            comm.reduce_scatter_single(x, torch.cat([part(10 * i + rank) for i in range(size)]), ReduceOp.SUM,
                                       async_op=False)
            assert torch.equal(x, part(40 * rank + 6))
            out = torch.zeros(3 * size)
            comm.all_to_all_single(out, torch.cat([part(10 * rank + i) for i in range(size)]), async_op=False)
            assert torch.equal(out, torch.cat([part(10 * i + rank) for i in range(size)]))
            outs = [part(-1, i + 1) for i in range(size)]
            comm.all_to_all(outs, [part(10 * rank + i, rank + 1) for i in range(size)], async_op=False)
            assert all(torch.equal(x, part(10 * i + rank, i + 1)) for i, x in enumerate(outs))
            x = part(-1)
            comm.scatter(x, [part(i) for i in range(size)] if rank == 3 else [], 3, async_op=False)
            assert torch.equal(x, part(rank))
            outs = [part(-1) for _ in range(size)] if rank == 0 else []
            comm.gather(outs, part(rank), 0, async_op=False)
            assert all(torch.equal(x, part(i)) for i, x in enumerate(outs))
            if rank < 2:
                x = part(rank)
                (comm.send if rank == 0 else comm.recv)(x, 1 - rank, async_op=False)
                assert torch.equal(x, part(0))
            comm.barrier(async_op=False)
            try:
                comm.all_reduce(part(1), torchcomms.ReduceOp.PREMUL_SUM(2.0), async_op=False)
                raise SystemExit("PREMUL_SUM")
            except RuntimeError as exc:
                assert "PREMUL_SUM is not known" in str(exc), exc
            comm.finalize()
        """)

    def test_split_and_hints(self):
        self.run_ranks("""
            comm = new("with options", wire="bf16")
            x = torch.full((65_536,), 1 + 2.0 ** -12)
            comm.all_reduce(x, ReduceOp.SUM, async_op=False)
            assert torch.equal(x, torch.full((65_536,), 4.0)), x
            half = comm.split(list(range(rank % 2, size, 2)), name=f"half {rank % 2}")
            assert (half.get_rank(), half.get_size()) == (rank // 2, 2)
            x = part(rank)
            half.all_reduce(x, ReduceOp.SUM, async_op=False)
            assert torch.equal(x, part(2 + 2 * (rank % 2))), x
            half.finalize()
            comm.finalize()
        """)

    def test_abort(self):
        procs = self.run_ranks("""
            comm = new("aborted")
            comm.barrier(async_op=False)
            x = part(1, 1 << 20)
            if rank == 0:
                comm.get_backend_impl().abort()
            try:
                comm.all_reduce(x, ReduceOp.SUM, async_op=False)
                raise SystemExit("no error")
            except RuntimeError as exc:
                print(exc)
        """, 2)
        self.assertIn("abort", procs[1].out)

    def test_torch_distributed_beside_torchcomms(self):
        """TORCH_DISTRIBUTED_USE_TORCHCOMMS=1 leaves groups of this backend to it, with all their options."""
        with harness.Cluster(reducers=2) as c:
            c.run(2, harness.python("""
                import sys, torch, torch.distributed as dist
                import reduction.torch
                dist.init_process_group("reduction", pg_options={"wire": "bf16"})
                assert reduction.torch.communicator() is not None
                x = torch.full((65_536,), 1 + 2.0 ** -12)
                dist.all_reduce(x)
                assert torch.equal(x, torch.full((65_536,), 2.0)), x
                model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(300, 300))
                model(torch.ones(2, 300) * dist.get_rank()).sum().backward()
                half = dist.new_group([0])
                if dist.get_rank() == 0:
                    dist.all_reduce(x, group=half)
                dist.destroy_process_group()
                assert "reduction.torchcomms" not in sys.modules
            """), env=self.env(TORCH_DISTRIBUTED_USE_TORCHCOMMS="1"))  # fmt: skip

    def test_torch_distributed_does_not_drop_options(self):
        """It would, for a backend of torchcomms."""
        with harness.Cluster() as c:
            procs = c.run(1, harness.python("""
                import torch.distributed as dist
                try:
                    dist.init_process_group("cpu:reducers", pg_options={"wire": "bf16"})
                except RuntimeError as exc:
                    print(exc)
            """), env=self.env(TORCH_DISTRIBUTED_USE_TORCHCOMMS="1"))  # fmt: skip
        self.assertIn("give init_process_group() the backend reduction", procs[0].out)


if __name__ == "__main__":
    harness.main()
