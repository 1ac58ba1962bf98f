#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains two small models with each encoding of job.wire: four data-parallel ranks in one process, whose gradients go
through the kernels of the product, bucket by bucket, as DDP would send them.

    transformer   characters of a made-up language, 2 layers, AdamW; loss in nats a character
    cnn           made-up images of 10 classes, 3 convolutions, SGD with momentum; cross-entropy

Runs with the same seed have the same initial weights and the same batches. "float32, reversed" sums the ranks in the
other order: what a difference in the last bit does. Appends a line of JSON for each run to --out, leaves out runs that
are there already, and prints a table. Needs torch and numpy. Exit status: 0 success, 2 wrong usage.
"""

import argparse
import functools
import json
import math
import pathlib
import statistics
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
from codec import ROOT, Codec
from torch import nn

RANKS = 4
BUCKET = 256 << 10  # bytes; models of this size would fit into one of DDP's
SMALL = 64 << 10  # bytes; operations up to here are sent as they are
EVERY = 100  # steps between two validations
# name -> (encoding, error feedback, random rounding, order of ranks)
WAYS = {
    "float32": ("float32", False, False, 1),
    "float32, reversed": ("float32", False, False, -1),
    "bf16": ("bf16", False, False, 1),
    "bf16 + feedback": ("bf16", True, False, 1),
    "fp8": ("fp8", False, False, 1),
    "fp8 + feedback": ("fp8", True, False, 1),
    "fp8, stochastic": ("fp8", False, True, 1),
    "int8": ("int8", False, False, 1),
    "int8 + feedback": ("int8", True, False, 1),
}


class Language:
    """Text of words that follow each other with different probabilities."""

    letters, context, batch = 32, 64, 2

    def __init__(self):
        rng = np.random.default_rng(39)
        following = rng.dirichlet(np.full(30, 0.15), 30)  # which letter follows which
        words = []
        for _ in range(400):
            word = [int(rng.integers(30))]
            for _ in range(int(rng.integers(1, 8))):
                word.append(int(rng.choice(30, p=following[word[-1]])))
            words.append(np.array([*word, 30]))  # 30: a space
        next_words = rng.integers(400, size=(400, 24))
        zipf = 1 / np.arange(1, 25)
        picks = rng.choice(24, size=180_000, p=zipf / zipf.sum())
        text, word = [], 0
        for pick in picks:
            text.append(words[word])
            word = next_words[word, pick]
        text = torch.from_numpy(np.concatenate(text))
        self.train, held = text[:-4096], text[-4096:]
        self.held = self.cut(held, torch.arange(0, 4096 - self.context, self.context))

    def cut(self, text, starts):
        rows = text[starts[:, None] + torch.arange(self.context + 1)]
        return rows[:, :-1], rows[:, 1:]

    def sample(self, generator):
        starts = torch.randint(len(self.train) - self.context - 1, (self.batch,), generator=generator)
        return self.cut(self.train, starts)


class Transformer(nn.Module):
    def __init__(self, width=96, heads=4, layers=2):
        super().__init__()
        self.heads = heads
        self.token = nn.Embedding(Language.letters, width)
        self.place = nn.Parameter(torch.randn(Language.context, width) * 0.02)
        self.layers = nn.ModuleList(
            nn.ModuleDict({
                "norm1": nn.LayerNorm(width), "qkv": nn.Linear(width, 3 * width), "out": nn.Linear(width, width),
                "norm2": nn.LayerNorm(width), "up": nn.Linear(width, 4 * width), "down": nn.Linear(4 * width, width),
            })
            for _ in range(layers)
        )  # fmt: skip
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, Language.letters)

    def forward(self, x):
        x = self.token(x) + self.place
        for layer in self.layers:
            b, t, w = x.shape
            qkv = layer["qkv"](layer["norm1"](x)).view(b, t, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
            y = F.scaled_dot_product_attention(*qkv, is_causal=True)
            x = x + layer["out"](y.transpose(1, 2).reshape(b, t, w))
            x = x + layer["down"](F.gelu(layer["up"](layer["norm2"](x))))
        return self.head(self.norm(x)).transpose(1, 2)


class Images:
    """Images of 16 x 16: the shape of the class, shifted, over a weaker shape of another class, and noise."""

    classes, batch = 10, 16

    def __init__(self):
        generator = torch.Generator().manual_seed(39)
        self.shapes = F.interpolate(torch.randn(self.classes, 1, 5, 5, generator=generator), 16, mode="bicubic")[:, 0]
        self.held = self.draw(2048, generator)

    def draw(self, n, generator):
        label, other = torch.randint(self.classes, (2, n), generator=generator)
        shift = torch.randint(16, (2, 2, n, 1, 1), generator=generator)
        rows, columns = torch.arange(16)[:, None], torch.arange(16)
        image = torch.randn(n, 16, 16, generator=generator)
        for strength, which, (down, right) in ((1.0, label, shift[0]), (0.6, other, shift[1])):
            image += strength * self.shapes[which[:, None, None], (rows + down) % 16, (columns + right) % 16]
        return image[:, None], label

    def sample(self, generator):
        return self.draw(self.batch, generator)


def cnn():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.Flatten(),
        nn.Linear(64 * 16, 96), nn.ReLU(), nn.Linear(96, Images.classes),
    )  # fmt: skip


MODELS = {
    "transformer": (Language, Transformer, lambda w: torch.optim.AdamW([w], lr=3e-3, betas=(0.9, 0.98))),
    "cnn": (Images, cnn, lambda w: torch.optim.SGD([w], lr=0.03, momentum=0.9)),
}


class Flat:
    """The weights of a model as one vector, in reverse order, as DDP puts gradients into buckets."""

    def __init__(self, model):
        self.parameters = list(model.parameters())[::-1]
        self.weights = nn.Parameter(torch.cat([p.detach().flatten() for p in self.parameters]))
        for p, view in zip(self.parameters, self.views(self.weights.detach())):
            p.data = view
        self.buckets, first = [], 0
        for end in np.cumsum([p.numel() for p in self.parameters]).tolist():
            if (end - first) * 4 >= BUCKET or end == self.weights.numel():
                self.buckets.append(slice(first, end))
                first = end

    def views(self, vector):
        parts = torch.split(vector, [p.numel() for p in self.parameters])
        return [part.view_as(p) for part, p in zip(parts, self.parameters)]


class Ranks:
    """The gradients of all ranks, and their average by one of WAYS."""

    def __init__(self, codec, flat, way):
        self.codec, self.flat = codec, flat
        self.wire, feedback, self.random, self.order = WAYS[way]
        n = flat.weights.numel()
        self.gradients = [torch.zeros(n) for _ in range(RANKS)]
        self.views = [flat.views(g) for g in self.gradients]
        self.residuals = {}
        if feedback:
            self.residuals = {b: [np.zeros(s.stop - s.start, np.float32) for _ in range(RANKS)]
                              for b, s in enumerate(flat.buckets)}
        self.average = torch.zeros(n)

    def backward(self, rank, loss):
        self.gradients[rank].zero_()
        for p, view in zip(self.flat.parameters, self.views[rank]):
            p.grad = view
        loss.backward()

    def reduce(self, step):
        out, buckets = self.average.numpy(), self.flat.buckets
        for b, part in enumerate(buckets):
            given = [g.numpy()[part] for g in self.gradients][:: self.order]
            if given[0].nbytes <= SMALL:
                out[part] = self.codec.reduce(given, "float32", divide=RANKS)
                continue
            seq = step * len(buckets) + b + 1 if self.random else None
            out[part] = self.codec.reduce(given, self.wire, seq, self.residuals.get(b), RANKS)
        self.flat.weights.grad = self.average


def schedule(step, steps):
    """Warms up for 100 steps, then falls to 0 as a cosine."""
    return min(1, (step + 1) / 100) * 0.5 * (1 + math.cos(math.pi * step / steps))


def validate(model, held):
    with torch.no_grad():
        return F.cross_entropy(model(held[0]), held[1]).item()


@functools.cache
def data_of(name):
    return MODELS[name][0]()


class Training:
    """A model, its data, and four ranks, whose steps may be done one by one."""

    def __init__(self, codec, name, way, seed, steps):
        _, build, optimizer = MODELS[name]
        torch.manual_seed(seed)
        self.data = data_of(name)
        self.model = build()
        self.flat = Flat(self.model)
        self.ranks = Ranks(codec, self.flat, way)
        self.optimizer = optimizer(self.flat.weights)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: schedule(step, steps))
        self.generators = [torch.Generator().manual_seed(1000 * (seed + 1) + rank) for rank in range(RANKS)]

    def step(self, number):
        for rank, generator in enumerate(self.generators):
            x, y = self.data.sample(generator)
            self.ranks.backward(rank, F.cross_entropy(self.model(x), y))
        self.ranks.reduce(number)
        self.optimizer.step()
        self.schedule.step()


def train(codec, name, way, seed, steps):
    """Returns the record of one run."""
    began = time.process_time()
    one = Training(codec, name, way, seed, steps)
    curve = []
    for step in range(steps):
        one.step(step)
        if (step + 1) % EVERY == 0 or step + 1 == steps:
            curve.append([step + 1, round(validate(one.model, one.data.held), 5)])
    return {"model": name, "way": way, "seed": seed, "steps": steps, "parameters": one.flat.weights.numel(),
            "buckets": len(one.flat.buckets), "final": curve[-1][1], "curve": curve,
            "cpu_s": round(time.process_time() - began, 1), "torch": torch.__version__}


def table(runs):
    """Returns lines of Markdown: final losses, how far their mean is from that of float32 with the same seeds, and
    whether it is within the range of all runs of float32, with ranks in either order."""
    head = "| model | way | final loss by seed | mean | mean - float32's | within float32's range |"
    lines = [head, "|---" * 6 + "|"]
    for name in dict.fromkeys(r["model"] for r in runs):
        finals = {}
        for r in runs:
            if r["model"] == name:
                finals.setdefault(r["way"], {})[r["seed"]] = r["final"]
        base = finals.get("float32", {})
        spread = [loss for way, by_seed in finals.items() if way.startswith("float32") for loss in by_seed.values()]
        for way, by_seed in sorted(finals.items(), key=lambda item: list(WAYS).index(item[0])):
            both = sorted(by_seed.keys() & base.keys())
            if not both:
                continue
            mean = statistics.fmean(by_seed[s] for s in both)
            difference = mean - statistics.fmean(base[s] for s in both)
            within = "yes" if min(spread) <= mean <= max(spread) else "**no**"
            seeds = ", ".join(f"{by_seed[s]:.4f}" for s in both)
            lines.append(f"| {name} | {way} | {seeds} | {mean:.4f} | {difference:+.4f} | {within} |")
    return lines


def read(path):
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def parse_arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--models", default=",".join(MODELS), help="comma-separated (default all)")
    p.add_argument("--seeds", type=int, default=3, help="number of seeds (default 3)")
    p.add_argument("--steps", type=int, default=2000)
    p.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "default")
    p.add_argument("--out", type=pathlib.Path, default=ROOT / "build" / "bench" / "wire-train.jsonl")
    args = p.parse_args()
    args.models = args.models.split(",")
    for name in args.models:
        if name not in MODELS:
            p.error(f'--models: found "{name}", expected {", ".join(MODELS)}')
    if args.seeds < 1 or args.steps < 1:
        p.error("--seeds and --steps: expected 1 or more")
    return args


def main():
    args = parse_arguments()
    torch.set_num_threads(1)
    codec = Codec(args.build)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    done = {(r["model"], r["way"], r["seed"], r["steps"]) for r in read(args.out)}
    for seed in range(args.seeds):
        for name in args.models:
            for way in WAYS:
                if (name, way, seed, args.steps) in done:
                    continue
                record = train(codec, name, way, seed, args.steps)
                with open(args.out, "a", encoding="utf-8") as f:
                    f.write(json.dumps(record) + "\n")
                print(f"{name}, {way}, seed {seed}: {record['final']:.4f} ({record['cpu_s']} s)", file=sys.stderr)
    print("\n".join(table([r for r in read(args.out) if r["steps"] == args.steps])))


if __name__ == "__main__":
    main()
