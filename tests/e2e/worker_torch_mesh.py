# SPDX-License-Identifier: Apache-2.0
"""The ranks of the tests of what needs no connection between ranks, and of what does: worker_torch_mesh.py FUNCTION.

GLOO_SOCKET_IFNAME names a network card that is not there, so gloo cannot connect the ranks.
"""

import datetime
import os
import struct
import sys
import types

import torch
import torch.distributed as dist
import worker
import worker_torch_group as base
from worker_torch_group import raises

import reduction
from reduction import torch_mesh, torch_place
from reduction.torch_group import HAS_BACKEND

rank, n = base.rank, base.n
CARD = os.environ.get("GLOO_SOCKET_IFNAME", "")
BITS = (b"\x00\x00\x00\x80", b"\x01\x00\xc0\x7f", b"\xff\xff\xff\xff", b"\x01\x00\x00\x00")  # -0.0, NaNs, a denormal


def odd_numbers(offset):
    """Numbers whose bits a sum of floats does not keep."""
    return torch.tensor([x for i in range(4) for x in struct.unpack("i", BITS[(i + offset) % 4])],
                        dtype=torch.int32).view(torch.float32)  # fmt: skip


def same_bits(found, expected):
    assert found.view(torch.int32).tolist() == expected.view(torch.int32).tolist(), (found, expected)


def steps(group):
    """DDP on each rank's part of a batch, against the whole batch on one rank."""
    torch.manual_seed(rank)  # DDP's constructor takes the parameters of rank 0 to the others
    net = torch.nn.Sequential(torch.nn.Linear(20, 30), torch.nn.BatchNorm1d(30), torch.nn.Linear(30, 5))
    torch.manual_seed(0)
    alone = torch.nn.Sequential(torch.nn.Linear(20, 30), torch.nn.BatchNorm1d(30), torch.nn.Linear(30, 5)).eval()
    model = torch.nn.parallel.DistributedDataParallel(net.eval(), process_group=group)
    whole, optimizers = torch.randn(4 * n, 20), [torch.optim.SGD(x.parameters(), 0.1) for x in (model, alone)]
    for _ in range(3):
        for optimizer, x, batch in zip(optimizers, (model, alone), (whole[4 * rank : 4 * rank + 4], whole)):
            optimizer.zero_grad()
            x(batch).square().mean().backward()
            optimizer.step()
    for ours, expected in zip(net.parameters(), alone.parameters()):
        assert torch.allclose(ours, expected, atol=1e-5), (ours, expected)


def gathers(group):
    """Gathers and scatters keep all bits, of dtypes and forms of all kinds."""
    everyone = [odd_numbers(i) for i in range(n)]
    out = [torch.empty(4) for _ in range(n)]
    dist.all_gather(out, everyone[rank], group=group)
    for found, expected in zip(out, everyone):
        same_bits(found, expected)
    out = [torch.empty(4) for _ in range(n)] if rank == 1 else None
    dist.gather(everyone[rank], out, 1, group=group)
    for found, expected in zip(out or [], everyone):
        same_bits(found, expected)
    out = torch.empty(4)
    dist.scatter(out, everyone if rank == 1 else None, 1, group=group)
    same_bits(out, everyone[rank])
    out = odd_numbers(0) if rank == 0 else torch.empty(4)
    dist.broadcast(out, 0, group=group)
    same_bits(out, everyone[0])
    for x in (torch.ones(0), torch.tensor(3.5), torch.ones(3, 5).T * rank, torch.tensor([True, False, True]),
              torch.ones(7, dtype=torch.int16), torch.ones(3, dtype=torch.complex128) * 2j):  # fmt: skip
        out = [torch.empty_like(x) for _ in range(n)]
        work = dist.all_gather(out, x, group=group, async_op=True)
        assert work.wait()
        wants = [x * i if x.dim() == 2 else x for i in range(n)] if rank else None
        assert wants is None or x.dim() == 2 or all(map(torch.equal, out, wants)), (out, wants)
        assert x.dim() != 2 or all(torch.equal(found, torch.ones(5, 3) * i) for i, found in enumerate(out)), out
    raises(ValueError, f"one of {n} was expected", dist.all_gather, out[:1], x, group=group)


def objects(group):
    """Collectives of objects. Some are large."""
    mine = {"rank": rank, "text": "x" * 200_000}
    out = [None] * n
    dist.all_gather_object(out, mine, group=group)
    assert [x["rank"] for x in out] == list(range(n)) and out[rank] == mine
    out = [None] * n if rank == 0 else None
    dist.gather_object({"rank": rank}, out, 0, group=group)
    assert rank or out == [{"rank": i} for i in range(n)], out
    out = [rank, mine if rank == 1 else None]
    dist.broadcast_object_list(out, 1, group=group)
    assert out[0] == 1 and out[1]["rank"] == 1
    out = [None]
    dist.scatter_object_list(out, [{"to": i} for i in range(n)] if rank == 0 else None, 0, group=group)
    assert out == [{"to": rank}], out


def messages(group):
    """Messages between ranks: several tags, any source, a send before the other rank does anything."""
    there, back = (rank + 1) % n, (rank - 1) % n
    sent = [dist.isend(torch.full((4,), float(10 * rank + tag)), there, group=group, tag=tag) for tag in (0, 1, 1)]
    dist.barrier(group)  # nobody has called recv
    out = [torch.empty(4) for _ in range(3)]
    pending = [dist.irecv(out[i], back, group=group, tag=tag) for i, tag in ((1, 1), (2, 1), (0, 0))]
    for work in (*reversed(pending), *sent):
        work.wait()
    assert [x[0].item() for x in out] == [10.0 * back, 10.0 * back + 1, 10.0 * back + 1], out
    if rank:
        dist.isend(torch.tensor([float(rank)]), 0, group=group)
    else:
        found = []
        for _ in range(1, n):
            x = torch.empty(1)
            if HAS_BACKEND:  # then torch cannot ask who has sent
                dist.irecv(x, group=group).wait()
            else:
                assert dist.recv(x, group=group) == x.item(), x
            found.append(x.item())
        assert sorted(found) == [float(i) for i in range(1, n)], found


def no_way():
    """gloo cannot connect the ranks: what is small works, and what is large is an error on each rank, every time."""
    base.start(*sys.argv[2:], with_gloo=False, timeout=60)
    for group in (None, dist.new_group(list(range(n)))):
        for function in (steps, gathers, objects, messages):
            function(group)
            print(function.__name__, flush=True)
        large = torch.ones(120_000)
        for _ in range(2):
            exc = raises(reduction.PeerLostError, f"over GLOO_SOCKET_IFNAME={CARD}", dist.all_to_all_single,
                         torch.empty_like(large), large, group=group)  # fmt: skip
            assert "set GLOO_SOCKET_IFNAME to a network card" in str(exc) and "NetworkPolicy" in str(exc), exc
        raises(reduction.PeerLostError, CARD, dist.isend, large, (rank + 1) % n, group=group)
        steps(group)


def missing():
    """A rank does not come to the first operation that connects the ranks, and no message comes."""
    base.start(with_gloo=False)
    group = dist.new_group(list(range(n)), timeout=datetime.timedelta(seconds=1))
    if rank == 0:
        out, x = torch.empty(n), torch.ones(n)
        raises(reduction.ReductionTimeoutError, "rank 1 has not called one within 1 s", dist.all_to_all_single, out, x,
               group=group)  # fmt: skip
        raises(reduction.PeerLostError, "rank 1 has not called one within 1 s", dist.all_to_all_single, out, x,
               group=group)  # fmt: skip
        raises(reduction.ReductionTimeoutError, "no message with tag 3 has come from rank 1 within 1 s",
               dist.recv, x, 1, group=group, tag=3)  # fmt: skip
        raises(reduction.ReductionTimeoutError, "from any rank", lambda: dist.irecv(x, group=group).wait())
    dist.barrier()
    if rank == 0:
        dist.send(torch.ones(3), 1)
    else:
        raises(reduction.MismatchError, "rank 0 has sent 12 bytes, 8 were expected", dist.recv, torch.ones(2), 0)


def addresses():
    """The address that a rank gives to gloo."""
    def fact(node, address):
        return torch_place.Fact(0, 3, node, -1, 0, "", address)

    one, two, name = fact("a", "192.0.2.1"), fact("b", "192.0.2.2"), fact("c", "127.0.1.1")
    toward = {"192.0.2.1": "192.0.2.3"}
    torch_place._toward = lambda host, port: toward.get(host, "")
    assert torch_place.address_of([one, two], 0) == "192.0.2.1"
    assert torch_place.address_of([name, one, two], 0) == "192.0.2.3"  # as it reaches another rank
    assert torch_place.address_of([name, name], 1) == "127.0.0.1"  # one machine
    assert torch_place.address_of([one, one], 1) == "127.0.0.1"
    assert torch_place.address_of([fact("a", ""), fact("b", "")], 0) == ""  # gloo asks for its machine's name
    assert torch_place.address_of([name, fact("b", "127.0.0.1")], 0) == "127.0.1.1"  # what reaches the store
    assert torch_place._master(types.SimpleNamespace(host="master", port=5)) == ("master", 5)
    inner = types.SimpleNamespace(underlying_store=types.SimpleNamespace(host="", port=0))
    os.environ["MASTER_ADDR"] = "other"
    assert torch_place._master(inner) == ("other", 0)
    del os.environ["MASTER_ADDR"]
    assert torch_place._master(inner) is None


def slow():
    """gloo takes longer than the group's timeout: the error does not wait for it."""
    waits = torch_mesh.threading.Event()
    mesh = torch_mesh.Mesh(dist.HashStore(), 0, 1, datetime.timedelta(seconds=0.5), "192.0.2.1")
    mesh._make = lambda name, one_by_one: waits.wait()
    exc = raises(reduction.PeerLostError, "at its address 192.0.2.1 to the others within 0.5 s", mesh.whole)
    assert "not done within" in str(exc), exc
    waits.set()


def hosts():
    """Each rank on a host of its own. Then no packet goes between those of ranks 1 and 2 any more."""
    dist.init_process_group("reduction", init_method=sys.argv[2], rank=rank, world_size=n,
                            timeout=datetime.timedelta(seconds=60))  # fmt: skip
    large = torch.full((120_000,), float(rank))
    out = torch.empty_like(large)
    dist.all_to_all_single(out, large)
    assert [x[-1].item() for x in out.chunk(n)] == [float(i) for i in range(n)]
    worker.say("connected")
    worker.listen()
    group = dist.new_group(list(range(n)), timeout=datetime.timedelta(seconds=8))
    steps(None)
    if rank == 0:  # it reaches both, and may wait for what they do not do
        base.outcome(dist.all_to_all_single, out, large, None, None, group)
    else:
        raises(reduction.PeerLostError, f"at its address {sys.argv[3]} to the others within 8 s",
               dist.all_to_all_single, out, large, group=group)  # fmt: skip
    steps(None)
    objects(None)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    print(sys.argv[1], "done", flush=True)
    sys.stderr.flush()
    os._exit(0)
