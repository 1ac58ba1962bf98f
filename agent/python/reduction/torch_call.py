# SPDX-License-Identifier: Apache-2.0
"""What operations of torch.distributed are called with: tensors in lists, options, timeouts."""

import datetime
from typing import Any, Optional, Sequence

import torch

NO_TIME = datetime.timedelta(0)


def first_tensor(value: Any) -> Optional[torch.Tensor]:
    """Returns the first tensor in lists of lists, or None."""
    if isinstance(value, torch.Tensor):
        return value
    if isinstance(value, (list, tuple)):
        for item in value:
            found = first_tensor(item)
            if found is not None:
                return found
    return None


def dense_of(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the tensor, or a copy on its device whose elements stand one behind the other."""
    if tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg():
        return tensor
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device).copy_(tensor.detach())


def seconds_of(opts: Any) -> Optional[float]:
    """Returns the timeout that options of torch have, or None: then that of the group holds."""
    timeout = opts.timeout
    return timeout.total_seconds() if timeout > NO_TIME else None


def options_of(kind: Any, given: Any, timeout: Any = None, **fields: Any) -> Any:
    """Returns the options of an operation. torch's methods take them, or some of their fields."""
    if isinstance(given, kind):
        return given
    opts = kind()
    for name, value in fields.items():
        if value is not None:
            setattr(opts, name, value)
    if timeout is not None:
        opts.timeout = timeout
    return opts


def size_of(tensors: Sequence[torch.Tensor]) -> int:
    """Returns the bytes of tensors."""
    return sum(x.numel() * x.element_size() for x in tensors)


def is_alike(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    """Returns True if a tensor is on the device of another one, and has the memory of its elements in one piece or in
    strides."""
    return tensor.device == other.device and tensor.layout is torch.strided and not tensor.is_quantized


def is_plain(tensors: Sequence[Any]) -> bool:
    """Returns True if the tensors are dense ones on the CPU, or views of such."""
    return all(x.is_cpu and x.layout is torch.strided and not x.is_quantized for x in tensors)
