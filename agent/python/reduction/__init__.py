# SPDX-License-Identifier: Apache-2.0
"""All-reduce through reducers, from Python.

    import numpy, reduction

    with reduction.Communicator() as comm:      # rank and world size from torchrun, Slurm or mpirun
        x = numpy.ones(1000, dtype="float32")
        comm.all_reduce(x)                      # in place; every element is now comm.world_size

For PyTorch see `reduction.torch`, which registers a backend of torch.distributed:

    torch.distributed.init_process_group("reduction")

The package calls libreduction.so through ctypes; `reduction._lib` lists where it looks for the library.
"""

import importlib
from typing import TYPE_CHECKING, Any

from ._lib import LibraryError, library_version
from .errors import (
    AbortedError,
    ClosedError,
    ConfigError,
    MismatchError,
    NonFiniteError,
    PeerLostError,
    ReductionError,
    ReductionTimeoutError,
    RefusedError,
)

if TYPE_CHECKING:
    from .comm import Communicator, Request, Stats
    from .group import Group

__version__ = "0.1.0"

__all__ = [
    "AbortedError",
    "ClosedError",
    "Communicator",
    "ConfigError",
    "Group",
    "LibraryError",
    "MismatchError",
    "NonFiniteError",
    "PeerLostError",
    "ReductionError",
    "ReductionTimeoutError",
    "RefusedError",
    "Request",
    "Stats",
    "library_version",
    "torch",
]


# Modules that are imported on first use: NumPy may be missing where only a tool such as
# reduction.nccl_log runs, and PyTorch takes seconds.
_LATER = {"Communicator": "comm", "Request": "comm", "Stats": "comm", "Group": "group"}


def __getattr__(name: str) -> Any:
    if name == "torch":
        return importlib.import_module("reduction.torch")
    if name in _LATER:
        return getattr(importlib.import_module(f"reduction.{_LATER[name]}"), name)
    raise AttributeError(f"module 'reduction' has no attribute {name!r}")
