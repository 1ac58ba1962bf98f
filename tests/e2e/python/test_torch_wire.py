# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan
"""Encodings of torch's doors: pg_options of the process group, and the State of the communication hook. The bits are
those of the same operation on a communicator.
"""

import importlib.util
import unittest

import harness

START = """
import os, torch, torch.distributed as dist
import reduction, reduction.torch
from reduction.torch import State, allreduce_hook
rank, n = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
def init(backend, **more):
    dist.init_process_group(backend, init_method="file://" + os.path.abspath("store"), rank=rank, world_size=n, **more)
def data(count=100_000):
    return torch.randn(count, generator=torch.Generator().manual_seed(rank))
def gradients(state):
    torch.manual_seed(1)
    net = torch.nn.Linear(300, 100, bias=False)
    model = torch.nn.parallel.DistributedDataParallel(net)
    model.register_comm_hook(state, allreduce_hook)
    model(data(300)).sum().backward()
    return net.weight.grad.reshape(-1).clone()
def same(a, b):
    assert torch.equal(a, b), (a[:5], b[:5])
"""


@unittest.skipIf(importlib.util.find_spec("torch") is None or harness.SAN, "no torch, or too slow with it")
class Wire(unittest.TestCase):
    def run_ranks(self, code, **config):
        with harness.Cluster(reducers=2, config={"job": {"deterministic": True}, **config}) as c:
            head, body = harness.python(START), harness.python(code)
            c.run(2, head[:-1] + ["\n".join([head[-1], body[-1]])], timeout=120)

    def test_process_group(self):
        self.run_ranks("""
            init("reduction", pg_options={"wire": "fp8"})
            x, plain, small = data(), data(), data(100)
            dist.all_reduce(x)
            comm = reduction.torch.communicator()
            want = comm.all_reduce(data(), wire="fp8")
            same(x, want)
            comm.all_reduce(plain, wire="same")
            assert not torch.equal(x, plain)
            dist.all_reduce(small)                             # 400 bytes are sent as they are
            same(small, comm.all_reduce(data(100), wire="same"))
            dist.destroy_process_group()
        """)

    def test_hook(self):
        """A State that opens its communicator, and one on the communicator of the process group."""
        self.run_ranks("""
            init("reduction")
            comm = reduction.torch.communicator()
            with State() as state:
                plain = gradients(state)
            with State(wire="int8") as state:                  # that of the process group
                assert state.comm is comm
                coded = gradients(state)
            with State(job="another", run="test", wire="int8") as state:
                own = gradients(state)
            same(own, coded)
            assert not torch.equal(coded, plain)
            assert (coded - plain).abs().max() <= plain.abs().max() / 60
            try:
                State(comm, wire="fp4")
            except ValueError as exc:
                assert "wire 'fp4' is unknown" in str(exc), exc
            else:
                raise AssertionError("fp4 was accepted")
            dist.destroy_process_group()
        """)


if __name__ == "__main__":
    harness.main()
