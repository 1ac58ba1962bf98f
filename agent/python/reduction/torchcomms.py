# SPDX-License-Identifier: Apache-2.0
"""The backend `reducers` of torchcomms (0.3 and later), which finds it by its entry point:

    comm = torchcomms.new_comm("reducers", torch.device("cpu"), name="gradients")

The operations are those of `reduction.torch_ops`, so what the reducers cannot do goes through gloo or NCCL. Hints whose
names begin with "reduction." are options of reduction.Communicator: hints={"reduction.config": "job.yaml"}. Ranks meet
in the store that new_comm() was given, or in that of MASTER_ADDR and MASTER_PORT; rank and size come from the first
pair of RANKS that is set.

torch.distributed needs none of this: with TORCH_DISTRIBUTED_USE_TORCHCOMMS=1 it still makes groups of the backend
`reduction` itself. For a backend that torchcomms knows it makes them of torchcomms, and drops pg_options. This is why
torchcomms knows ours by another name, which torch.distributed cannot use.
torchcomms 0.3 does not pass abort() on to backends in Python: call comm.get_backend_impl().abort(). Nor can such a
backend have reconfigure(): new_comm() refuses enable_reconfigure.
"""

import datetime
import os
from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch
import torch.distributed
import torchcomms

from . import errors
from .torch_ops import Operations, Origin
from .torch_place import NAME as _DISTRIBUTED
from .torch_several import Several

NAME = "reducers"
_c10d = torch._C._distributed_c10d
_HINT = f"{_DISTRIBUTED}."
_HINT_OF_TORCH = "persistent_store"  # torch.distributed gives it to each backend
_stores: Dict[Tuple[str, str], Any] = {}  # by host and port of the master: rank 0 can listen there once
RANKS = (("TORCHCOMM_RANK", "TORCHCOMM_SIZE"), ("RANK", "WORLD_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
         ("PMI_RANK", "PMI_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS"))  # fmt: skip


class _Group(Operations):
    """The operations of one communicator of torchcomms."""

    def __init__(self, origin: Origin, given: Dict[str, Any]):
        self._set_up(origin, given)


def _rank_and_size() -> Tuple[int, int]:
    for rank, size in RANKS:
        if rank in os.environ and size in os.environ:
            return int(os.environ[rank]), int(os.environ[size])
    raise errors.ReductionError(
        errors.EINVAL, "torchcomms does not say what rank this is: set RANK and WORLD_SIZE, as torchrun does"
    )


def _store(given: Any, name: str, rank: int, timeout: datetime.timedelta) -> Any:
    if given is not None:
        return given
    host, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")
    if not host or not port:
        raise errors.ReductionError(
            errors.EINVAL, "the ranks cannot meet: set MASTER_ADDR and MASTER_PORT, or give new_comm() a store"
        )
    if (host, port) not in _stores:
        _stores[host, port] = _c10d.TCPStore(host, int(port), None, rank == 0, timeout, wait_for_workers=False)
    return _c10d.PrefixStore(name, _stores[host, port])


class ReductionComm(torchcomms.TorchCommBackend):
    """A communicator of torchcomms.new_comm("reducers", ...)."""

    def __init__(self) -> None:
        super().__init__()
        self._group: Optional[_Group] = None
        self._name = ""
        self._device = torch.device("cpu")

    def init(self, device: torch.device, name: str, options: Any) -> None:
        """Meets the other ranks. The communicator is opened at the first operation."""
        if _HINT_OF_TORCH in options.hints:
            raise errors.ReductionError(
                errors.EINVAL,
                f"the backend {NAME} is for torchcomms.new_comm() without the hint {_HINT_OF_TORCH}: torch.distributed "
                f"would drop pg_options; give init_process_group() the backend {_DISTRIBUTED}, which has them",
            )
        rank, size = _rank_and_size()
        given = {key[len(_HINT) :]: value for key, value in options.hints.items() if key.startswith(_HINT)}
        store = _store(options.store, name, rank, options.timeout)
        self._enter(device, name, _Group(Origin(store, rank, size, options.timeout, name, list(range(size))), given))

    def _enter(self, device: torch.device, name: str, group: _Group) -> None:
        self._device, self._name, self._group = torch.device(device), name, group

    @property
    def group(self) -> _Group:
        """The operations. Raises ClosedError after finalize()."""
        if self._group is None:
            raise errors.ClosedError(errors.ECLOSED, f"the communicator {self._name or NAME} has been finalized")
        return self._group

    def finalize(self) -> None:
        """Closes the communicator."""
        group, self._group = self._group, None
        if group is not None:
            group.shutdown()

    def abort(self) -> None:
        """Fails all operations on all ranks."""
        self.group.abort()

    def get_rank(self) -> int:
        """Returns the rank."""
        return self.group._rank

    def get_size(self) -> int:
        """Returns the number of ranks."""
        return self.group._size

    def get_backend_name(self) -> str:
        """Returns "reducers"."""
        return NAME

    def get_comm_name(self) -> str:
        """Returns the name that new_comm() was given."""
        return self._name

    def set_timeout(self, timeout: datetime.timedelta) -> None:
        """Sets the timeout of operations from now on."""
        self.group.set_timeout(timeout)

    def split(self, ranks: Sequence[int], name: str, options: Any) -> Optional["ReductionComm"]:
        """Returns a communicator of some ranks. All ranks call it; others than `ranks` get None."""
        group = self.group
        if group._rank not in ranks:
            return None
        part = ReductionComm()
        store = _c10d.PrefixStore(f"split {name}/", group._origin.store)
        origin = group._part(store, ranks, group._origin.timeout, name)
        part._enter(self._device, name, _Group(origin, group._given or {}))
        return part

    # --- operations; each returns None, or a work if it is asynchronous

    @staticmethod
    def _end(work: Any, async_op: bool) -> Any:
        if async_op:
            return work
        work.wait()
        return None

    def send(self, tensor: Any, dst: int, async_op: bool) -> Any:
        """Sends a tensor to a rank."""
        return self._end(self.group.send([tensor], dst, 0), async_op)

    def recv(self, tensor: Any, src: int, async_op: bool) -> Any:
        """Receives a tensor from a rank."""
        return self._end(self.group.recv([tensor], src, 0), async_op)

    def broadcast(self, tensor: Any, root: int, async_op: bool) -> Any:
        """broadcast, through the reducers."""
        return self._end(self.group.broadcast([tensor], _options("Broadcast", rootRank=root)), async_op)

    def all_reduce(self, tensor: Any, op: Any, async_op: bool) -> Any:
        """all_reduce, through the reducers."""
        return self._end(self.group.allreduce([tensor], _options("Allreduce", op)), async_op)

    def reduce(self, tensor: Any, root: int, op: Any, async_op: bool) -> Any:
        """reduce, through the reducers."""
        return self._end(self.group.reduce([tensor], _options("Reduce", op, rootRank=root)), async_op)

    def all_gather(self, tensor_list: List[Any], tensor: Any, async_op: bool) -> Any:
        """all_gather of equally large tensors."""
        return self._end(self.group.allgather([tensor_list], [tensor]), async_op)

    def all_gather_v(self, tensor_list: List[Any], tensor: Any, async_op: bool) -> Any:
        """all_gather of tensors of any size: a broadcast of each."""
        tensor_list[self.group._rank].copy_(tensor)
        works = [self.group.broadcast([x], _options("Broadcast", rootRank=i)) for i, x in enumerate(tensor_list)]
        return self._end(Several(works), async_op)

    def all_gather_single(self, output: Any, input: Any, async_op: bool) -> Any:
        """all_gather into one tensor."""
        return self._end(self.group.all_gather_single(output, input), async_op)

    def reduce_scatter(self, output: Any, input_list: List[Any], op: Any, async_op: bool) -> Any:
        """reduce_scatter of equally large tensors."""
        work = self.group.reduce_scatter([output], [input_list], _options("ReduceScatter", op))
        return self._end(work, async_op)

    def reduce_scatter_v(self, output: Any, input_list: List[Any], op: Any, async_op: bool) -> Any:
        """reduce_scatter of tensors of any size: a reduce of each."""
        group, works = self.group, []
        for i, part in enumerate(input_list):
            if i == group._rank:
                output.copy_(part)
                part = output
            works.append(group.reduce([part], _options("Reduce", op, rootRank=i)))
        return self._end(Several(works), async_op)

    def reduce_scatter_single(self, output: Any, input: Any, op: Any, async_op: bool) -> Any:
        """reduce_scatter of one tensor."""
        return self.reduce_scatter(output, list(input.chunk(self.group._size)), op, async_op)

    def all_to_all(self, output_list: List[Any], input_list: List[Any], async_op: bool) -> Any:
        """all_to_all of tensors."""
        counts = ([x.numel() for x in output_list], [x.numel() for x in input_list])
        whole = torch.empty(sum(counts[0]), dtype=output_list[0].dtype, device=output_list[0].device)
        sent = torch.cat([x.reshape(-1) for x in input_list])
        self.all_to_all_v_single(whole, sent, *counts, async_op=False)
        for x, part in zip(output_list, whole.split(counts[0])):
            x.copy_(part.view_as(x))
        return None

    def all_to_all_single(self, output: Any, input: Any, async_op: bool) -> Any:
        """all_to_all of equal parts of a tensor."""
        return self.all_to_all_v_single(output, input, [], [], async_op)

    def all_to_all_v_single(
        self, output: Any, input: Any, output_splits: List[int], input_splits: List[int], async_op: bool
    ) -> Any:
        """all_to_all of parts of a tensor."""
        return self._end(self.group.alltoall_base(output, input, list(output_splits), list(input_splits)), async_op)

    def scatter(self, output: Any, input_list: List[Any], root: int, async_op: bool) -> Any:
        """scatter of equally large tensors."""
        inputs = [input_list] if self.group._rank == root else []
        return self._end(self.group.scatter([output], inputs, _options("Scatter", rootRank=root)), async_op)

    def gather(self, output_list: List[Any], input: Any, root: int, async_op: bool) -> Any:
        """gather of equally large tensors."""
        outputs = [output_list] if self.group._rank == root else []
        return self._end(self.group.gather(outputs, [input], _options("Gather", rootRank=root)), async_op)

    def barrier(self, async_op: bool) -> Any:
        """barrier, through the reducers."""
        return self._end(self.group.barrier(), async_op)


def _options(kind: str, op: Any = None, **fields: Any) -> Any:
    """Returns torch's options of an operation. op: torchcomms' ReduceOp."""
    options = getattr(_c10d, f"{kind}Options")()
    if op is not None:
        name = op.type.name
        if name == "PREMUL_SUM":
            raise errors.ReductionError(errors.EINVAL, "PREMUL_SUM is not known; SUM, AVG, PRODUCT, MIN, MAX are")
        options.reduceOp = getattr(_c10d.ReduceOp, name)
    for field, value in fields.items():
        setattr(options, field, value)
    return options


torchcomms.register_backend(NAME, ReductionComm)
