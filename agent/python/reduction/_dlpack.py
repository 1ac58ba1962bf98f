# SPDX-License-Identifier: Apache-2.0
"""Arrays of other libraries that have `__dlpack__`, such as those of JAX, in the host's memory or in that of a GPU.

https://dmlc.github.io/dlpack/latest/
"""

import ctypes
from typing import Any, NamedTuple, Tuple

_CPU, _CUDA, _CUDA_HOST = 1, 2, 3
_LEGACY_STREAM = 1  # CUDA's default stream, in the words of __dlpack__
_READ_ONLY = 1
_KINDS = {0: "int", 1: "uint", 2: "float", 4: "bfloat"}
_NAME, _VERSIONED_NAME = b"dltensor", b"dltensor_versioned"


class _Tensor(ctypes.Structure):
    """DLTensor of dlpack.h."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Managed(ctypes.Structure):
    """DLManagedTensor; its deleter is called by the capsule, which is kept."""

    _fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class _Versioned(ctypes.Structure):
    """DLManagedTensorVersioned."""

    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    ]


class Array(NamedTuple):
    """What the capsule of an array says. The memory is valid as long as the capsule is alive."""

    capsule: Any
    pointer: int
    on_gpu: bool
    device: int
    dtype_name: str
    itemsize: int
    shape: Tuple[int, ...]
    strides: Tuple[int, ...]  # in elements
    read_only: bool

    @property
    def count(self) -> int:
        """The number of elements."""
        n = 1
        for length in self.shape:
            n *= length
        return n

    @property
    def is_dense(self) -> bool:
        """True if the elements stand one behind the other."""
        step = 1
        for length, stride in zip(reversed(self.shape), reversed(self.strides)):
            if length > 1 and stride != step:
                return self.count == 0
            step *= length
        return True


def is_array(x: Any) -> bool:
    """Returns True if x has the interface."""
    return hasattr(x, "__dlpack__") and hasattr(x, "__dlpack_device__")


def _tensor(capsule: Any) -> Tuple[_Tensor, bool]:
    """Returns what a capsule holds, and whether it may only be read."""
    get, is_valid = ctypes.pythonapi.PyCapsule_GetPointer, ctypes.pythonapi.PyCapsule_IsValid
    get.restype, get.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    is_valid.restype, is_valid.argtypes = ctypes.c_int, (ctypes.py_object, ctypes.c_char_p)
    if is_valid(capsule, _VERSIONED_NAME):
        versioned = _Versioned.from_address(get(capsule, _VERSIONED_NAME))
        if versioned.major != 1:
            raise ValueError(f"__dlpack__ returned version {versioned.major}; expected 1")
        return versioned.tensor, bool(versioned.flags & _READ_ONLY)
    return _Managed.from_address(get(capsule, _NAME)).tensor, False


def array(x: Any) -> Array:
    """Asks x for its memory. On a GPU, work that is queued for x is then done before that of the default stream.

    Raises:
        ValueError: the memory is on a device that is neither the host nor an NVIDIA GPU.
    """
    kind, device = (int(n) for n in x.__dlpack_device__())
    if kind not in (_CPU, _CUDA, _CUDA_HOST):
        raise ValueError(f"__dlpack_device__ is of type {kind}; expected the host (1) or an NVIDIA GPU (2)")
    on_gpu = kind == _CUDA
    capsule = x.__dlpack__(stream=_LEGACY_STREAM) if on_gpu else x.__dlpack__()
    tensor, read_only = _tensor(capsule)
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    strides, step = [], 1
    for length in reversed(shape):
        strides.insert(0, step)
        step *= length
    if tensor.strides:
        strides = [tensor.strides[i] for i in range(tensor.ndim)]
    name = f"{_KINDS.get(tensor.code, f'type {tensor.code} of DLPack, ')}{tensor.bits}"
    if tensor.lanes != 1:
        name += f" x {tensor.lanes}"
    return Array(
        capsule, (tensor.data or 0) + tensor.byte_offset, on_gpu, device, name, tensor.bits // 8, shape,
        tuple(strides), read_only,
    )  # fmt: skip


class _Interface:
    """What numpy asks for; keeps the memory alive."""

    def __init__(self, x: Array) -> None:
        import numpy

        self.keeps = x
        dtype = numpy.dtype(x.dtype_name)
        self.__array_interface__ = {
            "version": 3, "shape": x.shape, "typestr": dtype.str, "data": (x.pointer, x.read_only),
            "strides": tuple(n * x.itemsize for n in x.strides),
        }  # fmt: skip


def view(x: Any) -> Any:
    """Returns a numpy array of x's memory if it is the host's and numpy knows the type, else an `Array`."""
    import numpy

    found = array(x)
    if found.on_gpu or found.dtype_name not in numpy.sctypeDict:
        return found
    return numpy.asarray(_Interface(found))
