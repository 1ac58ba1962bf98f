# SPDX-License-Identifier: Apache-2.0
"""The encodings of common/kernels/kernels.h, written from its text and not from the kernels, in numpy."""

import numpy

BLOCK = 128
LEAST = numpy.float32(2.0**-126)
NAN = numpy.array([0x7FC00000], "uint32").view("float32")[0]


def _e4m3(code):
    exponent, fraction = code >> 3, code & 7
    return fraction * 2.0**-9 if exponent == 0 else (1 + fraction / 8) * 2.0 ** (exponent - 7)


MAGNITUDES = numpy.array([_e4m3(code) for code in range(128)])  # without a sign; the last one only for decoding


def random_bits(key, first, n):
    """Returns the 32 random bits of n elements, as uint64."""
    index = numpy.uint64(first) + numpy.arange(n, dtype="uint64")
    low, shift = numpy.uint64(2**32 - 1), lambda v, by: v >> numpy.uint64(by)
    with numpy.errstate(over="ignore"):  # everything wraps
        z = numpy.uint64(key) + numpy.uint64(0x9E3779B97F4A7C15) * (shift(index, 32) + numpy.uint64(1))
        z = (z ^ shift(z, 30)) * numpy.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ shift(z, 27)) * numpy.uint64(0x94D049BB133111EB)
        z ^= shift(z, 31)
    x = (index ^ z) & low
    x = (x ^ shift(x, 16)) * numpy.uint64(0x7FEB352D) & low
    x = (x ^ shift(x, 15)) + shift(z, 32) & low
    x = x * numpy.uint64(0x846CA68B) & low
    return x ^ shift(x, 16)


def _bits(x):
    return numpy.ascontiguousarray(x, "float32").view("uint32").astype("uint64")


def _bf16(x, r):
    bits = _bits(x)
    up = 0x7FFF + (bits >> numpy.uint64(16) & numpy.uint64(1)) if r is None else r & numpy.uint64(0xFFFF)
    return numpy.where(numpy.isnan(x), bits | numpy.uint64(0x400000), bits + up) >> numpy.uint64(16)


def _scale(amax, wire):
    if wire == "fp8":
        fraction, exponent = numpy.frexp(amax.astype("float64") / 448)
        scale = numpy.ldexp(1.0, numpy.where(amax == 0, -126, exponent - (fraction == 0.5))).astype("float32")
    else:
        up = (_bits(amax / numpy.float32(127)) + numpy.uint64(0xFFFF)) & numpy.uint64(0xFFFF0000)
        scale = up.astype("uint32").view("float32")
    return numpy.maximum(scale, LEAST)


def _fp8_codes(x, scale, r):
    v = numpy.abs(x.astype("float64")) / scale.astype("float64")
    below = numpy.clip(numpy.searchsorted(MAGNITUDES, v, side="right") - 1, 0, 126)
    part = (v - MAGNITUDES[below]) / (MAGNITUDES[below + 1] - MAGNITUDES[below])
    if r is None:
        code = below + ((part > 0.5) | ((part == 0.5) & (below % 2 == 1)))
    else:
        code = below + (numpy.floor(part * 2**20) + (r & numpy.uint64(0xFFFFF)) >= 2**20)
    return code | numpy.where(numpy.signbit(x), 0x80, 0)


def _int8_codes(x, scale, r):
    v = (x * (numpy.float32(1) / scale)).astype("float64")
    if r is None:
        return numpy.rint(v)
    p = numpy.trunc(numpy.clip(v, -127, 127) * 2**24)
    return numpy.floor((p + (r & numpy.uint64(0xFFFFFF))) / 2**24)


def encode(x, wire, key=None, first=0):
    """Returns the bytes of float32 elements, which begin with a block. With a key the rounding is random; `first` is
    the index of the first element in its operation."""
    x = numpy.ascontiguousarray(x, "float32")
    r = None if key is None else random_bits(key, first, len(x))
    if wire == "same":
        return x.tobytes()
    if wire == "bf16":
        return _bf16(x, r).astype("<u2").tobytes()
    out = []
    for at in range(0, len(x), BLOCK):
        block, some = x[at : at + BLOCK], None if r is None else r[at : at + BLOCK]
        out.append(_encode_block(block, wire, some))
    return b"".join(out)


def _encode_block(x, wire, r):
    amax = numpy.max(numpy.abs(x))
    if numpy.isnan(amax):
        return b"\xc0\x7f" + bytes(len(x))
    if numpy.isinf(amax):
        one, minus = (0x38, 0xB8) if wire == "fp8" else (1, 0xFF)
        codes = numpy.where(numpy.isposinf(x), one, numpy.where(numpy.isneginf(x), minus, 0))
        return b"\x80\x7f" + codes.astype("uint8").tobytes()
    scale = _scale(amax.reshape(1), wire)
    codes = (_fp8_codes if wire == "fp8" else _int8_codes)(x, scale, r)
    return (_bits(scale) >> numpy.uint64(16)).astype("<u2").tobytes() + codes.astype("int64").astype("uint8").tobytes()


def decode(data, n, wire):
    """Returns n float32 elements."""
    if wire == "same":
        return numpy.frombuffer(data, "<f4", n).copy()
    if wire == "bf16":
        return (numpy.frombuffer(data, "<u2", n).astype("uint32") << 16).view("float32")
    out = numpy.empty(n, "float32")
    for at in range(0, n, BLOCK):
        start, some = at // BLOCK * (BLOCK + 2), min(BLOCK, n - at)
        scale = (numpy.frombuffer(data, "<u2", 1, start).astype("uint32") << 16).view("float32")
        codes = numpy.frombuffer(data, "uint8", some, start + 2)
        if wire == "fp8":
            values = numpy.where(codes & 0x80, -1.0, 1.0) * MAGNITUDES[codes & 0x7F]
        else:
            values = codes.view("int8")
        with numpy.errstate(invalid="ignore", over="ignore"):
            v = values.astype("float32") * scale
        out[at : at + some] = numpy.where(numpy.isnan(v), NAN, v)
    return out
