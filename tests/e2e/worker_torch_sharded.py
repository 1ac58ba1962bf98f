# SPDX-License-Identifier: Apache-2.0
"""Sharded operations and trainings over the process group: worker_torch_sharded.py FUNCTION...

`base.ours` is the default group, with the backend `reduction`; `base.gloo` has the same ranks.
"""

import os
import sys

import torch
import torch.distributed as dist
import worker_torch_group as base
from worker_torch_group import VERSION, n, rank

import reduction
import reduction.torch
from reduction.torch_group import operations

BIG = 40_000  # elements of a part of float32: more than 64 KiB


def parts_of(dtype, count, seed=0):
    """Returns the contribution of each rank, which has the parts of all ranks."""
    made = []
    for r in range(n):
        made.append(((torch.arange(n * count) * 7 + 3 * r + seed) % 5 - (r % 2)).abs().to(dtype))
    return made


def total(dtype, sent, op):
    wide = torch.stack([x.to(torch.float64) for x in sent])
    found = {"SUM": wide.sum, "PRODUCT": wide.prod, "MIN": wide.amin, "MAX": wide.amax, "AVG": wide.mean}[op](0)
    return found.to(dtype) if dtype.is_floating_point else found.floor().to(dtype)


def scatter_tensor(part, whole, op, group=None, **options):
    call = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
    return call(part, whole, getattr(dist.ReduceOp, op), group=group, **options)


def gather_tensor(whole, part, group=None, **options):
    call = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    return call(whole, part, group=group, **options)


def check_scatters():
    """All operations and dtypes, small and large, into each kind of tensor."""
    for dtype in base.REDUCED:
        for op in ("SUM", "PRODUCT", "MIN", "MAX", "AVG"):
            for count in (0, 3, 100, 70_000):
                sent = parts_of(dtype, count)
                want = total(dtype, sent, op)[rank * count : (rank + 1) * count]
                whole, part = sent[rank].clone(), torch.zeros(count, dtype=dtype)
                scatter_tensor(part, whole, op)
                assert torch.equal(part, want), (dtype, op, count)
                assert torch.equal(whole, sent[rank]), (dtype, op, count)
                own = whole[rank * count : (rank + 1) * count]
                scatter_tensor(own, whole, op)
                assert torch.equal(own, want), (dtype, op, count, "in place")


def check_forms():
    """Lists, coalesced forms, tensors that are not dense, works."""
    for count in (10, 5_000, BIG):
        sent = parts_of(torch.float32, count)
        want = total(torch.float32, sent, "SUM")[rank * count : (rank + 1) * count]
        part = torch.zeros(count)
        dist.reduce_scatter(part, list(sent[rank].chunk(n)))
        assert torch.equal(part, want)
        strided = torch.zeros(count, 2)[:, 0]
        work = scatter_tensor(strided if VERSION >= (2, 0) else part, sent[rank], "SUM", async_op=True)
        work.wait()
        assert torch.equal(strided if VERSION >= (2, 0) else part, want)
        if count == BIG and not operations()._channel.shards and VERSION < (2, 1):
            continue  # gloo has no all_gather into one tensor yet
        wholes = [torch.zeros(n * count) for _ in range(2)]
        gather_tensor(wholes[0], want)
        assert torch.equal(wholes[0], total(torch.float32, sent, "SUM"))
        outs = [torch.zeros(count) for _ in range(n)]
        dist.all_gather(outs, want)
        assert torch.equal(torch.cat(outs), wholes[0])
        own = wholes[1][rank * count : (rank + 1) * count]
        own.copy_(want)
        gather_tensor(wholes[1], own)  # FSDP does so
        assert torch.equal(wholes[1], wholes[0])
        turned = torch.arange(2.0 * count).reshape(2, count).t()
        out = torch.zeros(n * count, 2)
        gather_tensor(out, turned.contiguous())
        assert torch.equal(out, turned.repeat(n, 1))
        for dtype in base.OTHERS:
            found = torch.zeros(n * 2 * count, dtype=dtype)
            gather_tensor(found, (torch.arange(2 * count) * (rank + 1) % 3).to(dtype))
            assert torch.equal(found, torch.cat([(torch.arange(2 * count) * (r + 1) % 3).to(dtype) for r in range(n)]))
        check_coalesced(count)


def check_coalesced(count):
    group = operations()
    sizes = (count, 5, 2 * count)
    sent = [parts_of(torch.float32, size, size) for size in sizes]
    outs = [torch.zeros(size) for size in sizes]
    group.reduce_scatter_tensor_coalesced(outs, [x[rank].clone() for x in sent]).wait()
    for size, out, x in zip(sizes, outs, sent):
        assert torch.equal(out, total(torch.float32, x, "SUM")[rank * size : (rank + 1) * size])
    if count == BIG or VERSION >= (2, 0):
        wholes = [torch.zeros(n * size) for size in sizes]
        group.allgather_into_tensor_coalesced(wholes, outs).wait()
        for whole, x in zip(wholes, sent):
            assert torch.equal(whole, total(torch.float32, x, "SUM"))


def check_order():
    """Many operations are in flight at once, of all kinds; each has its own result."""
    works = []
    for i in range(20):
        count = (BIG, 100, BIG + 1)[i % 3]
        sent = parts_of(torch.float32, count, i)
        part, whole, x = torch.zeros(count), torch.zeros(n * count), torch.full((count,), float(rank + i))
        works.append((i, sent, part, whole, x, [
            scatter_tensor(part, sent[rank].clone(), "AVG", async_op=True),
            gather_tensor(whole, sent[rank][:count].clone(), async_op=True),
            dist.all_reduce(x, async_op=True),
        ]))  # fmt: skip
    for i, sent, part, whole, x, pending in reversed(works):
        for work in pending:
            work.wait()
        count = len(part)
        assert torch.allclose(part, total(torch.float32, sent, "AVG")[rank * count : (rank + 1) * count]), i
        assert torch.equal(whole, torch.cat([s[:count] for s in sent])), i
        assert x[0] == n * i + n * (n - 1) / 2, (i, x[0])


def check_refused():
    """Parts that do not fit are an error of this rank; nothing was started."""
    base.raises(ValueError, "for all", operations()._reduce_scatter_base, torch.zeros(BIG), torch.zeros(n * BIG + n))
    base.raises(ValueError, "for all", operations()._allgather_base, torch.zeros(n * BIG + n), torch.zeros(BIG))


def routes():
    """Large operations of ranks that talk to the reducers themselves are sharded: this counts their bytes."""
    group = operations()
    # the group's first operation: no asynchronous call waits for other ranks
    outs, word = [torch.zeros(BIG) for _ in range(n)], torch.zeros(1)
    if rank == 1:
        dist.recv(word, 0)
    work = dist.all_gather(outs, torch.full((BIG,), float(rank)), async_op=True)
    if rank == 0:
        dist.send(word, 1)
    work.wait()
    assert all((out == i).all() for i, out in enumerate(outs))
    wrong = [torch.zeros(BIG + 1)] + outs[1:]
    base.raises(ValueError, "for the part of a rank", dist.all_gather, wrong, torch.zeros(BIG))
    scatter_tensor(torch.zeros(BIG), torch.zeros(n * BIG), "SUM")  # the ranks agree
    comm = reduction.torch.communicator()
    assert comm.can_shard
    part = 4 * BIG
    for call, up, down in (
        (lambda: scatter_tensor(torch.zeros(4096), torch.zeros(n * 4096), "SUM"), n * 16384, n * 16384),
        (lambda: scatter_tensor(torch.zeros(4097), torch.zeros(n * 4097), "SUM"), n * 16388, 16388),
        (lambda: scatter_tensor(torch.zeros(BIG), torch.zeros(n * BIG), "SUM"), n * part, part),
        (lambda: gather_tensor(torch.zeros(n * BIG), torch.zeros(BIG)), part, (n - 1) * part),
        (lambda: dist.all_gather([torch.zeros(BIG) for _ in range(n)], torch.zeros(BIG)), part, (n - 1) * part),
    ):
        before = comm.stats()
        call()
        after = comm.stats()
        sent, received = after.tx_bytes - before.tx_bytes, after.rx_bytes - before.rx_bytes
        assert up <= sent < 1.05 * up + 2000 and down <= received < 1.05 * down + 2000, (sent, up, received, down)
    assert group._mesh._whole is None, "gloo has connected the ranks"


def unsharded():
    """With nodes that are not alike a reduce-scatter is an all-reduce, a large all-gather a broadcast of each part."""
    part = torch.zeros(BIG)
    scatter_tensor(part, torch.full((n * BIG,), float(rank)), "AVG")
    assert part[0] == (n - 1) / 2
    assert not operations()._channel.shards and not reduction.torch.communicator().can_shard
    outs = [torch.zeros(BIG) for _ in range(n)]
    dist.all_gather(outs, torch.full((BIG,), float(rank)))
    assert all((out == i).all() for i, out in enumerate(outs))
    flags = torch.zeros(n * BIG, dtype=torch.bool)
    operations()._allgather_base(flags, torch.full((BIG,), rank % 2 == 0)).wait()
    assert all((x == (i % 2 == 0)).all() for i, x in enumerate(flags.chunk(n)))
    assert operations()._mesh._whole is None


def functional():
    """Functional collectives of large tensors."""
    if VERSION < (2, 3):
        return
    import torch.distributed._functional_collectives as fc

    sent = parts_of(torch.float32, BIG)
    want = total(torch.float32, sent, "SUM")
    part = fc.reduce_scatter_tensor(sent[rank], "sum", 0, dist.group.WORLD)
    assert torch.equal(part, want[rank * BIG : (rank + 1) * BIG])
    average = fc.reduce_scatter_tensor(sent[rank], "avg", 0, dist.group.WORLD)
    assert torch.allclose(average, want[rank * BIG : (rank + 1) * BIG] / n)
    assert torch.equal(fc.all_gather_tensor(part, 0, dist.group.WORLD), want)
    for x in fc.reduce_scatter_tensor_coalesced([sent[rank]] * 2, "sum", [0, 0], dist.group.WORLD):
        assert torch.equal(x, part)
    for x in fc.all_gather_into_tensor_coalesced([part, part], dist.group.WORLD):
        assert torch.equal(x, want)


# --- trainings


class Block(torch.nn.Module):
    """One layer of a transformer."""

    def __init__(self, width, heads=4):
        super().__init__()
        self.norms = torch.nn.ModuleList([torch.nn.LayerNorm(width) for _ in range(2)])
        self.attention = torch.nn.MultiheadAttention(width, heads, batch_first=True)
        self.feed = torch.nn.Sequential(
            torch.nn.Linear(width, 4 * width), torch.nn.GELU(), torch.nn.Linear(4 * width, width)
        )

    def forward(self, x):
        y = self.norms[0](x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.feed(self.norms[1](x))


def transformer(layers=3, width=128):
    torch.manual_seed(0)
    return torch.nn.Sequential(*[Block(width) for _ in range(layers)], torch.nn.Linear(width, 16))


def batch(step, dtype=torch.float32, width=128):
    return torch.randn(2, 8, width, generator=torch.Generator().manual_seed(100 * step + rank)).to(dtype)


def train(model, optimizer, steps, dtype=torch.float32, each=lambda step: None):
    """Returns the losses."""
    losses = []
    for step in range(steps):
        each(step)
        optimizer.zero_grad()
        loss = model(batch(step, dtype)).float().square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def has_fully_shard():
    """fully_shard() of torch 2.6 cannot work without a GPU."""
    return VERSION >= (2, 6) and hasattr(torch.cpu.current_stream(), "record_event")


def fully_sharded(group, dtype, mesh=None, overlap=True, factor=None):
    """Returns a model whose blocks are sharded, and its optimizer."""
    from torch.distributed.fsdp import fully_shard

    mesh = mesh or dist.device_mesh.DeviceMesh.from_group(group, "cpu")
    model = transformer().to(dtype)
    for layer in model[:-1]:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    for module in model.modules():
        if overlap and hasattr(module, "_set_unshard_async_op"):
            module._set_unshard_async_op(True)
        if factor is not None and hasattr(module, "set_gradient_divide_factor"):
            module.set_gradient_divide_factor(factor)
            module.set_force_sum_reduction_for_comms(True)
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)


def full(model):
    return torch.cat([p.full_tensor().detach().float().flatten() for p in model.parameters()])


def reference(dtype, steps):
    """The losses and parameters of the same training without sharding: gloo sums the gradients."""
    model = transformer().to(dtype)
    optimizer, losses = torch.optim.AdamW(model.parameters(), lr=0.01), []
    for step in range(steps):
        optimizer.zero_grad()
        loss = model(batch(step, dtype)).float().square().mean()
        loss.backward()
        for p in model.parameters():
            wide = p.grad.float()
            dist.all_reduce(wide, group=base.gloo)
            p.grad.copy_(wide / n)
        optimizer.step()
        losses.append(loss.item())
    return losses, torch.cat([p.detach().float().flatten() for p in model.parameters()])


def fsdp2():
    """fully_shard() of a transformer, with float32 and bfloat16, as with gloo."""
    if not has_fully_shard():
        print("no fully_shard on CPUs in this torch", flush=True)
        return
    for dtype, near in ((torch.float32, 1e-4), (torch.bfloat16, 5e-2)):
        for overlap in (False, True):
            model, optimizer = fully_sharded(base.ours, dtype, overlap=overlap)
            losses = train(model, optimizer, 4, dtype)
            wanted, parameters = reference(dtype, 4)
            assert all(abs(a - b) <= near * max(1, abs(b)) for a, b in zip(losses, wanted)), (dtype, losses, wanted)
            assert (full(model) - parameters).abs().mean() < near, dtype
            other, optimizer = fully_sharded(base.gloo, dtype, overlap=overlap, factor=float(n))
            found = train(other, optimizer, 4, dtype)
            assert all(abs(a - b) <= near * max(1, abs(b)) for a, b in zip(losses, found)), (dtype, losses, found)
    assert operations()._channel.shards and operations()._mesh._whole is None
    print("fully_shard: right", flush=True)


def hybrid():
    """Hybrid sharding on a mesh of 2 x 2: each group shards or sums through the reducers."""
    if not has_fully_shard() or n != 4:
        return
    mesh = dist.device_mesh.init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    model, optimizer = fully_sharded(None, torch.float32, mesh)
    losses = train(model, optimizer, 4)
    wanted, parameters = reference(torch.float32, 4)
    assert all(abs(a - b) <= 1e-4 for a, b in zip(losses, wanted)), (losses, wanted)
    assert (full(model) - parameters).abs().mean() < 1e-4
    assert operations(mesh.get_group("shard"))._channel.shards
    print("hybrid: right", flush=True)


def zero():
    """ZeroRedundancyOptimizer."""
    from torch.distributed.optim import ZeroRedundancyOptimizer
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(transformer(), process_group=base.ours)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, process_group=base.ours, lr=0.01)
    losses, (wanted, parameters) = train(model, optimizer, 4), reference(torch.float32, 4)
    assert all(abs(a - b) <= 1e-4 for a, b in zip(losses, wanted)), (losses, wanted)
    assert (torch.cat([p.detach().flatten() for p in model.parameters()]) - parameters).abs().mean() < 1e-4


def dtensor():
    """DTensor's placements of large tensors."""
    if VERSION < (2, 5):
        return
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

    mesh = dist.device_mesh.DeviceMesh.from_group(base.ours, "cpu")
    x = torch.arange(64.0 * n * 1000).reshape(64 * n, 1000) % 7
    rows = distribute_tensor(x, mesh, [Shard(0)])
    assert torch.equal(rows.full_tensor(), x)
    assert torch.equal(rows.redistribute(mesh, [Replicate()]).to_local(), x)
    sums = DTensor.from_local(x + rank, mesh, [Partial()])
    want = n * x + n * (n - 1) / 2
    assert torch.equal(sums.redistribute(mesh, [Shard(0)]).to_local(), want.chunk(n)[rank])
    assert torch.equal(sums.redistribute(mesh, [Replicate()]).to_local(), want)
    means = DTensor.from_local(x + rank, mesh, [Partial("avg")])
    assert torch.allclose(means.redistribute(mesh, [Shard(0)]).to_local(), want.chunk(n)[rank] / n)
    assert operations()._channel.shards


def failover():
    """A reducer is killed while a step's operations are in flight: the losses are those of an undisturbed training."""
    if not has_fully_shard():
        print("no fully_shard on CPUs in this torch", flush=True)
        return
    steps = 12

    def each(step):
        if step == 4:
            works = []
            if rank == 0:  # it is ahead of the others by two operations when the reducer dies
                works = start_both()
            print("in the middle", flush=True)
            sys.stdin.readline()
            for work in works or start_both():
                work.wait()

    model, optimizer = fully_sharded(base.ours, torch.float32)
    losses = train(model, optimizer, steps, each=each)
    wanted, parameters = reference(torch.float32, steps)
    assert all(abs(a - b) <= 1e-3 * max(1, abs(b)) for a, b in zip(losses, wanted)), (losses, wanted)
    assert (full(model) - parameters).abs().mean() < 1e-3
    print("trained on", flush=True)


def start_both():
    return [
        scatter_tensor(torch.zeros(500_000), torch.ones(n * 500_000), "SUM", async_op=True),
        gather_tensor(torch.zeros(n * 500_000), torch.ones(500_000), async_op=True),
    ]


if __name__ == "__main__":
    base.start()
    for function in sys.argv[1:]:
        globals()[function]()
        print(function, "done", flush=True)
    sys.stderr.flush()
    os._exit(0)
