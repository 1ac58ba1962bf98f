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

    def test_nobody_waits(self):
        """Rank 1 is late: rank 0's future is complete at once, and only the streams that want the result wait."""
        self.check("""
            state = reduction.torch.State()
            state.comm.barrier()
            x = fake.cuda(torch.zeros(1000))
            later()
            x.fill(torch.full((1000,), rank + 1.0))  # the operation waits for work that is queued before it
            future = hook(state, x)
            if rank == 0:
                assert future.done()
                compute, user = fake.current_stream(), fake.Stream()
                compute.synchronize()
                with fake.use_stream(user):
                    assert future.wait() is x        # the host goes on
                    y = x.clone()
                assert not user.idle()
                go()
                assert y.values(user).tolist() == [1.5] * 1000
            else:
                future.wait()
                assert x.values().tolist() == [1.5] * 1000
            state.close()
        """)

    def test_blocking(self):
        self.check("""
            state = reduction.torch.State(blocking=True)
            state.comm.barrier()
            later()
            x = fake.cuda(torch.ones(10))
            future = hook(state, x)
            if rank == 0:
                assert not future.done()
                go()
            future.wait()
            assert x.values(fake.Stream()).tolist() == [1] * 10  # a stream that did not wait
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
        """An error that is found later is that of the next bucket; a State that blocks has it at once."""
        self.check("""
            for blocking in (False, True):
                comm = reduction.Communicator(generation=int(blocking))
                state = reduction.torch.State(comm, blocking=blocking)
                x = fake.cuda(torch.ones(5 + rank))
                future = hook(state, x)
                if blocking:
                    raises(RuntimeError, "of 6 float32", future.wait)
                else:
                    future.wait()
                    x.values()                      # the stream goes on
                    raises(reduction.MismatchError, "of 6 float32", comm.barrier)
                raises(RuntimeError, "of 6 float32", hook(state, fake.cuda(torch.ones(3)), 1).wait)
                raises(RuntimeError, "of 6 float32", hook(state, torch.ones(3), 2).wait)
                assert isinstance(state.error, reduction.MismatchError), state.error
                state.close()
                comm.close()
        """)

    def test_close_in_mid_step(self):
        """Rank 1 closes without its part of the second bucket. Nothing hangs, and streams go on."""
        for agents in (0, 2):
            self.check("""
                state = reduction.torch.State()
                buckets = [fake.cuda(torch.full((100_000,), rank + 1.0)) for _ in range(2)]
                futures = [hook(state, b, i) for i, b in enumerate(buckets[: 2 - rank])]
                for f in futures:
                    f.wait()
                state.close()
                assert set(buckets[0].values().tolist()) == {1.5}
                fake.current_stream().synchronize()
                raises(reduction.ClosedError, "is closed", hook, state, buckets[0])
            """, agents=agents)

    def test_timeout(self):
        """A bucket is not reduced in time: the job ends on all ranks, and the GPU does not wait for ever."""
        self.check("""
            state = reduction.torch.State(timeout=0.2)
            state.comm.barrier()
            sentence = "bucket 0 was not done within the State's timeout of 0.2 s"
            if rank == 0:
                x = fake.cuda(torch.ones(3))
                hook(state, x).wait()
                x.values()
                raises(reduction.AbortedError, sentence, state.comm.barrier)
                raises(RuntimeError, sentence, hook(state, x, 1).wait)
                go()
            else:
                open("fifo").close()
                raises(reduction.AbortedError, sentence, state.comm.barrier)
            state.close()
        """)

    def test_old_driver(self):
        """If streams cannot wait, the host does."""
        env = {"FAKE_CUDA_FAIL": "cuStreamWaitValue32_v2:1:801"}
        self.check("""
            state = reduction.torch.State()
            for i in range(2):
                x = fake.cuda(torch.full((1000,), rank + 1.0))
                hook(state, x).wait()
                assert x.values().tolist() == [1.5] * 1000
            state.close()
        """, env=env)


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

    def test_nobody_waits(self):
        """wait() lets the current stream wait and not the host. An error is that of a later operation."""
        self.check("""
            import datetime
            dist = init()
            dist.barrier()                          # the communicator is open
            x = fake.cuda(torch.full((1000,), rank + 1.0))
            later()
            work = dist.all_reduce(x, async_op=True)
            if rank == 0:
                user = fake.Stream()
                with fake.use_stream(user):
                    assert work.wait()
                    y = x.clone()
                assert not user.idle() and not work.is_completed() and work.get_future().done()
                fake.current_stream().synchronize()
                go()
                assert y.values(user).tolist() == [3.0] * 1000
            work.wait()
            assert x.values().tolist() == [3.0] * 1000
            while not work.is_completed():          # the event of the side stream
                time.sleep(0.001)
            assert work.is_success()
            bad = dist.all_reduce(fake.cuda(torch.ones(5 + rank)), async_op=True)
            with fake.use_stream(fake.Stream()):
                try:
                    assert bad.wait()               # the host goes on
                except RuntimeError as exc:         # or the error has come already
                    assert "of 6 float32" in str(exc), exc
                fake.current_stream().synchronize()  # the stream goes on in both cases
            raises(RuntimeError, "of 6 float32", bad.wait, datetime.timedelta(seconds=60))
            raises(RuntimeError, "of 6 float32", dist.all_reduce, fake.cuda(torch.ones(5)))
        """)

    def test_timeout(self):
        """Nobody on the host waits for the operation, and yet the group's timeout ends it."""
        self.check("""
            import datetime
            dist = init(timeout=datetime.timedelta(seconds=60))
            dist.barrier()
            group = torch.distributed.group.WORLD
            group._channel.timeout = 0.3
            if rank == 0:
                x = fake.cuda(torch.ones(3))
                dist.all_reduce(x, async_op=True).wait()
                x.values()
                go()
                raises(RuntimeError, "all_reduce was not done within the process group's timeout", dist.barrier)
            else:
                open("fifo").close()
                raises(RuntimeError, "all_reduce was not done within the process group's timeout", dist.barrier)
        """)


if __name__ == "__main__":
    harness.main()
