# SPDX-License-Identifier: Apache-2.0
"""Communicator: the ranks of a job, and operations on arrays.

The happy path: open, start operations in the same order on all ranks, wait for them, close. Failure modes: a wait that
times out leaves its operation pending; any other failure of an operation breaks the communicator, and every later call
raises the same error. An operation that is not waited for is kept here, with its memory, until it is done.
"""

import atexit
import collections
import ctypes
import os
import sys
import threading
import warnings
import weakref
from typing import Any, Callable, Deque, List, NamedTuple, Optional, Sequence, Tuple, Union

from . import _buffers, _lib, errors
from ._request import Request
from ._sharded import ShardedCalls
from .group import Group

_INT_MAX = 2**31 - 1

_open_comms: "weakref.WeakSet[Communicator]" = weakref.WeakSet()


class Stats(NamedTuple):
    """Bytes on the network since open, with headers: of this process (direct) or of its node's agent for the job."""

    tx_bytes: int
    rx_bytes: int
    ops_done: int


def _interruptible(call: Callable[[], int], undo: Callable[[], None]) -> int:
    """Runs a blocking call of the library so that Ctrl-C works. After Ctrl-C, undo() runs when the call returns."""
    if threading.current_thread() is not threading.main_thread():
        return call()
    result: List[int] = []
    abandoned = threading.Event()
    lock = threading.Lock()

    def body() -> None:
        status = call()
        with lock:
            result.append(status)
            if abandoned.is_set():
                undo()

    thread = threading.Thread(target=body, name="reduction-open", daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(0.05)
    except BaseException:
        with lock:
            abandoned.set()
            if result:
                undo()
        raise
    return result[0]


def _text(value: Union[str, os.PathLike, None]) -> Optional[bytes]:
    return None if value is None else os.fsencode(value)


def _number(value: Optional[int]) -> int:
    return -1 if value is None else int(value)


def _mode(value: Optional[str]) -> int:
    if value is None:
        return _lib.MODE_DEFAULT
    if value not in _lib.MODES:
        raise ValueError(f"mode {value!r} is unknown; known are {', '.join(_lib.MODES)}")
    return _lib.MODES[value]


class Communicator(ShardedCalls):
    """The ranks of a job, which call the same operations in the same order.

    An argument that stays None is taken from the environment (RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE of
    torchrun, or those of Slurm, Open MPI or MPICH; REDUCTION_CONFIG or REDUCTION_REDUCERS, REDUCTION_JOB,
    REDUCTION_MODE, REDUCTION_AGENT), then from the configuration file, then it is the default. Threads may share a
    communicator if they start operations in an order that is the same on all ranks.

    Args:
        config: path of the YAML file.
        job: name of the job. By default it is made from `run`.
        run: identity of this training, equal on all its ranks; REDUCTION_RUN, or from the launcher. Reducers and agents
            refuse a rank of another run.
        mode: how this process reaches the reducers. "agent": through the reduction-agent of this node; "node": through
            the process of local rank 0, which serves its node; "direct": by itself. "auto", the default: "agent" if a
            socket is given or an agent listens at agent.socket of the file; else "node" if the launcher says which
            processes share a node and some do; else "direct".
        agent: path of the agent's socket. It means mode "agent", and is invalid with "node" and "direct".
        rank, world_size: of this process and of the job.
        local_rank, local_world_size: on this node (not with mode "direct").
        generation: number of the job's restart.
        connect_timeout: seconds within which all ranks must meet.
        group: for a communicator of some of a job's ranks: 16 lower-case hexadecimal digits, equal on its ranks. The
            job's name becomes JOB@DIGITS; `rank` and `world_size` are those in the group.
        wire: how sums and averages of floating-point arrays of more than 64 KiB are written on the network, instead of
            job.wire of the file: "same", "bf16", "fp8", "int8", "fp16" or "int4", or as
            "up=fp8,down=bf16,rounding=stochastic"; REDUCTION_WIRE. Equal on all ranks. With an agent rounding and
            feedback are those of its file.

    If Ctrl-C, or a signal handler that raises, ends a blocking call, the job ends on all ranks, since this rank would
    be at another operation than the others. Request.wait() can be called again instead.

    Raises:
        ReductionError: not all ranks have met; the message names those that are missing.
    """

    def __init__(
        self,
        config: Union[str, os.PathLike, None] = None,
        *,
        job: Optional[str] = None,
        run: Optional[str] = None,
        mode: Optional[str] = None,
        agent: Union[str, os.PathLike, None] = None,
        rank: Optional[int] = None,
        world_size: Optional[int] = None,
        local_rank: Optional[int] = None,
        local_world_size: Optional[int] = None,
        generation: Optional[int] = None,
        connect_timeout: Optional[float] = None,
        group: Optional[str] = None,
        wire: Optional[str] = None,
    ):
        self._handle: Optional[int] = None
        self._pid = os.getpid()
        # guards _handle, _pending and the order of starts; re-entrant because the garbage
        # collector may free a buffer
        self._lock = threading.RLock()
        self._pending: Deque[Request] = collections.deque()
        self._unused: List[Tuple[int, int]] = []  # addresses and sizes of buffers that are to be freed
        self._left = False  # close() has ended: the library does not know the buffers any more
        self._ending = threading.RLock()  # _handle stays what it is while this is held; taken after _lock
        self._lib = _lib.load()
        # what starting an operation returns; _lock guards them
        self._out, self._err = ctypes.c_void_p(), _lib.Error()
        self._out_ref, self._err_ref = ctypes.byref(self._out), ctypes.byref(self._err)
        timeout_ms = -1 if connect_timeout is None else int(min(max(1, connect_timeout * 1000), _INT_MAX))
        options = _lib.Options(
            ctypes.sizeof(_lib.Options), _text(config), _text(job), _text(run), _mode(mode), _text(agent),
            _number(rank), _number(world_size), _number(local_rank), _number(local_world_size), _number(generation),
            timeout_ms, _text(group), _text(wire),
        )  # fmt: skip
        handle = ctypes.c_void_p()
        err = _lib.Error()
        status = _interruptible(
            lambda: self._lib.reduction_open(ctypes.byref(handle), ctypes.byref(options), ctypes.byref(err)),
            lambda: handle.value and self._lib.reduction_close(handle, None),
        )
        _lib.check(status, err)
        self._handle = handle.value
        self._rank = self._lib.reduction_rank(handle)
        self._world_size = self._lib.reduction_world_size(handle)
        self._priorities = self._lib.reduction_priorities(handle)
        _open_comms.add(self)
        _close_in_child()

    @property
    def rank(self) -> int:
        """Rank of this process."""
        return self._rank

    @property
    def world_size(self) -> int:
        """Number of processes of the job."""
        return self._world_size

    @property
    def priorities(self) -> int:
        """Number of priorities, at least 1 (sharding.priorities of the configuration)."""
        return self._priorities

    @property
    def closed(self) -> bool:
        """True after close()."""
        return self._handle is None

    def _usable(self) -> int:
        if self._handle is None:
            raise errors.ClosedError(errors.ECLOSED, "the communicator is closed")
        if os.getpid() != self._pid:
            raise errors.ReductionError(
                errors.EINVAL, "the communicator was opened before a fork() and cannot be used in the child"
            )
        return self._handle

    def _forget_done(self) -> None:
        # only the oldest: a program with hundreds pending must not test each of them at
        # every start
        pending = self._pending
        while pending and (pending[0]._handle is None or pending[0].done()):
            pending.popleft()

    def _start(self, request: Request, call: Callable[[int, Any, Any], int]) -> Request:
        with self._lock:
            self._forget_done()
            self._out.value = None
            try:
                status = call(self._usable(), self._out_ref, self._err_ref)
            finally:  # also after Ctrl-C: the library uses the memory if it has returned a handle
                if self._out.value is not None:
                    request._handle, request._started = self._out.value, True
                    self._pending.append(request)
            if status != errors.OK:
                _lib.check(status, self._err)
        return request

    def _run(
        self, request: Request, call: Callable[[int, Any, Any], int], async_op: bool, timeout: Optional[float] = None
    ) -> Any:
        """Starts an operation. Returns the request or, if async_op is False, waits and returns its target."""
        try:
            self._start(request, call)
            return request if async_op else request.wait(timeout)
        except errors.ReductionTimeoutError:
            raise  # it goes on, as after a wait of its own
        except BaseException as exc:
            if not request._returns(exc):
                self._interrupted([request], exc)
            raise

    def _interrupted(self, requests: Sequence[Request], exc: BaseException) -> None:
        """Ctrl-C, or a signal handler that raises, has ended a call: ends the job on all ranks.

        The caller does not know whether its operations have been done, and may change the memory: if it went on, it
        would be at another operation than the other ranks. When this returns the library does not use the memory.
        """
        reason = f"{type(exc).__name__} interrupted a call that had started an operation"
        while True:
            try:
                self.abort(reason)
                for request in requests:
                    request._finish()
                return
            except errors.ReductionError:
                return  # a forked process, whose memory no thread of the library uses
            except BaseException:
                pass  # the next Ctrl-C; the operations end within a second

    def _start_dense(self, target: Any, pointer: int, count: int, dtype: int, op: int) -> Request:
        """As all_reduce(target, op, async_op=True), for a caller that knows that the target's memory is dense.

        Args:
            pointer, count: of the target's elements.
            dtype, op: numbers, as in `_buffers`.
        """
        return self._run(
            Request(self, target, None, None),
            lambda comm, request, err: self._lib.reduction_all_reduce_async(
                comm, pointer, pointer, count, dtype, op, None, request, err
            ),
            True,
        )

    def all_reduce(
        self,
        array: Any,
        op: str = "sum",
        *,
        async_op: bool = False,
        out: Any = None,
        dtype: Optional[str] = None,
        name: Optional[str] = None,
        priority: Optional[int] = None,
        wire: Optional[str] = None,
    ) -> Any:
        """Combines `array` element by element over all ranks.

        Args:
            array: numpy array, torch tensor, an array of a GPU with `__cuda_array_interface__` (CuPy, Numba), or any
                other array with `__dlpack__` (JAX), which must be dense if it is on a GPU.
                Memory of a GPU is used on the stream that is current in torch or that the array names: the call does
                not wait for it. An array that is not dense is copied and copied back; that of a GPU must be dense,
                but for tensors of torch.
            op: "sum", "prod", "max", "min" or "avg" (the sum divided by the number of processes).
            async_op: start the operation and return at once.
            out: array for the result, with the shape and dtype of `array`; None: the result replaces `array`.
            dtype: "bfloat16" or "float16" if `array` holds their bits as uint16 or int16.
            name: appears in messages; must be equal on all ranks.
            priority: 0 (least urgent) to `priorities` - 1; higher values mean the highest. An operation with a higher
                priority overtakes others. Must be equal on all ranks. None: highest up to 64 KiB, else 0.
            wire: "same", "bf16", "fp8", "int8", "fp16" or "int4": how this array is written on the network, whatever
                its size. Must be equal on all ranks. What it does not fit (integers, float64, maxima) is sent as it is.
                None: as the communicator says.

        Returns:
            The array with the result. With async_op=True a Request: do not change `array`, nor use `out`, until its
            wait() has returned.

        Raises:
            ReductionError: the operation failed; the message says why.
        """
        tensor, send, receive = _buffers.tensor(array, op, out, dtype, name, priority, wire)
        return self._run(
            Request(self, array if out is None else out, send, receive),
            lambda comm, handle, err: self._lib.reduction_all_reduce_tensor_async(
                comm, ctypes.byref(tensor), handle, err
            ),
            async_op,
        )

    def _later(self, target: Any, send: _buffers.Block, receive: _buffers.Block) -> Request:
        """Returns a request of a group, which is not started yet."""
        return Request(self, target, send, receive)

    def _start_group(self, tensors: List[_lib.Tensor], requests: List[Request]) -> None:
        handles = (ctypes.c_void_p * len(tensors))()
        err = _lib.Error()
        with self._lock:
            self._forget_done()
            try:
                status = self._lib.reduction_all_reduce_group_async(
                    self._usable(), (_lib.Tensor * len(tensors))(*tensors), len(tensors), handles, ctypes.byref(err)
                )
            finally:  # as in _start()
                for request, handle in zip(requests, handles):
                    if handle is not None:
                        request._handle, request._started = handle, True
                        self._pending.append(request)
            _lib.check(status, err)

    def _run_group(self, tensors: List[_lib.Tensor], requests: List[Request], async_op: bool) -> None:
        """Starts the operations of a group and, if async_op is False, waits for all of them."""
        try:
            self._start_group(tensors, requests)
            if not async_op:
                for request in requests:
                    request.wait()
        except BaseException as exc:
            if not any(exc is request._error for request in requests) and any(r._started for r in requests):
                self._interrupted(requests, exc)
            raise

    def group(self, *, async_op: bool = False) -> Group:
        """Returns a group of all-reduces, which start together at the end of a with block. Small ones share operations:

            with comm.group() as group:
                for p in parameters:
                    group.all_reduce(p.grad, "avg")

        So 200 tensors of 1 KiB cost about as much as one of 200 KiB. The end of the block waits for all of them.
        With async_op=True it does not wait, and their requests are in group.requests.
        """
        return Group(self, async_op)

    def all_reduce_coalesced(
        self,
        arrays: Sequence[Any],
        op: str = "sum",
        *,
        async_op: bool = False,
        dtype: Optional[str] = None,
        names: Optional[Sequence[Optional[str]]] = None,
        wire: Optional[str] = None,
    ) -> List[Any]:
        """Calls all_reduce() for each array, as a group (see group()).

        Args:
            names: one name for each array.
            wire: for all arrays.

        Returns:
            The arrays, or with async_op=True a Request for each.
        """
        if names is not None and len(names) != len(arrays):
            raise ValueError(f"there are {len(names)} names for {len(arrays)} arrays")
        with self.group(async_op=async_op) as group:
            for array, name in zip(arrays, names or [None] * len(arrays)):
                group.all_reduce(array, op, dtype=dtype, name=name, wire=wire)
        return group.requests if async_op else [request._target for request in group.requests]

    def broadcast(
        self,
        array: Any,
        root: int = 0,
        *,
        async_op: bool = False,
        dtype: Optional[str] = None,
        name: Optional[str] = None,
        priority: Optional[int] = None,
    ) -> Any:
        """Copies rank root's array into every rank's array. Returns the array, or with async_op=True a Request.

        dtype, name and priority are as in all_reduce().
        """
        tensor, _, receive = _buffers.tensor(array, "sum", None, dtype, name, priority)
        return self._run(
            Request(self, array, None, receive),
            lambda comm, handle, err: self._lib.reduction_broadcast_tensor_async(
                comm, ctypes.byref(tensor), int(root), handle, err
            ),
            async_op,
        )

    def barrier(self, timeout: Optional[float] = None, *, async_op: bool = False) -> Any:
        """Waits until all ranks have called it. Raises ReductionTimeoutError after `timeout` seconds.

        With async_op=True it does not wait and returns a Request.
        """
        return self._run(
            Request(self, None, None, None),
            lambda comm, handle, err: self._lib.reduction_all_reduce_async(
                comm, None, None, 0, _buffers.DTYPES["uint8"], _buffers.OPS["sum"], b"barrier", handle, err
            ),
            async_op,
            timeout,
        )

    def empty_buffer(self, shape: Union[int, Sequence[int]], dtype: Any = "float32") -> _buffers.ndarray:
        """Returns an array of zeros in memory that is shared with the agent: operations on it are not copied.

        For dtype "bfloat16" it is an array of uint16: pass dtype="bfloat16" to the operations. The memory is freed with
        the last array that uses it.
        """
        import numpy

        shape, form, size = _buffers.buffer_form(shape, dtype)
        pointer = ctypes.c_void_p()
        err = _lib.Error()
        with self._lock:
            self._free_unused()
            status = self._lib.reduction_buffer_alloc(
                self._usable(), max(size, 1), ctypes.byref(pointer), ctypes.byref(err)
            )
            _lib.check(status, err)
        assert pointer.value is not None
        memory = (ctypes.c_ubyte * size).from_address(pointer.value)
        weakref.finalize(memory, self._free_buffer, (pointer.value, max(size, 1))).atexit = False
        return numpy.frombuffer(memory, dtype=form).reshape(shape)

    def _free_buffer(self, buffer: Tuple[int, int]) -> None:
        # the garbage collector calls this in any thread, also in abort(): it must not
        # wait for one that starts
        self._unused.append(buffer)
        if self._lock.acquire(blocking=False):
            self._free_unused()
            self._lock.release()

    def _free_unused(self) -> None:
        while self._unused:
            pointer, size = self._unused.pop()
            if os.getpid() != self._pid:
                continue  # a forked process shares the memory with its parent
            if self._handle is not None:
                self._lib.reduction_buffer_free(self._handle, pointer)
            elif self._left:
                self._lib.reduction_buffer_unmap(pointer, size)
            else:
                self._unused.append((pointer, size))  # close() has not ended
                return

    def stats(self) -> Stats:
        """Returns the bytes on the network and the number of operations done, since open."""
        found = _lib.StatsStruct(ctypes.sizeof(_lib.StatsStruct))
        err = _lib.Error()
        with self._lock:
            status = self._lib.reduction_get_stats(self._usable(), ctypes.byref(found), ctypes.byref(err))
        _lib.check(status, err)
        return Stats(found.tx_bytes, found.rx_bytes, found.ops_done)

    def abort(self, reason: Optional[str] = None) -> None:
        """Ends the job on all ranks. Pending and later operations of all ranks raise AbortedError.

        Its message names this rank and the reason. Any thread may call this, also while others start operations or
        wait for them; it does not wait. Then close the communicator. A second call has no effect, nor has one on a
        closed communicator.
        """
        err = _lib.Error()
        with self._ending:  # and not _lock, which a thread holds while it waits to start an operation
            if self._handle is None or os.getpid() != self._pid:
                return
            status = self._lib.reduction_abort(self._handle, _text(reason), ctypes.byref(err))
        _lib.check(status, err)

    def reconfigure(self, rank: int, world_size: int, generation: int) -> None:
        """Goes on in another generation of the job, with another rank and world size.

        Ends the generation that runs, on all its ranks: pending operations raise ClosedError. Returns when all ranks of
        the new generation have met. Connections to reducers and buffers stay as they are. May be called at once after
        any error of an operation, and again after an error of its own, each time with a newer generation. A new process
        joins with Communicator(rank=..., world_size=..., generation=...). No other thread may call close() meanwhile.

        Raises:
            ReductionError: not all ranks have met (the message names those that are missing), or a node's agent serves
                this process.
        """
        err = _lib.Error()
        with self._ending:
            handle = self._usable()
        status = _interruptible(
            lambda: self._lib.reduction_reconfigure(handle, rank, world_size, generation, ctypes.byref(err)),
            lambda: self._lib.reduction_abort(handle, b"interrupted", None),
        )
        _lib.check(status, err)
        self._rank, self._world_size = rank, world_size

    def close(self) -> None:
        """Leaves the job in good order. Pending operations end with ClosedError. May be called again.

        If this process serves its node, it waits for the node's other ranks (not after abort()).
        """
        with self._lock, self._ending:
            handle, self._handle = self._handle, None
            pending, self._pending = self._pending, collections.deque()
        _open_comms.discard(self)
        if handle is None or os.getpid() != self._pid:
            return
        err = _lib.Error()
        status = self._lib.reduction_close(handle, ctypes.byref(err))
        for request in pending:
            request._finish()
        with self._lock:
            self._left = True
            self._free_unused()
        _lib.check(status, err)

    def __enter__(self) -> "Communicator":
        return self

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        try:
            self.close()
        except errors.ReductionError:
            if kind is None:  # otherwise the error that ended the block is more useful
                raise

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None and os.getpid() == self._pid:
            warnings.warn("a reduction.Communicator was not closed", ResourceWarning, stacklevel=2)
            try:
                self.close()
            except errors.ReductionError:
                pass  # there is no caller to report to

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        return f"<reduction.Communicator rank {self._rank} of {self._world_size}, {state}>"


def _close_all() -> None:
    """At exit: closes communicators that the program left open, so that other ranks do not report this one as lost."""
    for comm in list(_open_comms):
        try:
            comm.close()
        except errors.ReductionError:
            pass


def _close_in_child() -> None:
    """A process that multiprocessing has forked calls its own functions at its end, and not those of atexit."""
    util = sys.modules.get("multiprocessing.util")
    if util is not None and len(_open_comms) == 1:
        util.Finalize(None, _close_all, exitpriority=0)


atexit.register(_close_all)
