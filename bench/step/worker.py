# SPDX-License-Identifier: Apache-2.0
"""One rank of bench-step: a DistributedDataParallel model whose gradients have a given size. step.py starts it.

Prints one JSON line: the seconds of each timed step, and of a step without all-reduce (DDP's no_sync).
"""

import argparse
import json
import os
import time

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

WIDTH = 1024  # a layer has WIDTH x WIDTH weights and no bias: 4 MiB of float32
LAYER_MIB = 4


def parse_arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--system", required=True)
    p.add_argument("--mib", type=int, required=True, help=f"MiB of gradients, a multiple of {LAYER_MIB}")
    p.add_argument("--batch", type=int, default=4, help="rows of the input of a step (default 4)")
    p.add_argument("--steps", type=int, default=5, help="timed steps (default 5)")
    p.add_argument("--warmup", type=int, default=2, help="warm-up steps before them (default 2)")
    return p.parse_args()


def register(model, system):
    """Registers the system's communication hook; returns what must be closed at the end, or None."""
    if system in ("gloo+fp16", "group+fp16"):
        model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    if not system.startswith("reducers"):
        return None
    import reduction.torch

    state, hook = reduction.torch.State(), reduction.torch.allreduce_hook
    if system == "reducers+fp16":
        hook = default_hooks.fp16_compress_wrapper(hook)
    model.register_comm_hook(state, hook)
    return state


def step(model, optimizer, data):
    """Seconds of one whole training step."""
    started = time.monotonic()
    optimizer.zero_grad(set_to_none=False)
    model(data).square().mean().backward()
    optimizer.step()
    return time.monotonic() - started


def main():
    args = parse_arguments()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    if args.system.startswith("group"):
        import reduction.torch  # noqa: F401 registers the backend

    dist.init_process_group("reduction" if args.system.startswith("group") else "gloo")
    layers = [torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(args.mib // LAYER_MIB)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers))
    state = register(model, args.system)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    data = torch.randn(args.batch, WIDTH)
    for _ in range(args.warmup):
        step(model, optimizer, data)
    seconds = [step(model, optimizer, data) for _ in range(args.steps)]
    with model.no_sync():
        compute = min(step(model, optimizer, data) for _ in range(3))
    print(json.dumps({"rank": dist.get_rank(), "seconds": seconds, "compute": compute}), flush=True)
    dist.barrier()
    if state:
        state.close()
    os._exit(0)  # threads of gloo may wait for peers that have ended


if __name__ == "__main__":
    main()
