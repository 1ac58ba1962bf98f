# SPDX-License-Identifier: Apache-2.0
"""Arrays of the fake GPUs of tests/cuda, as CuPy would make them. Import it before the first operation on a GPU: the
fake is then the driver that the process has loaded."""

import ctypes
import os

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
