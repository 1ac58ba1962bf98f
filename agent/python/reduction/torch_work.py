# SPDX-License-Identifier: Apache-2.0
"""The operations of one process group, in order, and torch's Work objects for them. `reduction.torch_group` uses it.

The happy path: an operation is started by the thread that calls it, and the thread that calls wait() waits for it in
the library. The host waits, also for a GPU: see `reduction.torch_stream`. Other threads exist only while they are
needed: the starter opens the communicator at the group's first operation and starts the operations that were called
meanwhile; waiters complete futures. Failure modes: the first error of an operation fails the channel, and all later
operations of the group fail with the same sentence. An operation that is not done within the group's timeout aborts the
communicator, so that the other ranks fail too.

Callbacks of futures may start operations, beside the threads of the program. Their place among the other operations is
the same on all ranks only if nothing else was started between get_future() and the callback. Otherwise the group fails.
"""

import collections
import contextlib
import os
import queue
import threading
import time
from typing import Any, Callable, Deque, List, Optional, Sequence, Tuple

import torch
import torch.distributed

from . import errors
from .comm import Communicator, Request
from .torch_stream import Arrivals, future_for

_BaseWork = torch._C._distributed_c10d.Work
# Works that nobody has waited for yet. C++ code of torch 1.13 that gets a Work from
# Python does not keep its Python part alive, and would wait for ever in the part that is
# left.
_HELD = 64
_SHUT_DOWN = "the process group has been shut down"

_thread = threading.local()  # .work: the one whose future's callbacks the thread runs, or None


def named_ranks(message: str, members: Optional[Sequence[int]]) -> str:
    """Adds to the library's sentence which ranks of the job a group's ranks are, in order. members None: the same."""
    if not members:
        return message
    step = members[1] - members[0] if len(members) > 1 else 1
    if len(members) > 4 and step > 0 and list(members) == list(range(members[0], members[-1] + 1, step)):
        ranks = f"{members[0]}, {members[1]}, ... {members[-1]}"
    else:
        ranks = ", ".join(map(str, members))
    return f"{message} (the group's ranks from 0 on are ranks {ranks} of the job)"


def _value_or_raise(future: torch.futures.Future) -> Any:
    # an error of Future.set_exception() is not seen by C++ code that waits, one that a
    # callback raises is
    value = future.value()
    if isinstance(value, Exception):
        raise value
    return value


class Work(_BaseWork):
    """An operation of the group. Its methods are those of torch.distributed.Work.

    Args:
        tensors: the result, for get_future() and result().
        begin: starts the operation on a communicator and returns its requests.
        finish: is called once after success, by a thread that waits; or None.
        arrivals: those of the tensors' GPU, or None.
        in_order: finish is called in the order of the operations, also after an error of one that has begun, and only
            by a thread of the program: it is a collective of the node's ranks, as what their threads do meanwhile is.
        timeout: in seconds; None: that of the channel.
    """

    def __init__(
        self,
        channel: "Channel",
        kind: str,
        tensors: List[torch.Tensor],
        begin: Callable[[Communicator], List[Request]],
        finish: Optional[Callable[[], None]] = None,
        arrivals: Optional[Arrivals] = None,
        in_order: bool = False,
        timeout: Optional[float] = None,
    ):
        super().__init__()
        self._channel = channel
        self._kind = kind
        self._tensors = tensors
        self._begin: Optional[Callable[[Communicator], List[Request]]] = begin
        self._finish = finish
        self._lock = threading.Lock()  # for _finish and _arrived
        self._arrivals = arrivals
        self._in_order = in_order
        self._timeout = timeout
        self._claims = max(1, len(tensors))  # functional collectives of torch 2.3 to 2.6 wait for each tensor
        self._arrived: Any = None  # the event behind the result on the side stream
        self._started: Optional[threading.Event] = None  # set: the operation is not queued any more
        self._requests: List[Request] = []
        self._error: Optional[Exception] = None
        self._future: Optional[torch.futures.Future] = None
        self._plain: Optional[torch.futures.Future] = None  # completes _future; None: done, or a thread is doing it
        # its number in the channel, behind those of the operations in whose callbacks it
        # was started
        self._path: Tuple[int, ...] = ()
        self._asked_at: Tuple[int, ...] = ()  # path of the channel's last operation when the future was asked for

    @property
    def _value(self) -> Any:
        """The value of the future."""
        return self._tensors

    @property
    def _limit(self) -> float:
        return self._channel.timeout if self._timeout is None else self._timeout

    def _start(self, comm: Communicator) -> None:
        """Starts the operation. An error becomes that of the work: DDP cannot go on after one in its hook."""
        begin, self._begin = self._begin, None
        try:
            assert begin is not None
            if self._in_order:
                self._channel.ordered.append(self)
            self._requests = begin(comm)
        except errors.ReductionError as exc:
            self._error = self._channel.failed(exc)
        except Exception as exc:
            self._error = exc
        finally:
            if self._started is not None:
                self._started.set()

    def _fail(self, error: Exception) -> None:
        self._begin = None
        self._error = error
        if self._started is not None:
            self._started.set()

    def _finish_once(self) -> None:
        """Does what follows the operation, or queues it on the side stream. An error is that of the work."""
        with self._lock:
            if self._error is not None:
                raise self._error.with_traceback(None)
            try:
                self._run_finish()
            except Exception as exc:
                self._error = exc
                raise

    def _run_finish(self) -> None:
        finish, self._finish = self._finish, None
        if finish is None:
            return
        if self._arrivals is None:
            finish()
            return
        with self._arrivals.current():
            finish()
        self._arrived = self._arrivals.event()

    def end_in_order(self, deadline: float) -> None:
        """Waits and finishes, also after an error, which the work keeps. Raises ReductionTimeoutError only."""
        try:
            self._wait_requests(deadline)
        except errors.ReductionTimeoutError:
            raise
        except errors.ReductionError:
            pass  # _error has it; the node's other ranks wait for this one's part
        with self._lock, contextlib.suppress(RuntimeError):
            self._run_finish()

    def _wait(self, seconds: float) -> None:
        """Waits until the operation has ended. Raises ReductionTimeoutError if it has not, or the operation's error."""
        deadline = time.monotonic() + seconds
        if self._started is not None and not self._started.wait(seconds):
            raise errors.ReductionTimeoutError(errors.ETIMEOUT, "the operation was not started in time")
        if self._in_order:
            self._channel.end_until(self, deadline)
        if self._error is not None:
            raise self._error.with_traceback(None)
        self._wait_requests(deadline)
        self._finish_once()

    def _wait_requests(self, deadline: float) -> None:
        for request in self._requests:
            try:
                request.wait(max(0.0, deadline - time.monotonic()))
            except errors.ReductionTimeoutError:
                raise
            except errors.ReductionError as exc:
                self._error = self._channel.failed(exc)
                raise self._error from None

    def _wait_or_abort(self) -> None:
        """As _wait(), for the group's timeout, after which the group is of no use any more."""
        try:
            self._wait(self._limit)
        except errors.ReductionTimeoutError as exc:
            if self._error is None:
                self._error = self._timed_out(exc)
            if self._in_order:
                self._channel.end_until(self, time.monotonic() + threading.TIMEOUT_MAX)  # it was aborted
            raise self._error.with_traceback(None) from None
        except BaseException as exc:
            if exc is not self._error and not any(exc is request._error for request in self._requests):
                self._interrupted(exc)
            raise

    def _interrupted(self, exc: BaseException) -> None:
        """Ends the group: as Communicator._interrupted(), which says why."""
        sentence = f"{type(exc).__name__} interrupted {self._kind}"
        error = self._channel.failed(errors.AbortedError(errors.EABORTED, sentence))
        while True:
            try:
                if self._error is None:
                    self._error = error
                self._channel.abort(sentence)
                self._channel.forget(self)
                for request in self._requests:
                    request._finish()
                return
            except errors.ReductionError:
                return  # a forked process, whose memory no thread of the library uses
            except BaseException:
                pass  # the next Ctrl-C; the operations end within a second

    def _timed_out(self, exc: errors.ReductionTimeoutError) -> errors.ReductionError:
        """Ends the group. Returns its error."""
        sentence = f"{self._kind} was not done within the {self._channel.owner}'s timeout of {self._limit:g} s"
        error = self._channel.failed(errors.ReductionTimeoutError(exc.code, sentence))
        self._channel.abort(sentence)
        return error

    def wait(self, timeout: Any = None) -> bool:
        """Waits until the operation has ended. Raises its error.

        Args:
            timeout: a timedelta after which ReductionTimeoutError is raised; the operation is then still pending. None:
                the group's timeout, after which the group fails on all ranks.
        """
        self._channel.claimed(self)
        seconds = timeout.total_seconds() if timeout is not None else 0
        if seconds > 0:
            self._wait(seconds)
        else:
            self._wait_or_abort()
        if self._arrivals is not None and self._arrived is not None:
            torch.cuda.current_stream(self._arrivals.device).wait_event(self._arrived)
        if self._future is not None:
            self._settle(self._value)
            while not self._future.done():
                time.sleep(0)  # another thread has begun to complete it
        return True

    def synchronize(self) -> None:
        """As wait()."""
        self.wait()

    def is_completed(self) -> bool:
        """Returns True if the operation has ended, with or without an error."""
        if self._error is not None:
            return True
        if self._started is not None and not self._started.is_set():
            return False
        if not all(request.done() for request in self._requests) or (self._in_order and self._finish is not None):
            return False
        try:
            self._wait(0)
        except errors.ReductionTimeoutError:
            return False  # another thread is just noting the end
        except Exception:
            return True  # exception() has it
        return self._arrived is None or self._arrived.query()

    def is_success(self) -> bool:
        """Returns True if the operation has ended without an error."""
        return self.is_completed() and self._error is None

    def exception(self) -> Optional[Exception]:
        """Returns the error of an operation that has ended with one."""
        return self._error if self.is_completed() else None

    def result(self) -> List[torch.Tensor]:
        """Waits, and returns the tensors that hold the result."""
        self.wait()
        return self._tensors

    def get_future(self, later: bool = False) -> torch.futures.Future:
        """Returns a future whose value is the list of the tensors.

        Args:
            later: the caller calls settle() afterwards. Without it the call waits for an operation that is finished in
                order, and a thread completes the futures of others.
        """
        self._channel.claimed(self)
        if self._future is None:
            self._asked_at = self._channel.last
            self._plain = future_for(self._tensors)
            self._future = self._plain.then(_value_or_raise)
            if later:
                pass
            elif self._in_order:
                self.settle()
            elif self.is_completed():
                self._settle(self._value if self._error is None else self._error)
            else:
                self._channel.watch(self)
        return self._future

    def settle(self) -> None:
        """Waits until the operation has ended, and completes the future."""
        self._settle(self._outcome())

    def _settle(self, value: Any) -> None:
        """Completes the future with the tensors or the error, unless a thread has done so or nobody asked for it."""
        with self._lock:
            future, self._plain = self._plain, None
        if future is None:
            return
        outer, _thread.work = getattr(_thread, "work", None), self
        try:
            with self._arrivals.current() if self._arrivals is not None else contextlib.nullcontext():
                future.set_result(value)  # runs callbacks
        finally:
            _thread.work = outer

    def _outcome(self) -> Any:
        """Waits. Returns the tensors or the error, as the value for a future."""
        try:
            self._wait_or_abort()
        except Exception as exc:
            return exc
        return self._value


def _agreed(comm: Communicator, most: int) -> int:
    """Returns what all ranks shard (Channel.shards), this one at most `most`. Each waits for all others."""
    comm.barrier()  # what a rank can do is known when an operation is done
    return int(comm.all_reduce(torch.tensor([most * comm.can_shard], dtype=torch.int32), "min", name="who can shard"))


class Channel:
    """The communicator of one process group, opened at its first operation.

    Invariant: while there is a starter, every operation is appended to `_backlog`; without one the communicator is
    open, or the channel is new, closed or has failed. So operations start in the order of the calls.

    Args:
        open_communicator: opens the communicator, and may take until all ranks have met.
        timeout: of the process group, in seconds.
        members: the ranks of the training in the group; None if it has all of them.
        agrees: what this rank shards if all ranks can, 1 or 2 as in `shards`, on which they agree; 0: they do not ask.
    """

    owner = "process group"  # in errors

    def __init__(
        self,
        open_communicator: Callable[[], Communicator],
        timeout: float,
        members: Optional[Sequence[int]],
        agrees: int = 0,
    ):
        self._timeout, self._agrees = timeout, agrees
        self.shards = 0  # all ranks shard 1: the host's tensors, 2: also a GPU's; set before the first operation
        self.members = members
        self._open = open_communicator
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._comm: Optional[Communicator] = None
        self._error: Optional[errors.ReductionError] = None
        self._abort_reason: Optional[str] = None
        self._closed = False
        self._backlog: Deque[Work] = collections.deque()
        self._starter: Optional[threading.Thread] = None
        self._waits: "queue.SimpleQueue[Any]" = queue.SimpleQueue()
        self._unsettled = 0  # works that waiters have to complete
        self._settled = threading.Condition(self._lock)
        self._owned = True  # the channel closes the communicator
        self.ordered: Deque[Work] = collections.deque()  # that have begun and are finished in this order
        self._ending = threading.Lock()  # the order of finishing
        self._waiting = 0  # waiters that wait, and do not run callbacks of a future
        self._held: "collections.OrderedDict[int, Work]" = collections.OrderedDict()
        self._count = 0
        self.last: Tuple[int, ...] = ()  # the path of the operation that was started last

    @classmethod
    def over(cls, comm: Optional[Communicator], owner: str) -> "Channel":
        """Returns the channel of a communicator that is open, which the caller closes. It has no timeout."""
        channel = cls(lambda: comm, threading.TIMEOUT_MAX, None)
        channel._comm, channel._owned, channel.owner = comm, False, owner
        return channel

    @property
    def error(self) -> Optional[errors.ReductionError]:
        """The first error of an operation, or None."""
        return self._error

    @property
    def timeout(self) -> float:
        """The timeout of operations, in seconds."""
        return min(self._timeout, threading.TIMEOUT_MAX)

    @timeout.setter
    def timeout(self, seconds: float) -> None:
        self._timeout = seconds

    def check_usable(self) -> None:
        """Raises ReductionError after close(), and in a process that was forked."""
        if os.getpid() != self._pid:
            raise errors.ReductionError(
                errors.EINVAL, "the process group was made before a fork() and cannot be used in the child"
            )
        if self._closed:
            raise errors.ClosedError(errors.ECLOSED, _SHUT_DOWN)

    def start(self, work: Work) -> Work:
        """Starts an operation, or queues it while the communicator is being opened. Errors are those of the work."""
        self.check_usable()  # first: in a forked process another thread may have had the lock
        with self._lock:
            self.check_usable()
            self._take_place(work)
            self._held[id(work)] = work
            if len(self._held) > _HELD:
                self._held.popitem(last=False)
            if self._error is not None:
                work._fail(self._error)
            elif self._starter is None and self._comm is not None:
                work._start(self._comm)
            else:
                work._started = threading.Event()
                self._backlog.append(work)
                if self._starter is None:
                    self._starter = threading.Thread(target=self._start_loop, name="reduction-start", daemon=True)
                    self._starter.start()
        return work

    def _take_place(self, work: Work) -> None:
        """Gives an operation its path. One whose place may differ between the ranks fails the group on all of them."""
        self._count += 1
        caller = getattr(_thread, "work", None)
        within = caller._path if caller is not None and caller._channel is self else ()
        if within and self.last != caller._asked_at and self.last[: len(within)] != within and self._error is None:
            sentence = (
                f"{work._kind} was started in a callback of a future after other operations of the group, so its "
                "order may differ between the ranks; a communication hook of several buckets needs "
                "reduction.torch.in_order(hook)"
            )
            self.failed(errors.ReductionError(errors.EINVAL, sentence))
            self.abort(sentence)
        work._path = self.last = (*within, self._count)

    def _open_and_agree(self) -> Communicator:
        comm = self._open()
        try:
            self.shards = _agreed(comm, self._agrees) if self._agrees else 0
        except BaseException:
            comm.close()
            raise
        return comm

    def _start_loop(self) -> None:
        try:
            comm = self._open_and_agree()
        except errors.ReductionError as exc:
            self.failed(exc)
        except Exception as exc:
            self.failed(errors.ReductionError(errors.EINVAL, str(exc)))
        else:
            with self._lock:
                if not self._closed:
                    self._comm, comm = comm, None
            if comm is not None:
                comm.close()
            elif self._abort_reason is not None and self._comm is not None:
                self._comm.abort(self._abort_reason)
        while True:
            with self._lock:
                error = self._error
                if not self._backlog:
                    self._starter = None
                    return
                work = self._backlog.popleft()
            if error is not None or self._comm is None:
                work._fail(error or errors.ClosedError(errors.ECLOSED, _SHUT_DOWN))
            else:
                work._start(self._comm)

    def communicator(self) -> Communicator:
        """Returns the communicator, which is opened if it is not yet: all ranks of the group call this."""
        work = self.start(Work(self, "opening", [], lambda comm: []))
        work.wait()
        assert self._comm is not None
        return self._comm

    @property
    def opened(self) -> Optional[Communicator]:
        """The communicator, or None if there was no operation yet."""
        return self._comm

    @property
    def opening(self) -> bool:
        """True while the communicator is being opened, also after close()."""
        return self._starter is not None and self._comm is None

    def failed(self, exc: errors.ReductionError) -> errors.ReductionError:
        """Notes an error. Returns the first one, in the words for the user."""
        with self._lock:
            if self._error is None:
                self._error = errors.make_error(exc.code, named_ranks(str(exc), self.members))
            return self._error

    def claimed(self, work: Work) -> None:
        """Somebody waits for the work, or has its future."""
        with self._lock:
            work._claims -= 1
            if work._claims <= 0:
                self._held.pop(id(work), None)

    def end_until(self, work: Work, deadline: float) -> None:
        """Waits for the works that are finished in order, up to this one, and finishes them. Raises timeouts only."""
        with self._ending:
            while work in self.ordered:
                self.ordered[0].end_in_order(deadline)
                self.ordered.popleft()

    def watch(self, work: Work) -> None:
        """Completes the work's future, if any, when it has ended. Its error or timeout is that of the group."""
        with self._lock:
            if not self._closed:
                self._unsettled += 1
                self._waits.put(work)
                self._enough_waiters()
                return
        # the waiters end, and the operation has ended or ends with the communicator
        threading.Thread(target=work.settle, name="reduction-wait", daemon=True).start()

    def _enough_waiters(self) -> None:
        """Starts a waiter if all others run callbacks, which may wait for a later future (PowerSGD's hook does)."""
        if self._waiting == 0:
            self._waiting += 1
            threading.Thread(target=self._wait_loop, name="reduction-wait", daemon=True).start()

    def _wait_loop(self) -> None:
        while True:
            work = self._waits.get()
            if work is None:
                self._waits.put(None)  # for the other waiters
                return
            value = work._outcome()
            with self._lock:
                self._waiting -= 1
                self._enough_waiters()
            work._settle(value)
            del work, value  # the tensors
            with self._lock:
                self._unsettled -= 1
                self._settled.notify_all()
                if self._waiting >= 2:
                    return
                self._waiting += 1

    def abort(self, reason: str) -> None:
        """Fails all operations on all ranks of the group. It does not wait."""
        self._abort_reason = reason  # for a communicator that is being opened
        comm = self._comm  # without _lock, which a thread holds while it waits to start an operation
        if comm is not None:
            comm.abort(reason)

    def forget(self, work: Work) -> None:
        """Drops an operation that waits to be started, after abort(). When this returns no thread is starting it."""
        with self._lock:
            waiting = work in self._backlog
            if waiting:
                self._backlog.remove(work)
        if waiting:
            work._fail(self._error or errors.ClosedError(errors.ECLOSED, _SHUT_DOWN))
        elif work._started is not None:
            work._started.wait()

    def drain(self) -> None:
        """Waits until the works that waiters complete have ended."""
        with self._settled:
            self._settled.wait_for(lambda: self._unsettled == 0)

    def close(self) -> None:
        """Closes the communicator. Operations that are pending fail. May be called again."""
        with self._lock:
            if self._closed or os.getpid() != self._pid:
                return
            self._closed = True
            comm = self._comm
            self._held.clear()
            while self._backlog:  # the opening may last
                self._backlog.popleft()._fail(errors.ClosedError(errors.ECLOSED, _SHUT_DOWN))
        try:
            if comm is not None and self._owned:
                comm.close()
        except errors.ReductionError:
            pass  # operations have raised it
        self._waits.put(None)
