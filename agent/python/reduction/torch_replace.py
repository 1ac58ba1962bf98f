# SPDX-License-Identifier: Apache-2.0
"""The backend `reduction` under another name, for programs and trainers that accept gloo and nccl only.

    REDUCTION_REPLACE=gloo torchrun ... train.py               # torch 2.5 or later, and the wheel is installed
    torchrun ... -m reduction.torch train.py ARGUMENTS         # any version: replaces gloo and nccl in train.py

Every process group that the program makes with this name is one of the backend `reduction`, also those of new_group().
get_backend() returns the name that the program gave. Inside the group gloo and NCCL do what reducers cannot do.
"""

import functools
import os
import runpy
import sys
import time
from typing import Any, List, Sequence

import torch
import torch.distributed

from .torch_group import HAS_BACKEND
from .torch_place import NAME

VARIABLE = "REDUCTION_REPLACE"
_NAMES = ("gloo", "nccl")
_USAGE = "use: python -m reduction.torch SCRIPT [ARGUMENT...]"


def _wanted() -> List[str]:
    """Returns the names to replace. Raises ValueError if the variable has others."""
    names = [name.strip().lower() for name in os.environ.get(VARIABLE, "").split(",") if name.strip()]
    unknown = [name for name in names if name not in _NAMES]
    if unknown:
        raise ValueError(f"{VARIABLE} has {unknown[0]!r}; it may have {' and '.join(_NAMES)}, separated by a comma")
    return names


def _replaced(backend: str, names: Sequence[str]) -> str:
    """Returns the backend to make for one that the program asks for; `names` are those to replace."""
    text = str(backend).lower()
    if text in ("undefined", ""):  # torch's word for "the usual one of each device"
        text = "cpu:gloo,cuda:nccl"
    pairs = [part.partition(":")[::2] for part in text.split(",")]
    if not any((kind or device) in names for device, kind in pairs):
        return backend
    if not HAS_BACKEND or len(pairs) == 1 and not pairs[0][1]:
        return NAME
    return ",".join(f"{device}:{NAME if kind in names else kind}" for device, kind in pairs)


def _log(text: str) -> None:
    now = time.time()
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now))
    print(f"{stamp}.{int(now * 1000) % 1000:03d}Z info  {text}", file=sys.stderr, flush=True)


def _as_named(c10d: Any, made: Any, backend: str) -> None:
    """Lets get_backend() return the name that the program gave. `made` is the group, since torch 2 with its store."""
    group = made[0] if isinstance(made, tuple) else made
    world = getattr(c10d, "_world", None)
    pg_map = c10d._pg_map if world is None else world.pg_map
    if group in pg_map:  # this rank is a member
        pg_map[group] = (backend, pg_map[group][1])


def install() -> None:
    """Replaces the backends that REDUCTION_REPLACE names. Without it, and at a second call, it does nothing."""
    names = _wanted()
    c10d = torch.distributed.distributed_c10d
    make = c10d._new_process_group_helper
    if not names or hasattr(make, "reduction_replaces"):
        return
    logged: List[bool] = []

    @functools.wraps(make)
    def make_replaced(group_size: int, group_rank: int, global_ranks: Any, backend: Any, *args: Any, **kwargs: Any):
        used = _replaced(backend, names)
        if used == backend:
            return make(group_size, group_rank, global_ranks, backend, *args, **kwargs)
        for option in ("backend_options", "pg_options"):
            if not isinstance(kwargs.get(option), dict):
                kwargs.pop(option, None)  # those of gloo or NCCL
        made = make(group_size, group_rank, global_ranks, used, *args, **kwargs)
        _as_named(c10d, made, backend)
        if not logged and group_rank == 0:
            _log(f"torch-backend-replaced asked={backend} made={used} by={VARIABLE}={','.join(names)}")
        logged.append(True)
        return made

    make_replaced.reduction_replaces = names  # type: ignore[attr-defined]
    c10d._new_process_group_helper = make_replaced


def main(argv: List[str]) -> None:
    """Runs a script as `python SCRIPT ARGUMENT...` does, with replaced backends."""
    if not argv or argv[0] in ("-h", "--help"):
        raise SystemExit(_USAGE)
    os.environ.setdefault(VARIABLE, ",".join(_NAMES))
    install()
    sys.argv = argv
    sys.path[0] = os.path.dirname(os.path.abspath(argv[0]))
    runpy.run_path(argv[0], run_name="__main__")
