#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what PyTorch's call costs over that of the C API: a small all-reduce of two ranks on this machine.

    c      reduction_all_reduce_tensor_async() and reduction_wait() of the C API, with arguments made before
    comm   Communicator.all_reduce() of the Python package
    dist   torch.distributed.all_reduce() with the backend `reduction`
    gloo   the same with gloo

All of them are called in turn in the same processes, and c, comm and dist use the same communicator. In the mode
direct the sums are made by a reducer, in the mode node in shared memory. Prints one JSON line for each mode:
microseconds of a call, the median and quartiles; overhead: the median of dist less that of c, in each turn (median,
quartiles).
"""

import argparse
import ctypes
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import daemon

ROOT = pathlib.Path(__file__).resolve().parents[1]
RANKS, LIMIT_S = 2, 300
KINDS = ("c", "comm", "dist", "gloo")


def parse_arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", type=pathlib.Path, default="build/default", help="folder of the build (%(default)s)")
    p.add_argument("--bytes", type=int, default=4096, help="size of an all-reduce, a multiple of 4 (%(default)s)")
    p.add_argument("--calls", type=int, default=300, help="calls of each kind in a turn (%(default)s)")
    p.add_argument("--turns", type=int, default=20, help="turns (%(default)s)")
    p.add_argument("--modes", default="direct,node", help="modes to measure (%(default)s)")
    p.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    args = p.parse_args()
    args.build = args.build.resolve()
    return args


def quartiles(samples):
    return [round(x, 1) for x in statistics.quantiles(samples, n=4)]


def c_call(comm, x):
    """Returns a function that makes the C API's call for a tensor."""
    from reduction import _buffers, _lib

    lib, (tensor, _, _) = _lib.load(), _buffers.tensor(x, "sum", None, None, None, None)
    request, err = ctypes.c_void_p(), _lib.Error()
    arguments = (comm._handle, ctypes.byref(tensor), ctypes.byref(request), ctypes.byref(err))

    def call():
        if lib.reduction_all_reduce_tensor_async(*arguments) or lib.reduction_wait(request, -1, arguments[3]):
            sys.exit(err.message.decode())

    return call


def timed(call, calls):
    samples = []
    for _ in range(calls):
        started = time.perf_counter()
        call()
        samples.append((time.perf_counter() - started) * 1e6)
    return samples


def worker(args):
    import torch
    import torch.distributed as dist

    import reduction.torch

    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    dist.init_process_group("reduction", store=dist.FileStore(os.environ["STORE"], RANKS), rank=rank, world_size=RANKS)
    gloo = dist.new_group(backend="gloo")
    x = torch.zeros(args.bytes // 4)
    comm = reduction.torch.communicator()
    calls = dict(zip(KINDS, (
        c_call(comm, x), lambda: comm.all_reduce(x), lambda: dist.all_reduce(x), lambda: dist.all_reduce(x, group=gloo)
    )))  # fmt: skip
    samples, overheads = {kind: [] for kind in KINDS}, []
    for turn in range(args.turns + 1):
        found = {kind: timed(call, args.calls) for kind, call in calls.items()}
        if turn == 0:
            continue  # to warm up
        for kind in KINDS:
            samples[kind] += found[kind]
        overheads.append(statistics.median(found["dist"]) - statistics.median(found["c"]))
    if rank == 0:
        row = {kind: quartiles(samples[kind]) for kind in KINDS}
        overhead = quartiles(overheads)
        print(json.dumps({"mode": os.environ["REDUCTION_MODE"], "bytes": args.bytes, "calls": len(samples["c"]),
                          **{f"{kind}_us": found[1] for kind, found in row.items()},
                          **{f"{kind}_us_quartiles": found[::2] for kind, found in row.items()},
                          "overhead_us": overhead[1], "overhead_us_quartiles": overhead[::2],
                          "load": os.getloadavg()[0]}), flush=True)  # fmt: skip
    dist.barrier()
    os._exit(0)  # threads of gloo may wait for peers that have ended


def measure(mode, args):
    with tempfile.TemporaryDirectory(prefix="bench-call-") as folder, daemon.Daemon(
        [args.build / "bin/reduction-server", "--listen", "127.0.0.1:0"], f"{folder}/log"
    ) as reducer:
        config = pathlib.Path(folder) / "job.yaml"
        reducers = [{"id": "r0", "address": reducer.address}]
        config.write_text(json.dumps({"job": {"name": "bench-call"}, "reducers": reducers}))
        env = {
            **os.environ, "WORLD_SIZE": str(RANKS), "LOCAL_WORLD_SIZE": str(RANKS), "STORE": f"{folder}/store",
            "REDUCTION_MODE": mode, "REDUCTION_CONFIG": str(config), "PYTHONPATH": str(ROOT / "agent/python"),
            "REDUCTION_LIBRARY": str(args.build / "lib/libreduction.so.0"), "REDUCTION_LOG": "error",
        }  # fmt: skip
        ranks = [
            subprocess.Popen([sys.executable, __file__, *sys.argv[1:], "--worker"],
                             env={**env, "RANK": str(rank), "LOCAL_RANK": str(rank)})
            for rank in range(RANKS)
        ]  # fmt: skip
        try:
            if any([p.wait(LIMIT_S) for p in ranks]):
                sys.exit(f"mode {mode}: a rank has failed")
        finally:
            for p in ranks:
                p.kill()


def main():
    args = parse_arguments()
    if args.worker:
        return worker(args)
    for mode in args.modes.split(","):
        measure(mode, args)


if __name__ == "__main__":
    main()
