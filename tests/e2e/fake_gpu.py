# SPDX-License-Identifier: Apache-2.0
"""Arrays of the fake GPUs of tests/cuda, as CuPy would make them. Import it before the first operation on a GPU: the
fake is then the driver that the process has loaded."""

import ctypes
import os
import struct

import numpy

driver = ctypes.CDLL(os.path.join(os.environ["REDUCTION_BUILD"], "tests", "cuda", "libcuda.so.1"))


def call(name, *arguments):
    status = getattr(driver, name)(*arguments)
    assert status == 0, f"{name}: {status}"


class Gpu:
    """A device, whose default stream its arrays are used on."""

    def __init__(self, number=0):
        call("cuInit", 0)
        self.context = ctypes.c_void_p()
        call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), number)
        call("cuCtxSetCurrent", self.context)

    def array(self, x, **interface):
        return Array(self, numpy.ascontiguousarray(x), interface)

    def stream(self):
        made = ctypes.c_void_p()
        call("cuCtxSetCurrent", self.context)
        call("cuStreamCreate", ctypes.byref(made), 0)
        return made.value


class Array:
    """A copy of a numpy array on a device; `interface` replaces entries of its interface."""

    def __init__(self, gpu, x, interface):
        pointer = ctypes.c_uint64()
        call("cuCtxSetCurrent", gpu.context)
        call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(max(x.nbytes, 1)))
        call("cuMemcpyHtoD_v2", pointer, ctypes.c_void_p(x.ctypes.data), ctypes.c_size_t(x.nbytes))
        call("cuStreamSynchronize", None)
        self.like = x
        self.pointer = pointer
        self.__cuda_array_interface__ = {
            "shape": x.shape, "typestr": x.dtype.str, "data": (pointer.value, False), "version": 3, **interface
        }  # fmt: skip

    def get(self):
        x = numpy.empty_like(self.like)
        call("cuMemcpyDtoH_v2", ctypes.c_void_p(x.ctypes.data), self.pointer, ctypes.c_size_t(x.nbytes))
        return x

    def __del__(self):
        call("cuMemFree_v2", self.pointer)


class View:
    """Memory of another array."""

    def __init__(self, shape, typestr, data):
        self.__cuda_array_interface__ = {"shape": shape, "typestr": typestr, "data": data, "version": 3}


class Exported:
    """An array that has only `__dlpack__`, of memory of the host or of a fake GPU; `device` None: the host's."""

    def __init__(self, x, device=None):
        self.like, self.device, self.streams = x, device, []
        self.strides = [n // x.itemsize for n in x.strides]
        self.memory = Gpu(device).array(x) if device is not None else None
        self.kind = {"f": 2, "i": 0, "u": 1}[x.dtype.kind]

    def __dlpack_device__(self):
        return (1, 0) if self.device is None else (2, self.device)

    def __dlpack__(self, stream=None):
        self.streams.append(stream)
        x, shape = self.like, (ctypes.c_int64 * self.like.ndim)
        pointer = x.ctypes.data if self.memory is None else self.memory.pointer.value
        self.held = dims, strides = shape(*x.shape), shape(*self.strides)
        managed = ctypes.create_string_buffer(64)  # DLManagedTensor
        struct.pack_into("<QiiiBBHQQQ", managed, 0, pointer - 8, *self.__dlpack_device__(), x.ndim, self.kind,
                         8 * x.itemsize, 1, ctypes.addressof(dims), ctypes.addressof(strides), 8)
        self.managed = managed
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        return new(ctypes.addressof(managed), b"dltensor", None)

    def get(self):
        return self.like if self.memory is None else self.memory.get()
