# SPDX-License-Identifier: Apache-2.0
"""A replica of test_torchft.py. It executes the lines that it reads:

    store                               keeps the store of all replicas, and says its port
    configure ADDRESS NAME RANK WORLD QUORUM
                                        of the process group
    sum      pend      end              an all-reduce: whole, only begun, and the end of that
    collectives                         each kind of operation; all replicas are told so
    errored  abort     shutdown         of the process group
    timeout SECONDS                     set_timeout()

and says after each line what came of it, also how long that took.
"""

import datetime
import json
import sys
import time

import reduction.torchft
import torch
from torch.distributed import ReduceOp
from torch.distributed import distributed_c10d as c10d

SIZE = 300000
group = reduction.torchft.ProcessGroupReduction(timeout=datetime.timedelta(seconds=20))
kept = {}


def whole(*values):
    return torch.tensor(values, dtype=torch.float64)


def options(kind, **fields):
    made = getattr(c10d, kind)()
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def collectives():
    """What torchft's Manager, its transports of checkpoints and DDP call, and what is left."""
    rank, size = group.rank(), group.size()
    ranks = range(size)

    def check(work, result, expected):
        work.wait()
        assert torch.equal(result, expected), (result, expected)

    for op, expected in ((ReduceOp.SUM, sum(r + 1 for r in ranks)), (ReduceOp.MAX, size), (ReduceOp.MIN, 1)):
        x = whole(rank + 1)
        check(group.allreduce([x], op), x, whole(expected))
    x = whole(rank + 1)
    check(group.allreduce([x], options("AllreduceOptions", reduceOp=ReduceOp.AVG)), x, whole((size + 1) / 2))
    x = torch.full((2,), 1 << rank)
    check(group.allreduce([x], ReduceOp.BOR), x, torch.full((2,), (1 << size) - 1))  # by gloo
    x, y = whole(rank), whole(1, 1)
    check(group.allreduce_coalesced([x, y], options("AllreduceCoalescedOptions")), y, whole(size, size))
    assert x == sum(ranks)
    for length in 3, 100000:
        x = torch.full((length,), rank)
        check(group.broadcast_one(x, size - 1), x, torch.full((length,), size - 1))
        found = [torch.empty(length, dtype=torch.int64) for _ in ranks]
        work = group.allgather([found], [torch.full((length,), rank)], options("AllgatherOptions"))
        for r in ranks:
            check(work, found[r], torch.full((length,), r))
        if rank == 0 and size > 1:
            group.send([torch.full((length,), 7)], size - 1, 5).wait()
        elif rank == size - 1 > 0:
            x = torch.empty(length, dtype=torch.int64)
            check(group.recv([x], 0, 5), x, torch.full((length,), 7))
    x = torch.arange(size) + rank * size
    y = torch.empty_like(x)
    work = group.alltoall_base(y, x, [1] * size, [1] * size, c10d.AllToAllOptions())
    check(work, y, torch.arange(size) * size + rank)
    group.barrier(c10d.BarrierOptions()).wait()
    future = group.allreduce([whole(1)], ReduceOp.SUM).get_future().then(lambda done: done.value()[0] / size)
    assert future.wait() == 1


def run(word, args):
    if word == "store":
        kept["store"] = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        return kept["store"].port
    if word == "configure":
        address, name, *numbers = args
        group.configure(address, name, *map(int, numbers))
    elif word == "sum":
        x = torch.full((SIZE,), float(group.rank() + 1))
        group.allreduce([x], ReduceOp.SUM).wait()
        assert (x == x[0]).all()
        return float(x[0])
    elif word == "pend":
        kept["work"] = group.allreduce([torch.ones(SIZE)], ReduceOp.SUM)
        kept["future"] = kept["work"].get_future()
    elif word == "end":
        kept["work"].wait()
    elif word == "collectives":
        collectives()
    elif word == "errored":
        found = group.errored()
        return found and str(found)
    elif word == "timeout":
        group.set_timeout(datetime.timedelta(seconds=float(args[0])))
    else:
        {"abort": group.abort, "shutdown": group.shutdown}[word]()
    return None


for i, line in enumerate(sys.stdin):
    word, *args = line.split()
    began, said = time.monotonic(), {}
    try:
        said["value"] = run(word, args)
    except RuntimeError as exc:
        said["error"] = str(exc)
    print(json.dumps({"what": str(i), "ms": (time.monotonic() - began) * 1000, **said}), flush=True)
