# SPDX-License-Identifier: Apache-2.0
"""The ranks of the tests that train over the process group: worker_torch_train.py FUNCTION... runs these functions."""

import contextlib
import copy
import inspect
import os
import sys

import torch
import torch.distributed as dist
import worker_torch_group as base
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

import reduction.torch

rank, n = base.rank, base.n


class Net(torch.nn.Module):
    """Some layers; the last one is used in every second step only, if `skips`."""

    def __init__(self, skips=False):
        super().__init__()
        torch.manual_seed(0)
        self.body = torch.nn.Sequential(
            *[layer for _ in range(4) for layer in (torch.nn.Linear(64, 64), torch.nn.Tanh())],
            torch.nn.BatchNorm1d(64),
        )
        self.extra = torch.nn.Linear(64, 64)
        self.skips, self.step = skips, 0

    def forward(self, x):
        self.step += 1
        x = self.body(x)
        return x if self.skips and self.step % 2 else self.extra(x)


def batch(step, rows=8):
    return torch.randn(rows, 64, generator=torch.Generator().manual_seed(1000 * step + rank))


def replicated(net, group, bucket_cap_mb=0.02, **options):
    """Returns the model whose gradients are averaged over a group, by default in several buckets."""
    dist._DEFAULT_FIRST_BUCKET_BYTES = int(bucket_cap_mb * 2**20)  # as PyTorch's tests do: it is 1 MiB otherwise
    return DistributedDataParallel(net, process_group=group, bucket_cap_mb=bucket_cap_mb, **options)


def train(group, steps, skips=False, hook=None, accumulate=1, optimizer=None, **options):
    """Returns the losses and the parameters after some steps of DistributedDataParallel over a group."""
    model = replicated(Net(skips), group, **options)
    if hook is not None:
        model.register_comm_hook(*hook(group))
    sgd = (optimizer or torch.optim.SGD)(model.parameters(), lr=0.1)
    losses = []
    for step in range(steps):
        sgd.zero_grad()
        for part in range(accumulate):
            with model.no_sync() if part < accumulate - 1 else contextlib.nullcontext():
                loss = model(batch(step * accumulate + part)).square().mean()
                loss.backward()
        sgd.step()
        losses.append(loss.item())
    return losses, torch.cat([p.detach().flatten() for p in model.parameters()])


def close(found, expected, tolerance):
    (losses, parameters), (wanted, reference) = found, expected
    assert losses[-1] < losses[0], losses
    assert max(abs(a - b) for a, b in zip(losses, wanted)) <= tolerance, (losses, wanted)
    difference = (parameters - reference).abs().max().item()
    assert difference <= tolerance, difference


def parity():
    """50 steps are those with gloo, up to the order of additions."""
    close(train(base.ours, 50), train(base.gloo, 50), 1e-5)


def options():
    """The options of DistributedDataParallel, and the optimizer that is sharded."""
    for what in (
        {"find_unused_parameters": True, "skips": True},
        {"gradient_as_bucket_view": True, "static_graph": True},
        {"accumulate": 3},
        {"broadcast_buffers": False},
    ):
        close(train(base.ours, 4, **what), train(base.gloo, 4, **what), 1e-5)
    results = []
    for group in (base.ours, base.gloo):
        make = lambda parameters, lr: ZeroRedundancyOptimizer(  # noqa: E731
            parameters, torch.optim.SGD, process_group=group, lr=lr
        )
        results.append(train(group, 4, optimizer=make))
    close(*results, 1e-5)


def loader():
    """DataLoader forks workers for each epoch, while operations of the group are pending."""
    def epochs(group):
        torch.manual_seed(rank)
        data = torch.utils.data.DataLoader(torch.randn(32, 64), batch_size=8, num_workers=2)
        model = replicated(Net(), group)
        sgd, losses = torch.optim.SGD(model.parameters(), lr=0.1), []
        for _ in range(2):
            pending = dist.all_reduce(torch.ones(100000), group=group, async_op=True)
            for x in data:
                sgd.zero_grad()
                loss = model(x).square().mean()
                loss.backward()
                sgd.step()
                losses.append(loss.item())
            pending.wait()
        return losses, torch.cat([p.detach().flatten() for p in model.parameters()])

    close(epochs(base.ours), epochs(base.gloo), 1e-5)


def hooks():
    """torch's own hooks over this group, and its float16 wrapper around our hook."""
    close(train(base.ours, 4, hook=lambda g: (g, default_hooks.fp16_compress_hook)), train(base.gloo, 4), 2e-3)
    one_bucket = [train(g, 8, bucket_cap_mb=25, hook=power) for g in (base.ours, base.gloo)]
    close(*one_bucket, 1e-3)
    with reduction.torch.State() as state:
        assert state.comm is reduction.torch.communicator()
        wrapped = default_hooks.fp16_compress_wrapper(reduction.torch.allreduce_hook)
        close(train(base.ours, 4, hook=lambda g: (state, wrapped)), train(base.gloo, 4), 2e-3)
    assert not state.comm.closed
    close(train(base.ours, 4, hook=lambda g: (g, bfloat16_hook)), train(base.gloo, 4), 2e-2)


def power(group, buckets=None):
    """Returns state and hook of PowerSGD, which compresses from step 2 on. The hook notes the buckets, if given."""
    state = powerSGD_hook.PowerSGDState(process_group=group, matrix_approximation_rank=2, start_powerSGD_iter=2)
    ordered = reduction.torch.in_order(powerSGD_hook.powerSGD_hook)

    def noted(state, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        buckets.add(bucket.index())
        return ordered(state, bucket)

    return state, powerSGD_hook.powerSGD_hook if buckets is None else noted


def power_buckets():
    """PowerSGD with several buckets. It starts operations in callbacks, so the order of buckets must be fixed."""
    buckets = set()
    results = [train(g, 20, hook=lambda g: power(g, buckets)) for g in (base.ours, base.gloo)]
    assert len(buckets) >= 3, buckets
    close(*results, 1e-3)
    with reduction.torch.State() as state:  # an error reaches the backward pass
        failing = reduction.torch.in_order(reduction.torch.allreduce_hook)
        state.comm.abort("a test")
        base.raises(RuntimeError, "a test", train, base.gloo, 1, hook=lambda g: (state, failing))


def bfloat16_hook(group, bucket):
    # torch 1.13 offers its own bf16_compress_hook with NCCL only
    shorter = bucket.buffer().to(torch.bfloat16).div_(n)
    return group.allreduce([shorter]).get_future().then(lambda f: bucket.buffer().copy_(f.value()[0]))


def overridden():
    """Returns a mesh whose shards are summed by gloo, if this torch can make one."""
    make = dist.device_mesh.init_device_mesh
    if "backend_override" not in inspect.signature(make).parameters:
        return
    mesh = make("cpu", (2, n // 2), mesh_dim_names=("replicate", "shard"), backend_override={"shard": "gloo"})
    assert [dist.get_backend(mesh[x].get_group()) for x in ("replicate", "shard")] == ["reduction", "gloo"]
    yield mesh


def sharded():
    """Hybrid sharding: shards within pairs, all-reduce between the replicas. torch 2 only."""
    if not hasattr(dist, "device_mesh"):
        print("no hybrid sharding in this torch", flush=True)
        return
    from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy

    mesh = dist.device_mesh.init_device_mesh("cpu", (2, n // 2), mesh_dim_names=("replicate", "shard"))
    assert dist.get_backend(mesh.get_group("replicate")) == "reduction"
    model = Net()
    local = copy.deepcopy(model)
    one = FullyShardedDataParallel(
        copy.deepcopy(model), process_group=(mesh.get_group("shard"), mesh.get_group("replicate")),
        sharding_strategy=ShardingStrategy.HYBRID_SHARD, device_id=torch.device("cpu"),
    )  # fmt: skip
    models = [local, one]
    if hasattr(torch.cpu.current_stream(), "record_event"):  # torch 2.6 cannot do this without a GPU
        from torch.distributed.fsdp import fully_shard

        for each in (mesh, *overridden()):
            models.append(copy.deepcopy(model))
            fully_shard(models[-1], mesh=each)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in models]
    for step in range(5):
        losses = []
        for m, optimizer in zip(models, optimizers):
            optimizer.zero_grad()
            loss = m(batch(step)).square().mean()
            loss.backward()
            losses.append(loss.item())
        for p in local.parameters():
            dist.all_reduce(p.grad, dist.ReduceOp.AVG, group=base.ours)
        for optimizer in optimizers:
            optimizer.step()
        assert max(losses) - min(losses) < 1e-5, losses
    comm = reduction.torch_group.operations(mesh.get_group("replicate"))._channel.opened
    assert comm is not None and comm.stats().ops_done > 0, "the replicas were not summed by the reducers"
    print("hybrid sharding:", len(models) - 1, flush=True)


def failover():
    """Trains on while a reducer is killed; the result is that with gloo."""
    model = DistributedDataParallel(Net(), process_group=base.ours)
    other = DistributedDataParallel(Net(), process_group=base.gloo)
    for step in range(30):
        if step == 10 and rank == 0:
            print("step 10", flush=True)
            sys.stdin.readline()
        for m in (model, other):
            m.zero_grad()
            m(batch(step)).square().mean().backward()
        for p, q in zip(model.parameters(), other.parameters()):
            assert torch.allclose(p.grad, q.grad, atol=1e-6), step


if __name__ == "__main__":
    base.start()
    for function in sys.argv[1:]:
        globals()[function]()
        print(function, "done", flush=True)
    sys.stderr.flush()
    os._exit(0)
