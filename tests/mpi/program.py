# SPDX-License-Identifier: Apache-2.0
"""An mpi4py program that checks every element of its all-reduces and broadcasts. Rank 0 prints "begun" and "ok".

    program.py                all types, operations, sizes and communicators
    program.py loop SECONDS   all-reduces of 1 MiB; rank 0 prints each round
"""

import itertools
import sys
import time

import numpy
from mpi4py import MPI

LARGE = 100_003
TYPES = ("float32", "float64", "int8", "uint8", "int32", "uint32", "int64", "uint64", "complex64", "complex128")
OPS = {"sum": (MPI.SUM, numpy.sum), "prod": (MPI.PROD, numpy.prod), "min": (MPI.MIN, numpy.min),
       "max": (MPI.MAX, numpy.max)}  # fmt: skip

def value(rank, n, dtype):
    """What a rank contributes: small enough for products in 8 bits."""
    return (1 + (rank * 7 + numpy.arange(n) * 3) % 2).astype(dtype)

def check(comm, dtype, name, n, in_place, pending):
    op, fold = OPS[name]
    send, recv = value(comm.rank, n, dtype), numpy.zeros(n, dtype)
    if in_place:
        recv[:], send = send, MPI.IN_PLACE
    if pending:
        comm.Iallreduce(send, recv, op).Wait()
    else:
        comm.Allreduce(send, recv, op)
    expected = fold(numpy.stack([value(r, n, dtype) for r in range(comm.size)]), axis=0)
    assert numpy.array_equal(recv, expected), (dtype, name, n, in_place, pending, recv, expected)

def loop(world, seconds):
    """Returns how many all-reduces were right."""
    end, go, checks = time.monotonic() + seconds, True, 0
    while go:
        check(world, "float32", "sum", 1 << 18, False, checks % 2 == 1)
        if world.rank == 0:
            print("round", checks, flush=True)
        checks += 1
        go = world.bcast(time.monotonic() < end)
    return checks

def table(world):
    """Returns how many all-reduces were right."""
    checks = 0
    half = world.Split(world.rank % 2, -world.rank)
    for comm, n in itertools.product((world, half, MPI.COMM_SELF), (10, LARGE)):
        for dtype, name, in_place, pending in itertools.product(TYPES, OPS, (False, True), (False, True)):
            if name == "sum" or "complex" not in dtype:
                check(comm, dtype, name, n, in_place, pending)
                checks += 1
        for root in range(comm.size):
            data = numpy.arange(n, dtype="float64") * (comm.rank == root)
            comm.Bcast(data, root)
            assert numpy.array_equal(data, numpy.arange(n)), (comm.size, n, root)
    objects = world.allreduce([world.rank])
    assert objects == list(range(world.size)), objects
    half.Free()
    return checks

def main():
    world = MPI.COMM_WORLD
    world.Barrier()
    if world.rank == 0:
        print("begun", MPI.Get_library_version().split("\n")[0][:60], flush=True)
    checks = loop(world, float(sys.argv[2])) if sys.argv[1:2] == ["loop"] else table(world)
    world.Barrier()
    if world.rank == 0:
        print(f"ok {checks} checks", flush=True)
    return 0

if __name__ == "__main__":
    sys.exit(main())
