# SPDX-License-Identifier: Apache-2.0
"""The encodings of elements on the network, as proto/ALGORITHMS.md specifies them. It needs python3-numpy."""

import numpy as np

SAME, BF16, FP8, INT8 = range(4)  # `up` and `down` in a header
WIRES = ["same", "bf16", "fp8", "int8"]
BLOCK, LEAST = 128, np.float32(2.0**-126)
ONES = {FP8: (0x38, 0xB8), INT8: (1, 0xFF)}  # the codes of 1 and -1


def chunk_elems(size, up, down, chunk_bytes, decoded_bytes=0):
    """Elements of every chunk but the last. size: bytes of an element of the dtype."""
    unit = max({SAME: size, BF16: 2}.get(wire, 1) for wire in (up, down))
    if up == down == SAME:
        return chunk_bytes // size
    return min(chunk_bytes // unit, max(decoded_bytes, 2 * chunk_bytes) // 4) // BLOCK * BLOCK


def wire_bytes(wire, size, n):
    """Bytes of n elements, which begin with a block."""
    return n * {SAME: size, BF16: 2}[wire] if wire < FP8 else n + 2 * -(-n // BLOCK)


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
    if wire == INT8:
        up = (amax / np.float32(127)).view(np.uint32) + 0xFFFF & 0xFFFF0000
        return np.maximum(up.view(np.float32), LEAST)
    fraction, exponent = np.frexp(np.maximum(amax, LEAST))  # 448 is 0.875 * 2 ** 9
    return np.ldexp(np.float32(1), np.maximum(exponent - 9 + (fraction > 0.875), -126))


def codes_of(wire, x, scale, random=None):
    """The codes of finite float32 elements."""
    if wire == INT8:
        v = x * (np.float32(1) / scale)  # in float32
        if random is None:
            return np.rint(v).astype(np.int8).view(np.uint8)
        p = np.trunc(np.clip(v, -127, 127) * np.float64(2**24)).astype(np.int64)
        return (p + (random & 0xFFFFFF) >> 24).astype(np.int8).view(np.uint8)
    v = np.abs(x) / scale.astype(np.float64)
    exponent = np.frexp(np.maximum(v, 2.0**-6))[1] - 1
    place = 8.0 * (exponent + 6) + np.ldexp(v, 3 - exponent)  # among the codes, which are in the order of values
    if random is None:
        code = np.rint(place).astype(np.int64)
    else:
        code = np.floor(place * 2**20).astype(np.int64) + (random & 0xFFFFF) >> 20
    return (code | np.signbit(x) << np.int64(7)).astype(np.uint8)


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
    infinities = np.where(np.isinf(block) & ~nan, np.where(block > 0, one, minus), 0).astype(np.uint8)
    high = np.where(good, bf16(scale), np.where(nan, 0x7FC0, 0x7F80)).astype("<u2").view(np.uint8)
    return np.hstack([high, np.where(good, codes, infinities)]).tobytes()[: wire_bytes(wire, 4, len(x))]


def values(wire, codes):
    """The values of codes without their scale, as float32."""
    if wire == INT8:
        return codes.view(np.int8).astype(np.float32)
    exponent, fraction = (codes >> 3 & 15).astype(np.int32), codes & 7
    value = np.ldexp(np.float32(fraction + 8 * (exponent > 0)), np.maximum(exponent, 1) - 10)
    return np.where(codes < 128, value, -value)


def decode(wire, data, n):
    """The n float32 elements of these bytes, which begin with a block."""
    if wire == SAME:
        return np.frombuffer(data, np.float32)
    if wire == BF16:
        return (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)
    raw = np.frombuffer(data, np.uint8)
    raw = np.pad(raw, (0, -n % BLOCK)).reshape(-1, 2 + BLOCK)
    scale = (raw[:, :2].copy().view("<u2").astype(np.uint32) << 16).view(np.float32)
    with np.errstate(all="ignore"):
        x = values(wire, raw[:, 2:].copy()) * scale
    return np.where(np.isnan(x), np.float32(np.nan), x).ravel()[:n]
