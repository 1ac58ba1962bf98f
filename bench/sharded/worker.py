#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""One rank of bench/sharded/bench.py: times reduce-scatters and all-gathers of float32. Rank and world size are in the
variables of torchrun. Prints one JSON line: the times of each call in seconds, and whether the results are right.

Values are small whole numbers, so that sums are exact in every order."""

import argparse
import ctypes
import json
import os
import sys
import time

import numpy


class Reducers:
    """libreduction itself, without the Python package: the time is that of the library."""

    def __init__(self):
        from reduction import _lib

        self.lib = ctypes.CDLL(os.environ["REDUCTION_LIBRARY"])
        self.comm = ctypes.c_void_p()
        self.error = ctypes.create_string_buffer(4096)
        options = _lib.Options(
            ctypes.sizeof(_lib.Options), None, None, None, 0, None, -1, -1, -1, -1, -1, -1, None, None
        )
        self.check(self.lib.reduction_open(ctypes.byref(self.comm), ctypes.byref(options), self.error))

    def check(self, status):
        if status:
            sys.exit(f"status {status}: {self.error.raw[4:].split(bytes(1))[0].decode()}")

    @staticmethod
    def pointer(array):
        return ctypes.c_void_p(array.ctypes.data)

    def scatter(self, send, recv):
        request = ctypes.c_void_p()
        self.check(self.lib.reduction_reduce_scatter_async(
            self.comm, self.pointer(send), self.pointer(recv), ctypes.c_size_t(recv.size), 7, 0, None,
            ctypes.byref(request), self.error))  # fmt: skip
        return request

    def gather(self, send, recv):
        request = ctypes.c_void_p()
        self.check(self.lib.reduction_all_gather_async(
            self.comm, self.pointer(send), self.pointer(recv), ctypes.c_size_t(send.size), 7, None,
            ctypes.byref(request), self.error))  # fmt: skip
        return request

    def all_reduce(self, send, recv):
        request = ctypes.c_void_p()
        self.check(self.lib.reduction_all_reduce_async(
            self.comm, self.pointer(send), self.pointer(recv), ctypes.c_size_t(send.size), 7, 0, None,
            ctypes.byref(request), self.error))  # fmt: skip
        return request

    def wait(self, request):
        self.check(self.lib.reduction_wait(request, -1, self.error))

    def barrier(self):
        self.check(self.lib.reduction_barrier(self.comm, self.error))

    def close(self):
        self.check(self.lib.reduction_close(self.comm, self.error))


class Gloo:
    """torch's gloo: a group for each kind of operation, so that both go on at the same time; or one for both."""

    def __init__(self, groups=2):
        import torch
        import torch.distributed as dist

        torch.set_num_threads(1)
        dist.init_process_group("gloo")
        self.torch, self.dist = torch, dist
        self.other = dist.new_group(backend="gloo") if groups == 2 else None

    def scatter(self, send, recv):
        return self.dist.reduce_scatter_tensor(self.torch.from_numpy(recv), self.torch.from_numpy(send), async_op=True)

    def gather(self, send, recv):
        return self.dist.all_gather_into_tensor(
            self.torch.from_numpy(recv), self.torch.from_numpy(send), group=self.other, async_op=True
        )

    def all_reduce(self, send, recv):
        recv[:] = send
        return self.dist.all_reduce(self.torch.from_numpy(recv), async_op=True)

    @staticmethod
    def wait(work):
        work.wait()

    def barrier(self):
        self.dist.barrier()

    def close(self):
        self.dist.destroy_process_group()


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--system", choices=["reducers", "gloo", "gloo-one"], required=True)
    p.add_argument("--what", choices=["scatter", "gather", "both", "all-reduce"], required=True)
    p.add_argument("--bytes", type=int, required=True, help="of all parts")
    p.add_argument("--iters", type=int, required=True)
    args = p.parse_args()
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    own = args.bytes // 4 // world
    grads = (numpy.arange(own * world, dtype=numpy.float32) % 509) + rank
    part, full = numpy.full(own, rank + 1, numpy.float32), numpy.zeros(own * world, numpy.float32)
    sums = numpy.zeros(own, numpy.float32)
    system = {"reducers": Reducers, "gloo": Gloo, "gloo-one": lambda: Gloo(1)}[args.system]()
    times = []
    for i in range(args.iters + 1):
        system.barrier()
        start = time.perf_counter()
        works = [system.scatter(grads, sums)] if args.what in ("scatter", "both") else []
        works += [system.gather(part, full)] if args.what in ("gather", "both") else []
        works += [system.all_reduce(grads, full)] if args.what == "all-reduce" else []
        for work in works:
            system.wait(work)
        if i:
            times.append(time.perf_counter() - start)
    want = (numpy.arange(own * world, dtype=numpy.float32) % 509) * world + world * (world - 1) // 2
    right = args.what not in ("scatter", "both") or bool((sums == want[rank * own : (rank + 1) * own]).all())
    right &= args.what not in ("gather", "both") or bool((full == numpy.repeat(numpy.arange(1, world + 1), own)).all())
    right &= args.what != "all-reduce" or bool((full == want).all())
    system.close()
    print(json.dumps({"rank": rank, "times": times, "right": right}), flush=True)


if __name__ == "__main__":
    main()
