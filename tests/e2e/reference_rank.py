# SPDX-License-Identifier: Apache-2.0
"""A rank of test_reference_client.py: reference_rank.py product|reference RANK WORLD SETTINGS. SETTINGS: JSON."""

import asyncio
import ctypes
import itertools
import json
import os
import pathlib
import sys
import threading

import numpy as np

# its names must not hide those of the test programs
sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[2] / "proto/python"))
import blocks

COUNT = 30000  # of elements, 8 chunks of 16 KiB
PART = 20000  # of elements of a sharded operation, 5 chunks
GROUP_OF = []  # the group of each rank, if the job has groups


def values(rank, seq, count=COUNT):
    return np.random.default_rng(1000 * seq + rank).integers(-1000, 1000, count).astype(np.float32)


def encoded_sum(parts, op, up, down, random, first=0):
    """The result of operation op, of float32, as a reducer computes it in a deterministic job. first: the index of the
    first element."""
    import protocol

    def contribution(rank, x):
        bits = blocks.random_bits(op, rank, first, x.size) if random else None
        return blocks.decode(up, blocks.encode(up, x, bits), x.size)

    def relayed(x):
        return blocks.decode(up, blocks.encode(up, x), x.size)

    groups, sent = (GROUP_OF, relayed) if GROUP_OF else ([0] * len(parts), np.asarray)
    total = protocol.fold([contribution(rank, x) for rank, x in enumerate(parts)], groups, np.add, sent)
    return blocks.decode(down, blocks.encode(down, total), total.size)


def pad(x):
    return np.pad(x, (0, -x.size % blocks.BLOCK))


def encoded_rounds(rank, world, n, gates, wire, all_reduce, group):
    """Encoded operations, each checked bit by bit: one of a tensor, one of a group, and one of a group that is too
    small to be encoded, but has the zeros between tensors all the same."""
    up, down, random = *(blocks.WIRES.index(wire[key]) for key in ("up", "down")), wire["random"]
    place = pad if max(up, down) > blocks.BF16 else np.asarray
    for seq in range(n):
        wait_at_gate(rank, seq, gates)
        parts = [values(r, seq) * np.float32(0.37) for r in range(world)]
        want = encoded_sum(parts, 3 * seq, up, down, random)
        assert all_reduce(parts[rank], "w").tobytes() == want.tobytes(), f"round {seq}"
        for i, count in ((1, 5000), (2, 50)):
            names = "abcd"
            parts = [[values(r, seq, count + k) * np.float32(0.11) for k in range(len(names))] for r in range(world)]
            wires = (up, down, random) if count > 50 else (0, 0, False)
            flat = [np.concatenate([place(x) for x in tensors]) for tensors in parts]
            want, at = encoded_sum(flat, 3 * seq + i, *wires), 0
            for x in group(list(zip(names, parts[rank])), count > 50):
                assert x.tobytes() == want[at : at + x.size].tobytes(), f"group {i} of round {seq}"
                at += place(x).size


def wait_at_gate(rank, seq, gates):
    if rank == 0 and seq in gates:
        print(json.dumps({"what": "gate", "round": seq}), flush=True)
        sys.stdin.readline()


def rounds(rank, world, n, gates, all_reduce, group, broadcast):
    """Operations of all kinds, each checked against the sum that numpy computes."""
    for seq in range(n):
        wait_at_gate(rank, seq, gates)
        want = sum(values(r, seq) for r in range(world))
        assert (all_reduce(values(rank, seq), f"layer{seq % 3}") == want).all(), f"round {seq}"
        parts = group([("a", np.full(5, rank, np.int32)), ("b", np.full((3, 2), seq, np.int32))])
        assert (parts[0] == sum(range(world))).all() and (parts[1] == world * seq).all(), f"group of round {seq}"
        root = seq % world
        assert (broadcast(values(rank, seq)[:77], root) == values(root, seq)[:77]).all(), f"broadcast of round {seq}"


def sharded_rounds(rank, world, n, gates, flying, start):
    """Reduce-scatters and all-gathers that run at the same time. flying: rounds that rank 0 announces while they run.
    start(what, array, op): starts one of them, and returns a function that waits for its result."""
    for seq in range(n):
        wait_at_gate(rank, seq, gates)
        op, count = ("sum", "max", "min")[seq % 3], PART if seq % 4 < 3 else (3, 0)[seq % 8 // 4]
        every = [values(r, seq, world * count) for r in range(world)]
        parts = [values(r, seq + 1000, count) for r in range(world)]
        scatter, gather = start("reduce_scatter", every[rank], op), start("all_gather", parts[rank], "sum")
        if rank == 0 and seq in flying:
            print(json.dumps({"what": "gate", "round": seq}), flush=True)
        total = {"sum": np.sum, "max": np.max, "min": np.min}[op](every, axis=0)
        assert (gather() == np.concatenate(parts)).all(), f"all-gather of round {seq}"
        assert (scatter() == np.split(total, world)[rank]).all(), f"reduce-scatter of round {seq}"


def encoded_sharded_rounds(rank, world, n, gates, flying, wire, start):
    """Encoded reduce-scatters, checked bit by bit: blocks begin anew in each part."""
    up, down, random = *(blocks.WIRES.index(wire[key]) for key in ("up", "down")), wire["random"]
    for seq in range(n):
        wait_at_gate(rank, seq, gates)
        every = [values(r, seq, world * PART) * np.float32(0.37) for r in range(world)]
        wait = start("reduce_scatter", every[rank], "sum")
        if rank == 0 and seq in flying:
            print(json.dumps({"what": "gate", "round": seq}), flush=True)
        mine = slice(rank * PART, (rank + 1) * PART)
        want = encoded_sum([x[mine] for x in every], seq, up, down, random, rank * PART)
        assert wait().tobytes() == want.tobytes(), f"round {seq}"


def deal_relays(owner, relays):
    """The relay of each shard for a group with this list."""
    turn = itertools.cycle(relays)
    return [0xFFFF if home in relays else next(turn) for home in owner]


def reference(rank, world, settings, n, gates, wire, moves, flying):
    import client
    import protocol
    import vectors

    reducers = [tuple(r) for r in settings.pop("reducers")]
    shares = settings.pop("shares", False)
    if "secret" in settings:
        settings["secret"] = pathlib.Path(settings["secret"]).read_bytes().removesuffix(b"\n")
    weights, lanes = [1] * len(reducers), [r[2] for r in reducers]
    owner = vectors.make_map(weights, vectors.default_shards(weights, lanes))
    if relays := settings.pop("relays", []):  # the names of groups, and which reducers relay for each
        settings["groups"] = [(name, deal_relays(owner, of)) for name, of in relays]
        settings["group"] = GROUP_OF[rank]
    comm = client.Communicator(settings.pop("job"), rank, world, reducers, owner, **settings)
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()

    def call(function, *args):
        async def result():
            return await function(*args)

        return asyncio.run_coroutine_threadsafe(result(), loop).result()

    async def reshared(array, name, **wire):
        """An operation during which rank 0 sets other shares."""
        result = comm.all_reduce(array, "sum", protocol.name_hash(name), **wire)
        while shares and rank == 0 and not comm.error and not comm.set_shares([1 + comm.epoch % 5, 3]):
            await asyncio.sleep(0.005)
        return await result

    def all_reduce(array, name, **wire):
        return call(lambda: reshared(array, name, **wire))

    def encoded_group(tensors, encoded):
        block = 1 if max(map(blocks.WIRES.index, (wire["up"], wire["down"]))) < blocks.FP8 else blocks.BLOCK
        return call(lambda: comm.group(tensors, block=block, **(wire if encoded else {})))

    def start(what, array, op):
        async def begin():
            given = {"op": op, **(wire or {})} if what == "reduce_scatter" else {}
            return asyncio.ensure_future(getattr(comm, what)(array, **given))

        task = call(begin)
        return lambda: call(lambda: task)

    call(comm.join)
    if moves:
        rounds(rank, world, n, [], lambda *x: all_reduce(*x), lambda x: call(comm.group, x),
               lambda *x: call(comm.broadcast, *x))  # fmt: skip
        rank = world - 1 - rank
        call(comm.reconfigure, rank, world, 1)
    if flying is not None:
        run_sharded(rank, world, n, gates, flying, wire, start)
    elif wire:
        encoded_rounds(rank, world, n, gates, wire, lambda *x: all_reduce(*x, **wire), encoded_group)
    else:
        rounds(rank, world, n, gates, all_reduce, lambda x: call(comm.group, x), lambda *x: call(comm.broadcast, *x))
    if shares and rank == 0:
        assert comm.epoch >= n, comm.epoch
    assert not relays or any(comm.relayed), "no shard has a relay"
    call(comm.close)


def run_sharded(rank, world, n, gates, flying, wire, start):
    if wire:
        encoded_sharded_rounds(rank, world, n, gates, flying, wire, start)
    else:
        sharded_rounds(rank, world, n, gates, flying, start)


def start_product(comm, what, array, op):
    """Calls the C functions of libreduction."""
    lib, request = comm._lib, ctypes.c_void_p()
    count = array.size // comm.world_size if what == "reduce_scatter" else array.size
    result = np.empty(count if what == "reduce_scatter" else array.size * comm.world_size, np.float32)
    ops = [ctypes.c_int({"sum": 0, "max": 2, "min": 3}[op])] if what == "reduce_scatter" else []
    begin = getattr(lib, f"reduction_{what}_async")
    status = begin(ctypes.c_void_p(comm._usable()), array.ctypes.data_as(ctypes.c_void_p),
                   result.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(count), ctypes.c_int(7), *ops, None,
                   ctypes.byref(request), None)  # fmt: skip
    assert status == 0, f"{what}: {status}"

    def wait(array=array):  # which must live until then
        status = lib.reduction_wait(request, -1, None)
        assert status == 0, f"{what}: {status}"
        return result

    return wait


def product(rank, world, n, gates, wire, moves, flying):
    import reduction

    with reduction.Communicator() as comm:

        def group(tensors):
            return comm.all_reduce_coalesced([array for _, array in tensors], names=[name for name, _ in tensors])

        def broadcast(array, root):
            comm.broadcast(array, root)
            return array

        def all_reduce(array, name):
            return comm.all_reduce(array, name=name)

        if moves:
            rounds(rank, world, n, [], all_reduce, lambda tensors: group(tensors), broadcast)
            rank = world - 1 - rank
            comm.reconfigure(rank, world, 1)
        if flying is not None:
            run_sharded(rank, world, n, gates, flying, wire, lambda *x: start_product(comm, *x))
        elif wire:
            encoded_rounds(rank, world, n, gates, wire, all_reduce, lambda tensors, _: group(tensors))
        else:
            rounds(rank, world, n, gates, all_reduce, group, broadcast)


def main():
    kind, rank, world, settings = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4])
    GROUP_OF.extend(settings.pop("group_of", None) or [])
    how = [settings.pop(key, None) for key in ("rounds", "gates", "wire", "moves", "flying")]
    if kind == "product":
        product(rank, world, *how)
    else:
        reference(rank, world, settings, *how)
    print(json.dumps({"what": "done", "pid": os.getpid()}), flush=True)


if __name__ == "__main__":
    main()
