# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan
"""The hook and the process group on CUDA tensors. GPUs, streams and torch's part of CUDA are fakes; the library and the
reducers are real. Rank 1 starts late where a test must see that rank 0 does not wait."""

import importlib.util
import os
import unittest

import harness
from test_python_torch import END
from test_python_torch import START as TORCH

START = """
import os
import fake_torch as fake
""" + TORCH + """
rank, n = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])

def later():
    '''Rank 1 returns when rank 0 calls go().'''
    if rank == 1:
        open("fifo").close()

def go():
    open("fifo", "w").close()

def hook(state, tensor, index=0, last=False):
    return reduction.torch.allreduce_hook(state, Bucket(tensor, index, last))

def init(**options):
    store = torch.distributed.FileStore("store", n)
    torch.distributed.init_process_group("reduction", store=store, rank=rank, world_size=n, **options)
    return torch.distributed
"""


def program(code):
    return harness.python("\n".join(harness.python(part)[-1] for part in (START, code, END)))


@unittest.skipIf(importlib.util.find_spec("torch") is None or harness.SAN, "no torch, or too slow with it")
class Device(unittest.TestCase):
    def check(self, code, world_size=2, agents=0, env=None, **cluster):
        with harness.Cluster(reducers=2, agents=agents, **cluster) as c:
            os.mkfifo(c.dir / "fifo")
            return c.run(world_size, program(code), env={"REDUCTION_BUILD": str(harness.BUILD), **(env or {})})


class Hook(Device):
    def test_values(self):
        """All types, CPU and CUDA buckets mixed, two GPUs; directly and through agents."""
        for agents in (0, 2):
            self.check("""
                state = reduction.torch.State()
                for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
                    x = torch.arange(100_001).remainder(97).to(dtype)
                    buckets = [fake.cuda(x + rank), x + rank, fake.cuda(x * rank, "cuda:1"), x * rank]
                    futures = [hook(state, b, i, i == 3) for i, b in enumerate(buckets)]
                    for i, (b, f) in enumerate(zip(buckets, futures)):
                        assert f.wait() is b
                        found = b.values() if b.is_cuda else b
                        want = ((x + x + 1) if i < 2 else x).double() / 2
                        assert torch.equal(found, want.to(dtype)), (dtype, i, found, want)
                state.close()
            """, agents=agents)

    def test_late(self):
        """Rank 1 is late. The hook returns at once, and no stream waits: only who waits for the future does."""
        self.check("""
            state = reduction.torch.State()
            state.comm.barrier()
            x = fake.cuda(torch.zeros(1000))
            later()
            x.fill(torch.full((1000,), rank + 1.0))  # the operation waits for work that is queued before it
            future = hook(state, x)
            if rank == 0:
                assert not future.done()
                fake.current_stream().synchronize()
                go()
            assert future.wait() is x
            assert x.values(fake.Stream()).tolist() == [1.5] * 1000  # any stream has it
            state.close()
        """)

    def test_priorities(self):
        """CPU and CUDA buckets have the order and the priorities of the calls."""
        self.check("""
            class Recorder(reduction.Communicator):
                def all_reduce(self, tensor, *args, name=None, priority=None, **kwargs):
                    asked.append((tensor.device.type, name, priority))
                    return super().all_reduce(tensor, *args, name=name, priority=priority, **kwargs)

            with Recorder() as comm:
                state = reduction.torch.State(comm)
                for step in range(2):
                    asked = []
                    buckets = [(fake.cuda if i % 2 else torch.clone)(torch.ones(8)) for i in range(4)]
                    for f in [hook(state, b, i, i == 3) for i, b in enumerate(buckets)]:
                        f.wait()
                assert asked == [("cpu", "bucket 0", 0), ("cuda", "bucket 1", 1), ("cpu", "bucket 2", 2),
                                 ("cuda", "bucket 3", 3)], asked
                state.close()
        """, config={"sharding": {"priorities": 4}})

    def test_errors(self):
        """The bucket's future has the error, and those of all later buckets."""
        self.check("""
            state = reduction.torch.State()
            raises(RuntimeError, "of 6 float32", hook(state, fake.cuda(torch.ones(5 + rank))).wait)
            raises(RuntimeError, "of 6 float32", hook(state, fake.cuda(torch.ones(3)), 1).wait)
            raises(RuntimeError, "of 6 float32", hook(state, torch.ones(3), 2).wait)
            assert isinstance(state.error, reduction.MismatchError), state.error
            state.close()
        """)

    def test_close_in_mid_step(self):
        """Rank 1 closes without its part of the second bucket. Nothing hangs."""
        for agents in (0, 2):
            self.check("""
                state = reduction.torch.State()
                buckets = [fake.cuda(torch.full((100_000,), rank + 1.0)) for _ in range(2)]
                futures = [hook(state, b, i) for i, b in enumerate(buckets[: 2 - rank])]
                futures[0].wait()
                state.close()
                assert set(buckets[0].values().tolist()) == {1.5}
                raises(reduction.ClosedError, "is closed", hook, state, buckets[0])
            """, agents=agents)

    def test_timeout(self):
        """A bucket is not reduced in time: the job ends on all ranks."""
        self.check("""
            state = reduction.torch.State(timeout=0.2)
            state.comm.barrier()
            sentence = "bucket 0 was not done within the State's timeout of 0.2 s"
            if rank == 0:
                x = fake.cuda(torch.ones(3))
                raises(RuntimeError, sentence, hook(state, x).wait)
                raises(reduction.AbortedError, sentence, state.comm.barrier)
                raises(RuntimeError, sentence, hook(state, x, 1).wait)
                go()
            else:
                open("fifo").close()
                raises(reduction.AbortedError, sentence, state.comm.barrier)
            state.close()
        """)


class Group(Device):
    def test_operations(self):
        for agents in (0, 2):
            self.check("""
                dist = init()
                x = torch.arange(50_000).float()
                ops = [(dist.ReduceOp.SUM, 2 * x + 1), (dist.ReduceOp.MAX, x + 1)]
                for op, want in ops:
                    a, b = fake.cuda(x + rank), fake.cuda(x + rank, "cuda:1")
                    works = [dist.all_reduce(t, op, async_op=True) for t in (a, b)]
                    for w in works:
                        assert w.wait()
                    assert torch.equal(a.values(), want) and torch.equal(b.values(), want)
                a = fake.cuda(x + rank)
                a.dense = False                     # as if its elements did not stand one behind the other
                dist.all_reduce(a)
                assert torch.equal(a.values(), 2 * x + 1)
                a = fake.cuda(x + rank)
                dist.broadcast(a, 1)
                assert torch.equal(a.values(), x + 1)
                a = fake.cuda(x + rank)
                dist.reduce(a, 1)
                assert torch.equal(a.values(), 2 * x + 1 if rank == 1 else x)
                a = fake.cuda(x + rank)
                (b,) = dist.all_reduce(a, async_op=True).get_future().wait()
                assert b is a and torch.equal(a.values(), 2 * x + 1)
                many = [fake.cuda(torch.full((i + 1,), rank + 1.0)) for i in range(20)]
                dist.all_reduce_coalesced(many)
                assert all(set(m.values().tolist()) == {3.0} for m in many)
                raises(ValueError, "tensors on cpu and cuda:0, one device was expected", dist.all_reduce_coalesced,
                       [torch.ones(1), many[0]])
                dist.barrier()
            """, agents=agents)

    def test_late(self):
        """Rank 1 is late: wait() waits on the host, and no stream does. An error is that of the operation."""
        self.check("""
            import datetime
            dist = init()
            dist.barrier()                          # the communicator is open
            x = fake.cuda(torch.full((1000,), rank + 1.0))
            later()
            work = dist.all_reduce(x, async_op=True)
            if rank == 0:
                assert not work.is_completed() and not work.get_future().done()
                raises(reduction.ReductionTimeoutError, "", work.wait, datetime.timedelta(milliseconds=1))
                fake.current_stream().synchronize()
                go()
            work.wait()
            assert work.is_success() and x.values(fake.Stream()).tolist() == [3.0] * 1000
            bad = dist.all_reduce(fake.cuda(torch.ones(5 + rank)), async_op=True)
            raises(RuntimeError, "of 6 float32", bad.wait)
            raises(RuntimeError, "of 6 float32", dist.all_reduce, fake.cuda(torch.ones(5)))
        """)

    def test_timeout(self):
        self.check("""
            import datetime
            dist = init(timeout=datetime.timedelta(seconds=60))
            dist.barrier()
            group = torch.distributed.group.WORLD
            group._channel.timeout = 0.3
            sentence = "all_reduce was not done within the process group's timeout"
            if rank == 0:
                raises(RuntimeError, sentence, dist.all_reduce, fake.cuda(torch.ones(3)))
                raises(RuntimeError, sentence, dist.barrier)
                go()
            else:
                open("fifo").close()
                raises(RuntimeError, "", dist.barrier)  # the abort, or the mismatch if that was faster
        """)


if __name__ == "__main__":
    harness.main()
