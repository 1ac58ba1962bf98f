# SPDX-License-Identifier: Apache-2.0
"""A model of timm in DDP with timm's own functions for distributed training, which make the process group."""

import os

import common
import timm
import timm.utils
import torch

torch.manual_seed(11)
os.environ.setdefault("LOCAL_RANK", os.environ["RANK"])
device = timm.utils.distributed.init_distributed_device_so(device="cpu", dist_backend=common.BACKEND)
assert device["distributed"]
net = timm.create_model("resnet10t", pretrained=False, num_classes=10)
ddp = torch.nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
generator = torch.Generator().manual_seed(int(os.environ["RANK"]))
for _ in range(3):
    optimizer.zero_grad()
    loss = ddp(torch.randn(4, 3, 64, 64, generator=generator)).square().mean()
    loss.backward()
    optimizer.step()
    timm.utils.reduce_tensor(loss.detach(), device["world_size"])
timm.utils.distribute_bn(net, device["world_size"], True)
common.report(net, steps=3)
torch.distributed.destroy_process_group()
