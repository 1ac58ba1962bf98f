# SPDX-License-Identifier: Apache-2.0
"""Calls of torch that expect a group in C++, done in Python for the backend `reduction`.

- The hook BuiltinCommHookType.FP16_COMPRESS needs a future whose value is a list in C++. That of a Work in Python is a
  Python object. fp16_compress_hook does the same arithmetic, so a model over this backend gets that one.
- torch 2.3 to 2.6: the operators below functional collectives use the inner gloo without the group's methods, and gloo
  is not connected yet. Operators in Python call the methods and wait, for CPU tensors of any group.
"""

from typing import Any, List, Sequence

import torch
import torch.distributed
from torch.nn.parallel import DistributedDataParallel

from .torch_group import HAS_BACKEND, operations
from .torch_mesh import Mesh

_c10d = torch._C._distributed_c10d
_kept: List[Any] = []  # torch forgets operators with their Library


def _give_builtin_hook() -> None:
    """Lets DistributedDataParallel register fp16_compress_hook for FP16_COMPRESS, if the group is of this backend."""
    register = DistributedDataParallel._register_builtin_comm_hook

    def register_here(model: Any, comm_hook_type: Any) -> None:
        if comm_hook_type != torch.distributed.BuiltinCommHookType.FP16_COMPRESS or not operations(model.process_group):
            register(model, comm_hook_type)
            return
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

        model.register_comm_hook(model.process_group, fp16_compress_hook)

    DistributedDataParallel._register_builtin_comm_hook = register_here  # type: ignore[method-assign]


def _reduce_scatters(inputs: Sequence[torch.Tensor], op: str, size: int, name: str) -> List[torch.Tensor]:
    group, opts, parts = _c10d._resolve_process_group(name), _c10d.ReduceScatterOptions(), []
    opts.reduceOp = getattr(torch.distributed.ReduceOp, op.upper())
    for x in inputs:
        parts.append(x.new_empty((x.shape[0] // size, *x.shape[1:])))
        group._reduce_scatter_base(parts[-1], x.contiguous(), opts).wait()
    return parts


def _reduce_scatter(x: torch.Tensor, op: str, size: int, name: str) -> torch.Tensor:
    return _reduce_scatters([x], op, size, name)[0]


def _all_to_all(x: torch.Tensor, to: Sequence[int], of: Sequence[int], name: str) -> torch.Tensor:
    group, result = _c10d._resolve_process_group(name), x.new_empty((sum(to), *x.shape[1:]))
    group.alltoall_base(result, x.contiguous(), list(to), list(of), _c10d.AllToAllOptions()).wait()
    return result


def _give_operators() -> None:
    library = torch.library.Library("_c10d_functional", "IMPL")
    library.impl("reduce_scatter_tensor", _reduce_scatter, "CPU")
    library.impl("reduce_scatter_tensor_coalesced", _reduce_scatters, "CPU")
    library.impl("all_to_all_single", _all_to_all, "CPU")
    _kept.append(library)


def install() -> None:
    """Installs what this version of torch needs. A second call has no effect."""
    if _kept:
        return
    _kept.append(True)
    _give_builtin_hook()
    if not HAS_BACKEND and not Mesh.can_connect_one_by_one() and hasattr(_c10d, "_resolve_process_group"):
        _give_operators()
