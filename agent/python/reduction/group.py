# SPDX-License-Identifier: Apache-2.0
"""Groups: all-reduces that start together. Small ones share operations."""

from typing import TYPE_CHECKING, Any, List, Optional

from . import _buffers, _lib, errors

if TYPE_CHECKING:
    from ._request import Request
    from .comm import Communicator


class Group:
    """Collects all-reduces. Communicator.group() creates it.

    The all-reduces start when the with block ends, in the order of the calls, which must be the same on all ranks. If
    the block raises an exception, none of them starts. Operations of other threads, and those that the block starts on
    the communicator itself, do not belong to the group.
    """

    def __init__(self, comm: "Communicator", async_op: bool):
        self._comm = comm
        self._async_op = async_op
        self._ended = False
        self._tensors: List[_lib.Tensor] = []
        #: One Request for each all_reduce(), in order. Wait for them after the block.
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
        wire: Optional[str] = None,
    ) -> "Request":
        """Adds an all-reduce to the group; arguments as in Communicator.all_reduce(). The arrays must not overlap.

        Tensors that share an operation have the highest priority that was given to one of them.

        Returns:
            A Request, which is started when the block ends.
        """
        if self._ended:
            raise errors.ReductionError(errors.EINVAL, "the group's block has ended: nothing can be added to it")
        tensor, send, receive = _buffers.tensor(array, op, out, dtype, name, priority, wire)
        self._tensors.append(tensor)
        self.requests.append(self._comm._later(array if out is None else out, send, receive))
        return self.requests[-1]

    def __enter__(self) -> "Group":
        return self

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        self._ended = True
        try:
            if kind is None:
                self._comm._run_group(self._tensors, self.requests, self._async_op)
        finally:
            for request in self.requests:
                request._abandon()
