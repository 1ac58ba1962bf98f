# SPDX-License-Identifier: Apache-2.0
"""What torch can do with a process group, with the backend `reduction`, beside gloo: worker_torch_features.py.

Each function is one row: it raises an exception if the backend cannot do it. Those that gloo cannot do in this version
of torch either are skipped with the same error.
"""

import copy
import datetime
import gc
import io
import json
import os
import sys

import torch
import torch.distributed as dist
import worker_torch_group as base
from worker_torch_group import n, raises, rank

import reduction.torch
from reduction.torch_group import HAS_BACKEND

SUM = n * (n + 1) / 2
c10d = torch._C._distributed_c10d
VERSION = tuple(int(x) for x in torch.__version__.split("+")[0].split(".")[:2])


def ones():
    return torch.ones(4) * (rank + 1)


def collected():
    """The garbage collector leaves groups alone that torch's C++ code has."""
    group = dist.new_group(list(range(n)))
    for each in (base.ours, group):
        gc.collect()
        x = ones()
        dist.all_reduce(x, group=each)
        assert x.tolist() == [SUM] * 4, x


def overloads():
    """The forms of the methods of a ProcessGroup."""
    group, op, limit = base.ours, dist.ReduceOp, datetime.timedelta(seconds=60)
    for args in ((), (op.SUM,)) + (((op.SUM, limit),) if VERSION >= (2, 6) else ()):
        x = ones()
        group.allreduce([x], *args).wait() if not args else group.allreduce(x, *args).wait()
        assert x.tolist() == [SUM] * 4, (args, x)
    x = ones()
    group.allreduce(x, op.MAX).wait()
    assert x.tolist() == [n] * 4, x
    x = ones()
    group.broadcast(x, 1).wait()
    assert x.tolist() == [2.0] * 4, x
    if VERSION >= (2, 6):
        group.broadcast(x, 1, limit).wait()
    x = ones()
    group.reduce(x, 0, op.SUM).wait()
    assert rank or x.tolist() == [SUM] * 4, x
    group.barrier().wait()


def sequence():
    """Sequence numbers count the operations, equally on all ranks."""
    if not hasattr(base.ours, "_get_sequence_number_for_group"):
        return
    before = base.ours._get_sequence_number_for_group()
    for _ in range(3):
        dist.all_reduce(ones())
    assert base.ours._get_sequence_number_for_group() == before + 3


def set_timeout():
    """The timeout of a group is changed while it is used."""
    set_it = getattr(dist.distributed_c10d, "_set_pg_timeout", None)
    if set_it is None:
        return
    group = dist.new_group(list(range(n)))
    dist.all_reduce(ones(), group=group)
    getattr(dist, "set_timeout", set_it)(datetime.timedelta(seconds=0.5), group)
    if rank == 0:
        raises(RuntimeError, "timeout of 0.5 s", dist.all_reduce, ones(), group=group)
    dist.barrier()


def split():
    """split_group() makes groups with our backend."""
    if not hasattr(base.ours, "split_group"):
        return
    part = base.ours.split_group([0, 1])
    x = ones()
    if part is not None and rank < 2:
        part.allreduce([x]).wait()
        assert x.tolist() == [3.0] * 4, x
        assert reduction.torch.communicator(part).world_size == 2
    if HAS_BACKEND and VERSION >= (2, 15):
        part = dist.split_group(split_ranks=[[0, 1]])
        if rank < 2:
            x = ones()
            dist.all_reduce(x, group=part)
            assert x.tolist() == [3.0] * 4 and dist.get_backend(part) == "reduction"
    dist.barrier()


def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(20, 30), torch.nn.ReLU(), torch.nn.Linear(30, 5))


def gradients(net):
    net(torch.ones(3, 20) * (rank + 1)).sum().backward()
    return [p.grad.clone() for p in net.parameters()]


def same_as_gloo(prepare=lambda ddp: ddp):
    """Trains a step with both groups. The gradients must be equal."""
    found = [
        gradients(prepare(torch.nn.parallel.DistributedDataParallel(model(), process_group=group)))
        for group in (base.ours, base.gloo)
    ]
    for ours, gloo in zip(*found):
        assert torch.equal(ours, gloo), (ours, gloo)


def ddp():
    """DistributedDataParallel, and its forms."""
    same_as_gloo()
    for options in ({"gradient_as_bucket_view": True}, {"static_graph": True}, {"find_unused_parameters": True}):
        net = torch.nn.parallel.DistributedDataParallel(model(), process_group=base.ours, **options)
        gradients(net)


def builtin_hook():
    """torch's own hooks in C++, one of which compresses to float16."""
    for kind in (dist.BuiltinCommHookType.ALLREDUCE, dist.BuiltinCommHookType.FP16_COMPRESS):

        def prepare(net, kind=kind):
            net._register_builtin_comm_hook(kind)
            return net

        same_as_gloo(prepare)


def compiled():
    """torch.compile of a DDP model. The backend `eager` needs no compiler."""
    if not hasattr(torch, "compile") or not HAS_BACKEND:
        return
    same_as_gloo(lambda net: torch.compile(net, backend="eager"))


def profiled():
    """torch's profiler has the operations."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        dist.all_reduce(ones())
    names = " ".join(event.key for event in profile.key_averages())
    assert not HAS_BACKEND or "c10d::allreduce_" in names, names


def counted():
    """CommDebugMode counts the operations."""
    if not HAS_BACKEND:
        return
    from torch.distributed.tensor.debug import CommDebugMode

    with CommDebugMode() as mode:
        dist.all_reduce(ones())
    assert mode.get_total_counts() == 1, mode.get_comm_counts()


def nan_checked():
    """TORCH_DIST_NAN_CHECK: torch looks for NaN before the operation begins."""
    if not hasattr(c10d, "NanCheckHook"):
        return
    os.environ["TORCH_DIST_NAN_CHECK"] = "1"
    group = dist.new_group(list(range(n)))
    del os.environ["TORCH_DIST_NAN_CHECK"]
    dist.all_reduce(ones(), group=group)
    raises(RuntimeError, "NaN found", dist.all_reduce, torch.full((4,), float("nan")), group=group)


def recorded():
    """torch's flight recorder has the operations and their sizes. It does not see when they end, as with gloo."""
    if VERSION < (2, 15):
        return
    group = dist.new_group(list(range(n)), group_desc="recorded")
    dist.all_reduce(ones(), group=group)
    dist.broadcast(torch.ones(3), 0, group=group)
    entries = json.loads(c10d._dump_fr_trace_json(backend="reduction"))["entries"]
    found = [(e["profiling_name"], e["input_sizes"]) for e in entries if e["process_group"][1] == "recorded"]
    assert found == [("reduction:all_reduce", [[4]]), ("reduction:broadcast", [[3]])], found


def detailed():
    """TORCH_DISTRIBUTED_DEBUG=DETAIL: torch compares the calls of all ranks and names those that differ."""
    if not HAS_BACKEND:
        return
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    group = dist.new_group(list(range(n)))
    dist.set_debug_level(dist.DebugLevel.OFF)
    x = ones()
    dist.all_reduce(x, group=group)
    assert x.tolist() == [SUM] * 4 and reduction.torch.communicator(group).world_size == n
    call, name = (dist.broadcast, "BROADCAST") if rank else (dist.all_reduce, "ALLREDUCE")
    raises(RuntimeError, f"OpType={name}", call, x, *([0] if rank else []), group=group)


def coalesced():
    """Operations that torch starts together. gloo can do this without the device only."""
    x = torch.zeros(4)
    pair = [dist.P2POp(dist.isend, ones(), (rank + 1) % n), dist.P2POp(dist.irecv, x, (rank - 1) % n)]
    for work in dist.batch_isend_irecv(pair):
        work.wait()
    assert x.tolist() == [(rank - 1) % n + 1] * 4, x
    if not HAS_BACKEND:
        return
    for device in (None, torch.device("cpu")):
        xs = [ones(), ones() * 2]
        with dist.distributed_c10d._coalescing_manager(device=device, async_ops=True) as both:
            for x in xs:
                dist.all_reduce(x)
        both.wait()
        assert [x.tolist() for x in xs] == [[SUM] * 4, [2 * SUM] * 4], (device, xs)


def functional():
    """Functional collectives. Those of the last three lines are the first ones for which gloo connects the ranks."""
    if VERSION < (2, 3):
        return
    import torch.distributed._functional_collectives as fc

    group = dist.new_group(list(range(n)))
    x = fc.all_reduce(ones(), "sum", group)
    assert x.tolist() == [SUM] * 4
    xs = fc.all_reduce_coalesced([ones(), ones() * 2], "sum", group)
    assert [x.tolist() for x in xs] == [[SUM] * 4, [2 * SUM] * 4], xs
    assert fc.all_gather_tensor(ones(), 0, group).tolist() == [float(i + 1) for i in range(n) for _ in range(4)]
    for big in (1, 20000):
        group, part = dist.new_group(list(range(n))), torch.arange(2.0 * big) + rank
        whole = torch.cat([part - rank + i for i in range(n)])
        sums = (whole * n + SUM - n).split(2 * big)
        assert torch.equal(fc.reduce_scatter_tensor(whole + rank, "sum", 0, group), sums[rank])
        parts = fc.reduce_scatter_tensor_coalesced([whole + rank] * 2, "sum", [0, 0], group)
        assert all(torch.equal(x, sums[rank]) for x in parts)
        wholes = fc.all_gather_into_tensor_coalesced([part, part], group)
        assert all(torch.equal(x, whole) for x in wholes)
        assert torch.equal(fc.all_gather_tensor(part, 0, group), whole)
        group, turned = dist.new_group(list(range(n))), torch.cat([whole.split(2 * big)[rank] - rank + rank] * n)
        assert torch.equal(fc.all_to_all_single(whole, None, None, group), turned)


def freed():
    """A group is freed just after gloo has used tensors that Python has freed. torch 2.0 to 2.6 hang here with gloo."""
    if not (2, 0) <= VERSION < (2, 9):
        return
    for _ in range(100):
        group = dist.new_group(list(range(n)))
        x = torch.sparse_coo_tensor([[0, rank + 1]], torch.ones(2), (n + 1,))
        dist.all_reduce(x, group=group)
        del x
        dist.destroy_process_group(group)
        del group


def single():
    """The names of torch 2.13."""
    if not hasattr(dist, "all_gather_single"):
        return
    whole = torch.zeros(4 * n)
    dist.all_gather_single(whole, ones())
    assert whole.tolist() == [float(i + 1) for i in range(n) for _ in range(4)]
    part = torch.zeros(2)
    dist.reduce_scatter_single(part, torch.ones(2 * n))
    assert part.tolist() == [n] * 2
    out = torch.zeros(n)
    dist.all_to_all_single(out, torch.full((n,), float(rank)))
    assert out.tolist() == [float(i) for i in range(n)]


def state():
    """The hook's State: the place is that of torch.distributed; copies and files of a model with it."""
    for name in ("RANK", "WORLD_SIZE"):
        os.environ.pop(name, None)
    net = torch.nn.parallel.DistributedDataParallel(model(), process_group=base.gloo)
    with reduction.torch.State(job="test-state", connect_timeout=60) as found:
        assert (found.comm.rank, found.comm.world_size) == (rank, n)
        net.register_comm_hook(found, reduction.torch.allreduce_hook)
        gradients(net)
        assert copy.deepcopy(found) is found
        text = io.BytesIO()
        torch.save({"hook": found}, text)
        text.seek(0)
        loaded = torch.load(text, **({"weights_only": False} if VERSION >= (2, 0) else {}))["hook"]
        raises(reduction.ClosedError, "is closed", loaded.submit, ones(), 0)


def bound():
    """A group that is bound to a device, and groups made from it. Before 2.15 torch binds to GPUs only."""
    if VERSION < (2, 15):
        return
    base.ours = base.gloo = None
    dist.destroy_process_group()
    device, everyone = torch.device("cpu:0"), list(range(n))
    store = dist.FileStore(os.path.abspath("bound"), n)
    dist.init_process_group("reduction", store=store, rank=rank, world_size=n, device_id=device)
    assert dist.group.WORLD.bound_device_id == device
    for group in (dist.group.WORLD, dist.new_group(everyone), dist.split_group(split_ranks=[everyone])):
        x = ones()
        dist.all_reduce(x, group=group)
        assert x.tolist() == [SUM] * 4 and dist.get_backend(group) == "reduction", x


def fake_store():
    """A store that keeps nothing is an error in words."""
    try:
        from torch.testing._internal.distributed.fake_pg import FakeStore
    except ImportError:
        return
    base.ours = base.gloo = None
    dist.destroy_process_group()
    raises(RuntimeError, "does not keep what ranks publish", dist.init_process_group, "reduction", store=FakeStore(),
           rank=rank, world_size=n)  # fmt: skip


if __name__ == "__main__":
    base.start()
    wanted = sys.argv[1:] or [
        "collected", "overloads", "sequence", "set_timeout", "split", "ddp", "builtin_hook", "compiled", "profiled",
        "counted", "nan_checked", "recorded", "detailed", "coalesced", "functional", "freed", "single", "state",
        "bound", "fake_store",
    ]  # fmt: skip
    for function in wanted:
        globals()[function]()
        print(function, "done", flush=True)
    sys.stderr.flush()
    os._exit(0)
