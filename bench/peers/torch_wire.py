#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What people do without reducers to send fewer bytes, over the gloo of torch: one rank of

  bf16  all_reduce of the tensor as bfloat16, a ring that rounds at each hop
  fp8   each rank gets its part of all ranks (all_to_all), sums it in float32, and all get all parts (all_gather), both
        in E4M3 with a bfloat16 scale for each 128 elements: the way of torchft's quantised all-reduce

of a float32 tensor, measured as reduction-bench measures. Prints one line as it does."""

import argparse
import datetime
import json
import statistics
import time

import torch
import torch.distributed as dist

BLOCK, LARGEST = 128, 448.0


def encode(x):
    """float32 (blocks x 128) -> bytes (blocks x 130)."""
    scale = (x.abs().amax(1, keepdim=True) / LARGEST).clamp_min(2.0 ** -126).bfloat16()
    code = (x / scale.float()).clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn)
    return torch.cat([scale.view(torch.uint8), code.view(torch.uint8)], 1)


def decode(data):
    """bytes (blocks x 130) -> float32 (blocks x 128)."""
    return data[:, 2:].view(torch.float8_e4m3fn).float() * data[:, :2].contiguous().view(torch.bfloat16).float()


def reduce_bf16(x, _ranks):
    y = x.bfloat16()
    dist.all_reduce(y)
    return y.float()


def reduce_fp8(x, ranks):
    mine = encode(x.view(-1, BLOCK))
    parts = torch.empty_like(mine)
    dist.all_to_all_single(parts, mine)
    total = decode(parts).view(ranks, -1, BLOCK).sum(0)
    out = torch.empty_like(mine)
    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor  # the old name warns in torch 2.14
    gather(out, encode(total))
    return decode(out).view(-1)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("how", choices=("bf16", "fp8"))
    for name in ("--bytes", "--iters", "--warmup", "--rank", "--ranks"):
        p.add_argument(name, type=int, required=True)
    p.add_argument("--store", required=True, help="empty folder where the ranks meet")
    a = p.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{a.store}/torch", rank=a.rank, world_size=a.ranks,
                            timeout=datetime.timedelta(seconds=120))
    x = torch.full((a.bytes // 4,), float(1 + a.rank))
    reduce, times, out = {"bf16": reduce_bf16, "fp8": reduce_fp8}[a.how], [], None
    for i in range(a.warmup + a.iters):
        dist.barrier()
        begin = time.monotonic()
        out = reduce(x, a.ranks)
        if i >= a.warmup:
            times.append((time.monotonic() - begin) * 1e6)
    want = a.ranks * (a.ranks + 1) / 2
    wrong = int((~torch.isclose(out, torch.tensor(want), rtol=0.08)).sum())
    slowest = torch.tensor(times)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    times = slowest.tolist()
    avg = statistics.fmean(times)
    if a.rank == 0:
        print(json.dumps({
            "system": f"torch-{a.how}", "bytes": a.bytes, "count": a.bytes // 4, "dtype": "float32", "op": "sum",
            "inplace": False, "ranks": a.ranks, "iters": a.iters, "in_flight": 1, "wrong": wrong,
            "time_us": {"avg": avg, "p50": statistics.median(times), "p99": max(times), "min": min(times),
                        "max": max(times)},
            "algbw": a.bytes / avg / 1e3}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
