# SPDX-License-Identifier: Apache-2.0
"""Groups: all-reduces that start together, so that small ones share operations on the wire."""

from typing import TYPE_CHECKING, Any, List, Optional

from . import _buffers, _lib, errors

if TYPE_CHECKING:
    from .comm import Communicator, Request


class Group:
    """Collects all-reduces; made by Communicator.group(). They start when the with block ends, in the order of the
    calls, which must be the same on all ranks. An exception in the block starts none of them.

    A group belongs to the code that holds it: operations of other threads, and those that the block starts on the
    communicator itself, are no part of it.
    """

    def __init__(self, comm: "Communicator", async_op: bool):
        self._comm = comm
        self._async_op = async_op
        self._ended = False
        self._tensors: List[_lib.Tensor] = []
        #: A Request for each all_reduce(), in order; to be waited for after the block.
        self.requests: "List[Request]" = []

    def all_reduce(
        self,
        array: Any,
        op: str = "sum",
        *,
        out: Any = None,
        dtype: Optional[str] = None,
        name: Optional[str] = None,
        priority: Optional[int] = None,
    ) -> "Request":
        """As Communicator.all_reduce(async_op=True), once the block has ended. The arrays must not overlap.

        Of tensors that share an operation the highest priority counts.
        """
        if self._ended:
            raise errors.ReductionError(errors.EINVAL, "the group's block has ended: nothing can be added to it")
        tensor, send, receive = _buffers.tensor(array, op, out, dtype, name, priority)
        self._tensors.append(tensor)
        self.requests.append(self._comm._later(array if out is None else out, send, receive))
        return self.requests[-1]

    def __enter__(self) -> "Group":
        return self

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        self._ended = True
        try:
            if kind is None:
                self._comm._start_group(self._tensors, self.requests)
        finally:
            for request in self.requests:
                request._abandon()
        if kind is None and not self._async_op:
            for request in self.requests:
                request.wait()
