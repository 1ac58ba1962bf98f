# SPDX-License-Identifier: Apache-2.0
"""The operations of the backend `reduction`, the same for all versions of torch. `reduction.torch_group` uses them.

all_reduce, all_reduce_coalesced, reduce, broadcast and barrier go through the reducers, on a communicator that each
group opens at its first such operation; so do reduce-scatters and large all-gathers (`reduction.torch_sharded`), and
small gathers and scatters (`reduction.torch_others`). Everything else goes to an inner group, gloo for tensors on the
CPU and NCCL for those on a GPU: other collectives, sparse tensors, and what the reducers cannot do (`REDUCERS`). Ranks
connect to each other when an operation first needs gloo (`reduction.torch_mesh`). The happy path and the failure modes
of an operation are those of `reduction.torch_work`.
"""

import contextlib
import datetime
import os
import sys
import weakref
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence

import torch
import torch.distributed

from . import _buffers, errors, torch_identity
from .comm import Communicator
from .torch_call import dense_of, first_tensor, options_of, seconds_of
from .torch_local import NodeSum, node_sum
from .torch_mail import Mailbox, bytes_of
from .torch_mesh import Mesh
from .torch_others import OtherOperations
from .torch_place import NAME, Fact, address_of, digest, exchange, gpus_shard, of_attempt, place, unplaced
from .torch_several import Several
from .torch_sharded import DTYPES, REDUCERS, op_name
from .torch_stream import Places
from .torch_work import Channel, Work

_c10d = torch._C._distributed_c10d
# channels by the key of their group, of this process: those that are open or being
# opened, at least
_channels: "weakref.WeakValueDictionary[str, Channel]" = weakref.WeakValueDictionary()
# by the key of a group: how often it was made again while its former communicator was
# still being opened. An opening cannot be stopped; with the same name the other ranks
# could meet the former one.
_serials: Dict[str, int] = {}


def _retire(key: str) -> int:
    """Closes the channel of a former group with the same key, to which something still refers. Returns the serial."""
    former = _channels.get(key)
    if former is not None:
        former.close()
        if former.opening:
            _serials[key] = _serials.get(key, 0) + 1
    return _serials.get(key, 0)


def _devices(tensors: Sequence[torch.Tensor]) -> List[str]:
    return sorted({str(tensor.device) for tensor in tensors})


def _is_plain(tensor: torch.Tensor) -> bool:
    """Returns True if an operation can use the tensor's memory as it is. Every operation asks, so this must be fast."""
    return (
        tensor.is_cpu
        and tensor.layout is torch.strided
        and tensor.dtype in DTYPES
        and tensor.is_contiguous()
        and not tensor.is_neg()
    )


def _share_memory(tensors: Sequence[torch.Tensor]) -> bool:
    """Returns True if two tensors have bytes in common. Those that are not contiguous are copied anyway."""
    spans = sorted((x.data_ptr(), x.numel() * x.element_size()) for x in tensors if x.numel() and x.is_contiguous())
    return any(start + size > following for (start, size), (following, _) in zip(spans, spans[1:]))


class Origin(NamedTuple):
    """What torch.distributed says about a group when it makes it."""

    store: Any
    rank: int
    size: int
    timeout: datetime.timedelta
    name: str  # equal on all ranks of the group, different for each group of the training
    members: List[int]  # the ranks of the training in the group; empty for all of them

    @classmethod
    def of(cls, options: Any) -> "Origin":
        """Returns that of torch's DistributedBackendOptions."""
        members = list(options.global_ranks_in_group)
        return cls(options.store, options.group_rank, options.group_size, options.timeout, options.group_id, members)


class Operations(OtherOperations):
    """The operations of one group. `reduction.torch_group` makes a Backend or a ProcessGroup of them."""

    def _set_up(self, origin: Origin, given: Optional[Dict[str, Any]]) -> None:
        """Meets the other ranks in the group's store. Raises ReductionError if a rank differs or is missing."""
        _, rank, size, timeout, name, members = origin
        store = of_attempt(origin.store)
        self._origin = origin
        self._given = given
        key = f"{name} {members}" if members else ""
        given = dict(given or {})
        local = given.pop("local", None)
        former = max(_retire(key), _retire(_slices_key(key)))
        facts = exchange(store, rank, size, former, timeout)
        channel = _make_channel(key, members, facts, rank, timeout.total_seconds(), given)
        self._attach(store, rank, size, timeout, address_of(facts, rank), channel)
        if torch.cuda.is_available() and torch.distributed.is_nccl_available():
            nccl_options = _c10d.ProcessGroupNCCL.Options()
            nccl_options._timeout = timeout
            self._nccl = _c10d.ProcessGroupNCCL(_c10d.PrefixStore("nccl", store), rank, size, nccl_options)
        if local is not None:
            name = f"{key} {_serials[key]}"
            self._node, slices = node_sum(local, store, place(facts, rank), name, rank, size, timeout)
            if self._node is not None:
                slices = {**_common(facts, given), **slices}
                self._slices = _open_channel(_slices_key(key), slices, timeout.total_seconds(), None, 0)
                self._channels.append(self._slices)

    def _attach(
        self, store: Any, rank: int, size: int, timeout: datetime.timedelta, address: str, channel: Channel
    ) -> None:
        """Sets up what operations need. Nothing is connected yet.

        Args:
            store: the group's.
            address: of this machine, for the other ranks; "" if it is not known.
        """
        self._rank, self._size = rank, size
        self._sequence = 0
        self._several: Optional[List[Any]] = None
        self._places = Places()
        self._mesh = Mesh(store, rank, size, timeout, address)
        self._nccl: Any = None
        self._channel = channel
        self._node: Optional[NodeSum] = None  # then all_reduce uses the channel `_slices`
        self._channels = [channel]
        self._mail = Mailbox(store, rank, size, channel)

    def _part(self, store: Any, ranks: Sequence[int], timeout: datetime.timedelta, name: str) -> Origin:
        """Returns what a group of some of this group's ranks is made of; this rank is one of them."""
        members = [self._origin.members[i] if self._origin.members else i for i in ranks]
        return Origin(store, list(ranks).index(self._rank), len(ranks), timeout, name, members)

    def _inner(self, tensor: Optional[torch.Tensor]) -> Any:
        """Returns the group for what the reducers cannot do. Raises ReductionError after the end of this group."""
        self._channel.check_usable()
        on_gpu = tensor is not None and tensor.device.type == "cuda"
        return self._nccl if on_gpu and self._nccl is not None else self._mesh.whole()

    def getBackendName(self) -> str:
        return NAME

    def name(self) -> str:
        """Returns the name of the backend."""
        return NAME

    # --- through the reducers

    def _submit(
        self,
        kind: str,
        tensors: List[torch.Tensor],
        start: Callable[[Communicator, List[torch.Tensor]], List[Any]],
        timeout: Optional[float] = None,
    ) -> Work:
        """Starts an operation. `start` gets the communicator and dense tensors: the same ones, or copies on their
        device. On a GPU, work that is queued on the current stream is waited for there.
        """
        arrivals = self._places.of(tensors)
        share = len(tensors) > 1 and _share_memory(tensors)
        dense = [tensor.detach().clone() if share else tensor for tensor in map(dense_of, tensors)]
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
        return self._note(
            self._channel.start(
                Work(self._channel, kind, tensors, begin, finish if copies else None, arrivals, timeout=timeout)
            )
        )

    def _note(self, work: Any) -> Any:
        """Counts an operation. Between start_coalescing() and end_coalescing() its work is one of several."""
        self._sequence += 1
        if self._several is not None:
            self._several.append(work)
        return work

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
        return op in REDUCERS and all(x.layout == torch.strided and x.dtype in DTYPES for x in tensors)

    def allreduce(self, tensors: Any, opts: Any = None, timeout: Any = None, op: Any = None) -> Any:
        """all_reduce: through the reducers if they can do it, else gloo's or NCCL's."""
        tensors = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        opts = options_of(_c10d.AllreduceOptions, opts, timeout, reduceOp=opts if op is None else op)
        name = op_name(opts.reduceOp)
        if self._node is not None and len(tensors) == 1 and self._is_sliced(tensors[0], name):
            return self._note(self._all_reduce_sliced(tensors[0], REDUCERS[name], seconds_of(opts)))
        if len(tensors) == 1 and name in REDUCERS and _is_plain(tensors[0]):
            return self._note(self._all_reduce_plain(tensors, _buffers.OPS[REDUCERS[name]], seconds_of(opts)))
        self._check("all_reduce", tensors)
        if not self._reducible(tensors, name):
            return self._note(self._inner(tensors[0]).allreduce(tensors, opts))
        reducer_op = REDUCERS[name]
        return self._submit(
            "all_reduce",
            tensors,
            lambda comm, x: [comm.all_reduce(x[0], reducer_op, async_op=True)],
            seconds_of(opts),
        )

    def allreduce_sparse(self, tensors: Any, opts: Any = None) -> Any:
        """all_reduce of sparse tensors, which the inner group does."""
        return self.allreduce(tensors, opts)

    def _all_reduce_plain(self, tensors: List[torch.Tensor], op: int, timeout: Optional[float]) -> Work:
        x = tensors[0]
        pointer, count, dtype = x.data_ptr(), x.numel(), DTYPES[x.dtype]

        def begin(comm: Communicator) -> List[Any]:
            return [comm._start_dense(x, pointer, count, dtype, op)]

        return self._channel.start(Work(self._channel, "all_reduce", tensors, begin, timeout=timeout))

    def _is_sliced(self, tensor: torch.Tensor, op: str) -> bool:
        """Returns True if the node's ranks sum the tensor among themselves first."""
        assert self._node is not None
        exact = tensor.dtype.is_floating_point or op != "AVG"  # slices are divided before they are summed
        return tensor.device.type == self._node.device and exact and self._reducible([tensor], op)

    def _all_reduce_sliced(self, tensor: torch.Tensor, op: str, timeout: Optional[float]) -> Work:
        node, arrivals, dense = self._node, self._places.of([tensor]), dense_of(tensor)
        assert node is not None

        def reduce(comm: Communicator, part: torch.Tensor, op: str) -> List[Any]:
            return [comm.all_reduce(part, op, async_op=True)]

        begin, gather = node.steps(dense, op, arrivals, reduce)

        def finish() -> None:
            gather()
            if dense is not tensor:
                tensor.detach().copy_(dense)

        # in the order of the calls, since an all-gather is an operation of all ranks of
        # the node
        return self._slices.start(
            Work(self._slices, "all_reduce", [tensor], begin, finish, arrivals, in_order=True, timeout=timeout)
        )

    def allreduce_coalesced(self, tensors: Sequence[torch.Tensor], opts: Any = None) -> Any:
        """all_reduce_coalesced: as a group of the library, in which small tensors share operations."""
        tensors = list(tensors)
        opts = options_of(_c10d.AllreduceCoalescedOptions, opts)
        op = op_name(opts.reduceOp)
        self._check("all_reduce_coalesced", tensors, single=False)
        if not self._reducible(tensors, op):
            return self._note(self._inner(first_tensor(tensors)).allreduce_coalesced(tensors, opts))
        reducer_op = REDUCERS[op]
        return self._submit(
            "all_reduce_coalesced",
            tensors,
            lambda comm, x: comm.all_reduce_coalesced(x, reducer_op, async_op=True),
            seconds_of(opts),
        )

    def reduce(self, tensors: Any, opts: Any = None, op: Any = None, timeout: Any = None, root: Any = None) -> Any:
        """reduce: an all-reduce whose result only the root keeps."""
        tensors = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        opts = options_of(_c10d.ReduceOptions, opts, timeout, rootRank=opts if root is None else root, reduceOp=op)
        op, root = op_name(opts.reduceOp), opts.rootRank
        self._check("reduce", tensors)
        self._check_root("reduce", root)
        if not self._reducible(tensors, op):
            return self._note(self._inner(tensors[0]).reduce(tensors, opts))
        reducer_op, scratch = REDUCERS[op], root != self._rank

        def start(comm: Communicator, x: List[torch.Tensor]) -> List[Any]:
            target = x[0].detach().clone() if scratch else x[0]
            return [comm.all_reduce(target, reducer_op, async_op=True, name=f"reduce to rank {root}")]

        return self._submit("reduce", tensors, start, seconds_of(opts))

    def broadcast(self, tensors: Any, opts: Any = None, timeout: Any = None, root: Any = None) -> Any:
        """broadcast: through the reducers; a dtype that they do not know as bytes."""
        tensors = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        opts = options_of(_c10d.BroadcastOptions, opts, timeout, rootRank=opts if root is None else root)
        self._check("broadcast", tensors)
        self._check_root("broadcast", opts.rootRank)
        tensor = tensors[0]
        if tensor.layout != torch.strided or tensor.is_quantized:
            return self._note(self._inner(tensor).broadcast(tensors, opts))
        known = tensor.dtype in DTYPES

        def start(comm: Communicator, x: List[torch.Tensor]) -> List[Any]:
            if known:
                return [comm.broadcast(x[0], rank, async_op=True)]
            whole = bytes_of(x[0])
            return [comm.broadcast(whole, rank, async_op=True, name=str(x[0].dtype))]

        rank = opts.rootRank
        return self._submit("broadcast", tensors, start, seconds_of(opts))

    def barrier(self, opts: Any = None, timeout: Any = None) -> Any:
        """barrier: through the reducers."""
        if isinstance(opts, datetime.timedelta):
            opts, timeout = None, opts
        opts = options_of(_c10d.BarrierOptions, opts, timeout)
        return self._submit("barrier", [], lambda comm, x: [comm.barrier(async_op=True)], seconds_of(opts))

    # --- what is said about the group

    def start_coalescing(self) -> None:
        """The works of the operations until end_coalescing() are waited for as one."""
        self._several = []

    def end_coalescing(self) -> Any:
        """Returns one Work for the operations since start_coalescing()."""
        works, self._several = self._several or [], None
        return Several(works)

    def _get_sequence_number_for_group(self) -> int:
        """Returns the number of the group's operations so far, equal on all ranks that have called the same ones."""
        return self._sequence

    def _set_sequence_number_for_group(self) -> None:
        """Does nothing: the numbers begin at 0 on all ranks."""

    def set_timeout(self, timeout: datetime.timedelta) -> None:
        """Sets the timeout of the group's operations from now on."""
        for channel in self._channels:
            channel.timeout = timeout.total_seconds()
        self._mesh.set_timeout(timeout)
        if hasattr(self._nccl, "_set_default_timeout"):
            self._nccl._set_default_timeout(timeout)

    def _inners(self) -> List[Any]:
        return [*self._mesh.made(), *([] if self._nccl is None else [self._nccl])]

    # --- end

    def abort(self) -> None:
        """Fails all operations on all ranks of the group, and shuts it down."""
        for channel in self._channels:
            channel.abort("the process group was aborted")
            channel.close()
        self._end_inners("abort")

    def shutdown(self) -> None:
        """Closes the communicator; later operations raise ClosedError. destroy_process_group() does so too."""
        for channel in self._channels:
            channel.close()
        self._end_inners("shutdown")

    def _end_inners(self, method: str) -> None:
        for inner in self._inners():
            end = getattr(inner, method, None) or getattr(inner, f"_{method}", None)
            if end is not None:
                with contextlib.suppress(RuntimeError):  # a second call, or a backend without this method
                    end()

    def __del__(self, finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if not finalizing():  # at exit the communicators have been closed already
            for channel in getattr(self, "_channels", []):
                channel.close()

    def communicator(self) -> Communicator:
        """Returns the group's communicator, for operations that torch.distributed does not have. All ranks call it."""
        return self._channel.communicator()


def _slices_key(key: str) -> str:
    return f"{key} slices"


def _common(facts: Sequence[Fact], given: Dict[str, Any]) -> Dict[str, Any]:
    """Returns the options of a communicator that do not depend on the rank."""
    options = {**given, **torch_identity.options(facts[0].start, given)}
    restarts = max(fact.restarts for fact in facts)
    if restarts >= 0 and "REDUCTION_GENERATION" not in os.environ:
        options.setdefault("generation", restarts)
    return options


def _open(options: Dict[str, Any]) -> Communicator:
    try:
        return Communicator(**options)
    except errors.ReductionTimeoutError as exc:
        allowed = options["connect_timeout"]
        raise errors.ReductionTimeoutError(
            errors.ETIMEOUT, f"the timeout for the group's first operation ({allowed:g} s) has passed: {exc}"
        ) from exc


def _open_channel(
    key: str, options: Dict[str, Any], timeout: float, members: Optional[List[int]], agrees: int
) -> Channel:
    # the first operation may come late on some ranks: it has as long as any other. The
    # opening ends a little earlier, since its error says which ranks are missing.
    options.setdefault("connect_timeout", timeout - min(timeout / 10, 5))
    channel = Channel(lambda: _open(options), timeout, members, agrees)
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
    chosen = options.get("mode") or options.get("agent") or os.environ.get("REDUCTION_MODE")
    if "group" in options and not ("mode" in where and (options.get("mode") or options.get("agent"))):
        options.update(where)
    elif unplaced() and "local_world_size" not in options and not ("mode" in where and chosen):
        options.update(where)
    said = given.get("mode") or os.environ.get("REDUCTION_MODE") or "auto"
    return _open_channel(key, options, timeout, members or None, 2 if gpus_shard(facts, said) else 1)
