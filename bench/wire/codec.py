# SPDX-License-Identifier: Apache-2.0
"""The encodings of job.wire for numpy arrays of float32, by the kernels of the product (codec.c), and what ranks and
reducers do with them."""

import ctypes
import pathlib

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
WIRES = {"float32": 0, "bf16": 1, "fp8": 2, "int8": 3, "fp16": 4, "int4": 5}  # enum rs_wire of common/wire.h
GOLDEN = 0x9E3779B97F4A7C15


def at(array):
    return ctypes.c_void_p(array.ctypes.data)


class Codec:
    """All functions take contiguous arrays of float32, which begin with a block."""

    def __init__(self, build=ROOT / "build" / "default"):
        self.lib = ctypes.CDLL(str(build / "bench" / "wire-codec.so"))
        self.lib.codec_kernels.restype = ctypes.c_void_p
        self.lib.codec_bytes.restype = ctypes.c_size_t
        self.kernels = ctypes.c_void_p(self.lib.codec_kernels())

    def encode(self, wire, values, key=None):
        """Returns the encoded bytes. key: rounds at random, with these bits."""
        number, n = WIRES[wire], ctypes.c_size_t(values.size)
        out = np.empty(self.lib.codec_bytes(number, n), np.uint8)
        if key is None:
            self.lib.codec_encode(self.kernels, number, at(out), at(values), n)
        else:
            key = ctypes.c_uint64(key & 2**64 - 1)
            self.lib.codec_encode_random(self.kernels, number, at(out), at(values), n, key)
        return out

    def decode(self, wire, data, n):
        out = np.empty(n, np.float32)
        self.lib.codec_decode(self.kernels, WIRES[wire], at(out), at(data), ctypes.c_size_t(n))
        return out

    def add(self, wire, total, data):
        """Adds encoded elements to `total`, as a reducer does."""
        self.lib.codec_add(self.kernels, WIRES[wire], at(total), at(data), ctypes.c_size_t(total.size))

    def through(self, wire, values):
        """Returns what is left of the values."""
        return self.decode(wire, self.encode(wire, values), values.size)

    def reduce(self, contributions, wire, seq=None, residuals=None, divide=1):
        """Returns the result of one operation, which all ranks get: each contribution is encoded by its rank, the
        reducer sums in float32 in the order of ranks, divides, and encodes once. seq: contributions are rounded at
        random, with the bits of the operation of this number. residuals: error feedback, one array for each rank,
        which is updated."""
        total = np.zeros(contributions[0].size, np.float32)
        for rank, values in enumerate(contributions):
            key = None if seq is None else seq * GOLDEN + rank
            if residuals is not None:
                values = residuals[rank] = residuals[rank] + values
            data = self.encode(wire, values, key)
            if rank == 0:
                total = self.decode(wire, data, values.size)
            else:
                self.add(wire, total, data)
            if residuals is not None:
                residuals[rank] = values - self.decode(wire, data, values.size)
        if divide > 1:
            total /= np.float32(divide)
        return self.through(wire, total)
