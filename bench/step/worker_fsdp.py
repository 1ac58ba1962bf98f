# SPDX-License-Identifier: Apache-2.0
"""One rank of bench-fsdp: training steps of FSDP2 on CPUs. step_fsdp.py starts it.

Prints one JSON line: the seconds of each timed step, of a step without other ranks, the losses, and of one more step
how long gathers, scatters, and both of them were under way.
"""

import argparse
import json
import os
import time

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

GATHERS = ("all_gather_single", "all_gather_into_tensor")  # the names since and before torch 2.13
SCATTERS = ("reduce_scatter_single", "reduce_scatter_tensor")
HEADS, TOKENS = 4, 16


def parse_arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--system", required=True)
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


def shard(model, system):
    """Shards each layer. With +async an all-gather is started one layer ahead, and runs beside what follows."""
    kind, _, how = system.partition("+")
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
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


def train(model, optimizer, x):
    """Trains one step. Returns its seconds and its loss."""
    started = time.monotonic()
    optimizer.zero_grad()
    loss = model(x).float().square().mean()
    loss.backward()
    optimizer.step()
    return time.monotonic() - started, loss.item()


class Observer:
    """Notes when gathers and scatters begin and end, while it is entered."""

    def __init__(self):
        self.spans = {"gather": [], "scatter": []}
        self.kept = {}

    def _wrap(self, name, kind):
        call, spans = getattr(dist, name), self.spans[kind]

        def wrapped(*args, **kwargs):
            span = [time.monotonic(), None]
            spans.append(span)
            work = call(*args, **kwargs)
            if work is None:  # it has waited
                span[1] = time.monotonic()
            else:
                work.get_future().then(lambda _: span.__setitem__(1, time.monotonic()))
            return work

        self.kept[name] = call
        setattr(dist, name, wrapped)

    def __enter__(self):
        for names, kind in ((GATHERS, "gather"), (SCATTERS, "scatter")):
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
        return {**lengths, "both_s": both, "spans": spans}


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
    optimizer = torch.optim.AdamW(alone.parameters(), lr=1e-3)
    compute = min(train(alone, optimizer, batch(args, 0))[0] for _ in range(3))
    del alone
    model = make(args)
    shard(model, args.system)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    rows = [train(model, optimizer, batch(args, step)) for step in range(args.warmup + args.steps)]
    with Observer() as seen:
        started = time.monotonic()
        train(model, optimizer, batch(args, len(rows)))
        dist.barrier()
    bytes_of = sum(p.numel() * p.element_size() for p in model.parameters())
    print(json.dumps({
        "rank": dist.get_rank(), "seconds": [row[0] for row in rows[args.warmup :]], "compute": compute,
        "losses": [row[1] for row in rows], "bytes": bytes_of, **seen.report(started),
    }), flush=True)  # fmt: skip
    dist.barrier()
    os._exit(0)  # threads of gloo may wait for peers that have ended


if __name__ == "__main__":
    main()
