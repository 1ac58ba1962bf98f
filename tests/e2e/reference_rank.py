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
COUNT = 30000  # of elements, 8 chunks of 16 KiB


def values(rank, seq):
    return np.random.default_rng(1000 * seq + rank).integers(-1000, 1000, COUNT).astype(np.float32)


def rounds(rank, world, n, gates, all_reduce, group, broadcast):
    """Operations of all kinds, each checked against the sum that numpy computes."""
    for seq in range(n):
        if rank == 0 and seq in gates:
            print(json.dumps({"what": "gate", "round": seq}), flush=True)
            sys.stdin.readline()
        want = sum(values(r, seq) for r in range(world))
        assert (all_reduce(values(rank, seq), f"layer{seq % 3}") == want).all(), f"round {seq}"
        parts = group([("a", np.full(5, rank, np.int32)), ("b", np.full((3, 2), seq, np.int32))])
        assert (parts[0] == sum(range(world))).all() and (parts[1] == world * seq).all(), f"group of round {seq}"
        root = seq % world
        assert (broadcast(values(rank, seq)[:77], root) == values(root, seq)[:77]).all(), f"broadcast of round {seq}"


def reference(rank, world, settings, n, gates):
    import client
    import protocol
    import vectors

    reducers = [tuple(r) for r in settings.pop("reducers")]
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

    def all_reduce(array, name):
        return call(comm.all_reduce, array, "sum", protocol.name_hash(name))

    call(comm.join)
    rounds(rank, world, n, gates, all_reduce, lambda x: call(comm.group, x), lambda *x: call(comm.broadcast, *x))
    call(comm.close)


def product(rank, world, n, gates):
    import reduction

    with reduction.Communicator() as comm:

        def group(tensors):
            return comm.all_reduce_coalesced([array for _, array in tensors], names=[name for name, _ in tensors])

        def broadcast(array, root):
            comm.broadcast(array, root)
            return array

        rounds(rank, world, n, gates, lambda x, name: comm.all_reduce(x, name=name), group, broadcast)


def main():
    kind, rank, world, settings = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4])
    n, gates = settings.pop("rounds"), settings.pop("gates", [])
    if kind == "product":
        product(rank, world, n, gates)
    else:
        reference(rank, world, settings, n, gates)
    print(json.dumps({"what": "done", "pid": os.getpid()}), flush=True)


if __name__ == "__main__":
    main()
