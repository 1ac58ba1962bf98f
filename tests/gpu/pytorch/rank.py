# SPDX-License-Identifier: Apache-2.0
"""One rank of a training, for one way to sum gradients. It writes what it found to a file of JSON."""

import argparse
import hashlib
import importlib
import json
import os
import statistics
import time

import ddp_transformer as example
import torch
import torch.distributed as dist

import reduction.torch
from reduction import nccl_log

WARM_STEPS = 5  # their time does not count


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--way", required=True, choices=["sockets", "plugin", "hook", "local", "group"])
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--store", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--local", default="nccl")
    parser.add_argument("--module", help="imported first")
    return parser.parse_args()


class Clock:
    """Calls of the hook, and steps."""

    def __init__(self, device):
        self.device = device
        self.calls = []
        self.began = 0.0

    def wait(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def hook(self, state, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        began = time.perf_counter()
        future = reduction.torch.allreduce_hook(state, bucket)
        self.calls.append(time.perf_counter() - began)
        return future

    def step(self, step, loss):
        if step + 1 == WARM_STEPS:
            self.wait()
            self.began = time.perf_counter()
            self.calls.clear()
        if dist.get_rank() == 0 and (step + 1) % 10 == 0:
            print(f"step {step + 1}", flush=True)


def digest(model):
    found = hashlib.sha256()
    for parameter in model.parameters():
        found.update(parameter.detach().cpu().numpy().tobytes())
    return found.hexdigest()


def run(args, device):
    inner = "gloo" if args.cpu else "nccl"
    dist.init_process_group("reduction" if args.way == "group" else inner, init_method=f"file://{args.store}",
                            rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True, warn_only=True)
    model = example.Transformer(args.width, args.layers).to(device)
    model = torch.nn.parallel.DistributedDataParallel(model, device_ids=None if args.cpu else [device],
                                                      bucket_cap_mb=2)
    clock, state = Clock(device), None
    if args.way in ("hook", "local"):
        state = reduction.torch.State(local=args.local if args.way == "local" else None)

        def hook(state, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
            return clock.hook(state, bucket)

        model.register_comm_hook(state, hook)
    loss = example.train(model, args.steps, device, clock.step, args.rows)
    clock.wait()
    seconds = time.perf_counter() - clock.began
    found = {"loss": loss, "rate": (args.steps - WARM_STEPS) / seconds, "digest": digest(model)}
    if clock.calls:
        found["call_us"] = statistics.median(clock.calls) * 1e6
    if state is not None:
        state.close()
        if state.error is not None:
            raise state.error
    if args.way == "group":
        dist.distributed_c10d._get_default_group().shutdown()
    elif not args.cpu:  # torch 1.13's gloo can hang in there
        dist.destroy_process_group()
    if args.way == "plugin":
        with open(nccl_log.own_log(), encoding="utf-8", errors="replace") as file:
            verdict = nccl_log.judge(file.read())
        found.update(used=verdict.used, why=verdict.why)
    return found


def main():
    args = arguments()
    if args.module:
        importlib.import_module(args.module)
    device = torch.device("cpu")
    if not args.cpu:
        device = torch.device("cuda", int(os.environ["RANK"]) % torch.cuda.device_count())
        torch.cuda.set_device(device)
    found = run(args, device)
    with open(f"{args.out}.new", "w", encoding="ascii") as file:
        json.dump(found, file)
    os.replace(f"{args.out}.new", args.out)
    os._exit(0)  # for the same reason


main()
