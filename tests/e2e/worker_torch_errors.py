# SPDX-License-Identifier: Apache-2.0
"""The ranks of the tests of wrong use and of failures of the process group: worker_torch_errors.py FUNCTION."""

import datetime
import os
import sys
import threading
import time

import torch
import torch.distributed as dist
import worker_torch_group as base
from worker_torch_group import raises

import reduction
from reduction.torch_group import HAS_BACKEND, operations
from reduction.torch_work import Channel, Work

rank, n = base.rank, base.n


def within(seconds, call, *args):
    """Returns what a call returns, or raises its exception. It fails if the call hangs."""
    found = []
    thread = threading.Thread(target=lambda: found.append(base.outcome(lambda _: call(*args), None)), daemon=True)
    thread.start()
    thread.join(seconds)
    assert found, "it hangs"
    if isinstance(found[0], Exception):
        raise found[0]
    return found[0]


def misuse():
    """Arguments that are wrong on all ranks; the group works on afterwards."""
    base.start(with_gloo=False)
    one, meta = torch.ones(3), torch.ones(3, device="meta")
    if not HAS_BACKEND:  # else torch itself looks for a device's backend, and does nothing for meta
        raises(ValueError, "meta", dist.all_reduce, meta)
        raises(ValueError, "on cpu and meta, one device was expected", base.ours.allreduce_coalesced, [one, meta])
    raises(ValueError, "2 tensors, one was expected", base.ours.allreduce, [one, one])
    raises(ValueError, "broadcast was called with root rank 99, 0 to 1 were expected", dist.broadcast, one, 99)
    raises(ValueError, "reduce was called with root rank -1, 0 to 1 were expected", dist.reduce, one, -1)
    for ask in ("wait", "is_completed"):  # elements that share memory: what asks first does not matter
        work = dist.all_reduce(torch.ones(3, 1).expand(3, 3), async_op=True)
        if ask == "wait":
            raises(RuntimeError, "a single memory location", work.wait)
        while not base.ended(work):
            time.sleep(0.001)
        assert HAS_BACKEND or (not work.is_success() and isinstance(work.exception(), RuntimeError))
        raises(RuntimeError, "a single memory location", work.wait)
        raises(RuntimeError, "a single memory location", work.get_future().wait)
    sparse = one.to_sparse()
    raises(RuntimeError, "sparse", dist.all_reduce, sparse, dist.ReduceOp.MAX)
    refusal = "SparseCPU" if HAS_BACKEND else "dense"  # torch's own, or gloo's
    raises(RuntimeError, refusal, dist.broadcast, sparse, 0)
    raises(RuntimeError, refusal, dist.reduce, sparse, 0)
    raises(RuntimeError, "SparseCsrCPU" if HAS_BACKEND else "layout", dist.all_reduce, torch.ones(2, 2).to_sparse_csr())
    if not HAS_BACKEND:
        raises(RuntimeError, "", dist.all_gather, [one] * n, meta)
    if not HAS_BACKEND:
        raises((RuntimeError, ValueError), "only implemented for GLOO", dist.monitored_barrier)
    raises(TypeError, "a dict of options", dist.new_group, backend="reduction", pg_options=5)
    dist.all_reduce(one)
    assert one.tolist() == [n] * 3


def monitored():
    """monitored_barrier() names the ranks that do not come."""
    base.start(with_gloo=False)
    barrier = operations().monitored_barrier if not HAS_BACKEND else dist.monitored_barrier
    for limit in (None, datetime.timedelta(seconds=60)):
        barrier(timeout=limit)
    for everybody, who in ((False, "Rank 1"), (True, "Ranks 1, 2")):
        limit = datetime.timedelta(seconds=0.5)
        if rank == 0:
            raises(RuntimeError, f"{who} failed to pass monitoredBarrier in 500 ms", barrier, timeout=limit,
                   wait_all_ranks=everybody)  # fmt: skip
        dist.barrier()
        if rank:
            raises(RuntimeError, f"reached monitoredBarrier, but rank 0 says: {who}", barrier, timeout=limit,
                   wait_all_ranks=everybody)  # fmt: skip
    if rank:
        raises(RuntimeError, f"Rank {rank} timed out in monitoredBarrier: rank 0", barrier, timeout=limit)
    dist.barrier()


def mismatch():
    """Ranks disagree about an operation, in a group of some ranks: every rank gets both sides, and who they are."""
    base.start(with_gloo=False)
    group = dist.new_group([1, 2])
    named = "the group's ranks from 0 on are ranks 1, 2 of the job"
    if rank:
        exc = raises(reduction.MismatchError, named, dist.all_reduce, torch.ones(2 + rank), group=group)
        raises(reduction.MismatchError, str(exc), dist.barrier, group)  # for ever
        work = group.allreduce([torch.ones(2)])
        raises(RuntimeError, named, work.get_future().wait)
        assert HAS_BACKEND or (isinstance(work.exception(), reduction.MismatchError) and not work.is_success())
    dist.barrier()


def shutdown():
    """Operations after the end."""
    base.start(with_gloo=False)
    done = dist.all_reduce(torch.ones(1), async_op=True)
    done.wait()
    group = base.ours
    group.shutdown()
    (found,) = within(20, done.get_future().wait)
    assert found.tolist() == [n]
    raises(reduction.ClosedError, "has been shut down", dist.all_reduce, torch.ones(1))
    raises(reduction.ClosedError, "has been shut down", group.barrier)
    for delegated in (
        lambda: dist.all_gather([torch.ones(1)] * n, torch.ones(1)),
        lambda: dist.all_reduce(torch.ones(1, dtype=torch.int32), dist.ReduceOp.BAND),
        lambda: dist.all_reduce(torch.ones(1).to_sparse()),
        lambda: dist.send(torch.ones(1), 1 - rank),
    ):
        raises(reduction.ClosedError, "has been shut down", delegated)
    base.ours = None
    dist.destroy_process_group()
    raises((RuntimeError, ValueError), "", dist.all_reduce, torch.ones(1))


def aborted():
    """Rank 0 aborts a group while operations are pending: their works fail on both ranks, and so do later ones."""
    base.start(with_gloo=False)
    group = dist.new_group(list(range(n)))
    dist.barrier(group)
    if rank == 0:
        pending = [dist.all_reduce(torch.ones(1), group=group, async_op=True) for _ in range(2)]
        future = pending[1].get_future()
        group.abort()
        for wait in (pending[0].wait, future.wait):
            raises(RuntimeError, "the process group was aborted", within, 20, wait)
        assert HAS_BACKEND or (pending[0].is_completed() and isinstance(pending[0].exception(), reduction.AbortedError))
        raises(reduction.ClosedError, "has been shut down", dist.barrier, group)
        dist.send(torch.ones(1), 1)
    else:
        dist.recv(torch.ones(1), 0)
        text = "the process group was aborted"  # by the third at the latest: rank 0 has sent its part of two
        raises(reduction.AbortedError, text, lambda: [dist.all_reduce(torch.ones(1), group=group) for _ in "123"])
    dist.barrier()


def callbacks():
    """Operations that are started in callbacks: in an order that is fixed, and in one that may differ."""
    base.start(with_gloo=False)
    again = lambda future: dist.all_reduce(future.value()[0], async_op=True).get_future().wait()[0]  # noqa: E731
    works = [dist.all_reduce(torch.ones(1), async_op=True) for _ in range(2)]
    assert works[0].get_future().then(again).wait().item() == n * n
    group = dist.new_group(list(range(n)))
    dist.barrier(group)
    late = lambda future: dist.all_reduce(torch.ones(1), group=group, async_op=True).wait()  # noqa: E731
    if rank == 0:
        chain = dist.all_reduce(torch.ones(1), group=group, async_op=True).get_future().then(late)
        dist.all_reduce(torch.ones(1), group=group, async_op=True)
        dist.send(torch.ones(1), 1)
        text = "in a callback of a future after other operations"
        raises(RuntimeError, text, chain.wait)
        raises(RuntimeError, text, dist.barrier, group)
    else:
        dist.recv(torch.ones(1), 0)  # so rank 0's first operation ends after the start of its second one
        raises(reduction.AbortedError, "rank 0", lambda: [dist.all_reduce(torch.ones(1), group=group) for _ in "123"])
    dist.barrier()


def close_while_opening():
    """Operations that wait for the communicator end with the group, and not when it has been opened."""
    class Opened:
        """A communicator."""
        opens, closed = threading.Event(), threading.Event()

        def __init__(self):
            self.opens.wait()

        def close(self):
            self.closed.set()

    channel = Channel(Opened, 60.0, None)
    works = [channel.start(Work(channel, "all_reduce", [], lambda comm: [])) for _ in range(2)]
    channel.close()
    for work in works:
        raises(reduction.ClosedError, "has been shut down", within, 20, work.wait)
    Opened.opens.set()
    assert Opened.closed.wait(20)


def noted_by_another():
    """A thread notes the end of an operation while another one asks whether it has ended."""
    class Noting:
        """A request."""
        def done(self):
            return True

        def wait(self, timeout):
            raise reduction.ReductionTimeoutError(-7, "the other thread has the lock")

    channel = Channel(lambda: None, 60.0, None)
    work = Work(channel, "all_reduce", [], lambda comm: [Noting()])
    work._start(None)
    assert not work.is_completed() and not work.is_success()


def abort_while_starting():
    """The start of an operation may wait for others to end, until the group is aborted."""
    class Stuck:
        """A communicator."""
        waits, aborted = threading.Event(), threading.Event()

        def abort(self, reason):
            self.aborted.set()

    def begin(comm):
        comm.waits.set()
        comm.aborted.wait()
        raise reduction.AbortedError(-15, "aborted")

    channel = Channel(Stuck, 60.0, None)
    channel.communicator()
    starter = threading.Thread(target=lambda: channel.start(Work(channel, "all_reduce", [], begin)), daemon=True)
    starter.start()
    Stuck.waits.wait()
    within(20, channel.abort, "enough")
    starter.join()


def timeout():
    """A rank that does not call is an error on all ranks after the group's timeout."""
    base.start(with_gloo=False)
    dist.barrier()
    group = dist.new_group(list(range(n)), timeout=datetime.timedelta(seconds=20))
    dist.barrier(group)
    operations(group).set_timeout(datetime.timedelta(seconds=0.5))
    if rank == 0:
        raises(reduction.ReductionTimeoutError, "all_reduce was not done within the process group's timeout of 0.5 s",
               dist.all_reduce, torch.ones(1), group=group)  # fmt: skip
        dist.barrier()
    else:
        dist.barrier()
        def twice():  # the first one may be faster than the news, since rank 0 has sent its part of it
            dist.all_reduce(torch.ones(1), group=group)
            dist.all_reduce(torch.ones(1), group=group)

        raises(reduction.AbortedError, "rank 0", twice)
    dist.barrier()  # rank 0 does not end before the news is there


def reopened():
    """Groups are made again while rank 0 still opens the communicators of the former ones, which nobody else does."""
    def both(call):
        for group in (dist.group.WORLD, dist.new_group(list(range(n)))):
            call(group)

    def give_up(group):
        if rank == 0:
            operations(group).set_timeout(datetime.timedelta(seconds=0.2))
            raises(reduction.ReductionTimeoutError, "not done within", dist.all_reduce, torch.ones(1), group=group)

    def all_reduce(group):
        x = torch.ones(1)
        dist.all_reduce(x, group=group)
        assert x.item() == n

    base.start(with_gloo=False)
    for call, store in ((give_up, "second"), (all_reduce, "third"), (give_up, "fourth")):
        both(call)
        base.ours = None
        dist.destroy_process_group()
        dist.init_process_group("reduction", store=dist.FileStore(os.path.abspath(store), n), rank=rank, world_size=n)
    both(all_reduce)


def world_sizes():
    """Rank 0 has another world size than the others."""
    size = n if rank else n - 1
    raises(reduction.MismatchError, "with the same world size", base.start, world_size=size, with_gloo=False,
           timeout=20)  # fmt: skip


def backends():
    """Rank 0 has another backend than the others, and leaves when it finds that."""
    raises(RuntimeError, "" if rank == 0 else "rank 0 of", base.start, "reduction" if rank else "gloo",
           with_gloo=False, timeout=3)  # fmt: skip


def missing():
    """A job that the reducers refuse."""
    base.start(with_gloo=False)
    dist.all_reduce(torch.ones(1))
    group = dist.new_group(list(range(n)), pg_options={"connect_timeout": 2.5})
    raises(reduction.ReductionError, "1 jobs", dist.all_reduce, torch.ones(1), group=group)
    raises(reduction.ReductionError, "too long for a group", dist.barrier,
           dist.new_group(list(range(n)), pg_options={"job": "x" * 60}))  # fmt: skip


def killed():
    """The last rank is killed while DistributedDataParallel trains."""
    base.start(with_gloo=False)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(100, 100))
    step = lambda: model(torch.ones(2, 100)).sum().backward()  # noqa: E731
    step()
    print("trained", flush=True)
    if rank == n - 1:
        sys.stdin.readline()
    raises(RuntimeError, f"rank {n - 1}", lambda: [step() for _ in range(1000)])
    raises(reduction.PeerLostError, f"rank {n - 1}", dist.all_reduce, torch.ones(1))


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    print(sys.argv[1], "done", flush=True)
    sys.stderr.flush()
    os._exit(0)
