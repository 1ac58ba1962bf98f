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
from typing import Any

from ._lib import LibraryError, library_version
from .comm import Communicator, Request, Stats
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


def __getattr__(name: str) -> Any:
    # reduction.torch imports PyTorch, which takes seconds and may be missing, so it is imported on first use
    if name == "torch":
        return importlib.import_module("reduction.torch")
    raise AttributeError(f"module 'reduction' has no attribute {name!r}")
