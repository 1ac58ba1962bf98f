# SPDX-License-Identifier: Apache-2.0
"""The backend `reduction` of torch.distributed (torch 1.13 and later). `reduction.torch` registers it.

    import reduction.torch
    torch.distributed.init_process_group("reduction")     # the only line that changes

all_reduce, all_reduce_coalesced, reduce, broadcast and barrier go through the reducers, on a communicator that each
group opens at its first such operation. Everything else goes to an inner group, gloo for tensors on the CPU and NCCL
for those on a GPU: other collectives, sparse tensors, and what the reducers cannot do (`_REDUCERS`). The happy path and
the failure modes of an operation are those of `reduction.torch_work`. When the group is made, each rank publishes what
it was called with in the group's store; so a rank that differs is an error on all ranks, and not a hang.
"""

import contextlib
import os
import sys
import weakref
from typing import Any, Callable, Dict, List, Optional, Sequence

import torch
import torch.distributed

from . import _buffers, errors
from .comm import Communicator
from .torch_local import NodeSum, Sliced, node_sum
from .torch_place import NAME, Fact, digest, exchange, place
from .torch_stream import Places
from .torch_work import Channel, Work

_c10d = torch._C._distributed_c10d
# what the reducers can do; the values are names of this package
_REDUCERS = {"SUM": "sum", "PRODUCT": "prod", "MAX": "max", "MIN": "min", "AVG": "avg"}
_DTYPES = {
    dtype: _buffers.DTYPES[str(dtype).rpartition(".")[2]]
    for dtype in (torch.uint8, torch.int8, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32,
                  torch.float64)
}  # fmt: skip
_OP_NAMES = {value: name for name, value in _c10d.ReduceOp.RedOpType.__members__.items()}
# channels by the key of their group, of this process: those that are open or being opened, at least
_channels: "weakref.WeakValueDictionary[str, Channel]" = weakref.WeakValueDictionary()
# by the key of a group: how often it was made again while its former communicator was still being opened. An opening
# cannot be stopped; with the same name the other ranks could meet the former one.
_serials: Dict[str, int] = {}


def _retire(key: str) -> int:
    """Closes the channel of a former group with the same key, to which something still refers. Returns the serial."""
    former = _channels.get(key)
    if former is not None:
        former.close()
        if former.opening:
            _serials[key] = _serials.get(key, 0) + 1
    return _serials.get(key, 0)


def _first_tensor(value: Any) -> Optional[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return value
    if isinstance(value, (list, tuple)):
        for item in value:
            found = _first_tensor(item)
            if found is not None:
                return found
    return None


def _op_name(op: Any) -> str:
    return _OP_NAMES[getattr(op, "op", op)]  # ReduceOp, or the RedOpType in it


def _devices(tensors: Sequence[torch.Tensor]) -> List[str]:
    return sorted({str(tensor.device) for tensor in tensors})


def _is_plain(tensor: torch.Tensor) -> bool:
    """Returns True if an operation can use the tensor's memory as it is. Every operation asks, so this must be fast."""
    return (
        tensor.is_cpu
        and tensor.layout is torch.strided
        and tensor.dtype in _DTYPES
        and tensor.is_contiguous()
        and not tensor.is_neg()
    )


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the tensor, or a copy on its device whose elements stand one behind the other."""
    if tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg():
        return tensor
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device).copy_(tensor.detach())


def _share_memory(tensors: Sequence[torch.Tensor]) -> bool:
    """Returns True if two tensors have bytes in common. Those that are not contiguous are copied anyway."""
    spans = sorted((x.data_ptr(), x.numel() * x.element_size()) for x in tensors if x.numel() and x.is_contiguous())
    return any(start + size > following for (start, size), (following, _) in zip(spans, spans[1:]))


class ReductionGroup(_c10d.ProcessGroup):
    """A process group of the backend `reduction`. torch.distributed makes it; programs use torch.distributed."""

    def __init__(self, options: Any, given: Optional[Dict[str, Any]]):
        rank, size, timeout = options.group_rank, options.group_size, options.timeout
        super().__init__(rank, size)
        self._rank, self._size = rank, size
        members = list(options.global_ranks_in_group)
        self._places = Places()
        key = f"{options.group_id} {members}" if members else ""
        given = dict(given or {})
        local = given.pop("local", None)
        former = max(_retire(key), _retire(_slices_key(key)))
        facts = exchange(options.store, rank, size, former, timeout)
        self._gloo = _c10d.ProcessGroupGloo(_c10d.PrefixStore("gloo", options.store), rank, size, timeout)
        self._register("cpu", "GLOO", self._gloo)
        self._nccl: Any = None
        if torch.cuda.is_available() and torch.distributed.is_nccl_available():
            nccl_options = _c10d.ProcessGroupNCCL.Options()
            nccl_options._timeout = timeout
            self._nccl = _c10d.ProcessGroupNCCL(_c10d.PrefixStore("nccl", options.store), rank, size, nccl_options)
            self._register("cuda", "NCCL", self._nccl)
        self._channel = _make_channel(key, members, facts, rank, timeout.total_seconds(), given)
        self._node: Optional[NodeSum] = None  # then all_reduce uses the channel `_slices`
        self._channels = [self._channel]
        if local is not None:
            name = f"{key} {_serials[key]}"
            self._node, slices = node_sum(local, options.store, place(facts, rank), name, rank, size, timeout)
            if self._node is not None:
                slices = {**_common(facts, given), **slices}
                self._slices = _open_channel(_slices_key(key), slices, timeout.total_seconds(), None)
                self._channels.append(self._slices)

    def _register(self, device: str, kind: str, backend: Any) -> None:
        # torch 2: C++ code that calls what is not overridden here reaches the inner group
        if hasattr(self, "_register_backend"):
            self._register_backend(torch.device(device), getattr(_c10d.ProcessGroup.BackendType, kind), backend)

    def _inner(self, tensor: Optional[torch.Tensor]) -> Any:
        """Returns the group for what the reducers cannot do. Raises ReductionError after the end of this group."""
        self._channel.check_usable()
        on_gpu = tensor is not None and tensor.device.type == "cuda"
        return self._nccl if on_gpu and self._nccl is not None else self._gloo

    def getBackendName(self) -> str:
        return NAME

    def name(self) -> str:
        """Returns the name of the backend."""
        return NAME

    # --- through the reducers

    def _submit(
        self, kind: str, tensors: List[torch.Tensor], start: Callable[[Communicator, List[torch.Tensor]], List[Any]]
    ) -> Work:
        """Starts an operation. `start` gets the communicator and dense tensors: the same ones, or copies on their
        device. On a GPU, work that is queued on the current stream is waited for there.
        """
        arrivals = self._places.of(tensors)
        share = len(tensors) > 1 and _share_memory(tensors)
        dense = [tensor.detach().clone() if share else tensor for tensor in map(_dense, tensors)]
        copies = [(to, copy) for to, copy in zip(tensors, dense) if to is not copy]

        def finish() -> None:
            for tensor, copy in copies:
                tensor.detach().copy_(copy)

        def begin(comm: Communicator) -> List[Any]:
            with torch.cuda.stream(stream) if stream is not None else contextlib.nullcontext():
                return start(comm, dense)

        stream = None if arrivals is None else torch.cuda.current_stream(arrivals.device)
        if arrivals is not None:
            for pair in copies:
                for tensor in pair:
                    tensor.record_stream(arrivals.stream)  # it is not used again before the copy back
        return self._channel.start(Work(self._channel, kind, tensors, begin, finish if copies else None, arrivals))

    def _check(self, kind: str, tensors: Sequence[torch.Tensor], single: bool = True) -> None:
        if single and len(tensors) != 1:
            raise ValueError(f"{kind} was called with {len(tensors)} tensors, one was expected")
        devices = _devices(tensors)
        if len(devices) > 1:
            raise ValueError(f"{kind} was called with tensors on {' and '.join(devices)}, one device was expected")
        if devices and tensors[0].device.type not in ("cpu", "cuda"):
            raise ValueError(f"{kind} was called with a tensor on {devices[0]}, cpu or cuda was expected")

    def _check_root(self, kind: str, root: int) -> None:
        if not 0 <= root < self._size:
            raise ValueError(f"{kind} was called with root rank {root}, 0 to {self._size - 1} were expected")

    @staticmethod
    def _reducible(tensors: Sequence[torch.Tensor], op: str) -> bool:
        return op in _REDUCERS and all(x.layout == torch.strided and x.dtype in _DTYPES for x in tensors)

    def allreduce(self, tensors: Any, opts: Any = None) -> Any:
        """all_reduce: through the reducers if they can do it, else gloo's or NCCL's."""
        tensors = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        opts = opts or _c10d.AllreduceOptions()
        op = _op_name(opts.reduceOp)
        if self._node is not None and len(tensors) == 1 and self._is_sliced(tensors[0], op):
            return self._all_reduce_sliced(tensors[0], _REDUCERS[op])
        if len(tensors) == 1 and op in _REDUCERS and _is_plain(tensors[0]):
            return self._all_reduce_plain(tensors, _buffers.OPS[_REDUCERS[op]])
        self._check("all_reduce", tensors)
        if not self._reducible(tensors, op):
            return self._inner(tensors[0]).allreduce(tensors, opts)
        reducer_op = _REDUCERS[op]
        return self._submit(
            "all_reduce", tensors, lambda comm, x: [comm.all_reduce(x[0], reducer_op, async_op=True)]
        )

    def _all_reduce_plain(self, tensors: List[torch.Tensor], op: int) -> Work:
        x = tensors[0]
        pointer, count, dtype = x.data_ptr(), x.numel(), _DTYPES[x.dtype]
        return self._channel.start(
            Work(self._channel, "all_reduce", tensors, lambda comm: [comm._start_dense(x, pointer, count, dtype, op)])
        )

    def _is_sliced(self, tensor: torch.Tensor, op: str) -> bool:
        """Returns True if the node's ranks sum the tensor among themselves first."""
        assert self._node is not None
        exact = tensor.dtype.is_floating_point or op != "AVG"  # slices are divided before they are summed
        return tensor.device.type == self._node.device and exact and self._reducible([tensor], op)

    def _all_reduce_sliced(self, tensor: torch.Tensor, op: str) -> Work:
        node, arrivals, dense = self._node, self._places.of([tensor]), _dense(tensor)
        assert node is not None
        stream = None if arrivals is None else torch.cuda.current_stream(arrivals.device)
        under_way: List[Sliced] = []

        def begin(comm: Communicator) -> List[Any]:
            with contextlib.nullcontext() if arrivals is None else arrivals.departing(stream):
                sliced = node.scatter(dense, op)
                under_way.append(sliced)
                try:
                    return [comm.all_reduce(sliced.part, node.slice_op(op), async_op=True)]
                except errors.ReductionError:
                    with contextlib.suppress(RuntimeError):
                        node.gather(sliced)  # the node's other ranks wait for this one's part
                    raise

        def finish() -> None:
            node.gather(under_way[0])
            if dense is not tensor:
                tensor.detach().copy_(dense)

        # in the order of the calls, since an all-gather is an operation of all ranks of the node
        return self._slices.start(Work(self._slices, "all_reduce", [tensor], begin, finish, arrivals, in_order=True))

    def allreduce_coalesced(self, tensors: Sequence[torch.Tensor], opts: Any = None) -> Any:
        """all_reduce_coalesced: as a group of the library, in which small tensors share operations."""
        tensors = list(tensors)
        opts = opts or _c10d.AllreduceCoalescedOptions()
        op = _op_name(opts.reduceOp)
        self._check("all_reduce_coalesced", tensors, single=False)
        if not self._reducible(tensors, op):
            return self._inner(_first_tensor(tensors)).allreduce_coalesced(tensors, opts)
        reducer_op = _REDUCERS[op]
        return self._submit(
            "all_reduce_coalesced", tensors, lambda comm, x: comm.all_reduce_coalesced(x, reducer_op, async_op=True)
        )

    def reduce(self, tensors: Any, opts: Any = None) -> Any:
        """reduce: an all-reduce whose result only the root keeps."""
        tensors = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        opts = opts or _c10d.ReduceOptions()
        op, root = _op_name(opts.reduceOp), opts.rootRank
        self._check("reduce", tensors)
        self._check_root("reduce", root)
        if not self._reducible(tensors, op):
            return self._inner(tensors[0]).reduce(tensors, opts)
        reducer_op, scratch = _REDUCERS[op], root != self._rank

        def start(comm: Communicator, x: List[torch.Tensor]) -> List[Any]:
            target = x[0].detach().clone() if scratch else x[0]
            return [comm.all_reduce(target, reducer_op, async_op=True, name=f"reduce to rank {root}")]

        return self._submit("reduce", tensors, start)

    def broadcast(self, tensors: Any, opts: Any = None) -> Any:
        """broadcast: through the reducers; a dtype that they do not know as bytes."""
        tensors = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        opts = opts or _c10d.BroadcastOptions()
        root = opts.rootRank
        self._check("broadcast", tensors)
        self._check_root("broadcast", root)
        tensor = tensors[0]
        if tensor.layout != torch.strided or tensor.is_quantized:
            return self._inner(tensor).broadcast(tensors, opts)
        if tensor.dtype in _DTYPES:
            return self._submit("broadcast", tensors, lambda comm, x: [comm.broadcast(x[0], root, async_op=True)])
        return self._submit(
            "broadcast",
            tensors,
            lambda comm, x: [
                comm.broadcast(x[0].detach().reshape(-1).view(torch.uint8), root, async_op=True, name=str(x[0].dtype))
            ],
        )

    def barrier(self, opts: Any = None) -> Any:
        """barrier: through the reducers."""
        return self._submit("barrier", [], lambda comm, x: [comm.barrier(async_op=True)])

    # --- end

    def abort(self) -> None:
        """Fails all operations on all ranks of the group, and shuts it down."""
        for channel in self._channels:
            channel.abort("the process group was aborted")
            channel.close()

    def shutdown(self) -> None:
        """Closes the communicator; later operations raise ClosedError. destroy_process_group() does so too."""
        for channel in self._channels:
            channel.close()

    def __del__(self, finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if not finalizing():  # at exit the communicators have been closed already
            for channel in getattr(self, "_channels", []):
                channel.close()

    def communicator(self) -> Communicator:
        """Returns the group's communicator, for operations that torch.distributed does not have. All ranks call it."""
        return self._channel.communicator()


def _delegate(method: str) -> Callable[..., Any]:
    def call(self: ReductionGroup, *args: Any, **kwargs: Any) -> Any:
        inner = self._inner(_first_tensor([*args, *kwargs.values()]))
        return getattr(inner, method)(*args, **kwargs)

    call.__name__ = method
    call.__doc__ = f"{method} of the inner group, gloo or NCCL."
    return call


# in torch 2 the base class finds the inner group for methods that only C++ code calls
for _method in (
    "allgather", "_allgather_base", "allgather_coalesced", "gather", "scatter", "reduce_scatter",
    "_reduce_scatter_base", "alltoall", "alltoall_base", "send", "recv", "recv_anysource", "monitored_barrier",
):  # fmt: skip
    if hasattr(_c10d.ProcessGroupGloo, _method):
        setattr(ReductionGroup, _method, _delegate(_method))


def _slices_key(key: str) -> str:
    return f"{key} slices"


def _common(facts: Sequence[Fact], given: Dict[str, Any]) -> Dict[str, Any]:
    """Returns the options of a communicator that do not depend on the rank."""
    options = dict(given)
    restarts = max(fact.restarts for fact in facts)
    if restarts >= 0 and "REDUCTION_GENERATION" not in os.environ:
        options.setdefault("generation", restarts)
    return options


def _open_channel(key: str, options: Dict[str, Any], timeout: float, members: Optional[List[int]]) -> Channel:
    channel = Channel(lambda: Communicator(**options), timeout, members)
    _channels[key] = channel
    return channel


def _make_channel(
    key: str, members: List[int], facts: Sequence[Fact], rank: int, timeout: float, given: Dict[str, Any]
) -> Channel:
    options = _common(facts, given)
    options.update(rank=rank, world_size=len(facts))
    serial = _serials[key] = max(fact.serial for fact in facts)
    if key or serial:
        options["group"] = digest(f"{key} {serial}" if serial else key)
    where = place(facts, rank)
    if "group" in options and not ("mode" in where and (options.get("mode") or options.get("agent"))):
        options.update(where)
    return _open_channel(key, options, timeout, members or None)


def _create(options: Any, given: Optional[Dict[str, Any]] = None) -> ReductionGroup:
    if given is not None and not isinstance(given, dict):
        raise TypeError(f"pg_options is a {type(given).__name__}, a dict of options of Communicator was expected")
    return ReductionGroup(options, given)


def default_communicator() -> Optional[Communicator]:
    """Returns the communicator of the default process group if its backend is `reduction`, else None."""
    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return None
    group = torch.distributed.group.WORLD
    return group.communicator() if isinstance(group, ReductionGroup) else None


def register() -> None:
    """Registers the backend. A second call has no effect."""
    if hasattr(torch.distributed.Backend, NAME.upper()):
        return
    register_backend = torch.distributed.Backend.register_backend
    if "devices" in register_backend.__code__.co_varnames:
        register_backend(NAME, _create, extended_api=True, devices=["cpu", "cuda"])
    else:
        register_backend(NAME, _create, extended_api=True)
