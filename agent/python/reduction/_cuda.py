# SPDX-License-Identifier: Apache-2.0
"""Arrays in the memory of a GPU that have the CUDA array interface, such as those of CuPy and Numba.

https://numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html
"""

import ctypes
from typing import Any

from . import errors

_DEVICE_ORDINAL = 9  # CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL


def is_array(x: Any) -> bool:
    """Returns True if x has the interface."""
    return isinstance(getattr(x, "__cuda_array_interface__", None), dict)


def dtype(x: Any) -> Any:
    """Returns the type of x's elements, as NumPy's dtype."""
    import numpy

    return numpy.dtype(x.__cuda_array_interface__["typestr"])


def shape(x: Any) -> tuple:
    """Returns the shape of x."""
    return tuple(x.__cuda_array_interface__["shape"])


def count(x: Any) -> int:
    """Returns the number of elements of x."""
    n = 1
    for length in shape(x):
        n *= length
    return n


def is_dense(x: Any) -> bool:
    """Returns True if the elements stand one behind the other, in this machine's byte order."""
    strides = x.__cuda_array_interface__.get("strides")
    step = dtype(x).itemsize
    for length, stride in zip(reversed(shape(x)), reversed(strides or ())):
        if length > 1 and stride != step:
            return count(x) == 0
        step *= length
    return dtype(x).isnative


def is_writable(x: Any) -> bool:
    """Returns True if x may be written to."""
    return not x.__cuda_array_interface__["data"][1]


def pointer(x: Any) -> int:
    """Returns the address of x on its GPU."""
    return x.__cuda_array_interface__["data"][0] or 0


def stream(x: Any) -> int:
    """Returns the stream on which x is used; 0: the default stream."""
    return x.__cuda_array_interface__.get("stream") or 0


def device(x: Any) -> int:
    """Returns the number of the GPU on which x is."""
    found = ctypes.c_int(0)
    if count(x) == 0:
        return 0
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as exc:
        raise errors.ReductionError(errors.EUNSUPPORTED, f"an array of a GPU needs NVIDIA's driver: {exc}") from None
    status = driver.cuPointerGetAttribute(
        ctypes.byref(found), ctypes.c_int(_DEVICE_ORDINAL), ctypes.c_uint64(pointer(x))
    )
    if status != 0 or found.value < 0:
        raise ValueError(f"the array at {pointer(x):#x} is not in the memory of a GPU (CUDA error {status})")
    return found.value
