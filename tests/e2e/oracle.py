# SPDX-License-Identifier: Apache-2.0
"""Data for all-reduce operations and their expected results, computed by numpy alone.

An array of bfloat16 is an array of uint16 with its bits, as in the package `reduction`.

Styles of data:
    "exact"     floats are small integers, so that every order of summing gives the same bits; integers use their
                whole range, where sums and products wrap and no order matters either
    "random"    floats of many magnitudes and both signs: the order of summing changes the result
    "special"   "exact" with NaN, infinities, zeros of both signs and subnormal numbers in between
"""

import numpy

DTYPES = ["int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64", "bfloat16"]
FLOATS = ["float16", "float32", "float64", "bfloat16"]
OPS = ["sum", "prod", "max", "min", "avg"]

_SPECIAL = [numpy.nan, numpy.inf, -numpy.inf, 0.0, -0.0, 1e-40, -1e-45, 6e-8, 1.0, -2.0]


def carrier(dtype):
    """Returns numpy's dtype for arrays of a dtype."""
    return numpy.dtype("uint16" if dtype == "bfloat16" else dtype)


def itemsize(dtype):
    return carrier(dtype).itemsize


def accumulator(dtype):
    """Returns numpy's dtype in which contributions are combined."""
    return numpy.dtype("float32" if dtype in ("float16", "bfloat16") else dtype)


def widen(array, dtype):
    """An array's values in the accumulator's type."""
    if dtype == "bfloat16":
        return (array.astype("uint32") << 16).view("float32")
    return array.astype(accumulator(dtype))


def narrow(array, dtype):
    """Values in the accumulator's type, rounded once to nearest even."""
    if dtype == "bfloat16":
        bits = array.astype("float32").view("uint32")
        rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
        return numpy.where(numpy.isnan(array), bits >> 16 | 0x40, rounded).astype("uint16")
    with numpy.errstate(over="ignore"):
        return array.astype(carrier(dtype))


def make(dtype, count, style, seed, rank):
    """Returns the contribution of a rank: the same in every process with the same arguments."""
    rng = numpy.random.default_rng([seed, rank])
    if dtype not in FLOATS:
        limits = numpy.iinfo(dtype)
        return rng.integers(limits.min, limits.max, count, dtype=dtype, endpoint=True)
    if style == "random":
        values = rng.standard_normal(count) * 2.0 ** rng.integers(-6, 6, count)
        # In half of the places two ranks hold L and -L and the others little: what a sum
        # like (L + little) - L keeps of it depends on the order, also for halves, whose
        # float32 sums are otherwise exact.
        shared = numpy.random.default_rng(seed)
        places = shared.random(count) < 0.5
        plus = shared.integers(0, 4, count)
        minus = (plus + shared.integers(1, 4, count)) % 4
        little = rng.standard_normal(count) * 2.0**-11
        values = numpy.where(places, numpy.select([plus == rank, minus == rank], [8192.0, -8192.0], little), values)
        if dtype == "float64":
            return values
        return narrow(values.astype("float32"), dtype)
    values = rng.choice([-4.0, -2.0, -1.0, 1.0, 2.0, 4.0, 3.0], count)
    if style == "special":
        places = rng.random(count) < 0.5
        values[places] = rng.choice(_SPECIAL, int(places.sum()))
    with numpy.errstate(over="ignore", under="ignore"):
        return narrow(values.astype(accumulator(dtype)), dtype)


def _combine(op, a, b):
    with numpy.errstate(all="ignore"):
        if op in ("sum", "avg"):
            return a + b
        if op == "prod":
            return a * b
        return numpy.maximum(a, b) if op == "max" else numpy.minimum(a, b)


def _divide(array, divisor):
    if array.dtype.kind == "f":
        with numpy.errstate(all="ignore"):
            return array / array.dtype.type(divisor)
    if array.dtype.kind == "u":
        return array // array.dtype.type(divisor)
    magnitude = numpy.where(array < 0, 0 - array.astype("uint64"), array.astype("uint64")) // numpy.uint64(divisor)
    return numpy.where(array < 0, 0 - magnitude, magnitude).astype(array.dtype)


def fold(dtype, op, parts):
    """Returns the result if contributions are combined in rank order."""
    acc = widen(parts[0], dtype)
    for part in parts[1:]:
        acc = _combine(op, acc, widen(part, dtype))
    if op == "avg":
        acc = _divide(acc, len(parts))
    return narrow(acc, dtype)


def rounds(dtype, op):
    """Returns whether nodes of several ranks round their partial results (job.partials: rounded)."""
    return dtype == "bfloat16" and op != "prod" or dtype == "float16" and op in ("sum", "max", "min")


def fold_nodes(dtype, op, parts, local, exact=False):
    """The same with agents that each combine `local` consecutive ranks first; exact: job.partials is that."""
    acc = None
    for first in range(0, len(parts), local):
        node = widen(parts[first], dtype)
        for part in parts[first + 1 : first + local]:
            node = _combine(op, node, widen(part, dtype))
        if 1 < local < len(parts) and rounds(dtype, op) and not exact:
            node = widen(narrow(node, dtype), dtype)
        acc = node if acc is None else _combine(op, acc, node)
    if op == "avg":
        acc = _divide(acc, len(parts))
    return narrow(acc, dtype)


def fold_groups(dtype, op, parts, local, groups):
    """The same if relays combine the contributions of each group: groups has that of each node (of `local` ranks). A
    relay rounds its sum, unless all that it has added came in the accumulator's type."""
    ranks = len(parts)
    nodes = [fold_node(dtype, op, parts[first : first + local], local, ranks) for first in range(0, ranks, local)]
    acc = None
    for group in sorted(set(groups)):
        own = [node for node, of in zip(nodes, groups) if of == group]
        part = own[0][0]
        for node, _ in own[1:]:
            part = _combine(op, part, node)
        if not all(wide for _, wide in own):
            part = widen(narrow(part, dtype), dtype)
        acc = part if acc is None else _combine(op, acc, part)
    if op == "avg":
        acc = _divide(acc, len(parts))
    if dtype in FLOATS:
        acc[numpy.isnan(acc)] = numpy.nan  # of inf * 0, whose sign depends on the processor; reducers make it positive
    return narrow(acc, dtype)


def fold_node(dtype, op, parts, local, ranks):
    """Returns the sum of a node, and whether it is sent in the accumulator's type although that is wider."""
    node = widen(parts[0], dtype)
    for part in parts[1:]:
        node = _combine(op, node, widen(part, dtype))
    wide = 1 < local < ranks and dtype in ("float16", "bfloat16") and not rounds(dtype, op)
    return (node if wide or local == 1 else widen(narrow(node, dtype), dtype)), wide


def _bounds(dtype, op, parts, partials):
    """Returns the bounds of the result in any order. Each of the n - 1 operations, and a division, has an error of at
    most eps/2 of its result; narrowing keeps the order of values, so narrowed bounds hold for narrowed results.
    partials: a node's partial sum was rounded to the dtype, with an error of at most half of the dtype's eps."""
    eps = float(numpy.finfo(accumulator(dtype)).eps)
    wide = [widen(part, dtype).astype("longdouble") for part in parts]
    if op == "prod":
        exact = numpy.prod(wide, axis=0)
        room = len(parts) * eps * numpy.abs(exact) + numpy.finfo(accumulator(dtype)).tiny
    else:
        exact = numpy.sum(wide, axis=0)
        if partials and rounds(dtype, op):
            eps += 2.0**-8 if dtype == "bfloat16" else 2.0**-11
        room = len(parts) * eps * numpy.sum(numpy.abs(wide), axis=0)
        if op == "avg":
            exact, room = exact / len(parts), room / len(parts)
    with numpy.errstate(over="ignore", under="ignore"):
        return [narrow(v.astype(accumulator(dtype)), dtype) for v in (exact - room, exact + room)]


def order_matters(dtype, op, style, world_size):
    """Returns whether the bits of a result depend on the order in which contributions arrive."""
    return dtype in FLOATS and style == "random" and op in ("sum", "prod", "avg") and world_size > 2


def check(dtype, op, style, parts, got, deterministic=False, partials=False):
    """Compares a result with the expected one; returns an empty string, or a sentence about the first wrong element.
    Results are compared by value (NaN equals NaN, -0 equals 0), in deterministic mode by bits. partials: nodes of
    several ranks may have rounded their sums."""
    if deterministic:
        want = fold(dtype, op, parts)
        wrong = got.view(f"u{got.itemsize}") != want.view(f"u{got.itemsize}")
    elif order_matters(dtype, op, style, len(parts)):
        low, high = _bounds(dtype, op, parts, partials)
        want = low
        wrong = ~((widen(low, dtype) <= widen(got, dtype)) & (widen(got, dtype) <= widen(high, dtype)))
    else:
        want = fold(dtype, op, parts)
        g, w = widen(got, dtype), widen(want, dtype)
        wrong = (g != w) & ~((g != g) & (w != w))
    if not wrong.any():
        return ""
    i = int(wrong.argmax())
    return (
        f"{op} of {len(got)} {dtype} ({style}): {int(wrong.sum())} elements are wrong, first [{i}]: got "
        f"{widen(got, dtype)[i]!r}, expected {widen(want, dtype)[i]!r}; ranks had "
        f"{[widen(p, dtype)[i] for p in parts][:8]}"
    )
