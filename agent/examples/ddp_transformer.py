# SPDX-License-Identifier: Apache-2.0
"""An ordinary DistributedDataParallel training of a small transformer, for any way to the reducers:

    torchrun --nproc_per_node 4 ddp_transformer.py

The NCCL plugin needs environment variables only (deploy/pytorch-gpus.md). Then rank 0 says at the end whether CollNet
carried the all-reduces; with REDUCTION_REQUIRED=1 every rank fails if it did not. Without a GPU gloo is used.
"""

import argparse
import os
import sys

import torch
import torch.distributed as dist

VOCABULARY, LENGTH = 256, 64


class Transformer(torch.nn.Module):
    """Predicts the next token."""

    def __init__(self, width=256, layers=4):
        super().__init__()
        self.token = torch.nn.Embedding(VOCABULARY, width)
        self.place = torch.nn.Parameter(torch.zeros(LENGTH, width))
        layer = torch.nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)
        self.layers = torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.out = torch.nn.Linear(width, VOCABULARY)
        mask = torch.full((LENGTH, LENGTH), float("-inf")).triu(1)
        self.register_buffer("mask", mask)

    def forward(self, tokens):
        return self.out(self.layers(self.token(tokens) + self.place, mask=self.mask))


def batch(step, rank, rows=8):
    """Returns sequences in which each token follows from the one before, but for a tenth of them."""
    generator = torch.Generator().manual_seed(1000 * step + rank)
    tokens = torch.randint(0, VOCABULARY, (rows, LENGTH + 1), generator=generator)
    surprise = torch.rand(rows, LENGTH + 1, generator=generator) < 0.1
    for i in range(1, LENGTH + 1):
        tokens[:, i] = torch.where(surprise[:, i], tokens[:, i], (5 * tokens[:, i - 1] + 7) % VOCABULARY)
    return tokens


def train(model, steps, device, each_step=lambda step, loss: None, rows=8):
    """Trains, and returns the last loss, averaged over the ranks."""
    rank = dist.get_rank()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    loss = torch.zeros(())
    for step in range(steps):
        tokens = batch(step, rank, rows).to(device)
        optimizer.zero_grad()
        logits = model(tokens[:, :-1])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        each_step(step, loss)
    loss = loss.detach().clone()
    dist.all_reduce(loss)
    return loss.item() / dist.get_world_size()


def verdict(backend):
    """Says whether the reducers were used. Returns the exit status."""
    from reduction import nccl_log

    path = nccl_log.own_log() if backend == "nccl" else None
    if path is None:
        found = nccl_log.Verdict(False, "there is no log of NCCL: set NCCL_DEBUG_FILE to a name with %p")
    else:
        with open(path, encoding="utf-8", errors="replace") as file:
            found = nccl_log.judge(file.read())
    if int(os.environ.get("RANK", "0")) == 0:
        print(f"CollNet carried the all-reduces: {'yes' if found.used else 'NO'}: {found.why}", flush=True)
    return 1 if os.environ.get("REDUCTION_REQUIRED") == "1" and not found.used else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=50, help="steps of training (default 50)")
    args = parser.parse_args()
    on_gpu = torch.cuda.is_available()
    backend = "nccl" if on_gpu else "gloo"
    device = torch.device("cpu")
    if on_gpu:
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
        torch.cuda.set_device(device)
    dist.init_process_group(backend)
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(Transformer().to(device), device_ids=[device] if on_gpu else None)

    def show(step, loss):
        if step % 10 == 9 and dist.get_rank() == 0:
            print(f"step {step + 1:4}  loss {loss.item():.4f}", flush=True)

    loss = train(model, args.steps, device, show)
    if dist.get_rank() == 0:
        print(f"mean loss of all ranks: {loss:.6f}", flush=True)
    dist.destroy_process_group()  # the plugin then writes how many all-reduces it has done
    return verdict(backend)


if __name__ == "__main__":
    sys.exit(main())
