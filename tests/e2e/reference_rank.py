# SPDX-License-Identifier: Apache-2.0
"""A rank of test_reference_client.py: reference_rank.py product|reference RANK WORLD SETTINGS. SETTINGS: JSON."""

import asyncio
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


def values(rank, seq, count=COUNT):
    return np.random.default_rng(1000 * seq + rank).integers(-1000, 1000, count).astype(np.float32)


def encoded_sum(parts, op, up, down, random):
    """The result of operation op, of float32, as a reducer computes it in a deterministic job."""

    def contribution(rank, x):
        bits = blocks.random_bits(op, rank, 0, x.size) if random else None
        return blocks.decode(up, blocks.encode(up, x, bits), x.size)

    total, *others = (contribution(rank, x) for rank, x in enumerate(parts))
    for x in others:
        total = total + x
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


def reference(rank, world, settings, n, gates, wire, moves):
    import client
    import protocol
    import vectors

    reducers = [tuple(r) for r in settings.pop("reducers")]
    shares = settings.pop("shares", False)
    if "secret" in settings:
        settings["secret"] = pathlib.Path(settings["secret"]).read_bytes().removesuffix(b"\n")
    weights, lanes = [1] * len(reducers), [r[2] for r in reducers]
    owner = vectors.make_map(weights, vectors.default_shards(weights, lanes))
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

    call(comm.join)
    if moves:
        rounds(rank, world, n, [], lambda *x: all_reduce(*x), lambda x: call(comm.group, x),
               lambda *x: call(comm.broadcast, *x))  # fmt: skip
        rank = world - 1 - rank
        call(comm.reconfigure, rank, world, 1)
    if wire:
        encoded_rounds(rank, world, n, gates, wire, lambda *x: all_reduce(*x, **wire), encoded_group)
    else:
        rounds(rank, world, n, gates, all_reduce, lambda x: call(comm.group, x), lambda *x: call(comm.broadcast, *x))
    if shares and rank == 0:
        assert comm.epoch >= n, comm.epoch
    call(comm.close)


def product(rank, world, n, gates, wire, moves):
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
        if wire:
            encoded_rounds(rank, world, n, gates, wire, all_reduce, lambda tensors, _: group(tensors))
        else:
            rounds(rank, world, n, gates, all_reduce, group, broadcast)


def main():
    kind, rank, world, settings = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4])
    how = [settings.pop(key, None) for key in ("rounds", "gates", "wire", "moves")]
    if kind == "product":
        product(rank, world, *how)
    else:
        reference(rank, world, settings, *how)
    print(json.dumps({"what": "done", "pid": os.getpid()}), flush=True)


if __name__ == "__main__":
    main()
