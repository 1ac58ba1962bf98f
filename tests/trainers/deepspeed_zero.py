# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed with ZeRO 0, 1 or 2 (the argument) on CPUs, in a process group that the program has made."""

import os
import sys

import common
import deepspeed
import torch

common.start()
deepspeed.init_distributed(dist_backend=common.BACKEND)
net = common.network()
engine, *_ = deepspeed.initialize(
    model=net, optimizer=torch.optim.AdamW(net.parameters(), lr=0.01),
    config={
        "train_micro_batch_size_per_gpu": 8, "zero_allow_untested_optimizer": True,
        "zero_optimization": {"stage": int(sys.argv[1])},
    },
)  # fmt: skip
rank, n = torch.distributed.get_rank(), torch.distributed.get_world_size()
rows = torch.utils.data.Subset(common.data(), range(rank, 64, n))
for x, y in torch.utils.data.DataLoader(rows, batch_size=8):
    engine.backward(torch.nn.functional.cross_entropy(engine(x), y))
    engine.step()
common.report(net, steps=4)
torch.distributed.barrier()
os._exit(0)  # on CPUs DeepSpeed crashes in one of ten exits, also without our package
