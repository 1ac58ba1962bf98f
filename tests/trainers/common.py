# SPDX-License-Identifier: Apache-2.0
"""What the programs of this folder share. Each trains a small model on random data, on all ranks of a launcher, with
the backend of the variable BACKEND, gloo or reduction. At its end each rank prints a digest of the weights."""

import hashlib
import json
import os

import torch

BACKEND = os.environ.get("BACKEND", "gloo")


def start():
    """What a program does before its trainer, with every backend."""
    torch.manual_seed(11)
    torch.distributed.init_process_group(BACKEND)


def network():
    torch.manual_seed(11)
    return torch.nn.Sequential(torch.nn.Linear(40, 300), torch.nn.ReLU(), torch.nn.Linear(300, 10))


def data(rows=64):
    """A data set of pairs (x, y)."""
    generator = torch.Generator().manual_seed(5)
    x, y = torch.randn(rows, 40, generator=generator), torch.randint(0, 10, (rows,), generator=generator)
    return torch.utils.data.TensorDataset(x, y)


class Words(torch.utils.data.Dataset):
    """Random texts of 16 tokens, for language models."""

    def __init__(self, rows=64, words=64):
        generator = torch.Generator().manual_seed(5)
        self.ids = torch.randint(3, words, (rows, 16), generator=generator)

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "labels": self.ids[i]}


def language_model():
    """A language model of 60,000 parameters that needs no download."""
    import transformers

    torch.manual_seed(11)
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=64, n_positions=16, n_embd=48, n_layer=2, n_head=2)
    )


def report(net, steps):
    """Prints the digest of a module's weights, and how many bytes of gradients its steps have made."""
    digest = hashlib.sha256()
    for tensor in net.state_dict().values():
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    gradients = steps * sum(p.numel() * p.element_size() for p in net.parameters() if p.requires_grad)
    print(json.dumps({"weights": digest.hexdigest(), "gradients": gradients}), flush=True)
