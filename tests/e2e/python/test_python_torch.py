# SPDX-License-Identifier: Apache-2.0
# run: beside-others
"""The Python package on torch tensors, and the communication hook in DistributedDataParallel.
"""

import importlib.util
import unittest

import harness

HAVE_TORCH = importlib.util.find_spec("torch") is not None

# torch takes long to load, with sanitizers minutes; what is below it is tested without
# torch as well
needs_torch = unittest.skipIf(not HAVE_TORCH or harness.SAN, "no torch, or too slow with it")

START = """
import os, sys, threading, time
import torch
torch.set_num_threads(1)
import reduction, reduction.torch

def raises(kind, text, call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except kind as exc:
        assert text in str(exc), f"{exc} has no {text!r}"
        return exc
    raise AssertionError(f"no {kind.__name__}")

class Bucket:
    '''What DistributedDataParallel passes to a hook, as far as the hook uses it.'''
    def __init__(self, tensor, index=0, last=False):
        self._tensor, self._index, self._last = tensor, index, last
    def buffer(self):
        return self._tensor
    def index(self):
        return self._index
    def is_last(self):
        return self._last

def ddp(hook_state=None):
    '''A model of several buckets in DistributedDataParallel, with the hook unless hook_state is None.'''
    if not torch.distributed.is_initialized():
        store = torch.distributed.FileStore("store", int(os.environ["WORLD_SIZE"]))
        torch.distributed.init_process_group(
            "gloo", store=store, rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
    torch.manual_seed(0)
    layers = [layer for _ in range(10) for layer in (torch.nn.Linear(200, 200), torch.nn.Tanh())]
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=0.2)
    if hook_state is not None:
        model.register_comm_hook(hook_state, reduction.torch.allreduce_hook)
    return model

def backward(model, seed):
    x = torch.randn(16, 200, generator=torch.Generator().manual_seed(seed))
    model(x).square().mean().backward()

def gradients(model):
    return torch.cat([p.grad.flatten() for p in model.parameters()])

rank, n = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
"""

# gloo's threads and torch's destructors can deadlock when a process group is destroyed
# (torch 1.13), so: no destructors
END = """
sys.stdout.flush()
sys.stderr.flush()
os._exit(0)
"""


def program(code, end=END):
    """A worker's command: START, the code, the end."""
    parts = [harness.python(part)[-1] for part in (START, code, end)]
    return harness.python("\n".join(parts))


@needs_torch
class Tensors(unittest.TestCase):
    def check(self, code, world_size=2, agents=0):
        with harness.Cluster(reducers=2, agents=agents) as c:
            c.run(world_size, program(code, end=""))

    def test_dtypes(self):
        self.check("""
            with reduction.Communicator() as comm:
                for dtype in (torch.int8, torch.uint8, torch.int32, torch.int64, torch.float16, torch.bfloat16,
                              torch.float32, torch.float64):
                    x = torch.arange(20).to(dtype)
                    assert comm.all_reduce(x) is x
                    assert torch.equal(x, (2 * torch.arange(20)).to(dtype)), x
                raises(TypeError, "bool is not supported", comm.all_reduce, torch.ones(3, dtype=torch.bool))
                raises(TypeError, "dense tensor", comm.all_reduce, torch.eye(3).to_sparse())
                raises(TypeError, "out is a ndarray but the array is a Tensor",
                       comm.all_reduce, torch.ones(3), out=torch.ones(3).numpy())
        """)

    def test_layouts(self):
        self.check("""
            with reduction.Communicator() as comm:
                base = torch.arange(24, dtype=torch.float32).reshape(4, 6)
                for view in (lambda a: a, lambda a: a.T, lambda a: a[::2], lambda a: a[1:3, 2:5], lambda a: a[2, 3]):
                    a, expected = base.clone(), base.clone()
                    comm.all_reduce(view(a))
                    view(expected).mul_(2)
                    assert torch.equal(a, expected), a
                out = torch.empty(6, 4).T
                assert comm.all_reduce(base, out=out) is out and torch.equal(out, 2 * base)
                parameter = torch.nn.Parameter(torch.ones(5))
                comm.all_reduce(parameter, "avg")
                comm.broadcast(parameter.T if parameter.dim() > 1 else parameter, 1)
                assert torch.equal(parameter.detach(), torch.ones(5))
                request = comm.all_reduce(base, async_op=True)
                assert request.wait() is base
        """)

    def test_shared_buffers(self):
        self.check(
            """
            with reduction.Communicator() as comm:
                for dtype in (torch.float32, torch.bfloat16):
                    x = reduction.torch.empty_buffer(comm, (10, 3), dtype)
                    assert x.shape == (10, 3) and x.dtype == dtype and not x.any()
                    x += rank
                    comm.all_reduce(x)
                    assert torch.equal(x, torch.full((10, 3), 1, dtype=dtype)), x
            """,
            agents=1,
        )


@needs_torch
class Hook(unittest.TestCase):
    def check(self, code, world_size=2, agents=0, timeout=60):
        with harness.Cluster(reducers=2, agents=agents) as c:
            c.run(world_size, program(code), timeout=timeout)

    def test_gradients_equal_gloo(self):
        for agents in (0, 2):
            with self.subTest(agents=agents):
                self.check(
                    """
                    with reduction.torch.State() as state:
                        ours, gloo = ddp(state), ddp()
                        for step in range(3):       # buckets are made anew after the first step
                            for model in (ours, gloo):
                                model.zero_grad()
                                backward(model, 100 * step + rank)
                            difference = (gradients(ours) - gradients(gloo)).abs().max().item()
                            assert difference <= 1e-6 * gradients(gloo).abs().max().item(), difference
                        assert gradients(ours).abs().max() > 0
                        done = state.comm.stats().ops_done
                        assert done >= 3 * 2, f"{done} operations in 3 steps of at least 2 buckets"
                    """,
                    world_size=4,
                    agents=agents,
                )

    def test_dtypes(self):
        # by hand: gloo, which DistributedDataParallel starts with, knows no bfloat16 in
        # torch 1.13
        self.check("""
            with reduction.torch.State() as state:
                for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
                    x = torch.arange(1000).to(dtype) * (rank + 1)
                    found = reduction.torch.allreduce_hook(state, Bucket(x)).wait()
                    expected = sum((torch.arange(1000).to(dtype) * (r + 1)).double() for r in range(n)) / n
                    assert found.dtype == dtype and torch.equal(found, expected.to(dtype)), dtype
        """)

    def test_wrapped(self):
        # torch's own wrapper that sends gradients as float16 works around this hook as
        # around its own
        self.check("""
            from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_wrapper
            with reduction.torch.State() as state:
                model, gloo = ddp(), ddp()
                model.register_comm_hook(state, fp16_compress_wrapper(reduction.torch.allreduce_hook))
                for m in (model, gloo):
                    backward(m, rank)
                a, b = gradients(model), gradients(gloo)
                assert a.dtype == torch.float32 and (a - b).abs().max() <= 2e-3 * b.abs().max()
        """)

    def test_asynchronous(self):
        # the hook returns at once although rank 1 has not begun, and later buckets are
        # under way behind the first
        self.check("""
            if rank == 0:
                os.mkfifo("fifo")
            with reduction.torch.State() as state:
                state.comm.barrier()
                tensors = [torch.full((1000,), float(rank + i)) for i in range(5)]
                if rank == 1:
                    open("fifo").close()            # waits for rank 0
                futures = [reduction.torch.allreduce_hook(state, Bucket(t, i)) for i, t in enumerate(tensors)]
                if rank == 0:
                    assert not any(f.done() for f in futures)
                    open("fifo", "w").close()
                for i, f in enumerate(futures):
                    assert f.wait() is tensors[i]
                    assert torch.equal(tensors[i], torch.full((1000,), i + 0.5)), tensors[i][0]
        """)

    def test_priorities(self):
        # later buckets are more urgent, by how many the pass before had
        code = """
            class Recorder(reduction.Communicator):
                def all_reduce(self, *args, priority=None, **kwargs):
                    asked.append(priority)
                    return super().all_reduce(*args, priority=priority, **kwargs)

            with Recorder() as comm:
                assert comm.priorities == 4
                for prioritize, want in [
                    (True, [[0, 0, 0, 0, 3], [0, 1, 2, 3, 3], [0, 1, 2, 3, 3, 3], [0, 1, 1, 2, 3, 3], [3], [3]]),
                    (False, [[None, None], [None]]),
                ]:
                    state = reduction.torch.State(comm, prioritize=prioritize)
                    for expected in want:
                        asked = []
                        for i in range(len(expected)):
                            bucket = Bucket(torch.ones(8), i, i == len(expected) - 1)
                            assert reduction.torch.allreduce_hook(state, bucket).wait().tolist() == [1] * 8
                        assert asked == expected, (asked, expected)
                    state.close()
                raises(ValueError, "priority is -1; 0 (least", comm.all_reduce, torch.ones(1), priority=-1)
        """
        with harness.Cluster(config={"sharding": {"priorities": 4}}) as c:
            c.run(2, program(code))

    def test_operation(self):
        self.check("""
            comm = reduction.Communicator()
            with reduction.torch.State(comm, op="max") as state:
                x = torch.tensor([float(rank)])
                assert reduction.torch.allreduce_hook(state, Bucket(x)).wait() == 1
                raises(TypeError, "int64 are not supported", reduction.torch.allreduce_hook, state,
                       Bucket(torch.ones(3, dtype=torch.int64)))
            assert not comm.closed                  # it is ours
            state.close()                           # again
            raises(reduction.ClosedError, "closed", reduction.torch.allreduce_hook, state, Bucket(x))
            comm.barrier()
            comm.close()
        """)


    def test_profiler(self):
        """Each bucket is a range that lasts until its result is there, and gradients are the same as without it."""
        self.check("""
            state = reduction.torch.State()
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
                x = torch.full((3,), float(rank))
                result = reduction.torch.allreduce_hook(state, Bucket(x, 7)).wait()
                state.comm.barrier()
            assert result.tolist() == [0.5] * 3, result
            names = [e.name for e in profiler.events()]
            assert names.count("reduction::all_reduce bucket 7 (12 bytes)") == 1, names
            state.close()
        """)


@needs_torch
class Failures(unittest.TestCase):
    def test_rank_killed(self):
        # backward() raises the sentence, so does every later one, and closing does not
        # hang
        code = """
            state = reduction.torch.State()
            model = ddp(state)
            for step in range(2):                   # in the second, DistributedDataParallel talks through gloo
                backward(model, rank)
            if rank == 2:
                print("trained", flush=True)
                threading.Event().wait()
            if late:                                # the loss is known before the backward pass begins
                raises(reduction.PeerLostError, "rank 2", state.comm.barrier)
            raises(RuntimeError, "rank 2", backward, model, rank)
            assert isinstance(state.error, reduction.PeerLostError), state.error
            raises(RuntimeError, "rank 2", backward, model, rank)
            raises(RuntimeError, "rank 2", reduction.torch.allreduce_hook(state, Bucket(torch.ones(3))).wait)
            state.close()
            print("closed", flush=True)
        """
        for agents, late in ((0, False), (0, True), (3, False)):
            with self.subTest(agents=agents, late=late), harness.Cluster(agents=agents) as c:
                procs = c.start_workers(3, program(f"            late = {late}\n" + code.lstrip("\n")))
                procs[2].wait_text("trained", stream="out", timeout=60)
                procs[2].kill()
                for p in procs[:2]:
                    self.assertEqual(p.wait(60), 0, p.report())
                    self.assertIn("closed", p.out)

    def test_mismatch(self):
        with harness.Cluster() as c:
            c.run(2, program("""
                state = reduction.torch.State()
                future = reduction.torch.allreduce_hook(state, Bucket(torch.ones(3 + rank)))
                raises(RuntimeError, "rank 0", future.wait)
                assert isinstance(state.error, reduction.MismatchError)
                state.close()
            """))

    def test_timeout(self):
        with harness.Cluster() as c:
            c.run(2, program("""
                if rank == 0:
                    os.mkfifo("fifo")
                state = reduction.torch.State(timeout=0.2)
                state.comm.barrier()
                if rank == 0:
                    futures = [reduction.torch.allreduce_hook(state, Bucket(torch.ones(3), i)) for i in range(2)]
                    for future in futures:
                        raises(RuntimeError, "bucket 0 was not done within the State's timeout of 0.2 s", future.wait)
                    assert isinstance(state.error, reduction.ReductionTimeoutError)
                    state.close()
                    open("fifo", "w").close()
                else:
                    open("fifo").close()            # until rank 0 has given up
                    state.close()
            """))


if __name__ == "__main__":
    harness.main()
