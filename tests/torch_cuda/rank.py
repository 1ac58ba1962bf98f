# SPDX-License-Identifier: Apache-2.0
"""A rank with PyTorch's CUDA tensors on the fake CUDA: rank.py PROGRAM. The environment has FAKE_* of fake.h, and
BREAK=record_stream: torch then does not learn that other streams use a tensor's memory; NCCL=off: torch has no NCCL, so
gloo serves what the reducers cannot do. The programs use the names of this file; done() prints the checks whose values
were wrong."""

import datetime
import json
import os
import sys
import time

import kernels
import torch
import torch.distributed as dist

kernels.install()
if os.environ.get("BREAK") == "record_stream":
    torch.Tensor.record_stream = lambda tensor, stream: None
if os.environ.get("NCCL") == "off":
    dist.is_nccl_available = lambda: False

import reduction.torch  # noqa: E402

rank, n = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
wrong = []


def init(backend="reduction", **options):
    options.setdefault("timeout", datetime.timedelta(seconds=300))
    store = dist.FileStore(os.environ.get("STORE", "store"), n)
    dist.init_process_group(backend, store=store, rank=rank, world_size=n, **options)


def check(what, found, want):
    """Compares a CUDA tensor, on the current stream, with a CPU tensor."""
    if not torch.equal(found.cpu(), want):
        wrong.append(str(what))


def raises(kind, text, call, *args, **kwargs):
    """Checks that a call raises an error of this kind that has this text."""
    try:
        call(*args, **kwargs)
    except kind as exc:
        if text not in str(exc):
            raise
        return
    raise AssertionError(f"no {kind.__name__} was raised")


def done():
    kernels.check()
    print(json.dumps({"torch": torch.__version__, "wrong": wrong}), flush=True)


if __name__ == "__main__":
    exec(compile(sys.argv[1], "program", "exec"))
