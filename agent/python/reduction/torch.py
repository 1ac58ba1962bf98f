# SPDX-License-Identifier: Apache-2.0
"""PyTorch (torch 1.13 and later): the backend `reduction` of torch.distributed (`reduction.torch_group`), and a
communication hook for DistributedDataParallel over any backend:

    torch.distributed.init_process_group("gloo")          # DDP itself needs one, for its start
    model = torch.nn.parallel.DistributedDataParallel(net)
    state = reduction.torch.State()                       # opens a communicator
    model.register_comm_hook(state, reduction.torch.allreduce_hook)
    ...                                                   # train as usual
    state.close()

The happy path: DDP calls the hook with a bucket of gradients as soon as backward has filled it. The hook starts the
all-reduce and returns a future at once, so that communication overlaps with the rest of backward, at whose end DDP
waits. Operations, their threads and their errors are those of `reduction.torch_work`, as in the process group. Failure
modes: if an operation fails, its future and all later ones fail with the message of the ReductionError, which
backward() raises; `State.error` holds the exception.
"""

import contextlib
import os
import sys
import threading
from typing import Any, Callable, Dict, List, Optional

import torch
import torch.distributed

from . import _buffers, errors, torch_gaps, torch_identity, torch_replace
from .comm import Communicator
from .torch_group import communicator, default_communicator, register  # noqa: F401 communicator is for programs
from .torch_local import NodeSum, join, meet
from .torch_members import Members  # noqa: F401 for programs
from .torch_outer import Outer  # noqa: F401 for programs
from .torch_place import place, unplaced
from .torch_stream import Places
from .torch_work import Channel, Work

_DTYPES = {"float16", "bfloat16", "float32", "float64"}


_PATIENCE = 30.0  # seconds in which a hook is called for the next bucket, or somebody waits in vain


class _Bucket(Work):
    """A pending bucket: the value of its future is the tensor, as DDP expects it."""

    @property
    def _value(self) -> torch.Tensor:
        return self._tensors[0]


def _is_initialized() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def _from_torch() -> Dict[str, Any]:
    """Returns what torch.distributed knows about this process's place; nothing if it is not initialized.

    torchrun counts restarts on each node separately and does not count restarts that other nodes caused, so nodes may
    disagree. The ranks agree on the largest number.
    """
    if not _is_initialized():
        return {}
    _, facts, rank, world_size, _ = meet()
    options: Dict[str, Any] = {"rank": rank, "world_size": world_size, **torch_identity.options(facts[0].start, {})}
    restarts = max(fact.restarts for fact in facts)
    if restarts >= 0:
        options["generation"] = restarts
    if unplaced():
        where = place(facts, rank)
        if "mode" not in where:
            options.update(where)
    return options


def _is_placed(options: Dict[str, Any]) -> bool:
    """Returns True if the job may be another group of processes than torch.distributed's."""
    return any(
        name in options or f"REDUCTION_{name.upper()}" in os.environ for name in ("generation", "rank", "world_size")
    )


class State:
    """State of the hook for one model: a communicator, and the operations on it.

    Args:
        comm: the Communicator to use, which the caller closes. None: without options that of the default process group,
            if its backend is `reduction`; else one is opened with `options` (those of Communicator) and closed with the
            State. Rank, world size and the number of torchrun's restart are those of torch.distributed: all ranks make
            their States in the same order. A State that is made before init_process_group() opens its communicator when
            it is first used, since launchers such as Lightning's start the other processes in between.
        op: "avg", as DDP does without a hook, or another operation.
        timeout: seconds to wait for a bucket after the previous ones are done; then the job ends on all ranks. None: no
            limit.
        prioritize: True: later buckets, which belong to earlier layers, have higher priorities, since the next forward
            pass needs them first. False: the priority follows from the size.
        local: "nccl": NCCL sums within the node, and each local rank sends its slice of a bucket to the reducers. All
            ranks of torch.distributed take part. None: ranks of a node are summed in the host's memory.
        wire: how buckets are written on the network: "same", "bf16", "fp8", "int8", "fp16" or "int4". None: as the
            communicator says. For a communicator that the State opens it is an option, as for Communicator.
    """

    def __init__(
        self,
        comm: Optional[Communicator] = None,
        *,
        op: str = "avg",
        timeout: Optional[float] = None,
        prioritize: bool = True,
        local: Optional[str] = None,
        wire: Optional[str] = None,
        **options: Any,
    ):
        self._node: Optional[NodeSum] = None
        if local is not None:
            if comm is not None:
                raise ValueError("with `local` the State opens its own communicator: give options instead of comm")
            self._node, slices = join(local)
            options = {**slices, **options} if self._node is not None else options
        self._options = options
        self._comm = comm
        self._owns_comm = False
        self._opening = threading.Lock()
        self._channel = Channel.over(comm, "State")
        if comm is not None:
            _buffers.wire_code(wire)
        self.op = op
        self.timeout = timeout
        self.prioritize = prioritize
        self.wire = wire
        self._buckets = 0  # in the last backward pass; equal on all ranks
        self._lock = threading.Lock()  # priorities and operations have the order of the hook's calls
        self._closed = False
        self._places = Places()
        self._sliced: List[_Bucket] = []  # whose futures the last bucket completes: see _submit()
        self._timer: Optional[threading.Timer] = None
        if comm is None and (_is_initialized() or _is_placed(options)):
            self._open()

    @property
    def comm(self) -> Communicator:
        """The communicator."""
        self._open_once()
        assert self._comm is not None
        return self._comm

    def _open_once(self) -> None:
        with self._opening:
            if self._comm is None:
                self._check_open()
                self._open()

    def _open(self) -> None:
        options = self._options
        comm = None if options else default_communicator()
        self._owns_comm = comm is None
        if comm is None:
            options, self.wire = {"wire": self.wire, **options}, None
            comm = Communicator(**(options if _is_placed(options) else {**_from_torch(), **options}))
        _buffers.wire_code(self.wire)
        self._channel = Channel.over(comm, "State")
        self._comm = comm

    def _check_open(self) -> None:
        if self._closed:
            raise errors.ClosedError(
                errors.ECLOSED,
                "the State of the communication hook is closed, or was loaded from a file: make another one",
            )

    @property
    def error(self) -> Optional[errors.ReductionError]:
        """The first error of an operation, or None."""
        return self._channel.error

    def _priority(self, index: int, last: bool) -> Optional[int]:
        """Returns the priority of a bucket: the last ones of a pass have the highest, in equal parts.

        The number of buckets is known from the previous pass.
        """
        if not self.prioritize:
            return None
        levels = self.comm.priorities
        if last:
            self._buckets = index + 1
            return levels - 1
        if self._buckets == 0:
            return 0
        behind = max(0, self._buckets - 1 - index)
        return levels - 1 - behind * levels // self._buckets

    def submit(self, tensor: torch.Tensor, index: int, last: bool = False) -> torch.futures.Future:
        """Starts the all-reduce of a dense tensor in place. The hook calls it.

        If the communicator is broken, the future fails and not this call: after an exception in its hook DDP stays in
        the middle of the backward pass, and the next pass fails.

        Args:
            last: the tensor is the last one of a backward pass.

        Returns:
            A future whose value is the tensor.
        """
        return self._submit(tensor, index, last, later=False)

    def _submit(self, tensor: torch.Tensor, index: int, last: bool, later: bool) -> torch.futures.Future:
        """As submit(). later: with `local`, the call for the last tensor gathers the slices of all. Gathers are
        collectives of the node, as the scatters of the calls are: one thread does them all, in the same order on each
        rank. A hook that waits before the last tensor calls settle_sliced() first; if it does not, the timer does.
        """
        if tensor.device.type not in ("cpu", "cuda"):
            raise TypeError(f"gradients are on {tensor.device}; the hook supports cpu and cuda")
        if self._node is not None and tensor.device.type != self._node.device:
            raise TypeError(f"gradients are on {tensor.device}; sums within the node need {self._node.device}")
        with self._lock:
            self._check_open()
            self._open_once()
            work = self._bucket(tensor, f"bucket {index}", self._priority(index, last))
            self._channel.start(work)
            later = later and self._node is not None
            future = work.get_future(later)
            if later:
                self._sliced.append(work)
                self._set_timer(None if last else _PATIENCE)
        if later and last:
            self.settle_sliced()
        return future

    def _set_timer(self, seconds: Optional[float]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if seconds is not None:
            self._timer = threading.Timer(seconds, self.settle_sliced)
            self._timer.daemon = True
            self._timer.start()

    def settle_sliced(self) -> None:
        """With `local`: waits for the tensors of this backward pass so far, and completes their futures."""
        with self._lock:
            self._set_timer(None)
            works, self._sliced = self._sliced, []
        for work in works:
            work.settle()

    def _bucket(self, tensor: torch.Tensor, name: str, priority: Optional[int]) -> _Bucket:
        arrivals, node, finish = self._places.of([tensor]), self._node, None

        def reduce(comm: Communicator, part: torch.Tensor, op: str) -> List[Any]:
            return [comm.all_reduce(part, op, async_op=True, name=name, priority=priority, wire=self.wire)]

        def begin(comm: Communicator) -> List[Any]:
            return reduce(comm, tensor, self.op)

        if node is not None:
            begin, finish = node.steps(tensor, self.op, arrivals, reduce)
        return _Bucket(
            self._channel, name, [tensor], begin, finish, arrivals, in_order=node is not None, timeout=self.timeout
        )  # fmt: skip

    def close(self) -> None:
        """Waits for pending operations, and closes the communicator if the State opened it."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self.settle_sliced()
        self._channel.drain()
        self._channel.close()
        if self._owns_comm:
            self._close_comm()

    def _close_comm(self) -> None:
        assert self._comm is not None
        try:
            self._comm.close()
        except errors.ReductionError:
            if self.error is None:  # otherwise the error was raised already
                raise

    def __deepcopy__(self, memo: Any) -> "State":
        return self  # a copy of a model, for an average of its weights, has no gradients of its own

    def __reduce__(self) -> Any:
        return State._of_file, (self.op, self.timeout, self.prioritize)

    @staticmethod
    def _of_file(op: str, timeout: Optional[float], prioritize: bool) -> "State":
        """Returns what torch.load() makes of a State: it has no communicator, and is closed."""
        state = State.__new__(State)
        state.op, state.timeout, state.prioritize, state.wire = op, timeout, prioritize, None
        state._lock, state._closed, state._channel, state._node = threading.Lock(), True, Channel.over(None, ""), None
        state._comm, state._opening = None, threading.Lock()
        return state

    def __enter__(self) -> "State":
        return self

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        self.close()


def allreduce_hook(
    state: State, bucket: torch.distributed.GradBucket
) -> torch.futures.Future[torch.Tensor]:  # register_comm_hook checks these annotations
    """Averages a bucket over all ranks. For DistributedDataParallel.register_comm_hook(state, allreduce_hook)."""
    tensor = bucket.buffer()
    name = str(tensor.dtype).rpartition(".")[2]
    if name not in _DTYPES:
        raise TypeError(f"gradients of {tensor.dtype} are not supported; supported are {', '.join(sorted(_DTYPES))}")
    if not torch.autograd._profiler_enabled():
        return state._submit(tensor, bucket.index(), bucket.is_last(), later=True)
    # a range of torch.profiler that lasts until the result is there; emit_nvtx() makes an
    # NVTX range of it
    label = f"reduction::all_reduce bucket {bucket.index()} ({tensor.numel() * tensor.element_size()} bytes)"
    with torch.profiler.record_function(label) as span:
        future = state._submit(tensor, bucket.index(), bucket.is_last(), later=True)
        return span._call_end_callbacks_on_future(future)


_Hook = Callable[[Any, torch.distributed.GradBucket], torch.futures.Future[torch.Tensor]]


def in_order(hook: _Hook) -> _Hook:
    """Returns a communication hook that calls `hook` and waits for each bucket in the host's memory.

    A hook such as PowerSGD's starts operations in callbacks. With several buckets their order may differ between ranks.
    Here all operations of a bucket come before those of the next one.
    """

    def in_order_hook(state: Any, bucket: torch.distributed.GradBucket) -> torch.futures.Future[torch.Tensor]:
        future = hook(state, bucket)
        if isinstance(state, State):
            state.settle_sliced()
        if not future.done():
            with contextlib.suppress(Exception):  # DDP raises the error of the future
                future.wait()
        return future

    return in_order_hook


def empty_buffer(comm: Communicator, shape: Any, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """As Communicator.empty_buffer, but returns a tensor; also for bfloat16."""
    array = comm.empty_buffer(shape, dtype)
    if dtype == torch.bfloat16:
        return torch.from_numpy(array.view("int16")).view(torch.bfloat16)
    return torch.from_numpy(array)


register()
torch_gaps.install()
torch_replace.install()

if __name__ == "__main__":
    torch_replace.main(sys.argv[1:])
