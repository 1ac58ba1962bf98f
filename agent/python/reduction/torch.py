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
all-reduce and returns a future at once, so that communication overlaps with the rest of backward. One thread of each
State waits for the operations in their order and completes the futures. Buckets on a GPU go through pinned host memory:
a second thread starts their all-reduce when the copy from the device is done, and the copy back is queued on the same
side stream, so that neither backward nor the GPU waits. Failure modes: if an operation fails, its future and all later
ones fail with the message of the ReductionError, which backward() raises; `State.error` holds the exception.
"""

import os
import queue
import threading
from typing import Any, Dict, NamedTuple, Optional, Tuple

import torch
import torch.distributed

from . import errors
from .comm import Communicator, Request
from .torch_group import default_communicator, register

_DTYPES = {"float16", "bfloat16", "float32", "float64"}


class _Work(NamedTuple):
    """One pending bucket. `host` is None for a CPU tensor, else its pinned copy, complete at the event `ready`."""

    tensor: torch.Tensor
    future: torch.futures.Future
    name: str
    priority: Optional[int] = None
    request: Optional[Request] = None
    host: Optional[torch.Tensor] = None
    ready: Any = None
    stream: Any = None


class _CudaStaging:
    """Pinned host buffers, one for each bucket, and a side stream for the copies of one device.

    All copies of a bucket, to the host and back, are in order on one stream. So a buffer can be reused as soon as the
    next iteration's copy is queued.
    """

    def __init__(self, device: torch.device):
        self.stream = torch.cuda.Stream(device=device)
        self._hosts: Dict[int, torch.Tensor] = {}

    def _host(self, index: int, tensor: torch.Tensor) -> torch.Tensor:
        host = self._hosts.get(index)
        if host is None or host.shape != tensor.shape or host.dtype != tensor.dtype:
            host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
            self._hosts[index] = host
        return host

    def to_host(self, index: int, tensor: torch.Tensor) -> Tuple[torch.Tensor, Any]:
        """Queues the copy. Returns the host tensor and the event after which it holds the data."""
        host = self._host(index, tensor)
        self.stream.wait_stream(torch.cuda.current_stream(tensor.device))
        with torch.cuda.stream(self.stream):
            host.copy_(tensor, non_blocking=True)
            ready = torch.cuda.Event()
            ready.record(self.stream)
        tensor.record_stream(self.stream)
        return host, ready


def _agreed_generation() -> Optional[int]:
    """Returns the generation of a job that torchrun may restart; None without torchrun or torch.distributed.

    torchrun counts restarts on each node separately and does not count restarts that other nodes caused, so nodes may
    disagree. The process group, which is created again after each restart, agrees on the largest number.
    """
    count = os.environ.get("TORCHELASTIC_RESTART_COUNT")
    if not count or not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return None
    group = None
    if torch.distributed.get_backend() != "gloo":  # gloo exchanges objects without a device
        group = torch.distributed.new_group(backend="gloo")
    counts = [0] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(counts, int(count), group)
    return max(counts)


# With one of these given, the job may be another group of processes than torch.distributed's.
_PLACES = ("generation", "rank", "world_size")


class State:
    """State of the hook for one model: a communicator, and the thread that completes the futures.

    Args:
        comm: the Communicator to use, which the caller closes. None: without options that of the default process group,
            if its backend is `reduction`; else one is opened with `options` (those of Communicator) and closed with the
            State. Under torchrun its generation follows the restarts; the ranks agree
            on it through torch.distributed, if that is initialized.
        op: "avg", as DDP does without a hook, or another operation.
        timeout: seconds to wait for a bucket after the previous ones are done; None: no limit.
        prioritize: True: later buckets, which belong to earlier layers, have higher priorities, since the next forward
            pass needs them first. False: the priority follows from the size.
    """

    def __init__(
        self,
        comm: Optional[Communicator] = None,
        *,
        op: str = "avg",
        timeout: Optional[float] = None,
        prioritize: bool = True,
        **options: Any,
    ):
        if comm is None and not options:
            comm = default_communicator()
        self._owns_comm = comm is None
        if comm is None:
            if not any(name in options or f"REDUCTION_{name.upper()}" in os.environ for name in _PLACES):
                options["generation"] = _agreed_generation()
            comm = Communicator(**options)
        self.comm = comm
        self.op = op
        self.timeout = timeout
        self.prioritize = prioritize
        self._buckets = 0  # in the last backward pass; equal on all ranks
        self.error: Optional[errors.ReductionError] = None
        self._lock = threading.Lock()  # the queues have the order of the hook's calls
        self._closed = False
        self._waits: "queue.SimpleQueue[Optional[_Work]]" = queue.SimpleQueue()
        self._starts: "queue.SimpleQueue[Optional[_Work]]" = queue.SimpleQueue()
        self._staging: Dict[torch.device, _CudaStaging] = {}
        self._starter: Optional[threading.Thread] = None
        self._waiter = threading.Thread(target=self._wait_loop, name="reduction-wait", daemon=True)
        self._waiter.start()

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
        if self._closed:
            raise errors.ClosedError(errors.ECLOSED, "the State of the communication hook is closed")
        name = f"bucket {index}"
        with self._lock:
            priority = self._priority(index, last)
            if tensor.device.type == "cuda":
                return self._submit_cuda(tensor, index, name, priority)
            if tensor.device.type != "cpu":
                raise TypeError(f"gradients are on {tensor.device}; the hook supports cpu and cuda")
            work = _Work(tensor, torch.futures.Future(), name, priority)
            if self.error is not None:
                self._fail(work, self.error.with_traceback(None))
            elif self._starter is not None:  # keep the order of starts the same on all ranks
                self._starts.put(work)
            else:
                try:
                    self._waits.put(work._replace(request=self._start(tensor, name, priority)))
                except errors.ReductionError as exc:
                    self._fail(work, exc)
        return work.future.then(_value_or_raise)

    def _submit_cuda(
        self, tensor: torch.Tensor, index: int, name: str, priority: Optional[int]
    ) -> torch.futures.Future:
        if self._starter is None:
            self._starter = threading.Thread(target=self._start_loop, name="reduction-start", daemon=True)
            self._starter.start()
        staging = self._staging.get(tensor.device)
        if staging is None:
            staging = self._staging[tensor.device] = _CudaStaging(tensor.device)
        host, ready = staging.to_host(index, tensor)
        future: torch.futures.Future = torch.futures.Future(devices=[tensor.device])
        self._starts.put(_Work(tensor, future, name, priority, host=host, ready=ready, stream=staging.stream))
        return future.then(_value_or_raise)

    def _start(self, tensor: torch.Tensor, name: str, priority: Optional[int]) -> Request:
        return self.comm.all_reduce(tensor, self.op, async_op=True, name=name, priority=priority)

    def _start_loop(self) -> None:
        while True:
            work = self._starts.get()
            if work is None:
                return
            try:
                if work.ready is not None:
                    work.ready.synchronize()
                request = self._start(work.tensor if work.host is None else work.host, work.name, work.priority)
            except Exception as exc:
                self._fail(work, exc)
                continue
            self._waits.put(work._replace(request=request))

    def _wait_loop(self) -> None:
        while True:
            work = self._waits.get()
            if work is None:
                return
            try:
                assert work.request is not None
                if self.error is not None:
                    raise self.error.with_traceback(None)
                work.request.wait(self.timeout)
                if work.host is None:
                    work.future.set_result(work.tensor)
                else:
                    self._finish_cuda(work)
            except Exception as exc:
                self._fail(work, exc)

    def _finish_cuda(self, work: _Work) -> None:
        # set_result records the current stream: users of the future's value wait for this copy, on the device
        with torch.cuda.device(work.tensor.device), torch.cuda.stream(work.stream):
            work.tensor.copy_(work.host, non_blocking=True)
            work.future.set_result(work.tensor)

    def _fail(self, work: _Work, exc: Exception) -> None:
        if isinstance(exc, errors.ReductionTimeoutError) and exc is not self.error:
            exc = errors.ReductionTimeoutError(exc.code, f"{work.name} was not reduced within {self.timeout} s")
        if self.error is None and isinstance(exc, errors.ReductionError):
            self.error = exc
        work.future.set_result(exc)

    def close(self) -> None:
        """Waits for pending operations, ends the threads, and closes the communicator if the State opened it."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        if self._starter is not None:
            self._starts.put(None)
            self._starter.join()
        self._waits.put(None)
        self._waiter.join()
        if self._owns_comm:
            self._close_comm()

    def _close_comm(self) -> None:
        try:
            self.comm.close()
        except errors.ReductionError:
            if self.error is None:  # otherwise the error was raised already
                raise

    def __enter__(self) -> "State":
        return self

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        self.close()


def _value_or_raise(future: torch.futures.Future) -> torch.Tensor:
    # Future.set_exception() marks the error for Python only. DDP waits in C++, which sees only errors that a callback
    # raises
    value = future.value()
    if isinstance(value, Exception):
        raise value
    return value


def allreduce_hook(
    state: State, bucket: torch.distributed.GradBucket
) -> torch.futures.Future[torch.Tensor]:  # register_comm_hook checks these annotations
    """Averages a bucket over all ranks. For DistributedDataParallel.register_comm_hook(state, allreduce_hook)."""
    tensor = bucket.buffer()
    name = str(tensor.dtype).rpartition(".")[2]
    if name not in _DTYPES:
        raise TypeError(f"gradients of {tensor.dtype} are not supported; supported are {', '.join(sorted(_DTYPES))}")
    if not torch.autograd._profiler_enabled():
        return state.submit(tensor, bucket.index(), bucket.is_last())
    # a range of torch.profiler that lasts until the result is there; emit_nvtx() makes an NVTX range of it
    label = f"reduction::all_reduce bucket {bucket.index()} ({tensor.numel() * tensor.element_size()} bytes)"
    with torch.profiler.record_function(label) as span:
        return span._call_end_callbacks_on_future(state.submit(tensor, bucket.index(), bucket.is_last()))


def empty_buffer(comm: Communicator, shape: Any, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """As Communicator.empty_buffer, but returns a tensor; also for bfloat16."""
    array = comm.empty_buffer(shape, dtype)
    if dtype == torch.bfloat16:
        return torch.from_numpy(array.view("int16")).view(torch.bfloat16)
    return torch.from_numpy(array)


register()
