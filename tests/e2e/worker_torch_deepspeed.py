# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed on CPUs: worker_torch_deepspeed.py BACKEND STAGE... trains with each of these stages of ZeRO over the
default process group, and prints the losses.
"""

import json
import os
import sys

import deepspeed
import torch
import worker_torch_group as base
import worker_torch_sharded as sharded


def engine_of(stage):
    config = {
        "train_micro_batch_size_per_gpu": 2,
        "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0},
        "optimizer": {"type": "AdamW", "params": {"lr": 0.001, "torch_adam": True}},
    }
    return deepspeed.initialize(model=sharded.transformer(), config=config, dist_init_required=False)[0]


def train(engine, steps=5):
    losses = []
    for step in range(steps):
        loss = engine(sharded.batch(step)).float().square().mean()
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    return losses


def main():
    base.start(sys.argv[1], with_gloo=False)
    for stage in map(int, sys.argv[2:]):
        print(f"stage {stage}:", json.dumps(train(engine_of(stage))), flush=True)
    torch.distributed.barrier()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
