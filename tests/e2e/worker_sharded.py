# SPDX-License-Identifier: Apache-2.0
"""Reduce-scatters and all-gathers against the oracle: worker_sharded.py FUNCTION [gpu]. With gpu the arrays of some
functions are on a fake GPU."""

import os
import sys

import numpy as np
import oracle
from worker import listen, say

import reduction

comm = reduction.Communicator()
rank, n = comm.rank, comm.world_size
CHUNK = 32 << 10  # bytes
PARTIALS = 1 < int(os.environ["LOCAL_WORLD_SIZE"]) < n  # nodes may have rounded their sums
GPU = __import__("fake_gpu").Gpu() if "gpu" in sys.argv else None


def placed(x):
    """Returns x where the arrays are."""
    return x if GPU is None else GPU.array(x)


def values(x):
    return x if GPU is None else x.get()


def part_of(whole, of=rank):
    count = len(whole) // n
    return whole[of * count : (of + 1) * count]


def contributions(dtype, count, style, seed):
    """The parts of all ranks in the contribution of each rank."""
    return [oracle.make(dtype, n * count, style, seed, r) for r in range(n)]


def scatter(dtype, op, count, style, seed, place):
    """One reduce-scatter. place: where the result goes."""
    sent = contributions(dtype, count, style, seed)
    whole, named = sent[rank].copy(), {"dtype": dtype} if dtype == "bfloat16" else {}
    if place == "own part":
        got = comm.reduce_scatter(whole, op, **named)
        assert np.shares_memory(got, whole) or not count
    else:
        out = np.empty(count, whole.dtype) if place == "apart" else whole[count // 2 : count // 2 + count]
        before = whole.copy()
        got = comm.reduce_scatter(whole, op, out=out, **named)
        assert got is out and (place != "apart" or np.array_equal(whole, before, equal_nan=False) or style == "special")
    wrong = oracle.check(dtype, op, style, [part_of(x) for x in sent], got, partials=PARTIALS)
    assert not wrong, f"reduce_scatter of {n} x {count} into {place}: {wrong}"


def gather(dtype, count, style, seed, place):
    """One all-gather, whose result has the bits of the contributions."""
    parts = [oracle.make(dtype, count, style, seed, r) for r in range(n)]
    named, out = {"dtype": dtype} if dtype == "bfloat16" else {}, None
    own = parts[rank].copy()
    if place != "new":
        out = np.zeros(n * count, own.dtype)
    if place == "own part":
        part_of(out)[:] = own
        own = part_of(out)
    elif place == "overlap":
        start = min(3, n * count - count)
        out[start : start + count] = own
        own = out[start : start + count]
    got = comm.all_gather(own, out, **named)
    assert got.tobytes() == b"".join(x.tobytes() for x in parts), f"all_gather of {count} {dtype} into {place}"


def table():
    """All dtypes and operations, sizes around the chunk's, all places of the result."""
    seed = 0
    for dtype in oracle.DTYPES:
        size = oracle.itemsize(dtype)
        for op in oracle.OPS:
            for style in ("exact", "random") if dtype in oracle.FLOATS else ("exact",):
                seed += 1
                scatter(dtype, op, 1000 + seed, style, seed, ("own part", "apart", "overlap")[seed % 3])
        for count in (0, 1, 2, CHUNK // size - 1, CHUNK // size + 1, 3 * CHUNK // size + 7):
            seed += 1
            scatter(dtype, "sum", count, "exact", seed, ("own part", "apart", "overlap")[seed % 3])
            gather(dtype, count, "special", seed, ("own part", "new", "overlap")[seed % 3])
    say("right", operations=seed, can_shard=comm.can_shard)


def mixed():
    """Many operations at once, also all-reduces, of different sizes."""
    pending = []
    for i in range(60):
        count = (1, 100, 9001, 300_001)[i % 4]
        sent = contributions("float32", count, "exact", i)
        parts = [oracle.make("float32", count, "exact", 1000 + i, r) for r in range(n)]
        scattered = comm.reduce_scatter(sent[rank].copy(), async_op=True, priority=None if i % 3 else 0)
        gathered = comm.all_gather(parts[rank], async_op=True)
        summed = comm.all_reduce(parts[rank].copy(), async_op=True)
        pending.append((sent, parts, scattered, gathered, summed))
    for sent, parts, scattered, gathered, summed in reversed(pending):
        assert not oracle.check("float32", "sum", "exact", [part_of(x) for x in sent], scattered.wait())
        assert np.array_equal(gathered.wait(), np.concatenate(parts))
        assert not oracle.check("float32", "sum", "exact", parts, summed.wait())
    say("right")


def refused():
    """All ranks find that the job has no such operations, and it goes on."""
    comm.barrier()
    assert comm.can_shard is False
    for call in (comm.reduce_scatter, comm.all_gather):
        try:
            call(np.zeros(n))
        except reduction.ReductionError as exc:
            assert "equally many in the order of ranks" in str(exc), exc
        else:
            raise AssertionError("it was not refused")
    assert (comm.all_reduce(np.ones(4)) == n).all()
    say("right")


def failover():
    """Operations are in flight on rank 0, and have not begun on the others, when a reducer is killed."""
    comm.barrier()
    for round_ in range(3):
        dtype = "float16" if round_ else "float32"
        count = 700_001
        sent = contributions(dtype, count, "exact", round_)
        parts = [oracle.make(dtype, count, "exact", 1000 + round_, r) for r in range(n)]
        if rank == 0 or round_ != 1:
            requests = start(sent, parts, "prod")
        if round_ == 1:
            say("half way")
            listen()
            if rank != 0:
                requests = start(sent, parts, "prod")
        assert not oracle.check(dtype, "prod", "exact", [part_of(x) for x in sent], values(requests[0].wait()))
        assert np.array_equal(values(requests[1].wait()), np.concatenate(parts))
    say("right")


def start(sent, parts, op="sum"):
    if GPU is None:
        return comm.reduce_scatter(sent[rank].copy(), op, async_op=True), comm.all_gather(parts[rank], async_op=True)
    return (
        comm.reduce_scatter(placed(sent[rank]), op, out=placed(np.zeros_like(parts[rank])), async_op=True),
        comm.all_gather(placed(parts[rank]), placed(np.zeros_like(sent[rank])), async_op=True),
    )


def streaming():
    """Rounds of both operations without a pause, until the test program says so; then some more."""
    round_ = 0
    until = None
    while until is None or round_ < until:
        count = 100_003
        sent = contributions("float32", count, "exact", round_)
        parts = [oracle.make("float32", count, "exact", 1000 + round_, r) for r in range(n)]
        requests = start(sent, parts)
        assert not oracle.check("float32", "sum", "exact", [part_of(x) for x in sent], values(requests[0].wait()))
        assert np.array_equal(values(requests[1].wait()), np.concatenate(parts))
        round_ += 1
        if round_ == 5:
            say("flows")
        if until is None and round_ >= 40:
            until = round_ + 20
    say("right", rounds=round_)


globals()[sys.argv[1]]()
comm.close()
