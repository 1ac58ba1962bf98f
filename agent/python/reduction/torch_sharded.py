# SPDX-License-Identifier: Apache-2.0
"""Large reduce-scatters and all-gathers of the backend `reduction`.

The happy path: the ranks of a group agree, when its communicator is opened, whether all of them can shard
(`Communicator.can_shard`). If they can, each rank sends all parts of a reduce-scatter and receives its own, and sends
its own part of an all-gather and receives all. Otherwise a reduce-scatter is an all-reduce of which each rank keeps
its part (gloo's is no less, and knows no averages), and an all-gather is a broadcast of each part. Operations of at
most SHARDED bytes on each rank, reduce-scatters on the CPU of at most SCATTERED, are an all-reduce too, or those of
`reduction.torch_others`. Which way an operation goes follows from its name, and the size and dtype of one rank's
tensors, which are equal on all ranks. No call waits for other ranks, but for one: the group's first large operation on
tensors of a GPU, which waits until the ranks have agreed. If they shard them (`reduction.torch_place.gpus_shard`), such
operations go through the reducers as above, on the streams of `reduction.torch_stream`; otherwise, and if they are
small, they are those of the inner group.
Failure modes: those of `reduction.torch_work`.
"""

import contextlib
import datetime
from typing import Any, Callable, List, Optional, Sequence, Tuple

import torch
import torch.distributed

from . import _buffers
from .comm import Communicator
from .torch_call import dense_of, first_tensor, is_alike, is_plain, options_of, seconds_of, size_of
from .torch_mail import bytes_of
from .torch_stream import Places
from .torch_work import Channel, Work

_c10d = torch._C._distributed_c10d
SHARDED = 64 << 10  # bytes of one rank's part: reducers shard larger ones
SCATTERED = 16 << 10  # the same of a reduce-scatter on the CPU

# what the reducers can do; the values are names of this package
REDUCERS = {"SUM": "sum", "PRODUCT": "prod", "MAX": "max", "MIN": "min", "AVG": "avg"}
DTYPES = {
    dtype: _buffers.DTYPES[str(dtype).rpartition(".")[2]]
    for dtype in (torch.uint8, torch.int8, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32,
                  torch.float64)
}  # fmt: skip
_OP_NAMES = {value: name for name, value in _c10d.ReduceOp.RedOpType.__members__.items()}


def op_name(op: Any) -> str:
    """Returns the name of a ReduceOp, or of the RedOpType in it."""
    return _OP_NAMES[getattr(op, "op", op)]


def _check_parts(kind: str, parts: Sequence[torch.Tensor], wholes: Sequence[torch.Tensor], size: int) -> None:
    for part, whole in zip(parts, wholes):
        if whole.numel() != size * part.numel() or whole.dtype != part.dtype or not is_alike(whole, part):
            raise ValueError(
                f"{kind} was called with a tensor of {part.numel()} {part.dtype} on {part.device} for one rank and one "
                f"of {whole.numel()} {whole.dtype} on {whole.device} for all {size} ranks"
            )


def _copies(tensors: Sequence[torch.Tensor], dense: Sequence[torch.Tensor]) -> List[Tuple[torch.Tensor, torch.Tensor]]:
    """Returns the tensors that get their result from a copy, each with that."""
    return [(to, copy) for to, copy in zip(tensors, dense) if to is not copy]


def _copy_back(copies: Sequence[Tuple[torch.Tensor, torch.Tensor]]) -> None:
    for to, copy in copies:
        to.detach().copy_(copy.view_as(to))


class ShardedOperations:
    """The part of `reduction.torch_ops.Operations` with these operations."""

    _channel: Channel
    _places: Places
    _rank: int
    _size: int
    _note: Callable[[Any], Any]
    _inner: Callable[[Optional[torch.Tensor]], Any]

    def _is_large(self, tensors: Sequence[torch.Tensor], most: int = SHARDED) -> bool:
        """Returns True if the operation is one of those that are sharded where that is possible.

        Args:
            tensors: one rank's part.
            most: bytes of a part that is not large.
        """
        return self._size > 1 and size_of(tensors) > most

    def _is_sharded(self, parts: Sequence[torch.Tensor]) -> bool:
        """Returns True if a large operation is one of this file. On a GPU the ranks have agreed then.

        Args:
            parts: one rank's.
        """
        if not parts or not self._is_large(parts):
            return False
        if not all(_buffers.torch_on_gpu(x) and is_alike(x, parts[0]) for x in parts):
            return is_plain(parts)
        if self._channel.opened is None:
            self._channel.communicator()
        return self._channel.shards > 1

    def _check_alike(self, kind: str, outputs: Sequence[torch.Tensor], part: torch.Tensor) -> None:
        for x in outputs:
            if x.numel() != part.numel() or x.dtype != part.dtype or not is_alike(x, part):
                raise ValueError(
                    f"{kind} was called with a tensor of {x.numel()} {x.dtype} on {x.device} for the part of a rank "
                    f"that has {part.numel()} {part.dtype} on {part.device}"
                )

    def _broadcast_parts(self, comm: Communicator, part: torch.Tensor, whole: torch.Tensor) -> List[Any]:
        """Starts a broadcast of each rank's part of `whole`."""
        known = part.dtype in DTYPES
        rows = (whole.detach() if known else bytes_of(whole)).reshape(self._size, -1)
        own = (part.detach() if known else bytes_of(part)).reshape(-1)
        if rows[self._rank].data_ptr() != own.data_ptr():
            rows[self._rank].copy_(own)
        return [comm.broadcast(row, r, async_op=True, name=f"all_gather of {part.dtype}") for r, row in enumerate(rows)]

    def _start_sharded(
        self,
        kind: str,
        results: List[torch.Tensor],
        begin: Callable[[Communicator], List[Any]],
        finish: Optional[Callable[[], None]],
        timeout: Optional[float],
        finished: Sequence[torch.Tensor],
    ) -> Any:
        """Starts an operation. On a GPU, work that is queued on the current stream is waited for there.

        Args:
            finished: the tensors that `finish` uses, which it does on another stream.
        """
        arrivals = self._places.of(results)
        stream = None if arrivals is None else torch.cuda.current_stream(arrivals.device)

        def on_stream(comm: Communicator) -> List[Any]:
            with torch.cuda.stream(stream) if stream is not None else contextlib.nullcontext():
                return begin(comm)

        if arrivals is not None and finish is not None:
            for tensor in finished:
                tensor.record_stream(arrivals.stream)  # it is not used again before `finish`
        work = Work(self._channel, kind, results, on_stream, finish, arrivals, timeout=timeout)
        return self._note(self._channel.start(work))

    # --- all-gather

    def _gather_sharded(
        self, parts: List[torch.Tensor], wholes: List[torch.Tensor], timeout: Optional[float], lists: Any = None
    ) -> Any:
        """Gathers each part into one tensor.

        Args:
            lists: for each of `wholes` the tensors to which its parts are copied. Otherwise `wholes` are the result.
        """
        _check_parts("all_gather", parts, wholes, self._size)
        sent, dense = [dense_of(x) for x in parts], [dense_of(x) for x in wholes]

        def start(comm: Communicator, part: torch.Tensor, whole: torch.Tensor) -> Any:
            if part.dtype in DTYPES:
                return comm.all_gather(part.detach(), whole.detach(), async_op=True)
            return comm.all_gather(bytes_of(part), bytes_of(whole), async_op=True, name=f"all_gather of {part.dtype}")

        def begin(comm: Communicator) -> List[Any]:
            if self._channel.shards:
                return [start(comm, *pair) for pair in zip(sent, dense)]
            return [request for pair in zip(sent, dense) for request in self._broadcast_parts(comm, *pair)]

        copies = _copies(wholes, dense)
        if lists is not None:
            copies = [pair for whole, to in zip(dense, lists) for pair in zip(to, whole.chunk(self._size))]
        results = wholes if lists is None else [x for to in lists for x in to]
        finish = (lambda: _copy_back(copies)) if copies else None
        return self._start_sharded("all_gather", results, begin, finish, timeout, [x for pair in copies for x in pair])

    # --- reduce-scatter

    def _scatter_into(self, method: str, parts: List[Any], wholes: List[Any], args: Tuple[Any, ...], opts: Any) -> Any:
        """reduce_scatter of one tensor for each part. `args` are those of the inner group's method."""
        opts = options_of(_c10d.ReduceScatterOptions, opts)
        op = op_name(opts.reduceOp)
        known = op in REDUCERS and all(x.dtype in DTYPES for x in parts)
        if not parts or len(parts) != len(wholes) or not known or not (is_plain(parts) or self._is_sharded(parts)):
            return self._note(getattr(self._inner(first_tensor(parts)), method)(*args))
        _check_parts("reduce_scatter", parts, wholes, self._size)
        return self._scatter_parts(parts, wholes, REDUCERS[op], seconds_of(opts))

    def _scatter_parts(self, parts: List[torch.Tensor], wholes: List[torch.Tensor], op: str, timeout: Any) -> Any:
        sent, dense = [dense_of(x) for x in wholes], [dense_of(x) for x in parts]
        large = self._is_large(parts, SCATTERED if is_plain(parts) else SHARDED)
        sums: List[torch.Tensor] = []  # if the ranks cannot shard
        copies = _copies(parts, dense)

        def begin(comm: Communicator) -> List[Any]:
            if large and self._channel.shards:
                return [
                    comm.reduce_scatter(whole.detach(), op, out=part.detach(), async_op=True)
                    for whole, part in zip(sent, dense)
                ]
            sums.extend(torch.empty(x.shape, dtype=x.dtype).copy_(x.detach()) for x in wholes)
            return comm.all_reduce_coalesced(sums, op, async_op=True)

        def finish() -> None:
            for part, total in zip(parts, sums):
                part.detach().copy_(total.view(self._size, -1)[self._rank].view(part.shape))
            if not sums:
                _copy_back(copies)

        finished = [x for pair in copies for x in pair]
        # without copies and sums there is nothing to finish, and a GPU's stream need not wait
        ends = finish if copies or parts[0].is_cpu else None
        return self._start_sharded("reduce_scatter", parts, begin, ends, timeout, finished)

    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = None, timeout: Any = None, op: Any = None) -> Any:
        """reduce_scatter: equally large tensors through the reducers."""
        if isinstance(outputs, torch.Tensor):
            outputs, inputs = [outputs], [inputs]
        if isinstance(opts, datetime.timedelta):
            opts, timeout = None, opts
        opts = options_of(_c10d.ReduceScatterOptions, opts, timeout, reduceOp=opts if op is None else op)
        lists = [list(x) for x in inputs]
        alike = len(lists) == len(outputs) == 1 and len(lists[0]) == self._size
        if alike:
            like = lists[0][0]
            alike = all(x.numel() == like.numel() and x.dtype == like.dtype and is_alike(x, like) for x in lists[0])
        if not alike or not (is_plain(lists[0]) or (is_alike(outputs[0], like) and self._is_sharded(outputs))):
            return self._note(self._inner(first_tensor([inputs, outputs])).reduce_scatter(outputs, inputs, opts))
        whole = torch.cat([x.detach().reshape(-1) for x in lists[0]])
        return self._scatter_into("reduce_scatter", list(outputs), [whole], (outputs, inputs, opts), opts)

    def _reduce_scatter_base(self, output: Any, input: Any, *opts: Any) -> Any:
        """reduce_scatter_tensor, through the reducers."""
        return self._scatter_into("_reduce_scatter_base", [output], [input], (output, input, *opts), *(opts or [None]))

    def reduce_scatter_single(self, output: Any, input: Any, *opts: Any) -> Any:
        """As _reduce_scatter_base(), with the name of torch 2.13."""
        return self._scatter_into("reduce_scatter_single", [output], [input], (output, input, *opts), *(opts or [None]))

    def reduce_scatter_tensor_coalesced(self, outputs: Any, inputs: Any, *opts: Any) -> Any:
        """reduce_scatter_tensor of several tensors, through the reducers."""
        args = (outputs, inputs, *opts)
        return self._scatter_into(
            "reduce_scatter_tensor_coalesced", list(outputs), list(inputs), args, *(opts or [None])
        )

    def reduce_scatter_single_coalesced(self, outputs: Any, inputs: Any, *opts: Any) -> Any:
        """As reduce_scatter_tensor_coalesced(), with the name of torch 2.13."""
        args = (outputs, inputs, *opts)
        return self._scatter_into(
            "reduce_scatter_single_coalesced", list(outputs), list(inputs), args, *(opts or [None])
        )
