# SPDX-License-Identifier: Apache-2.0
"""Sums within a node around the reducers: NCCL between the GPUs of a node, reducers between nodes.

The happy path, for a tensor of each of a node's ranks: a reduce-scatter leaves each local rank the node's sum of a
slice; each slice goes through the reducers, on a communicator of its own whose ranks are the nodes; an all-gather puts
the slices together. Failure modes: if a slice fails, the all-gather takes place all the same, so that no rank of the
node waits for it, and the operation fails on the ranks whose slice failed. They start no operations any more: the
node's other ranks then wait in NCCL until its timeout, or until the launcher ends them.
"""

import contextlib
import datetime
import itertools
import os
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

import torch
import torch.distributed

from . import errors, torch_identity
from .torch_place import Fact, digest, exchange, of_attempt, place
from .torch_stream import Arrivals

_c10d = torch._C._distributed_c10d
_OPS = {"sum": "SUM", "avg": "SUM", "prod": "PRODUCT", "max": "MAX", "min": "MIN"}
_serial = itertools.count()  # of the calls of join(), whose order is the same on all ranks


class NcclGroup:
    """The GPUs of a node. The current stream waits, and the host does not.

    Two communicators, since operations of one run in their order: the all-gather of a bucket waits for the network, and
    the reduce-scatter of the next one must not wait behind it.
    """

    device = "cuda"

    def __init__(self, store: Any, rank: int, size: int, timeout: datetime.timedelta):
        if not torch.distributed.is_nccl_available():
            raise errors.ReductionError(errors.EUNSUPPORTED, "sums within a node need NCCL, which this torch lacks")
        options = _c10d.ProcessGroupNCCL.Options()
        options._timeout = timeout
        self._scatter, self._gather = (
            _c10d.ProcessGroupNCCL(_c10d.PrefixStore(name, store), rank, size, options)
            for name in ("scatter", "gather")
        )

    def reduce_scatter(self, part: torch.Tensor, whole: torch.Tensor, op: str) -> None:
        """Stores this rank's slice of the sum of `whole` in `part`. op is a name of torch.distributed.ReduceOp."""
        options = _c10d.ReduceScatterOptions()
        options.reduceOp = getattr(torch.distributed.ReduceOp, op)
        self._scatter._reduce_scatter_base(part, whole, options).wait()

    def all_gather(self, whole: torch.Tensor, part: torch.Tensor) -> None:
        """Stores all ranks' slices in `whole`."""
        self._gather._allgather_base(whole, part).wait()


# by name; each is called as NcclGroup is
GROUPS: Dict[str, Callable[[Any, int, int, datetime.timedelta], Any]] = {"nccl": NcclGroup}


class Sliced(NamedTuple):
    """A tensor under way. `whole` is `tensor` itself, or a copy with zeros behind it."""

    tensor: torch.Tensor
    whole: torch.Tensor
    part: torch.Tensor  # this rank's slice


def _used_here(*tensors: torch.Tensor) -> None:
    """Keeps torch from reusing memory while work on the current stream needs it."""
    for tensor in tensors:
        if tensor.is_cuda:
            tensor.record_stream(torch.cuda.current_stream(tensor.device))


class NodeSum:
    """The two steps within a node.

    Args:
        group: an object like NcclGroup, of this node's ranks.
        size: number of ranks on each node.
        world_size: number of all ranks.
    """

    def __init__(self, group: Any, size: int, world_size: int):
        self._group = group
        self._size = size
        self._world_size = world_size
        self.device: str = group.device

    @staticmethod
    def slice_op(op: str) -> str:
        """Returns what the reducers do with the slices: scatter() has divided already."""
        return "sum" if op == "avg" else op

    def scatter(self, tensor: torch.Tensor, op: str) -> Sliced:
        """The reduce-scatter of a dense tensor, on the current stream. "avg" divides first, as DDP does."""
        flat = tensor.detach().reshape(-1)
        count = flat.numel()
        length = max(1, -(-count // self._size))
        whole = flat
        if length * self._size != count:
            whole = torch.empty(length * self._size, dtype=tensor.dtype, device=tensor.device)
            whole[:count].copy_(flat)
            whole[count:].zero_()
        if op == "avg":
            whole.div_(self._world_size)
        part = torch.empty(length, dtype=tensor.dtype, device=tensor.device)
        self._group.reduce_scatter(part, whole, _OPS[op])
        _used_here(flat, whole)
        return Sliced(flat, whole, part)

    def gather(self, sliced: Sliced) -> None:
        """The all-gather, on the current stream: then the tensor has the result."""
        self._group.all_gather(sliced.whole, sliced.part)
        if sliced.whole is not sliced.tensor:
            sliced.tensor.copy_(sliced.whole[: sliced.tensor.numel()])
        _used_here(*sliced)

    def steps(
        self,
        tensor: torch.Tensor,
        op: str,
        arrivals: Optional[Arrivals],
        reduce: Callable[[Any, torch.Tensor, str], Any],
    ) -> Tuple[Callable[[Any], Any], Callable[[], None]]:
        """Returns `begin` and `finish` of a Work (reduction.torch_work) for a dense tensor.

        Args:
            arrivals: those of the tensor's GPU, or None. The operation comes behind the current stream.
            reduce: starts the operation of a slice, with the communicator, the slice and what the reducers do.
        """
        stream = None if arrivals is None else torch.cuda.current_stream(arrivals.device)
        under_way: List[Sliced] = []

        def begin(comm: Any) -> Any:
            with contextlib.nullcontext() if arrivals is None else arrivals.departing(stream):
                under_way.append(self.scatter(tensor, op))
                return reduce(comm, under_way[0].part, self.slice_op(op))

        def finish() -> None:
            for sliced in under_way:
                self.gather(sliced)

        return begin, finish


def node_sum(
    local: str, store: Any, where: Dict[str, Any], key: str, rank: int, world_size: int, timeout: datetime.timedelta
) -> Tuple[Optional[NodeSum], Dict[str, Any]]:
    """Returns the steps within the node, and the options of the communicator of this rank's slice.

    If each node has one rank there is nothing to sum within it: None.

    Args:
        store: of all ranks of the group.
        where: what place() has found.
        key: names the group.
    """
    if local not in GROUPS:
        raise ValueError(f"local={local!r} is unknown; known are {', '.join(GROUPS)}")
    if "mode" in where:
        raise errors.ReductionError(
            errors.EINVAL,
            f"local={local!r} needs nodes with equally many ranks, whose numbers follow each other; rank {rank} of "
            f"{world_size} is in another kind of group",
        )
    size, local_rank = where["local_world_size"], where["local_rank"]
    if size == 1:
        return None, {}
    node, nodes = rank // size, world_size // size
    group = GROUPS[local](_c10d.PrefixStore(f"node {node}", store), local_rank, size, timeout)
    options = {
        "rank": node, "world_size": nodes, "local_rank": 0, "local_world_size": 1,
        "group": digest(f"{key} slice {local_rank} of {size}"),
    }  # fmt: skip
    return NodeSum(group, size, world_size), options


def meet() -> Tuple[Any, List[Fact], int, int, datetime.timedelta]:
    """Lets all ranks of torch.distributed exchange what they know; they call this in the same order.

    Returns:
        A store of their own, what each rank knows, this rank, the number of ranks, and torch's timeout.
    """
    timeout = torch.distributed.distributed_c10d.default_pg_timeout
    rank, world_size = torch.distributed.get_rank(), torch.distributed.get_world_size()
    store = of_attempt(torch.distributed.distributed_c10d._get_default_store())
    store = _c10d.PrefixStore(f"reduction/local/{next(_serial)}", store)
    return store, exchange(store, rank, world_size, 0, timeout), rank, world_size, timeout


def join(local: str) -> Tuple[Optional[NodeSum], Dict[str, Any]]:
    """As node_sum(), for all ranks of torch.distributed, which call this in the same order."""
    if not torch.distributed.is_initialized():
        raise errors.ReductionError(
            errors.EINVAL, f"local={local!r} needs torch.distributed: call init_process_group() first"
        )
    store, facts, rank, world_size, timeout = meet()
    found, options = node_sum(local, store, place(facts, rank), "", rank, world_size, timeout)
    restarts = max(fact.restarts for fact in facts)
    if found is not None and restarts >= 0 and "REDUCTION_GENERATION" not in os.environ:
        options["generation"] = restarts
    if found is not None:
        options.update(torch_identity.options(facts[0].start, {}))
    return found, options
