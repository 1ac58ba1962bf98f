#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the error of sums over n ranks against float64: with each encoding of job.wire, by the kernels of the
product, and with what others do.

    bf16 ring  adds in bfloat16 at each hop
    fp8 ring   decodes, adds in float32 and encodes again at each hop, with our blocks

An all-to-all in fp8, where each rank sums its part of all ranks in float32 and encodes it again, is our arithmetic.

RMS error: by the root mean square of the sum. Largest error: by its largest element. Lost: elements of the sum that
became 0. Needs numpy. Prints tables; --out: lines of JSON. Exit status: 0 success, 2 wrong usage.
"""

import argparse
import json
import pathlib

import numpy as np
from codec import ROOT, Codec

ELEMENTS = 1 << 18
RANKS = (4, 8, 16, 64)
STEPS = 300  # of training before gradients are taken
OURS = {"float32": ("float32", None), "fp16": ("fp16", None), "bf16": ("bf16", None), "int8": ("int8", None),
        "int8, stochastic": ("int8", 1), "fp8": ("fp8", None), "fp8, stochastic": ("fp8", 1), "int4": ("int4", None),
        "int4, stochastic": ("int4", 1)}


def normal(rng):
    return rng.standard_normal(ELEMENTS)


def heavy(rng):
    return rng.standard_t(2, ELEMENTS)


def decades(rng):
    return rng.choice([-1, 1], ELEMENTS) * 10 ** rng.uniform(-6, 0, ELEMENTS)


def layers(rng):
    """1,024 elements in turn of one size, which differs by up to 6 decades, the same on all ranks."""
    sizes = 10 ** np.random.default_rng(39).uniform(-6, 0, ELEMENTS // 1024)
    return rng.standard_normal(ELEMENTS) * np.repeat(sizes, 1024)


MADE_UP = {"normal": normal, "heavy tails": heavy, "6 decades": decades, "layers": layers}


def gradients(codec, name, ranks):
    """Returns gradients of a model of train.py, each of its own batch."""
    import torch
    import train

    torch.set_num_threads(1)
    one = train.Training(codec, name, "float32", 0, 2000)
    for step in range(STEPS):
        one.step(step)
    out = []
    for rank in range(ranks):
        x, y = one.data.sample(torch.Generator().manual_seed(rank))
        one.ranks.backward(0, torch.nn.functional.cross_entropy(one.model(x), y))
        out.append(one.ranks.gradients[0].numpy().copy())
    return out


def bf16_ring(codec, given):
    total = codec.through("bf16", given[0])
    for values in given[1:]:
        total = codec.through("bf16", total + codec.through("bf16", values))
    return total


def fp8_ring(codec, given):
    total = codec.through("fp8", given[0])
    for values in given[1:]:
        total = codec.through("fp8", total + values)
    return total


OTHERS = {"bf16 ring": bf16_ring, "fp8 ring": fp8_ring}


def compare(codec, values, given):
    """Yields a record for each system."""
    exact = np.sum([g.astype(np.float64) for g in given], axis=0)
    rms = np.sqrt(np.mean(exact**2))
    for system in (*OURS, *OTHERS):
        if system in OURS:
            wire, seq = OURS[system]
            result = codec.reduce(given, wire, seq)
        else:
            result = OTHERS[system](codec, given)
        error = result - exact
        yield {"values": values, "n": len(given), "system": system, "rms": float(np.sqrt(np.mean(error**2)) / rms),
               "largest": float(np.abs(error).max() / np.abs(exact).max()),
               "lost": float(np.mean((result == 0) & (exact != 0)))}


def table(records, head, key):
    """Returns lines of Markdown: a row for each system, a column for each value of `key`."""
    columns = list(dict.fromkeys(r[key] for r in records))
    lines = [f"| {head} | " + " | ".join(map(str, columns)) + " |", "|---" * (len(columns) + 1) + "|"]
    for system in (*OURS, *OTHERS):
        cells = []
        for column in columns:
            r = next(r for r in records if r["system"] == system and r[key] == column)
            lost = f"; {100 * r['lost']:.0f} % lost" if r["lost"] >= 0.005 else ""
            cells.append(f"{r['rms']:.1e}, {r['largest']:.1e}{lost}")
        lines.append(f"| {system} | " + " | ".join(cells) + " |")
    return lines


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "default")
    p.add_argument("--gradients", action="store_true",
                   help=f"also gradients of train.py's models after {STEPS} steps, of different batches; needs torch")
    p.add_argument("--out", type=pathlib.Path, help="file of JSON lines")
    args = p.parse_args()
    codec = Codec(args.build)
    given = {}
    for name, make in MADE_UP.items():
        rngs = [np.random.default_rng(rank) for rank in range(max(RANKS) if name == "normal" else 8)]
        given[name] = [make(rng).astype(np.float32) for rng in rngs]
    if args.gradients:
        given["transformer"] = gradients(codec, "transformer", max(RANKS))
        given["cnn"] = gradients(codec, "cnn", 8)
    eight = [r for name, values in given.items() for r in compare(codec, name, values[:8])]
    print("RMS error, largest error of sums of 8 ranks:\n")
    print("\n".join(table(eight, "n = 8", "values")))
    records = eight
    for name in ("normal", "transformer"):
        if name in given:
            more = [r for n in RANKS for r in compare(codec, name, given[name][:n])]
            print(f"\n{name}, by n:\n")
            print("\n".join(table(more, name, "n")))
            records = records + [r for r in more if r["n"] != 8]
    if args.out:
        args.out.write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")


if __name__ == "__main__":
    main()
