# SPDX-License-Identifier: Apache-2.0
"""The parameters of a real model: EfficientNet-B0 (Tan and Le, 2019), 213 tensors from 4 to 1,280,000 elements."""


def _norm(channels):
    return [(channels,), (channels,)]


def _convolution(out, into, kernel):
    return [(out, into, kernel, kernel)] + _norm(out)


def _block(into, out, expand, kernel):
    """An inverted bottleneck with squeeze-and-excitation."""
    wide, squeezed = into * expand, max(1, into // 4)
    shapes = _convolution(wide, into, 1) if expand > 1 else []
    shapes += _convolution(wide, 1, kernel)
    shapes += [(squeezed, wide, 1, 1), (squeezed,), (wide, squeezed, 1, 1), (wide,)]
    return shapes + _convolution(out, wide, 1)


def shapes():
    """The shape of every parameter, in the order of the model."""
    found = _convolution(32, 3, 3)
    into = 32
    for out, repeats, expand, kernel in [
        (16, 1, 1, 3), (24, 2, 6, 3), (40, 2, 6, 5), (80, 3, 6, 3), (112, 3, 6, 5), (192, 4, 6, 5), (320, 1, 6, 3),
    ]:  # fmt: skip
        for _ in range(repeats):
            found += _block(into, out, expand, kernel)
            into = out
    return found + _convolution(1280, into, 1) + [(1000, 1280), (1000,)]
