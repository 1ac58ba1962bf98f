# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan
"""Sums within the node around the reducers: `local` of the hook and of the process group. Nodes are numbers in the
environment, and NCCL is replaced by gloo; the rest of the code is the same."""

import importlib.util
import os
import unittest

import harness
from test_python_torch import END
from test_python_torch import START as TORCH

START = TORCH + """
import datetime
import local_group
# two nodes, as torchrun numbers them
os.environ.update(GROUP_RANK=str(rank // 2), LOCAL_RANK=str(rank % 2), LOCAL_WORLD_SIZE="2")
dist = torch.distributed

def init(backend="gloo", **options):
    dist.init_process_group(backend, store=dist.FileStore("store", n), rank=rank, world_size=n, **options)

def hook(state, tensor, index=0, last=True):
    return reduction.torch.allreduce_hook(state, Bucket(tensor, index, last))

def values(count, dtype, seed=0):
    '''Returns the tensors of all ranks: small integers, so that sums are exact.'''
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(0, 9, (count,), generator=generator).to(dtype) for _ in range(n)]

"""


def program(code):
    return harness.python("\n".join(harness.python(part)[-1] for part in (START, code, END)))


@unittest.skipIf(importlib.util.find_spec("torch") is None or harness.SAN, "no torch, or too slow with it")
class Local(unittest.TestCase):
    def check(self, code, agents=0, **cluster):
        with harness.Cluster(reducers=2, agents=agents, **cluster) as c:
            os.mkfifo(c.dir / "fifo")
            return c.run(4, program(code), env={"REDUCTION_BUILD": str(harness.BUILD)})

    def test_hook(self):
        """All types, sizes that do not divide, sums and maxima. The reducers' ranks are the nodes."""
        for agents in (0, 2):
            self.check("""
                init()
                state = reduction.torch.State(local="gloo")
                assert (state.comm.rank, state.comm.world_size) == (rank // 2, 2)
                for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
                    for count in (1, 2, 7, 100_003):
                        tensors = values(count, dtype)
                        assert hook(state, tensors[rank]).wait() is tensors[rank]
                        want = sum(t.double() for t in values(count, dtype)) / n
                        assert torch.equal(tensors[rank].double(), want), (dtype, count)
                sent = state.comm.stats().tx_bytes
                futures = [hook(state, t, i, i == n - 1) for i, t in enumerate(values(100_000, torch.float32))]
                for f in futures:
                    f.wait()
                half = 4 * 4 * 50_000
                assert agents or half <= state.comm.stats().tx_bytes - sent < 1.2 * half
                state.close()
                with reduction.torch.State(local="gloo", op="max") as most:
                    tensors = values(7, torch.float32)
                    hook(most, tensors[rank]).wait()
                    assert torch.equal(tensors[rank], torch.stack(values(7, torch.float32)).amax(0))
            """.replace("agents", str(agents)), agents=agents)

    def test_training(self):
        self.check("""
            init()
            state = reduction.torch.State(local="gloo")
            ours, gloo = ddp(state), ddp()
            for step in range(3):
                for model in (ours, gloo):
                    model.zero_grad()
                    backward(model, step * n + rank)
                difference = (gradients(ours) - gradients(gloo)).abs().max().item()
                assert difference <= 1e-6 * gradients(gloo).abs().max().item(), difference
            state.close()
        """)

    def test_gpus(self):
        """Tensors of fake GPUs: the same, on the streams. Mixed with others it is an error."""
        self.check("""
            import fake_torch as fake
            init()
            reduction.torch._PATIENCE = 1.0
            state = reduction.torch.State(local="fake")
            for count in (1, 1001, 4000):
                for last in (False, True):  # who waits is the timer, or the hook of the last bucket
                    buckets = [fake.cuda(t) for t in values(count, torch.float32, rank)[:2]]
                    futures = [hook(state, b, i, last and i == 1) for i, b in enumerate(buckets)]
                    assert all(f.done() == last for f in futures)
                    for f in reversed(futures):
                        f.wait()
                    for i, b in enumerate(buckets):
                        want = sum(values(count, torch.float32, r)[i] for r in range(n)) / n
                        assert torch.equal(b.values(), want), (b.values(), want)
            raises(TypeError, "gradients are on cpu; sums within the node need cuda", hook, state, torch.ones(3))
            state.close()
        """)

    def test_group(self):
        """all_reduce of the process group; works are waited for in another order on each rank."""
        self.check("""
            import fake_torch as fake
            init("reduction", pg_options={"local": "gloo"})
            for op in ("SUM", "AVG", "MAX"):
                tensors = [values(count, torch.float32, count)[rank] for count in (1, 6, 1001, 5)]
                works = [dist.all_reduce(t, getattr(dist.ReduceOp, op), async_op=True) for t in tensors]
                order = sorted(range(4), key=lambda i: (i + rank) % 4)
                for i in order:
                    works[i].wait()
                for t in tensors:
                    parts = torch.stack(values(len(t), torch.float32, len(t)))
                    want = {"SUM": parts.sum(0), "AVG": parts.sum(0) / n, "MAX": parts.amax(0)}[op]
                    assert torch.equal(t, want), (op, t, want)
            t = torch.tensor([rank, 7])
            dist.all_reduce(t)
            assert t.tolist() == [6, 28]
            (found,) = dist.all_reduce(torch.ones(3), async_op=True).get_future().wait()
            assert found.tolist() == [4] * 3
            t = torch.full((3,), float(rank))
            dist.broadcast(t, 2)
            assert t.tolist() == [2] * 3
            dist.barrier()
            gpus = dist.new_group(backend="reduction", pg_options={"local": "fake"})
            t = fake.cuda(torch.full((1001,), rank + 1.0))
            dist.all_reduce(t, group=gpus)
            assert t.values().tolist() == [10] * 1001
        """)

    def test_refused(self):
        self.check("""
            raises(reduction.ReductionError, "needs torch.distributed", reduction.torch.State, local="gloo")
            init()
            raises(ValueError, "local='x' is unknown; known are nccl", reduction.torch.State, local="x")
            raises(ValueError, "opens its own", reduction.torch.State, reduction.Communicator.__new__(
                reduction.Communicator), local="gloo")
            raises(reduction.ReductionError, "need NCCL", reduction.torch.State, local="nccl")
            os.environ["GROUP_RANK"] = str(int(rank == 3))
            raises(reduction.ReductionError, "nodes with equally many ranks", reduction.torch.State, local="gloo")
            os.environ.update(GROUP_RANK=str(rank), LOCAL_RANK="0", LOCAL_WORLD_SIZE="1")  # nothing to sum
            with reduction.torch.State(local="gloo") as state:
                assert state.comm.world_size == 4
                x = torch.full((5,), float(rank))
                assert hook(state, x).wait().tolist() == [1.5] * 5
        """)

    def test_slice_that_cannot_start(self):
        """The communicator of one slice has failed before: the ranks of the other one get their sum all the same."""
        self.check("""
            init(timeout=datetime.timedelta(seconds=20))
            state = reduction.torch.State(local="gloo")
            hook(state, torch.ones(10)).wait()
            if rank % 2:
                state.comm.abort("a test")
                raises(RuntimeError, "a test", hook(state, torch.ones(10)).wait)
            else:
                assert hook(state, torch.ones(10)).wait()[:5].tolist() == [1] * 5
            dist.barrier()                                  # not before all ranks have gathered
            state.close()
        """)

    def test_slice_that_fails_in_a_group(self):
        """As above, before the start on rank 3 and after it on rank 1."""
        self.check("""
            init("reduction", pg_options={"local": "gloo"}, timeout=datetime.timedelta(seconds=20))
            group = dist.group.WORLD
            dist.all_reduce(torch.ones(10))
            if rank == 1:
                comm = group._slices.opened
                start = comm.all_reduce
                def started(*args, **options):
                    request = start(*args, **options)
                    open("fifo", "w").close()
                    return request
                comm.all_reduce = started
            if rank == 3:
                open("fifo").close()                     # until rank 1 has started
                group._slices.abort("a test")
            x = torch.ones(10)
            if rank % 2:
                raises(reduction.AbortedError, "a test", dist.all_reduce, x)
            else:
                dist.all_reduce(x)
                assert x[:5].tolist() == [4] * 5
            dist.barrier()
        """)

    def test_rank_killed(self):
        """Ranks whose slices fail take part in the all-gather, and nobody hangs."""
        code = """
            init(timeout=datetime.timedelta(seconds=60))
            state = reduction.torch.State(local="gloo")
            hook(state, torch.ones(10)).wait()
            print("summed", flush=True)
            if rank == 3:
                threading.Event().wait()
            try:
                while True:
                    hook(state, torch.ones(10)).wait()
            except RuntimeError as exc:
                print(exc, flush=True)
            state.close()
        """
        with harness.Cluster() as c:
            procs = c.start_workers(4, program(code))
            for p in procs:
                p.wait_text("summed", stream="out", timeout=60)
            procs[3].kill()
            for p in procs[:3]:
                self.assertEqual(p.wait(60), 0, p.report())
            self.assertIn("rank 1", procs[1].out)


if __name__ == "__main__":
    harness.main()
