# SPDX-License-Identifier: Apache-2.0
"""Request: an operation that was started, or that starts with its group.

The happy path: the communicator stores the library's handle, and wait() returns when the library has given it back.
Failure modes: a wait that times out, or that a signal handler ends, leaves the operation pending, and it can be waited
for again.
"""

import ctypes
import threading
import time
from typing import TYPE_CHECKING, Any, Optional

from . import _buffers, _lib, errors

if TYPE_CHECKING:
    from .comm import Communicator

_SLICE_MS = 100  # time that a wait spends in the library before Python checks for Ctrl-C

# of each thread: a structure for errors and a reference to it, since waits of several
# threads overlap
_thread = threading.local()


class Request:
    """An operation that was started, or that starts with its group.

    Communicator.all_reduce() and .broadcast() with async_op=True return it, and Group.all_reduce().
    """

    def __init__(
        self,
        comm: "Communicator",
        target: Any,
        send: Optional[_buffers.Block],
        receive: Optional[_buffers.Block],
    ):
        self._comm = comm  # keeps it from being garbage-collected while a thread waits
        self._handle: Optional[int] = None  # None: not started, or done
        self._started = False
        self._target = target
        self._blocks = (send, receive)  # keeps the memory alive while the library uses it
        self._error: Optional[Exception] = None
        # held by the one thread that is in reduction_wait; re-entrant because a signal
        # handler may end a wait just when it has got the lock
        self._lock = threading.RLock()

    def _abandon(self) -> None:
        """The group's block has ended: an operation that has not started fails."""
        if not self._started:
            self._started = True
            self._blocks = (None, None)
            self._error = errors.ReductionError(errors.EINVAL, "the operation was not started: its group failed")

    def _complete(self, status: int, err: _lib.Error) -> None:
        try:
            _lib.check(status, err)
        except Exception as exc:
            self._error = exc
        self._copy_back()

    def _copy_back(self) -> None:
        """Stores a result that was received into a copy. Has no effect if that is done."""
        receive = self._blocks[1]
        try:
            if receive is not None and receive.is_copy and self._error is None:
                _buffers.finish(self._target, receive)
        except Exception as exc:
            self._error = exc
        self._blocks = (None, None)  # not after Ctrl-C, so that the next call copies

    def _wait_slice(self, milliseconds: int) -> bool:
        """Waits for at most `milliseconds`. Returns True if the operation is done. The caller holds the lock."""
        if self._handle is None:
            self._copy_back()
            return True
        try:
            err, ref = _thread.error
        except AttributeError:
            err = _lib.Error()
            ref = ctypes.byref(err)
            _thread.error = err, ref
        err.code = errors.ETIMEOUT
        try:
            self._comm._lib.reduction_wait(self._handle, milliseconds, ref)
        finally:  # also after Ctrl-C, which Python notices when the call has returned
            if err.code != errors.ETIMEOUT:
                self._handle = None  # the library has got it back
                self._complete(err.code, err)
        return self._handle is None

    def _returns(self, exc: BaseException) -> bool:
        """Returns True if `exc` says how the operation has ended, and False if it is one of a signal handler."""
        return exc is self._error or not self._started

    def _finish(self) -> None:
        """Waits until done, whatever the result."""
        with self._lock:
            while not self._wait_slice(_SLICE_MS):
                pass

    def done(self) -> bool:
        """Returns True if the operation has ended, with or without an error. Does not wait."""
        if not self._started or not self._lock.acquire(blocking=False):
            return False
        try:
            return self._wait_slice(0)
        finally:
            self._lock.release()

    def wait(self, timeout: Optional[float] = None) -> Any:
        """Waits until the operation has ended.

        Args:
            timeout: seconds; None: no limit.

        Returns:
            The array that holds the result.

        Raises:
            ReductionTimeoutError: the timeout has passed; the operation is still pending, wait again.
            ReductionError: the operation failed; the message says why.
        """
        if not self._started:
            raise errors.ReductionError(
                errors.EINVAL, "the operation has not been started: it is part of a group whose block has not ended"
            )
        deadline = None if timeout is None else time.monotonic() + timeout
        if not self._lock.acquire(timeout=-1 if timeout is None else min(max(timeout, 0), threading.TIMEOUT_MAX)):
            raise errors.ReductionTimeoutError(errors.ETIMEOUT, f"the operation was not done within {timeout} s")
        try:
            while True:
                left = _SLICE_MS if deadline is None else (deadline - time.monotonic()) * 1000
                if self._wait_slice(int(max(0, min(_SLICE_MS, left)))):
                    break
                if left <= 0:
                    raise errors.ReductionTimeoutError(
                        errors.ETIMEOUT, f"the operation was not done within {timeout} s"
                    )
        finally:
            self._lock.release()
        if self._error is not None:
            raise self._error.with_traceback(None)
        return self._target
