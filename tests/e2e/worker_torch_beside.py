# SPDX-License-Identifier: Apache-2.0
"""Features of torch.distributed with the backend `reduction` beside gloo: worker_torch_beside.py [FEATURE...].

Each function of the table does the same with the group that it gets, and returns what it found. Both groups must find
the same, bit by bit for these numbers. What gloo cannot do in this version of torch, we need not do either; the newest
versions do all of it.
"""

import io
import os
import shutil
import sys

import torch
import torch.distributed as dist
import worker_torch_group as base
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel
from worker_torch_group import VERSION, n, rank

import reduction.torch
from reduction.torch_group import HAS_BACKEND


def net():
    torch.manual_seed(0)
    linear = torch.nn.Linear
    return torch.nn.Sequential(linear(32, 64), torch.nn.ReLU(), linear(64, 32), linear(32, 4))


def batch(step):
    return torch.randn(8, 32, generator=torch.Generator().manual_seed(100 * step + rank))


def train(model, optimizer=None, steps=3, forward=None):
    """Returns the parameters after some steps."""
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        optimizer.zero_grad()
        (forward or model)(batch(step)).square().mean().backward()
        optimizer.step()
    return [p.detach().clone() for p in model.parameters()]


def ddp(group, **options):
    """Returns the model with several buckets."""
    dist._DEFAULT_FIRST_BUCKET_BYTES = 10_000  # as PyTorch's tests do: it is 1 MiB otherwise
    return DistributedDataParallel(net(), process_group=group, bucket_cap_mb=0.01, **options)


def forms(group):
    """The options of DistributedDataParallel."""
    return [
        train(ddp(group, **options))
        for options in (
            {}, {"gradient_as_bucket_view": True}, {"find_unused_parameters": True}, {"static_graph": True},
            {"broadcast_buffers": False},
        )
    ]  # fmt: skip


def no_sync(group):
    model = ddp(group)
    with model.no_sync():
        model(batch(9)).square().mean().backward()
    return train(model)


def uneven(group):
    """join(): ranks with different numbers of steps."""
    model = ddp(group)
    with model.join():
        return train(model, steps=2 + rank)


def hooks(group):
    """torch's own communication hooks."""
    found = []
    for hook in (default_hooks.allreduce_hook, default_hooks.fp16_compress_hook, default_hooks.bf16_compress_hook):
        if hook is default_hooks.bf16_compress_hook and VERSION < (2, 1):
            continue  # it asks for NCCL, or gloo has no bfloat16
        model = ddp(group)
        model.register_comm_hook(group, hook)
        found.append(train(model))
    return found


def power(group):
    model = ddp(group)
    state = powerSGD_hook.PowerSGDState(group, matrix_approximation_rank=1, start_powerSGD_iter=2)
    model.register_comm_hook(state, reduction.torch.in_order(powerSGD_hook.powerSGD_hook))
    return train(model, steps=5)


def sharded_optimizer(group):
    model = ddp(group)
    return train(model, ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, process_group=group, lr=0.01))


def fsdp1(group):
    """FullyShardedDataParallel, its strategies and its full state."""
    from torch.distributed import fsdp

    found = []
    for name in ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD"):
        strategy = getattr(fsdp.ShardingStrategy, name)
        model = fsdp.FullyShardedDataParallel(net(), group, strategy, device_id=torch.device("cpu"))
        train(model)
        with fsdp.FullyShardedDataParallel.summon_full_params(model):
            found += [p.detach().clone() for p in model.parameters()]
    return found


def mesh_of(group):
    return dist.device_mesh.DeviceMesh.from_group(group, "cpu")


def fsdp2(group):
    """fully_shard()."""
    from torch.distributed.fsdp import fully_shard

    model = net()
    for layer in model:
        fully_shard(layer, mesh=mesh_of(group))
    fully_shard(model, mesh=mesh_of(group))
    return [p.full_tensor() for p in train(model)]


def dtensor(group):
    """DTensor: shards, replicas and partial sums."""
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

    mesh, x = mesh_of(group), torch.arange(8.0 * n).reshape(2 * n, 4)
    rows = distribute_tensor(x, mesh, [Shard(0)])
    columns = rows.redistribute(mesh, [Shard(1)]) if n in (2, 4) else rows
    sums = DTensor.from_local(x + rank, mesh, [Partial()])
    scattered = sums.redistribute(mesh, [Shard(0)]).to_local()
    product = rows @ distribute_tensor(x.t(), mesh, [Replicate()])
    return [rows.full_tensor(), columns.to_local(), product.full_tensor(), sums.full_tensor(), scattered,
            sums.redistribute(mesh, [Replicate()]).to_local()]  # fmt: skip


def compiled(group):
    """Collectives in compiled code, and a compiled model. The backend `aot_eager` needs no compiler."""
    import torch.distributed._functional_collectives as fc

    def both(x):
        y = fc.all_reduce(x * 2, "sum", group)
        return fc.all_gather_tensor(y + 1, 0, group) * 3

    step = torch.compile(both, backend="aot_eager", fullgraph=True)
    return [step(torch.ones(5) * (rank + 1)), train(torch.compile(ddp(group), backend="aot_eager"))]


def checkpoint(group):
    """torch.distributed.checkpoint: every rank saves and loads."""
    import torch.distributed.checkpoint as dcp

    folder = os.path.abspath(f"checkpoint-{dist.get_backend(group)}")
    saved = {"net": net().state_dict(), "own": torch.arange(3.0) + rank}
    dcp.save(saved, checkpoint_id=folder, process_group=group)
    loaded = {"net": {k: torch.zeros_like(v) for k, v in saved["net"].items()}, "own": torch.zeros(3)}
    dcp.load(loaded, checkpoint_id=folder, process_group=group)
    dist.barrier(group)
    if rank == 0:
        shutil.rmtree(folder)
    dist.barrier(group)
    return [list(loaded["net"].values())]


def objects(group):
    """Collectives of Python objects."""
    thing = {"rank": rank, "text": "x" * (100 + rank * 70_000)}
    everything = [None] * n
    dist.all_gather_object(everything, thing, group=group)
    gathered = [None] * n if rank == 1 else None
    dist.gather_object(thing, gathered, 1, group=group)
    told = [thing if rank == 0 else None]
    dist.broadcast_object_list(told, 0, group=group)
    own = [None]
    dist.scatter_object_list(own, [[i] * 3 for i in range(n)] if rank == 0 else None, 0, group=group)
    return [torch.tensor(bytearray(repr((everything, gathered, told, own)).encode()))]


def averaged(group):
    """Models that are averaged in periods."""
    from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager

    model, averager = net(), PeriodicModelAverager(period=2, warmup_steps=0, process_group=group)
    for step in range(4):
        train(model, steps=1)
        averager.average_parameters(model.parameters())
    return [p.detach() for p in model.parameters()]


def state_dict(group):
    """A model's state goes to a file and back, with its optimizer."""
    model = ddp(group)
    train(model)
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    again = ddp(group)
    again.load_state_dict(torch.load(file))
    return train(again)


# name, first version in which gloo can do it too
FEATURES = (
    (forms, (1, 13)), (no_sync, (1, 13)), (uneven, (1, 13)), (hooks, (1, 13)), (power, (1, 13)),
    (sharded_optimizer, (1, 13)), (objects, (1, 13)), (averaged, (1, 13)), (state_dict, (1, 13)), (fsdp1, (2, 6)),
    (fsdp2, (2, 7)), (dtensor, (2, 6)), (compiled, (2, 6)), (checkpoint, (2, 3)),
)  # fmt: skip


def flat(value):
    return [x for each in value for x in flat(each)] if isinstance(value, (list, tuple)) else [value]


def beside():
    wanted = sys.argv[1:]
    for feature, since in FEATURES:
        if wanted and feature.__name__ not in wanted:
            continue
        if VERSION < since or (feature is compiled and VERSION == (2, 13)):  # which compiles a group's Python methods
            print(f"{feature.__name__}: not with torch {torch.__version__}", flush=True)
            continue
        found, want = flat(feature(base.ours)), flat(feature(base.gloo))
        assert len(found) == len(want) and all(map(torch.equal, found, want)), (feature.__name__, found, want)
        print(f"{feature.__name__}: equal", flush=True)


def strided():
    """Tensors with gaps and turned ones are summed right; gloo sums the wrong bytes."""
    for view in (lambda x: x.t(), lambda x: x[:, ::2], lambda x: x[1:, 1:], lambda x: x.expand(3, *x.shape)[0]):
        x = torch.arange(24.0).reshape(4, 6) + rank
        want = view(torch.arange(24.0).reshape(4, 6) * n + n * (n - 1) / 2).clone()
        dist.all_reduce(view(x))
        assert torch.equal(view(x), want), x


def many_groups():
    """60 groups are made, used and destroyed. No descriptor is left."""
    counts = []
    for i in range(60):
        group = dist.new_group(list(range(n)))
        x = torch.ones(3)
        dist.all_reduce(x, group=group)
        assert x.tolist() == [n] * 3
        dist.destroy_process_group(group)
        del group
        counts.append(len(os.listdir("/proc/self/fd")))
    assert max(counts[-10:]) <= max(counts[:10]), counts


def again():
    """The default group is destroyed and made again."""
    base.ours = base.gloo = None
    for i in range(3):
        dist.destroy_process_group()
        store = dist.FileStore(os.path.abspath(f"again{i}"), n)
        dist.init_process_group("reduction", store=store, rank=rank, world_size=n)
        x = torch.ones(3)
        dist.all_reduce(x)
        assert x.tolist() == [n] * 3


if __name__ == "__main__":
    base.start(timeout=100)
    beside()
    for function in () if sys.argv[1:] else (strided, many_groups, again):
        function()
        print(f"{function.__name__}: done", flush=True)
    assert HAS_BACKEND == (VERSION >= (2, 14))
    sys.stderr.flush()
    os._exit(0)
