# SPDX-License-Identifier: Apache-2.0
"""torchft's process group over reducers:

    manager = torchft.Manager(pg=reduction.torchft.ProcessGroupReduction(), ...)

The happy path: configure() meets the other replicas in torchft's store, where they agree about run and generation, and
joins that generation on the connections that it has; a replica without connections opens them. The operations between
two calls of configure() are those of the backend `reduction`. Failure modes: the first error of an operation aborts the
group; errored() has it, and later operations fail, until configure() is called. If configure() fails, the group stays
aborted, and configure() may be called again.

The generation is the largest that a replica wants: newer than its own one and than the quorum's number, so that it is
also newer than that of replicas outside the quorum. The run is that of the lowest rank that is in one. A replica of
another run leaves it and opens new connections.
"""

import contextlib
import datetime
import json
import os
import re
import secrets
import sys
import threading
from typing import Any, List, NamedTuple, Optional, Sequence

import torch
from torchft.process_group import ProcessGroup, create_store_client

from . import errors
from .comm import Communicator
from .torch_ops import Operations
from .torch_place import address_of, digest, exchange
from .torch_work import Channel

_GIVEN = ("rank", "world_size", "local_rank", "local_world_size", "generation", "group", "mode", "agent")
_PATIENCE = 0.1  # seconds for a thread that is just starting an operation
_NOT_CONFIGURED = "process group not initialized: configure() must be called first, and again after an error or abort()"


class _Word(NamedTuple):
    """What a replica says in configure()."""

    replica: str
    run: str  # "" if it is in none
    new: str  # the run of all replicas if none of them is in one and this is rank 0


def _with_replicas(message: str, replicas: Sequence[str]) -> str:
    """Adds to the library's sentence which replicas its ranks are."""
    ranks = dict.fromkeys(int(number) for number in re.findall(r"\brank (\d+)\b", message))
    known = [f"rank {rank} is replica {replicas[rank]}" for rank in ranks if rank < len(replicas)]
    return f"{message} ({', '.join(known)})" if known else message


class _Channel(Channel):
    """The operations between two calls of configure()."""

    def __init__(self, comm: Optional[Communicator], timeout: float, replicas: Sequence[str]):
        super().__init__(lambda: comm, timeout, None)
        self._comm, self._owned = comm, False
        self._replicas = replicas
        self._aborting = threading.Lock()
        if comm is None:
            self.close()

    def check_usable(self) -> None:
        if self._closed:
            raise errors.ClosedError(errors.ECLOSED, _NOT_CONFIGURED)
        super().check_usable()

    def failed(self, exc: errors.ReductionError) -> errors.ReductionError:
        return super().failed(errors.make_error(exc.code, _with_replicas(str(exc), self._replicas)))

    def abort(self, reason: str) -> None:
        with self._aborting:
            super().abort(reason)

    def retire(self) -> None:
        """Ends it: a late call can neither start an operation of the next generation nor abort it."""
        if not self._lock.acquire(timeout=_PATIENCE):  # a thread waits to start an operation
            self.abort("configure() was called while an operation was being started")
            self._lock.acquire()
        try:
            self.close()
        finally:
            self._lock.release()
        with self._aborting:
            self._comm = None


class _Done(torch._C._distributed_c10d.Work):
    """An operation that has ended. Works that torch makes from a future cannot be waited for with a timeout."""

    def __init__(self, value: Any):
        super().__init__()
        self._future: torch.futures.Future = torch.futures.Future()
        self._future.set_result(value)

    def wait(self, timeout: Any = None) -> bool:
        """Returns True."""
        return True

    def synchronize(self) -> None:
        """Does nothing."""

    def is_completed(self) -> bool:
        """Returns True."""
        return True

    is_success = is_completed

    def get_future(self) -> torch.futures.Future:
        """Returns a future that has the value."""
        return self._future


class ProcessGroupReduction(Operations, ProcessGroup):
    """A process group of torchft.

    All-reduces, broadcasts, barriers, small gathers, and on CPUs reduce-scatters and all-gathers go through the
    reducers, small sends through torchft's store. Everything else goes through gloo, which connects the replicas when
    they first need it.

    Args:
        timeout: of an operation and of configure(). set_timeout() changes that of operations, and of configure() while
            it waits for the store.
        options: of reduction.Communicator, such as config= and job=.
    """

    def __init__(self, timeout: datetime.timedelta = datetime.timedelta(seconds=60), **options: Any) -> None:
        for word in _GIVEN:
            if word in options:
                raise ValueError(f"{word} follows from torchft's quorum, and each rank talks to the reducers itself")
        super().__init__(0, 1)
        self._timeout = timeout
        self._options = {"connect_timeout": timeout.total_seconds(), **options}
        self._run, self._generation = "", 0
        self._comm: Optional[Communicator] = None
        self._failure: Optional[Exception] = None
        self._aborts = 0
        self._configuring = threading.Lock()  # held while the communicator joins, opens or closes
        self._enter(torch.distributed.HashStore(), 0, 1, "", None, [])

    def _enter(
        self, store: Any, rank: int, size: int, address: str, comm: Optional[Communicator], replicas: Sequence[str]
    ) -> None:
        channel = _Channel(comm, self._timeout.total_seconds(), replicas)
        self._attach(store, rank, size, self._timeout, address, channel)

    def getBackendName(self) -> str:
        return "torchft-reduction"

    def size(self) -> int:
        """Returns the number of replicas in the group."""
        return self._size

    def rank(self) -> int:
        """Returns this replica's rank in the group."""
        return self._rank

    def send(self, tensors: Any, to: int, tag: int = 0) -> Any:
        """send: small messages through the store, which has them when this returns."""
        work = super().send(tensors, to, tag)
        return _Done(list(tensors)) if self._by_mail(tensors) else work

    def reduce_scatter(self, outputs: Any, inputs: Any, *opts: Any) -> Any:
        """reduce_scatter, which waits: gloo's works of this kind, if it does it, have no future."""
        super().reduce_scatter(outputs, inputs, *opts).wait()
        return _Done(outputs)

    def reduce_scatter_tensor_coalesced(self, outputs: Any, inputs: Any, *_: Any) -> Any:
        """Raises RuntimeError, as torchft's own group over gloo does."""
        raise RuntimeError("ProcessGroupReduction does not support reduce_scatter_tensor_coalesced")

    # --- configure

    def configure(
        self,
        store_addr: str,
        replica_id: str,
        rank: int,
        world_size: int,
        quorum_id: Optional[int] = None,
        group_rank: Optional[int] = None,
        group_world_size: Optional[int] = None,
        global_ranks: Optional[List[int]] = None,
    ) -> None:
        """Ends what runs, and goes on with other replicas. Returns when all of them have called it.

        Raises:
            ReductionError: not all replicas have met, or a reducer or the store cannot be used; the message names it.
        """
        with self._configuring:
            self._retire()
            group = digest(f"torchft {group_rank}") if (group_world_size or 1) > 1 else None
            aborts = self._aborts
            try:
                self._join(store_addr, replica_id, rank, world_size, quorum_id, group)
                self._failure = None
                if self._aborts != aborts:
                    raise errors.AbortedError(errors.EABORTED, "the process group was aborted during configure()")
            except RuntimeError as exc:
                if not isinstance(exc, errors.ReductionError):
                    exc = errors.make_error(errors.EIO, f"configure() cannot use the store at {store_addr}: {exc}")
                self._failure = exc
                if self._comm is not None:
                    self._comm.abort("configure() failed")
                self._retire()
                raise exc from None

    def _join(
        self, store_addr: str, replica: str, rank: int, world_size: int, quorum: Optional[int], group: Optional[str]
    ) -> None:
        store = create_store_client(store_addr, timeout=self._timeout)
        new = self._options.get("run") or os.environ.get("REDUCTION_RUN") or f"torchft+{secrets.token_hex(8)}"
        store.set(f"word/{rank}", json.dumps(_Word(replica, self._run, new)))
        wanted = max(self._generation, -1 if quorum is None else quorum) + 1
        try:
            facts = exchange(store, rank, world_size, wanted, self._timeout)
        except errors.ReductionTimeoutError as exc:
            limit = self._timeout / datetime.timedelta(milliseconds=1)
            raise errors.make_error(exc.code, f"configure() timeout after {limit:g}ms: {exc}") from None
        words = [_Word(*json.loads(store.get(f"word/{other}"))) for other in range(world_size)]
        replicas = [word.replica for word in words]
        run = next((word.run for word in words if word.run), words[0].new)
        if run != self._run:
            self._leave()
        self._run, self._generation = run, max(fact.serial for fact in facts)
        try:
            self._go_on(rank, world_size, group)
        except errors.ReductionError as exc:
            raise errors.make_error(exc.code, _with_replicas(str(exc), replicas)) from None
        self._enter(store, rank, world_size, address_of(facts, rank), self._comm, replicas)

    def _go_on(self, rank: int, world_size: int, group: Optional[str]) -> None:
        """Joins the generation, or opens a communicator in it."""
        if self._comm is not None:
            self._comm.reconfigure(rank, world_size, self._generation)
            return
        self._comm = Communicator(
            rank=rank, world_size=world_size, generation=self._generation, mode="direct",
            **{**self._options, "run": self._run, "group": group},
        )  # fmt: skip

    # --- errors and the end

    def errored(self) -> Optional[Exception]:
        """Returns why the group must be configured again, or None."""
        cause = self._failure or self._channel.error
        if cause is None:
            return None
        code = getattr(cause, "code", errors.EINTERNAL)
        return errors.make_error(code, f"the process group is aborted until configure() is called: {cause}")

    def set_timeout(self, timeout: datetime.timedelta) -> None:
        """Sets the timeout of operations from now on."""
        self._timeout = timeout
        super().set_timeout(timeout)

    def abort(self, errored: bool = True) -> None:
        """Fails all operations on all replicas, at once. Connections stay, for configure().

        Args:
            errored: errored() returns an error until configure() is called.
        """
        self._interrupt("the process group was aborted")
        self._retire()
        if errored:
            self._failure = errors.AbortedError(errors.EABORTED, "abort() was called")

    def shutdown(self) -> None:
        """Closes the communicator. configure() opens another one. May be called again."""
        if not self._configuring.acquire(timeout=_PATIENCE):
            self._interrupt("the process group was shut down")
            self._configuring.acquire()
        try:
            self._retire()
            self._leave()
        finally:
            self._configuring.release()

    def _interrupt(self, reason: str) -> None:
        """Fails operations, and configure() in another thread."""
        self._aborts += 1
        comm = self._comm
        if comm is not None:
            comm.abort(reason)

    def _retire(self) -> None:
        self._channel.retire()
        self._end_inners("abort")

    def _leave(self) -> None:
        comm, self._comm, self._run = self._comm, None, ""
        if comm is not None:
            with contextlib.suppress(errors.ReductionError):  # operations have raised it
                comm.close()

    def __del__(self) -> None:
        if not sys.is_finalizing() and hasattr(self, "_mail"):
            self.shutdown()
