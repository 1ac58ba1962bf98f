# SPDX-License-Identifier: Apache-2.0
"""Sharded operations of a communicator: reduce-scatter and all-gather. Each rank owns one of equal parts.

The failure modes are those of every operation, and a ReductionError where `can_shard` is False, which does not break
the communicator.
"""

import ctypes
import sys
from typing import Any, Callable, Optional, Tuple

from . import _buffers, _lib
from ._request import Request


def _kind_to_make(x: Any) -> _buffers.Kind:
    """Returns how to handle x. Raises TypeError unless this package can make arrays of its kind, and views of them."""
    kind = _buffers.kind_of(x)
    if kind not in (_buffers.NUMPY, _buffers.TORCH):
        raise TypeError(f"{type(x).__name__} needs `out`: arrays of a GPU work without it only if they are torch's")
    return kind


def _part_of(x: Any, rank: int, size: int) -> Any:
    """Returns a rank's part of an array with the parts of all ranks: a view."""
    x = _buffers.view(x)
    shape = _kind_to_make(x).form(x)[0]
    if not shape or shape[0] % size:
        raise ValueError(f"the array has shape {shape}: without `out` its first length must be a multiple of {size}")
    length = shape[0] // size
    return x[rank * length : (rank + 1) * length]


def _empty_whole(x: Any, size: int) -> Any:
    """Returns an array for the parts of all ranks, one behind the other along the first axis; x is one part."""
    x = _buffers.view(x)
    kind = _kind_to_make(x)
    shape, form = kind.form(x)
    shape = (size * shape[0], *shape[1:]) if shape else (size,)
    if kind is _buffers.NUMPY:
        return sys.modules["numpy"].empty(shape, form)
    return sys.modules["torch"].empty(shape, dtype=form, device=x.device)


def _apart(whole: _buffers.Block, part: _buffers.Block, rank: int, itemsize: int) -> bool:
    """Returns True if the part is the rank's place in the whole, or has no byte in common with it."""
    end = part.pointer + part.count * itemsize
    return (
        part.pointer == whole.pointer + rank * part.count * itemsize
        or end <= whole.pointer
        or whole.pointer + whole.count * itemsize <= part.pointer
    )


def _describe(
    x: Any,
    out: Any,
    gather: bool,
    rank: int,
    size: int,
    op: str,
    dtype: Optional[str],
    name: Optional[str],
    priority: Optional[int],
    wire: Optional[str],
) -> Tuple[_lib.Tensor, _buffers.Block, _buffers.Block]:
    """Describes a reduce-scatter or an all-gather of x into out for the library. Also returns its memory.

    The array with all parts is x of a reduce-scatter, and out of an all-gather.
    """
    x, out = _buffers.view(x), _buffers.view(out)
    code, number, kind = _buffers.dtype_code(x, dtype), _buffers.op_code(op), _buffers.kind_of(x)
    _check_form(x, out, gather, size)
    _buffers.writable(out)
    receive, send = _buffers.block(out), _buffers.block(x)
    if (send.device, send.stream) != (receive.device, receive.stream):
        if kind is not _buffers.TORCH:
            _buffers.same_place(send, receive)
        send, receive = _buffers.host_copy(x), _buffers.host_copy(out)
    whole, part = (receive, send) if gather else (send, receive)
    if part.count and send.device == _lib.HOST and not _apart(whole, part, rank, kind.itemsize(x)):
        send = _buffers.host_copy(x)
    return _buffers.described(send, receive, part.count, code, number, name, priority, wire), send, receive


def _check_form(x: Any, out: Any, gather: bool, size: int) -> None:
    kind = _buffers.kind_of(x)
    if kind is not _buffers.kind_of(out):
        raise TypeError(f"out is a {type(out).__name__} but the array is a {type(x).__name__}")
    form, out_form = kind.form(x)[1], kind.form(out)[1]
    if form != out_form:
        raise TypeError(f"out has dtype {out_form} but the array has {form}")
    count, found = kind.count(x), kind.count(out)
    if gather and found != size * count:
        raise ValueError(f"out has {found} elements; {size} times the array's {count} were expected")
    if not gather and count != size * found:
        raise ValueError(f"out has {found} elements; one of {size} equal parts of the array's {count} was expected")


class ShardedCalls:
    """The part of Communicator with these operations."""

    _lib: Any
    _rank: int
    _world_size: int
    _ending: Any
    _usable: Callable[[], int]
    _run: Callable[..., Any]

    @property
    def can_shard(self) -> bool:
        """True if reduce_scatter() and all_gather() work here.

        False: a rank or reducer of the job has an older release, or agents serve nodes that have not equally many ranks
        in their order. It may be False on some ranks until an operation is done, if a reducer was lost or missing
        at the start: call barrier() before you ask. After that it is equal on all ranks.
        """
        with self._ending:
            return self._lib.reduction_can_shard(self._usable()) > 0

    def reduce_scatter(
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
        """Combines `array` over all ranks; each rank gets one of `world_size` equal parts: rank r gets part r.

        `can_shard` must be True. Arrays of a GPU are used as in all_reduce().

        Args:
            array: the parts of all ranks, one behind the other.
            out: array for this rank's part, which may be that part of `array`; otherwise `array` stays as it is. None:
                the result replaces this rank's part along the first axis of `array`, and a view of it is returned.

        The other arguments are as in all_reduce(), and so is what is returned: here this rank's part.
        """
        target = _part_of(array, self._rank, self._world_size) if out is None else out
        tensor, send, receive = _describe(
            array, target, False, self._rank, self._world_size, op, dtype, name, priority, wire
        )
        return self._run(
            Request(self, target, send, receive),
            lambda comm, handle, err: self._lib.reduction_reduce_scatter_tensor_async(
                comm, ctypes.byref(tensor), handle, err
            ),
            async_op,
        )

    def all_gather(
        self,
        array: Any,
        out: Any = None,
        *,
        async_op: bool = False,
        dtype: Optional[str] = None,
        name: Optional[str] = None,
        priority: Optional[int] = None,
    ) -> Any:
        """Gathers `array` of all ranks in the order of the ranks: each rank gets all of them.

        `can_shard` must be True. Arrays of a GPU are used as in all_reduce().

        Args:
            array: this rank's part. All ranks have equally many elements. It may be this rank's part of `out`.
            out: array for the parts of all ranks. None: a new one, in which they follow each other along the first
                axis. It is one of numpy if `array` is known only by `__dlpack__`.
            priority: as in all_reduce(), but None means the highest: so it goes on beside a reduce_scatter(), and both
                directions of the network are busy.

        The other arguments are as in all_reduce(). Returns `out`, or with async_op=True a Request.
        """
        target = _empty_whole(array, self._world_size) if out is None else out
        tensor, send, receive = _describe(
            array, target, True, self._rank, self._world_size, "sum", dtype, name, priority, None
        )
        return self._run(
            Request(self, target, send, receive),
            lambda comm, handle, err: self._lib.reduction_all_gather_tensor_async(
                comm, ctypes.byref(tensor), handle, err
            ),
            async_op,
        )
