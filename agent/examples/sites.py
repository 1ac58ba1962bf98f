# SPDX-License-Identifier: Apache-2.0
"""Trains a small transformer on several sites. Inside a site DistributedDataParallel over gloo sums gradients in each
step. Between sites outer steps go through reducers every so many steps. On each site:

    torchrun --nproc_per_node 2 sites.py --site paris --sites 4 --store 10.0.0.11:29400

A store must run on a machine that outlives the sites: python3 sites.py --serve 10.0.0.11:29400. A site that ends, for
whatever reason, may be started again with the same command at any time. Each site's leader prints lines of JSON.
"""

import argparse
import json
import math
import os
import signal
import sys
import time
import zlib

import torch
import torch.distributed as dist
import torch.nn.functional as F

LETTERS, CONTEXT, WIDTH, LAYERS, HEADS = 32, 64, 208, 2, 4
LEARNING_RATE, WARMUP = 2e-3, 100


def made_up_text():
    """Returns text of words that follow each other with different probabilities, as numbers of letters."""
    g = torch.Generator().manual_seed(39)
    following = torch.rand(30, 30, generator=g) ** 8  # which letter follows which
    words = []
    for length in (torch.randint(7, (400,), generator=g) + 1).tolist():
        word = torch.randint(30, (1,), generator=g).tolist()
        for _ in range(length):
            word.append(int(torch.multinomial(following[word[-1]], 1, generator=g)))
        words.append(torch.tensor([*word, 30]))  # 30: a space
    next_words = torch.randint(400, (400, 24), generator=g).tolist()
    picks = torch.multinomial(1 / torch.arange(1.0, 25.0), 200_000, True, generator=g).tolist()
    text, word = [], 0
    for pick in picks:
        text.append(words[word])
        word = next_words[word][pick]
    return torch.cat(text)


class Data:
    """Batches of a rank, which depend on the seed, the step and the rank alone."""

    def __init__(self, seed):
        text = made_up_text()
        self.seed, self.train = seed, text[:-4200]
        self.held = self.cut(text[-4200:], torch.arange(0, 4096, CONTEXT))

    @staticmethod
    def cut(text, starts):
        rows = text[starts[:, None] + torch.arange(CONTEXT + 1)]
        return rows[:, :-1], rows[:, 1:]

    def batch(self, step, rank, rows):
        g = torch.Generator().manual_seed(self.seed * 10_000_000 + step * 16 + rank)
        return self.cut(self.train, torch.randint(len(self.train) - CONTEXT - 1, (rows,), generator=g))

    def loss(self, model):
        """Returns the loss on text that no rank trains on, in nats a letter."""
        with torch.no_grad():
            return F.cross_entropy(model(self.held[0]), self.held[1]).item()


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = torch.nn.LayerNorm(WIDTH), torch.nn.LayerNorm(WIDTH)
        self.qkv, self.out = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        self.up, self.down = torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        b, t, w = x.shape
        qkv = self.qkv(self.norm1(x)).view(b, t, 3, HEADS, w // HEADS).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(*qkv, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, w))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Transformer(torch.nn.Module):
    """Predicts the next letter."""

    def __init__(self):
        super().__init__()
        self.token = torch.nn.Embedding(LETTERS, WIDTH)
        self.place = torch.nn.Parameter(torch.randn(CONTEXT, WIDTH) * 0.02)
        self.layers = torch.nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm, self.head = torch.nn.LayerNorm(WIDTH), torch.nn.Linear(WIDTH, LETTERS)

    def forward(self, x):
        x = self.token(x) + self.place
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x)).transpose(1, 2)

    def fragments(self):
        """Returns two halves of the model for outer steps."""
        rest = [p for name, p in self.named_parameters() if not name.startswith("layers.")]
        return [self.layers[0], [*self.layers[1:].parameters(), *rest]]


def new_model(seed):
    torch.manual_seed(seed)
    model = Transformer()
    return model, torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.98))


def train_step(model, optimizer, batch, step, steps):
    """One inner step; the learning rate warms up and falls to a tenth as a cosine."""
    shape = 0.1 + 0.45 * (1 + math.cos(math.pi * min(step, steps) / steps))
    for group in optimizer.param_groups:
        group["lr"] = LEARNING_RATE * min(1, (step + 1) / WARMUP) * shape
    optimizer.zero_grad()
    F.cross_entropy(model(batch[0]), batch[1]).backward()
    optimizer.step()


def losses(kept, data):
    model = Transformer()
    found = []
    for step, state in kept:
        model.load_state_dict(state)
        found.append([step, round(data.loss(model), 5)])
    return found


def address(text):
    host, _, port = text.rpartition(":")
    return host, int(port)


def serve(where):
    """Runs the store of the sites until SIGTERM."""
    host, port = address(where)
    store = dist.TCPStore(host, port, None, True, wait_for_workers=False)  # noqa: F841 it serves while it is alive
    print("ready", flush=True)
    signal.sigwait([signal.SIGTERM, signal.SIGINT])


def train(args):
    import reduction.torch

    torch.set_num_threads(1)
    data = Data(args.seed)
    model, optimizer = new_model(args.seed)
    dist.init_process_group("gloo")  # inside the site
    local, ranks = dist.get_rank(), dist.get_world_size()
    inner = torch.nn.parallel.DistributedDataParallel(model)
    members = None
    if local == 0:
        store = dist.TCPStore(*address(args.store), None, False, wait_for_workers=False)
        members = reduction.torch.Members(store, args.site, args.sites, patience=args.patience, run=args.run)
    outer = reduction.torch.Outer(
        model.fragments(), members, group=dist.group.WORLD, sync_every=args.sync_every, wire=args.wire,
        fragment_sync_delay=args.delay, fragment_update_alpha=args.alpha,
    )  # fmt: skip

    def say(**facts):
        if local == 0:
            print(json.dumps({"site": args.site, "step": outer.steps, "outer": outer.outer_steps, **facts}), flush=True)

    say(what="begin")
    number = zlib.crc32(args.site.encode()) % 4 if args.number is None else args.number
    began, waited, longest, before = time.monotonic(), outer.waited, 0.0, time.monotonic()
    kept = []  # parameters whose loss is computed in the end, so that no site waits for it
    while outer.steps < args.steps:
        batch = data.batch(outer.steps, number * ranks + local, args.rows)
        train_step(inner, optimizer, batch, outer.steps, args.steps)
        outer.step()
        now = time.monotonic()
        longest, before = max(longest, now - before), now
        if args.report and outer.steps % args.report == 0 and outer.steps < args.steps:
            say(what="step", seconds=round(now - began, 3))
            if args.validate and local == 0:
                kept.append((outer.steps, {name: value.clone() for name, value in model.state_dict().items()}))
    wall, waited = time.monotonic() - began, outer.waited - waited
    outer.synchronize()
    bits = zlib.crc32(b"".join(p.detach().numpy().tobytes() for p in model.parameters()))
    say(what="end", seconds=round(wall, 3), waited=round(waited, 3), longest=round(longest, 3), bits=bits,
        loss=round(data.loss(model), 5) if local == 0 else None, curve=losses(kept, data))  # fmt: skip
    outer.close()
    dist.barrier()
    os._exit(0)  # threads of gloo may wait for peers that have ended


def parse_arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--serve", metavar="HOST:PORT", help="run the store of the sites, and nothing else")
    p.add_argument("--store", metavar="HOST:PORT", help="the store of the sites")
    p.add_argument("--site", default="site", help="name of this site")
    p.add_argument("--number", type=int, help="of this site: its data follow from it (default: from the name)")
    p.add_argument("--sites", type=int, default=1, help="sites that the start waits for (default 1)")
    p.add_argument("--run", default="sites", help="identity of the training, equal on all sites")
    p.add_argument("--patience", type=float, default=10.0, help="seconds until a silent site is lost (default 10)")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--steps", type=int, default=600)
    p.add_argument("--rows", type=int, default=1, help=f"sequences of {CONTEXT} letters in a rank's batch (default 1)")
    p.add_argument("--sync-every", type=int, default=30, help="inner steps between outer steps (default 30)")
    p.add_argument("--delay", type=int, default=5, help="inner steps that an all-reduce has time (default 5)")
    p.add_argument("--alpha", type=float, default=0.5, help="part of the inner progress that stays (default 0.5)")
    p.add_argument("--wire", default="int8", help="encoding between sites (default int8)")
    p.add_argument("--report", type=int, default=100, help="steps between two lines (default 100)")
    p.add_argument("--validate", action="store_true", help="print the losses at these steps in the end")
    return p.parse_args()


if __name__ == "__main__":
    arguments = parse_arguments()
    sys.exit(serve(arguments.serve) if arguments.serve else train(arguments))
