# SPDX-License-Identifier: Apache-2.0
"""Operations of the backend `reduction` that are no reductions: gathers, scatters, send and recv.

Small ones of tensors on the CPU need no connection between ranks. A gather is an all-reduce of bytes: each rank has its
own at its place and zeros at all others, so the sum is exact. A scatter is a broadcast from which each rank takes its
part. Messages go through the store (`reduction.torch_mail`). All others go to an inner group, gloo or NCCL. Which way
an operation goes follows from its name, and the size and dtype of one rank's tensors, which are equal on all ranks.
"""

import datetime
from typing import Any, Callable, List, Optional, Sequence, Tuple

import torch
import torch.distributed

from .comm import Communicator
from .torch_call import NO_TIME, dense_of, first_tensor, is_plain, options_of, seconds_of, size_of
from .torch_mail import Mailbox, bytes_of
from .torch_mesh import Mesh
from .torch_sharded import ShardedOperations
from .torch_work import Work

_c10d = torch._C._distributed_c10d
SMALL = 64 << 10  # bytes of one rank
_PLACE = 16  # each tensor begins at a multiple of this many bytes, as its dtype needs it


def _is_small(tensors: Sequence[torch.Tensor]) -> bool:
    return bool(tensors) and is_plain(tensors) and size_of(tensors) <= SMALL


def _is_cheap_to_gather(tensors: Sequence[torch.Tensor]) -> bool:
    """Returns True for small tensors, and for bytes of any size: objects are sent as bytes, and reducers take and send
    no more of them than the ranks would among each other."""
    return _is_small(tensors) or bool(tensors) and is_plain(tensors) and all(x.dtype == torch.uint8 for x in tensors)


class _Layout:
    """Where the bytes of a rank's tensors are in the buffer of all ranks."""

    def __init__(self, tensors: Sequence[torch.Tensor], ranks: int):
        self.places: List[int] = []
        self.length = 0  # of one rank
        for x in tensors:
            self.places.append(self.length)
            self.length += -(-size_of([x]) // _PLACE) * _PLACE
        self.total = self.length * ranks

    def put(self, whole: torch.Tensor, rank: int, tensors: Sequence[torch.Tensor]) -> None:
        """Copies a rank's tensors into the buffer."""
        for place, x in zip(self.places, tensors):
            start = rank * self.length + place
            whole[start : start + size_of([x])].copy_(bytes_of(dense_of(x)))

    def take(self, whole: torch.Tensor, rank: int, tensors: Sequence[torch.Tensor]) -> None:
        """Copies a rank's part of the buffer into tensors."""
        for place, x in zip(self.places, tensors):
            start = rank * self.length + place
            x.detach().copy_(whole[start : start + size_of([x])].view(x.dtype).reshape(x.shape))


class OtherOperations(ShardedOperations):
    """The part of `reduction.torch_ops.Operations` with these operations."""

    _mail: Mailbox
    _mesh: Mesh
    _check_root: Callable[[str, int], None]

    def _gather_small(
        self, kind: str, parts: Optional[List[List[torch.Tensor]]], own: List[torch.Tensor], timeout: Optional[float]
    ) -> Any:
        """Gathers the tensors `own` of all ranks.

        Args:
            parts: for each rank the tensors for what it has; None: this rank needs nothing.
        """
        for part in parts or []:
            for x, of in zip(part, own):
                if x.dtype != of.dtype or x.numel() != of.numel() or not is_plain([x]):
                    raise ValueError(
                        f"{kind} was called with a tensor of {x.numel()} {x.dtype} on {x.device} for the result, "
                        f"{of.numel()} {of.dtype} on {of.device} were expected"
                    )
        layout = _Layout(own, self._size)
        whole = torch.zeros(layout.total, dtype=torch.uint8)
        layout.put(whole, self._rank, own)

        def begin(comm: Communicator) -> List[Any]:
            return [comm.all_reduce(whole, "sum", async_op=True, name=f"{kind} of {own[0].dtype}")]

        def finish() -> None:
            for rank, part in enumerate(parts or []):
                layout.take(whole, rank, part)

        results = [x for part in parts or [] for x in part]
        return self._note(self._channel.start(Work(self._channel, kind, results, begin, finish, timeout=timeout)))

    def _split(self, kind: str, whole: torch.Tensor) -> List[torch.Tensor]:
        """Returns the parts of the ranks in a tensor for all of them."""
        if not is_plain([whole]) or not whole.is_contiguous() or whole.numel() % self._size:
            raise ValueError(
                f"{kind} was called with a tensor of {whole.numel()} elements on {whole.device} for the result, a "
                f"contiguous one on cpu with a part for each of {self._size} ranks was expected"
            )
        return list(whole.detach().reshape(self._size, -1).unbind(0))

    def _check_lists(self, kind: str, lists: Sequence[Any], expected: int) -> None:
        if len(lists) != 1 or isinstance(lists[0], torch.Tensor) or len(lists[0]) != expected:
            found = [len(x) for x in lists if not isinstance(x, torch.Tensor)]
            raise ValueError(f"{kind} was called with lists of {found} tensors, one of {expected} was expected")

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None, timeout: Any = None) -> Any:
        """all_gather: small ones, and bytes of any size, through the reducers."""
        if isinstance(inputs, torch.Tensor):
            outputs, inputs = [outputs], [inputs]
        if isinstance(opts, datetime.timedelta):
            opts, timeout = None, opts
        opts = options_of(_c10d.AllgatherOptions, opts, timeout)
        if len(inputs) == 1 and self._is_sharded(inputs):
            self._check_lists("all_gather", outputs, self._size)
            self._check_alike("all_gather", outputs[0], inputs[0])
            whole = torch.empty(self._size * inputs[0].numel(), dtype=inputs[0].dtype, device=inputs[0].device)
            return self._gather_sharded(list(inputs), [whole], seconds_of(opts), outputs)
        if len(inputs) != 1 or not _is_cheap_to_gather(inputs):
            return self._note(self._inner(first_tensor([inputs, outputs])).allgather(outputs, inputs, opts))
        self._check_lists("all_gather", outputs, self._size)
        return self._gather_small("all_gather", [[x] for x in outputs[0]], list(inputs), seconds_of(opts))

    def _gather_into(self, method: str, outputs: List[Any], inputs: List[Any], args: Tuple[Any, ...], opts: Any) -> Any:
        """all_gather into one tensor for each tensor. `args` are those of the inner group's method."""
        opts = options_of(_c10d.AllgatherOptions, opts)
        if len(outputs) == len(inputs) and self._is_sharded(inputs):
            return self._gather_sharded(list(inputs), list(outputs), seconds_of(opts))
        if not _is_cheap_to_gather(inputs) or len(outputs) != len(inputs):
            inner = self._inner(first_tensor(inputs))
            if hasattr(inner, method):
                return self._note(getattr(inner, method)(*args))
            for pair in zip(outputs[:-1], inputs):  # torch 2.3 to 2.6 have the method in C++ only
                inner._allgather_base(*pair, opts).wait()
            return self._note(inner._allgather_base(outputs[-1], inputs[-1], opts))
        parts = [self._split("all_gather", x) for x in outputs]
        return self._gather_small("all_gather", list(map(list, zip(*parts))), list(inputs), seconds_of(opts))

    def _allgather_base(self, output: Any, input: Any, *opts: Any) -> Any:
        """all_gather_into_tensor: small ones, and bytes of any size, through the reducers."""
        return self._gather_into("_allgather_base", [output], [input], (output, input, *opts), *(opts or [None]))

    def all_gather_single(self, output: Any, input: Any, *opts: Any) -> Any:
        """As _allgather_base(), with the name of torch 2.13."""
        return self._gather_into("all_gather_single", [output], [input], (output, input, *opts), *(opts or [None]))

    def allgather_into_tensor_coalesced(self, outputs: Any, inputs: Any, *opts: Any) -> Any:
        """all_gather_into_tensor of several tensors: small ones through the reducers."""
        args = (outputs, inputs, *opts)
        return self._gather_into("allgather_into_tensor_coalesced", outputs, inputs, args, *(opts or [None]))

    def all_gather_single_coalesced(self, outputs: Any, inputs: Any, *opts: Any) -> Any:
        """As allgather_into_tensor_coalesced(), with the name of torch 2.13."""
        args = (outputs, inputs, *opts)
        return self._gather_into("all_gather_single_coalesced", outputs, inputs, args, *(opts or [None]))

    def gather(self, outputs: Any, inputs: Any, opts: Any = None, timeout: Any = None, root: Any = None) -> Any:
        """gather: small ones through the reducers."""
        if isinstance(inputs, torch.Tensor):
            outputs, inputs = [outputs] if outputs else [], [inputs]
        opts = options_of(_c10d.GatherOptions, opts, timeout, rootRank=opts if root is None else root)
        if len(inputs) != 1 or not _is_small(inputs):
            return self._note(self._inner(first_tensor(inputs)).gather(outputs, inputs, opts))
        self._check_root("gather", opts.rootRank)
        parts = None
        if opts.rootRank == self._rank:
            self._check_lists("gather", outputs, self._size)
            parts = [[x] for x in outputs[0]]
        return self._gather_small("gather", parts, list(inputs), seconds_of(opts))

    def scatter(self, outputs: Any, inputs: Any, opts: Any = None, timeout: Any = None, root: Any = None) -> Any:
        """scatter: small ones through the reducers."""
        if isinstance(outputs, torch.Tensor):
            outputs, inputs = [outputs], [inputs] if inputs else []
        opts = options_of(_c10d.ScatterOptions, opts, timeout, rootRank=opts if root is None else root)
        if len(outputs) != 1 or not _is_small(outputs):
            return self._note(self._inner(first_tensor(outputs)).scatter(outputs, inputs, opts))
        self._check_root("scatter", opts.rootRank)
        layout, sender = _Layout(outputs, self._size), opts.rootRank
        whole = torch.zeros(layout.total, dtype=torch.uint8)
        if sender == self._rank:
            self._check_lists("scatter", inputs, self._size)
            for rank, x in enumerate(inputs[0]):
                if x.dtype != outputs[0].dtype or x.numel() != outputs[0].numel() or not is_plain([x]):
                    raise ValueError(
                        f"scatter was called with tensors that differ: {x.dtype} {list(x.shape)} of rank {rank}"
                    )
                layout.put(whole, rank, [x])

        def begin(comm: Communicator) -> List[Any]:
            return [comm.broadcast(whole, sender, async_op=True, name=f"scatter of {outputs[0].dtype}")]

        def finish() -> None:
            layout.take(whole, self._rank, outputs)

        work = Work(self._channel, "scatter", list(outputs), begin, finish, timeout=seconds_of(opts))
        return self._note(self._channel.start(work))

    def monitored_barrier(self, opts: Any = None, wait_all_ranks: bool = False, timeout: Any = None) -> None:
        """monitored_barrier: through the store."""
        self._channel.check_usable()
        given = timeout if timeout is not None else getattr(opts, "timeout", opts)
        seconds = self._channel.timeout if given is None or given < NO_TIME else given.total_seconds()
        self._mail.barrier(seconds, wait_all_ranks)

    def _by_mail(self, tensors: Sequence[torch.Tensor]) -> bool:
        self._channel.check_usable()
        return len(tensors) == 1 and _is_small(tensors)

    def _by_gloo(self, tensors: Sequence[torch.Tensor]) -> bool:
        return bool(tensors) and not (tensors[0].is_cuda and getattr(self, "_nccl", None) is not None)

    def _check_peer(self, kind: str, other: int) -> None:
        if not 0 <= other < self._size:
            raise ValueError(f"{kind} was called with rank {other}, 0 to {self._size - 1} were expected")

    def send(self, tensors: Any, to: int, tag: int = 0) -> Any:
        """send: small messages through the store."""
        tensors = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        if self._by_mail(tensors):
            self._check_peer("send", to)
            return self._note(self._mail.send(dense_of(tensors[0]), to, tag))
        if self._by_gloo(tensors):
            return self._note(self._mesh.call("send", tensors, to, tag))
        return self._note(self._inner(first_tensor(tensors)).send(tensors, to, tag))

    def recv(self, tensors: Any, source: int, tag: int = 0) -> Any:
        """recv: small messages through the store."""
        tensors = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        if self._by_mail(tensors):
            self._check_peer("recv", source)
            return self._note(self._mail.receive(tensors, source, tag))
        if self._by_gloo(tensors):
            return self._note(self._mesh.call("recv", tensors, source, tag))
        return self._note(self._inner(first_tensor(tensors)).recv(tensors, source, tag))

    def recv_anysource(self, tensors: Any, tag: int = 0) -> Any:
        """recv from the rank whose message comes first: small messages through the store."""
        tensors = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        if self._by_mail(tensors):
            return self._note(self._mail.receive(tensors, None, tag))
        if self._by_gloo(tensors):
            return self._note(self._mesh.call("recv_anysource", tensors, tag))
        return self._note(self._inner(first_tensor(tensors)).recv_anysource(tensors, tag))


def _delegate(method: str) -> Callable[..., Any]:
    def call(self: OtherOperations, *args: Any, **kwargs: Any) -> Any:
        inner = self._inner(first_tensor([*args, *kwargs.values()]))
        return self._note(getattr(inner, method)(*args, **kwargs))

    call.__name__ = method
    call.__doc__ = f"{method} of the inner group, gloo or NCCL."
    return call


# the later names are those of torch 2.13
for _method in (
    "allgather_coalesced", "alltoall", "alltoall_base", "all_to_all_single", "gather_single",
):  # fmt: skip
    if hasattr(_c10d.ProcessGroupGloo, _method):
        setattr(OtherOperations, _method, _delegate(_method))
