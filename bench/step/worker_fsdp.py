# SPDX-License-Identifier: Apache-2.0
"""One rank of bench-fsdp: training steps of FSDP2, and of what is like it, on CPUs. step_fsdp.py starts it.

Prints one JSON line: the seconds of each timed step, of a step without other ranks, the losses, the bytes that its host
sent and got in a step, and of one more step how long gathers, scatters, and both of them were under way, and what was
called.
"""

import argparse
import json
import os
import time

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer

GATHERS = ("all_gather_single", "all_gather_into_tensor")  # the names since and before torch 2.13
SCATTERS = ("reduce_scatter_single", "reduce_scatter_tensor")
KINDS = {"gather": GATHERS, "scatter": SCATTERS, "all_reduce": ("all_reduce",), "broadcast": ("broadcast",)}
HEADS, TOKENS = 4, 16


def parse_arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--system", required=True)
    p.add_argument("--training", default="fsdp", help="fsdp, hsdp, zero1, zero2 or zero3 (default fsdp)")
    p.add_argument("--group", type=int, default=4, help="ranks of a group that shards in hsdp (default 4)")
    p.add_argument("--layers", type=int, default=8, help="layers of the transformer (default 8)")
    p.add_argument("--width", type=int, default=256, help="its width (default 256)")
    p.add_argument("--dtype", default="bfloat16", help="of the parameters (default bfloat16)")
    p.add_argument("--steps", type=int, default=5, help="timed steps (default 5)")
    p.add_argument("--warmup", type=int, default=2, help="warm-up steps before them (default 2)")
    return p.parse_args()


class Layer(torch.nn.Module):
    """A layer of the transformer."""

    def __init__(self, width):
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.attention = torch.nn.MultiheadAttention(width, HEADS, batch_first=True)
        self.feed = torch.nn.Sequential(
            torch.nn.LayerNorm(width), torch.nn.Linear(width, 4 * width), torch.nn.GELU(),
            torch.nn.Linear(4 * width, width),
        )  # fmt: skip

    def forward(self, x):
        y = self.norm(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.feed(x)


def make(args):
    torch.manual_seed(1)
    layers = [Layer(args.width) for _ in range(args.layers)]
    return torch.nn.Sequential(*layers).to(getattr(torch, args.dtype))


def shard(model, system, group):
    """Shards each layer, in groups of so many ranks. With +async an all-gather is started one layer ahead, and runs
    beside what follows."""
    kind, _, how = system.partition("+")
    world = dist.get_world_size()
    shape, names = ((world // group, group), ("replicas", "shards")) if group < world else ((world,), ("shards",))
    mesh = dist.device_mesh.init_device_mesh("cpu", shape, mesh_dim_names=names)
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    for module in (model, *model):
        if kind == "gloo":  # it knows no averages
            module.set_gradient_divide_factor(float(dist.get_world_size()))
            module.set_force_sum_reduction_for_comms(True)
        if how == "async":
            module._set_unshard_async_op(True)
    if how == "async":
        for layer, following in zip(model, list(model)[1:]):
            layer.set_modules_to_forward_prefetch([following])
            following.set_modules_to_backward_prefetch([layer])


def batch(args, step):
    generator = torch.Generator().manual_seed(1000 * step + dist.get_rank())
    return torch.randn(1, TOKENS, args.width, generator=generator).to(getattr(torch, args.dtype))


class Torch:
    """A model and its optimizer, as torch has them."""

    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer

    def step(self, x):
        self.optimizer.zero_grad()
        loss = self.model(x).float().square().mean()
        loss.backward()
        self.optimizer.step()
        return loss.item()


class DeepSpeed:
    """The same in DeepSpeed's ZeRO."""

    def __init__(self, model, stage, dtype):
        import deepspeed

        config = {
            "train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": dtype == "bfloat16"},
            "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0},
            "optimizer": {"type": "AdamW", "params": {"lr": 0.001, "torch_adam": True}},
        }  # fmt: skip
        self.engine = deepspeed.initialize(model=model, config=config, dist_init_required=False)[0]

    def step(self, x):
        loss = self.engine(x).float().square().mean()
        self.engine.backward(loss)
        self.engine.step()
        return loss.item()


def prepare(args):
    """Returns the training of all ranks."""
    model = make(args)
    if args.training in ("zero2", "zero3"):
        return DeepSpeed(model, int(args.training[-1]), args.dtype)
    if args.training == "zero1":
        model = torch.nn.parallel.DistributedDataParallel(model)
        return Torch(model, ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=1e-3))
    shard(model, args.system, args.group if args.training == "hsdp" else dist.get_world_size())
    return Torch(model, torch.optim.AdamW(model.parameters(), lr=1e-3))


def traffic():
    """Returns the bytes that this host has sent and received."""
    with open("/proc/self/net/dev", encoding="ascii") as f:
        words = next(line for line in f if line.split(":")[0].strip() == "eth0").split(":")[1].split()
    return int(words[8]), int(words[0])


def train(training, x):
    """Trains one step. Returns its seconds and its loss."""
    started = time.monotonic()
    loss = training.step(x)
    return time.monotonic() - started, loss


class Observer:
    """Notes when operations begin and end, and their bytes, while it is entered."""

    def __init__(self):
        self.spans = {kind: [] for kind in KINDS}
        self.called = {kind: [0, 0] for kind in KINDS}
        self.kept = {}

    def _wrap(self, name, kind):
        call, spans = getattr(dist, name), self.spans[kind]

        def wrapped(*args, **kwargs):
            span = [time.monotonic(), None]
            spans.append(span)
            self.called[kind][0] += 1
            self.called[kind][1] += max(x.nbytes for x in (*args, *kwargs.values()) if isinstance(x, torch.Tensor))
            work = call(*args, **kwargs)
            if work is None:  # it has waited
                span[1] = time.monotonic()
            else:
                work.get_future().then(lambda _: span.__setitem__(1, time.monotonic()))
            return work

        self.kept[name] = call
        setattr(dist, name, wrapped)

    def __enter__(self):
        for kind, names in KINDS.items():
            for name in names:
                if hasattr(dist, name):
                    self._wrap(name, kind)
        return self

    def __exit__(self, *_):
        for name, call in self.kept.items():
            setattr(dist, name, call)

    def report(self, since):
        """Returns the spans, in seconds since a time, and how long both kinds were under way at once."""
        spans = {kind: [[a - since, b - since] for a, b in each if b is not None] for kind, each in self.spans.items()}
        both = sum(
            max(0.0, min(a[1], b[1]) - max(a[0], b[0])) for a in union(spans["gather"]) for b in union(spans["scatter"])
        )
        lengths = {f"{kind}_s": sum(b - a for a, b in union(each)) for kind, each in spans.items()}
        called = {kind: {"calls": n, "mib": round(b / 2**20, 2)} for kind, (n, b) in self.called.items() if n}
        return {**lengths, "both_s": both, "spans": spans, "called": called}


def union(spans):
    """Returns spans that do not overlap and cover the same time."""
    found = []
    for a, b in sorted(spans):
        if found and a <= found[-1][1]:
            found[-1][1] = max(b, found[-1][1])
        else:
            found.append([a, b])
    return found


def main():
    args = parse_arguments()
    torch.set_num_threads(1)
    kind = args.system.partition("+")[0]
    if kind == "reducers":
        import reduction.torch  # noqa: F401 registers the backend

    dist.init_process_group("reduction" if kind == "reducers" else "gloo")
    alone = make(args)
    bytes_of = sum(p.numel() * p.element_size() for p in alone.parameters())
    alone = Torch(alone, torch.optim.AdamW(alone.parameters(), lr=1e-3))
    compute = min(train(alone, batch(args, 0))[0] for _ in range(3))
    del alone
    training = prepare(args)
    rows = [train(training, batch(args, step)) for step in range(args.warmup)]
    before = traffic()
    rows += [train(training, batch(args, len(rows) + step)) for step in range(args.steps)]
    sent, got = ((b - a) / args.steps for a, b in zip(before, traffic()))
    with Observer() as seen:
        started = time.monotonic()
        train(training, batch(args, len(rows)))
        dist.barrier()
    print(json.dumps({
        "rank": dist.get_rank(), "seconds": [row[0] for row in rows[args.warmup :]], "compute": compute,
        "losses": [row[1] for row in rows], "bytes": bytes_of, "sent": sent, "got": got,
        **seen.report(started),
    }), flush=True)  # fmt: skip
    dist.barrier()
    os._exit(0)  # threads of gloo may wait for peers that have ended


if __name__ == "__main__":
    main()
