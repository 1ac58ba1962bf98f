# SPDX-License-Identifier: Apache-2.0
"""The ranks of the tests of the process group: worker_torch_group.py FUNCTION... runs these functions in one process.

`ours` is the default group, with the backend `reduction`; `gloo` has the same ranks.
"""

import datetime
import os
import sys

import torch
import torch.distributed as dist

import reduction
import reduction.torch

torch.set_num_threads(1)
rank, n = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
VERSION = tuple(int(x) for x in torch.__version__.split("+")[0].split(".")[:2])
ours = gloo = None  # set by start()

REDUCED = (torch.uint8, torch.int8, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32,
           torch.float64)  # fmt: skip
OTHERS = (torch.bool, torch.int16, torch.complex64)
OPS = ("SUM", "PRODUCT", "MIN", "MAX", "AVG", "BAND", "BOR", "BXOR")
SIZES = (0, 1, 7, 1000, 50000)


def start(backend="reduction", world_size=n, timeout=60, with_gloo=True, **options):
    global ours, gloo
    dist.init_process_group(
        backend, store=dist.FileStore(os.path.abspath("store"), n), rank=rank, world_size=world_size,
        timeout=datetime.timedelta(seconds=timeout), **options,
    )  # fmt: skip
    ours = dist.group.WORLD
    if with_gloo:
        gloo = dist.new_group(backend="gloo")


def raises(kind, text, call, *args, **kwargs):
    """Returns the exception that the call raises."""
    try:
        call(*args, **kwargs)
    except kind as exc:
        assert text in str(exc), f"{exc!r} has no {text!r}"
        return exc
    raise AssertionError(f"no {kind.__name__}: {call} {args}")


def data(size, dtype, seed=0):
    """Small numbers that differ on each rank. Their sums and products are exact in every dtype."""
    return ((torch.arange(size) + 3 * rank + seed) % 4).to(dtype)


def outcome(call, group, *args):
    """Returns what call(group, ...) returns, or the exception."""
    try:
        return call(group, *args)
    except (RuntimeError, TypeError, ValueError) as exc:
        return exc


def equal(a, b):
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(equal, a, b))
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)


def same(what, call, *args):
    """Checks that a call does the same in both groups. Returns False if neither can do it."""
    found, expected = outcome(call, ours, *args), outcome(call, gloo, *args)
    if isinstance(expected, Exception):
        assert isinstance(found, Exception), f"{what}: gloo raises {expected!r}, we return {found}"
        return False
    assert not isinstance(found, Exception), f"{what}: we raise {found!r}"
    assert equal(found, expected), f"{what}: {found}, gloo has {expected}"
    return True


def expected_reduction(x, op):
    """Returns the result as gloo computes it, in a dtype and with an operation that it knows."""
    wide = x.to(torch.float64 if x.dtype.is_floating_point else torch.int64, copy=True)
    dist.all_reduce(wide, getattr(dist.ReduceOp, "SUM" if op == "AVG" else op), group=gloo)
    if op == "AVG":
        wide = torch.div(wide, n) if x.dtype.is_floating_point else torch.div(wide, n, rounding_mode="trunc")
    return wide.to(x.dtype)


def conformance():
    """Each operation that goes through the reducers, with each dtype, operation and size, against gloo."""
    for dtype in REDUCED:
        for name in OPS[:5]:
            op = getattr(dist.ReduceOp, name)
            for size in SIZES:
                x = data(size, dtype)
                want = expected_reduction(x, name)
                what = f"{dtype} {name} {size}"
                found = x.clone()
                dist.all_reduce(found, op)
                assert equal(found, want), f"{what}: {found}, expected {want}"
                found, root = x.clone(), size % n
                dist.reduce(found, root, op)
                assert equal(found, want if rank == root else x), f"reduce {what}: {found}, expected {want}"
    for dtype in REDUCED + OTHERS:
        for size in SIZES:
            for root in (0, n - 1):
                x = data(size, dtype)
                dist.broadcast(x, root)
                assert equal(x, ((torch.arange(size) + 3 * root) % 4).to(dtype)), f"broadcast {dtype} {size}: {x}"
    several = [data(size, torch.float32, seed) for seed, size in enumerate((1, 5000, 3, 40000))]
    wants = [expected_reduction(x, "SUM") for x in several]
    group_all_reduce(several)
    assert equal(several, wants)
    x = data(100_000, torch.float32)
    want = expected_reduction(x, "SUM")
    group_all_reduce([x[:70_000], x[30_000:], x])  # they share memory: each is a sum of what was there before
    assert equal(x, want), x
    x = data(24, torch.float32).reshape(4, 6)
    want = expected_reduction(x, "SUM")
    for view in (lambda a: a.T, lambda a: a[::2], lambda a: a[1:3, 2:5], lambda a: a[2, 3]):
        found = x.clone()
        dist.all_reduce(view(found))
        assert equal(view(found), view(want).clone())
        found = x.clone()
        dist.broadcast(view(found), 1)
        assert equal(view(found), view(((torch.arange(24) + 3) % 4).float().reshape(4, 6)))
    dist.barrier()
    assert reduction.torch.communicator().stats().ops_done > 8 * 5 * 5 * 2, "the reducers were not used"


def group_all_reduce(tensors):
    options = torch._C._distributed_c10d.AllreduceCoalescedOptions()
    ours.allreduce_coalesced(tensors, options).wait()


def delegated():
    """What is no reduction, small and large, and what the inner group does: results and refusals of gloo."""
    def all_reduce(group, x, op):
        x = x.clone()
        dist.all_reduce(x, getattr(dist.ReduceOp, op), group=group)
        return x

    def all_gather(group, x):
        out = [torch.empty_like(x) for _ in range(n)]
        dist.all_gather(out, x, group=group)
        return out

    def gather(group, x):
        out = [torch.empty_like(x) for _ in range(n)] if rank == 1 else None
        dist.gather(x, out, 1, group=group)
        return out or []

    def scatter(group, x):
        out = torch.empty_like(x)
        dist.scatter(out, [x + i for i in range(n)] if rank == 1 else None, 1, group=group)
        return out

    def all_to_all(group, x):
        out = torch.empty_like(x.repeat(n))
        dist.all_to_all_single(out, x.repeat(n), group=group)
        return out

    def ring(group, x):
        out = torch.empty_like(x)
        request = dist.isend(x, (rank + 1) % n, group=group)
        dist.recv(out, (rank - 1) % n, group=group)
        request.wait()
        return out

    def reduce_scatter(group, x):
        out = torch.empty_like(x)
        dist.reduce_scatter(out, [x + i for i in range(n)], group=group)
        return out

    def into_tensor(group, x):
        out = torch.empty_like(x.repeat(n))
        dist.all_gather_into_tensor(out, x, group=group)
        return out

    def sparse(group, x):
        y = torch.zeros(10).index_put((torch.tensor([rank]),), torch.ones(1)).to_sparse()
        dist.all_reduce(y, group=group)
        return y.to_dense()

    done = []
    for dtype, size in ((torch.int64, 100), (torch.float32, 100), (torch.float32, 50_000), (torch.uint8, 100_000)):
        for call in (all_gather, gather, scatter, all_to_all, ring):
            done += [call.__name__] * same(f"{call.__name__} {dtype} {size}", call, data(size, dtype))
        # gloo of old versions of torch has no reduce_scatter
        x = data(size, dtype)
        assert equal(reduce_scatter(ours, x), all_reduce(gloo, x, "SUM") + n * rank), (dtype, size)
    assert equal(into_tensor(ours, data(100, torch.int64)), torch.cat(all_gather(gloo, data(100, torch.int64))))
    if VERSION >= (2, 1):  # gloo has none before
        same("large into_tensor", into_tensor, data(50_000, torch.float32))
    same("all_gather of complex numbers", all_gather, data(100, torch.complex64))
    same("all_reduce of complex numbers", all_reduce, data(100, torch.complex64), "SUM")
    for op in OPS[5:]:
        done += [op] * same(f"all_reduce {op}", all_reduce, data(100, torch.int32), op)
    done += ["sparse"] * same("sparse", sparse, data(1, torch.int32))
    assert set(done) >= {"all_gather", "gather", "scatter", "all_to_all", "ring", "BAND", "sparse"}, set(done)
    objects = [None] * n
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": i} for i in range(n)], objects
    objects = [rank, {"x": rank}]
    dist.broadcast_object_list(objects, 1)
    assert objects == [1, {"x": 1}]
    # gloo refuses these, and is of no use afterwards
    raises(RuntimeError, "", all_reduce, dist.new_group(list(range(n))), data(10, torch.int16), "SUM")
    raises(RuntimeError, "", all_reduce, dist.new_group(list(range(n))), data(10, torch.float32), "BAND")


def ended(work):
    """Returns whether an operation has ended. torch 2.14 does not ask a Python backend's Work for it."""
    return work.get_future().done() if reduction.torch_group.HAS_BACKEND else work.is_completed()


def works():
    """Work objects: their methods, futures, and the order of operations."""
    tensors = [torch.full((size,), float(rank + i)) for i, size in enumerate((10, 100000, 3, 70000) * 5)]
    pending = [dist.all_reduce(x, async_op=True) for x in tensors]
    for i in reversed(range(len(tensors))):
        assert pending[i].wait() and ended(pending[i])
        assert pending[i].get_future().done() and pending[i].get_future().value()[0] is tensors[i]
        if not reduction.torch_group.HAS_BACKEND:
            assert pending[i].is_success() and pending[i].exception() is None and pending[i].result()[0] is tensors[i]
        assert torch.all(tensors[i] == n * i + n * (n - 1) // 2), i
    pending = [dist.broadcast(torch.ones(5), 0, async_op=True) for _ in range(100)]  # nobody waits for these
    work = dist.all_reduce(torch.ones(3), async_op=True)
    assert work.get_future().then(lambda f: f.value()[0] * 2).wait().tolist() == [2.0 * n] * 3
    assert reduction.torch_group.HAS_BACKEND or work.get_future() is work.get_future()
    if rank == 0:
        dist.recv(torch.empty(1), 1)  # until rank 1 has found that its operation is pending
    work = dist.all_reduce(torch.ones(3), async_op=True)
    if rank == 1:
        assert not ended(work)
        raises(TimeoutError, "not done within", work.wait, datetime.timedelta(milliseconds=50))
        dist.send(torch.ones(1), 0)
    assert work.wait(datetime.timedelta(seconds=60)) and work.get_future().value()[0].tolist() == [n] * 3
    work = dist.all_reduce(torch.ones(3), async_op=True)
    future = work.get_future().then(lambda f: f.value()[0].tolist())
    assert work.wait() and work.get_future().done()
    assert future.wait() == [n] * 3


def subgroups():
    """Groups of some ranks, of one rank, 100 groups, and a group that is destroyed."""
    pairs = [dist.new_group([i, i + 1]) for i in range(0, n, 2)]
    mine = pairs[rank // 2]
    x = torch.ones(4) * rank
    dist.all_reduce(x, group=mine)
    assert torch.all(x == 4 * (rank // 2) + 1), x
    dist.broadcast(x, rank // 2 * 2 + 1, group=mine)
    odd = dist.new_group(list(range(1, n)))  # other numbers of ranks on nodes
    if rank:
        x = torch.ones(4)
        dist.all_reduce(x, group=odd)
        assert torch.all(x == n - 1)
        out = [torch.empty(4) for _ in range(n - 1)]
        dist.all_gather(out, x, group=odd)
    alone = [dist.new_group([i]) for i in range(n)][rank]
    dist.all_reduce(x, group=alone)
    assert dist.get_rank(mine) == rank % 2 and dist.get_world_size(odd) in (n - 1, -1)
    many = [dist.new_group([0, 1 + i % (n - 1)]) for i in range(100)]
    for i, group in enumerate(many):
        if rank in (0, 1 + i % (n - 1)):
            x = torch.full((3,), float(i))
            dist.all_reduce(x, group=group)
            assert torch.all(x == 2 * i)
    comm = reduction.torch.communicator(mine)
    dist.destroy_process_group(mine)
    del mine, pairs
    assert comm.closed
    dist.barrier()


def forks():
    """Processes that are forked after the group was used: DataLoader's, and one that uses the group."""
    loader = torch.utils.data.DataLoader(torch.arange(8), num_workers=2)
    assert sorted(int(x) for x in loader) == list(range(8))
    child = os.fork()
    if child == 0:
        raises(reduction.ReductionError, "before a fork()", dist.all_reduce, torch.ones(1))
        raises(reduction.ReductionError, "before a fork()", dist.all_gather, [torch.ones(1)] * n, torch.ones(1))
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    dist.all_reduce(torch.ones(1))


def again():
    """The group is destroyed and made again, as programs do between their phases."""
    for i in range(2):
        group = dist.new_group(list(range(n)))
        x = torch.ones(3)
        dist.all_reduce(x)
        dist.all_reduce(x, group=group)
        assert torch.all(x == n * n)
        globals().update(ours=None, gloo=None)
        dist.destroy_process_group()
        dist.init_process_group(
            "reduction", store=dist.FileStore(os.path.abspath(f"store{i}"), n), rank=rank, world_size=n
        )
    dist.all_reduce(torch.ones(3))


if __name__ == "__main__":
    if "bare" not in sys.argv:
        start()
    for function in sys.argv[1:]:
        if function != "bare":
            globals()[function]()
            print(function, "done", flush=True)
    # gloo's threads and torch's destructors can deadlock when a process group is
    # destroyed (torch 1.13)
    sys.stderr.flush()
    os._exit(0)
