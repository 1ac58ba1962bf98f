# SPDX-License-Identifier: Apache-2.0
"""The encodings of elements on the network, as proto/ALGORITHMS.md specifies them. It needs python3-numpy."""

import numpy as np

SAME, BF16, FP8, INT8, FP16, INT4 = range(6)  # `up` and `down` in a header
WIRES = ["same", "bf16", "fp8", "int8", "fp16", "int4"]
BLOCK, LEAST = 128, np.float32(2.0**-126)
ONES = {FP8: (0x38, 0xB8), INT8: (1, 0xFF), FP16: (0x3C00, 0xBC00), INT4: (1, 0xF)}  # the codes of 1 and -1
LARGEST = {FP8: 448, INT8: 127, INT4: 7}  # the values of the largest codes
# of fp8 and fp16: bits of the fraction, the least exponent, bits of the code
FLOATS = {FP8: (3, -6, 8), FP16: (10, -14, 16)}


def half_bytes(wire, size):
    """Half bytes of an element without its scale. size: bytes of an element of the dtype."""
    return {SAME: 2 * size, BF16: 4, FP16: 4, INT4: 1}.get(wire, 2)


def chunk_elems(size, up, down, chunk_bytes, decoded_bytes=0):
    """Elements of every chunk but the last."""
    elems = 2 * chunk_bytes // max(half_bytes(up, size), half_bytes(down, size))
    if up == down == SAME:
        return elems
    return min(elems, max(decoded_bytes, 2 * chunk_bytes) // 4) // BLOCK * BLOCK


def wire_bytes(wire, size, n):
    """Bytes of n elements, which begin with a block."""
    return (n * half_bytes(wire, size) + 1) // 2 + (wire >= FP8) * 2 * -(-n // BLOCK)


def random_bits(seq, rank, first, n):
    """32 random bits for each of the elements first, first + 1, ... that a rank contributes to operation seq."""
    step = 0x9E3779B97F4A7C15
    index = np.arange(n, dtype=np.uint64) + first
    z = (seq * step + rank) % 2**64 + step * ((index >> 32) + 1)  # 64 bits, which wrap
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9
    z = (z ^ z >> 27) * 0x94D049BB133111EB
    z = z ^ z >> 31
    x = (index ^ z).astype(np.uint32)  # the lower halves: from here on 32 bits
    x = (x ^ x >> 16) * 0x7FEB352D
    x = (x ^ x >> 15) + (z >> 32).astype(np.uint32)
    x = x * 0x846CA68B
    return x ^ x >> 16


def bf16(x, random=None):
    """The codes of float32 elements. random: their random bits; None: to nearest even."""
    bits = x.view(np.uint32)
    added = 0x7FFF + (bits >> 16 & 1) if random is None else random & 0xFFFF
    return np.where(np.isnan(x), bits >> 16 | 0x40, bits + added >> 16).astype("<u2")


def scales(wire, amax):
    """The scales of blocks with these largest magnitudes, which are finite float32."""
    if wire == FP16:  # the largest one has an exponent below 15
        return np.ldexp(np.float32(1), np.maximum(np.frexp(np.maximum(amax, LEAST))[1] - 15, -126))
    up = (amax / np.float32(LARGEST[wire])).view(np.uint32) + 0xFFFF & 0xFFFF0000
    return np.maximum(up.view(np.float32), LEAST)


def codes_of(wire, x, scale, random=None):
    """The codes of finite float32 elements."""
    v = x * (np.float32(1) / scale)  # in float32
    v = np.clip(v, -LARGEST.get(wire, np.inf), LARGEST.get(wire, np.inf)).astype(np.float64)
    fraction, least, bits = FLOATS.get(wire, (0, 0, 0))
    if bits:
        exponent = np.frexp(np.maximum(np.abs(v), 2.0**least))[1] - 1
        # among the codes, which are in the order of values
        place = 2.0**fraction * (exponent - least) + np.ldexp(np.abs(v), fraction - exponent)
    else:
        place = v
    if random is None:
        code = np.rint(place).astype(np.int64)
    else:
        below = 23 - fraction if bits else 24
        code = np.trunc(place * 2.0**below).astype(np.int64) + (random & (1 << below) - 1) >> below
    return code | np.signbit(x) << np.int64(bits - 1) if bits else code


def pack(wire, codes):
    """The bytes of whole blocks of codes, as rows."""
    if wire == INT4:
        return (codes[:, ::2] & 15 | (codes[:, 1::2] & 15) << 4).astype(np.uint8)
    return (codes & 0xFFFF).astype("<u2").view(np.uint8) if wire == FP16 else (codes & 0xFF).astype(np.uint8)


def encode(wire, x, random=None):
    """The bytes of float32 elements, which begin with a block."""
    if wire < FP8:
        return (bf16(x, random) if wire == BF16 else x).tobytes()
    block = np.pad(x, (0, -len(x) % BLOCK)).reshape(-1, BLOCK)
    if random is not None:
        random = np.pad(random, (0, -len(x) % BLOCK)).reshape(-1, BLOCK)
    amax = np.abs(block).max(axis=1, keepdims=True, initial=0)  # NaN if there is one
    good, nan = np.isfinite(amax), np.isnan(amax)
    scale = scales(wire, np.where(good, amax, LEAST))
    codes = codes_of(wire, np.where(good, block, np.float32(0)), scale, random)
    one, minus = ONES[wire]
    infinities = np.where(np.isinf(block) & ~nan, np.where(block > 0, one, minus), 0)
    high = np.where(good, bf16(scale), np.where(nan, 0x7FC0, 0x7F80)).astype("<u2").view(np.uint8)
    return np.hstack([high, pack(wire, np.where(good, codes, infinities))]).tobytes()[: wire_bytes(wire, 4, len(x))]


def values(wire, raw):
    """The values of codes without their scale, as float32. raw: rows of bytes."""
    if wire == FP16:
        return raw.view("<f2").astype(np.float32)
    if wire == INT4:
        raw = np.stack([raw & 15, raw >> 4], axis=-1).reshape(len(raw), -1)
        return ((raw ^ 8).astype(np.int8) - np.int8(8)).astype(np.float32)
    if wire == INT8:
        return raw.view(np.int8).astype(np.float32)
    exponent, fraction = (raw >> 3 & 15).astype(np.int32), raw & 7
    value = np.ldexp(np.float32(fraction + 8 * (exponent > 0)), np.maximum(exponent, 1) - 10)
    return np.where(raw < 128, value, -value)


def decode(wire, data, n):
    """The n float32 elements of these bytes, which begin with a block."""
    if wire == SAME:
        return np.frombuffer(data, np.float32)
    if wire == BF16:
        return (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)
    raw, block = np.frombuffer(data, np.uint8), wire_bytes(wire, 4, BLOCK)
    raw = np.pad(raw, (0, -len(raw) % block)).reshape(-1, block)
    scale = (raw[:, :2].copy().view("<u2").astype(np.uint32) << 16).view(np.float32)
    with np.errstate(all="ignore"):
        x = values(wire, raw[:, 2:].copy()) * scale
    return np.where(np.isnan(x), np.float32(np.nan), x).ravel()[:n]
