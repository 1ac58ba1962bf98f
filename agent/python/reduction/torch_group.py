# SPDX-License-Identifier: Apache-2.0
"""The backend `reduction` of torch.distributed (torch 1.13 and later). `reduction.torch` registers it.

    import reduction.torch
    torch.distributed.init_process_group("reduction")     # the only line that changes

The operations are those of `reduction.torch_ops`. Since torch 2.14 they are a Backend: torch makes an ordinary process
group and registers the Backend for each device, so profiler, hooks and compiled code of torch see the operations. Older
versions of torch have no Backend in Python: there the process group itself is ours. When a group is made, each rank
publishes what it was called with in the group's store; so a rank that differs is an error on all ranks, and not a hang.
"""

import datetime
import re
import sys
import weakref
from typing import Any, Dict, List, Optional, Sequence, Set

import torch
import torch.distributed

from .comm import Communicator
from .torch_ops import Operations, Origin
from .torch_place import NAME

_c10d = torch._C._distributed_c10d
_VERSION = tuple(int(number) for number in re.findall(r"\d+", torch.__version__)[:2])
HAS_BACKEND = _VERSION >= (2, 14)  # a Backend can be a Python class
# torch's C++ code has these objects, but does not keep Python's garbage collector from
# clearing them
_backends: Set[Any] = set()
# gloo of the last group that has ended. torch 2.0 to 2.8 free a group under Python's lock,
# for which gloo's threads may wait: the last reference to gloo must be one of Python.
_ended: List[Any] = []
_FREED_UNDER_LOCK = (2, 0) <= _VERSION < (2, 9)


class _GlooOf:
    """Stands for the gloo in a group, which may not be made yet. torch 2.1 to 2.13 sets timeouts on it."""

    __class__ = property(lambda self: _c10d.ProcessGroupGloo)  # type: ignore[assignment]

    def __init__(self, group: "ReductionGroup"):
        self._group = group

    def _set_default_timeout(self, timeout: datetime.timedelta) -> None:
        self._group.set_timeout(timeout)

    def __getattr__(self, name: str) -> Any:
        for gloo in self._group._mesh.made():
            return getattr(gloo, name)
        raise AttributeError(name)


class ReductionGroup(Operations, _c10d.ProcessGroup):
    """A process group of the backend `reduction`. torch.distributed makes it; programs use torch.distributed."""

    def __init__(self, origin: Origin, given: Optional[Dict[str, Any]]):
        super().__init__(origin.rank, origin.size)
        self._set_up(origin, given)
        self._splits = 0
        self._registered = False
        self._names = [origin.name, ""]
        self._register("cpu", "GLOO", self._mesh.unconnected())
        if self._nccl is not None:
            self._register("cuda", "NCCL", self._nccl)

    def __del__(self) -> None:
        super().__del__()
        if _FREED_UNDER_LOCK and not sys.is_finalizing() and hasattr(self, "_mesh"):
            _ended[:] = self._inners()

    def _inner(self, tensor: Optional[torch.Tensor]) -> Any:
        inner = super()._inner(tensor)
        if inner is not self._nccl and not self._registered:
            self._registered = True
            self._register("cpu", "GLOO", inner)
        return inner

    # torch keeps the name and the description in the registered gloo, unless the group
    # has these. The first form is for C++ code of torch 2.6 and later, the second one for
    # Python.

    def getGroupName(self) -> str:
        """Returns the name that torch has given to the group."""
        return self._names[0]

    def setGroupName(self, name: str) -> None:
        """Sets the name."""
        self._names[0] = name

    def getGroupDesc(self) -> str:
        """Returns the description of the group."""
        return self._names[1]

    def setGroupDesc(self, text: str) -> None:
        """Sets the description."""
        self._names[1] = text

    group_name, _set_group_name = property(getGroupName), setGroupName
    group_desc, _set_group_desc = property(getGroupDesc), setGroupDesc

    def _get_backend(self, device: torch.device) -> Any:
        return _GlooOf(self) if device.type == "cpu" else super()._get_backend(device)

    def _register(self, device: str, kind: str, backend: Any) -> None:
        # torch 2: C++ code that calls what is not overridden here reaches the inner group
        if hasattr(self, "_register_backend"):
            self._register_backend(torch.device(device), getattr(_c10d.ProcessGroup.BackendType, kind), backend)

    def getBackendName(self) -> str:
        return NAME

    def name(self) -> str:
        """Returns the name of the backend."""
        return NAME

    def split_group(
        self,
        ranks: Sequence[int],
        timeout: Optional[datetime.timedelta] = None,
        opts: Any = None,
        group_name: Optional[str] = None,
        group_desc: Optional[str] = None,
        **_: Any,
    ) -> Optional["ReductionGroup"]:
        """Returns a group of some ranks of this one. All ranks call it; others than `ranks` get None."""
        self._splits += 1
        name = group_name or f"{self._origin.name}:split:{self._splits}:{list(ranks)}"
        if self._rank not in ranks:
            return None
        store = _c10d.PrefixStore(f"{name}/", self._origin.store)
        origin = self._part(store, ranks, timeout or self._origin.timeout, name)
        group = ReductionGroup(origin, self._given)
        for setter, value in (("_set_group_name", name), ("_set_group_desc", group_desc)):
            if value is not None and hasattr(group, setter):
                getattr(group, setter)(value)
        return group


def _fixed(value: bool) -> property:
    return property(lambda self: value)


if HAS_BACKEND:

    class ReductionBackend(Operations, _c10d.Backend):
        """The backend `reduction` of an ordinary process group of torch 2.14 or later."""

        # without these, torch's own properties call themselves
        supports_splitting = _fixed(True)
        supports_coalescing = _fixed(False)
        supports_shrinking = _fixed(False)
        supports_reconfigure = _fixed(False)
        supports_window = _fixed(False)
        _has_group = False
        _supports_time_estimate = _fixed(False)

        def __init__(self, origin: Origin, given: Optional[Dict[str, Any]]):
            super().__init__(origin.rank, origin.size)
            self._options = _c10d.Backend.Options(NAME, origin.timeout)
            self._set_up(origin, given)
            _backends.add(self)

        def shutdown(self) -> None:
            """Closes the communicator; later operations raise ClosedError. destroy_process_group() does so too."""
            super().shutdown()
            if not self._has_group:
                _backends.discard(self)

        def kept_with(self, group: Any) -> None:
            """Python may free this object when it frees the process group."""
            self._has_group = True
            weakref.finalize(group, _backends.discard, self).atexit = False

        @property
        def options(self) -> Any:
            """The options, of which split() gets a copy."""
            return self._options

        def getBackendName(self) -> str:
            return NAME

        def split(self, store: Any, ranks: Sequence[int], opts: Any) -> "ReductionBackend":
            """Returns the backend for a group of some ranks of this one."""
            timeout = opts._timeout if opts is not None else self._origin.timeout
            name = opts.group_name if opts is not None else str(list(ranks))
            return ReductionBackend(self._part(store, ranks, timeout, name), self._given)

        def eager_connect_single_device(self, device: Any) -> None:
            """Does nothing: the communicator is opened at the first operation."""


def _create(options: Any, given: Any = None) -> Operations:
    if given is not None and not isinstance(given, dict):
        raise TypeError(f"pg_options is a {type(given).__name__}, a dict of options of Communicator was expected")
    if not HAS_BACKEND:
        return ReductionGroup(Origin.of(options), given)
    backend = ReductionBackend(Origin.of(options), given)
    if options.process_group is not None:
        backend.kept_with(options.process_group)
    return backend


def operations(group: Any = None) -> Optional[Operations]:
    """Returns the operations of a process group (None: the default one) if its backend is `reduction`, else None."""
    if group is None:
        if not torch.distributed.is_available() or not torch.distributed.is_initialized():
            return None
        group = torch.distributed.group.WORLD
    if isinstance(group, Operations):
        return group
    for device in getattr(group, "_device_types", []):
        backend = group._get_backend(device)
        backend = getattr(backend, "wrapped_pg", backend)  # with TORCH_DISTRIBUTED_DEBUG=DETAIL
        if isinstance(backend, Operations):
            return backend
    return None


def communicator(group: Any = None) -> Communicator:
    """Returns the communicator of a process group of the backend `reduction`, for operations that torch.distributed
    does not have. All ranks of the group call it.

    Args:
        group: None: the default group.
    """
    found = operations(group)
    if found is None:
        raise ValueError(f"the process group does not have the backend {NAME}")
    return found.communicator()


def default_communicator() -> Optional[Communicator]:
    """Returns the communicator of the default process group if its backend is `reduction`, else None."""
    found = operations()
    return None if found is None else found.communicator()


def register() -> None:
    """Registers the backend. A second call has no effect."""
    if hasattr(torch.distributed.Backend, NAME.upper()):
        return
    register_backend = torch.distributed.Backend.register_backend
    if "devices" in register_backend.__code__.co_varnames:
        register_backend(NAME, _create, extended_api=True, devices=["cpu", "cuda"])
    else:
        register_backend(NAME, _create, extended_api=True)
