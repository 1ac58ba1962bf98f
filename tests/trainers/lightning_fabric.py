# SPDX-License-Identifier: Apache-2.0
"""Lightning's Fabric with DDPStrategy, which makes the process group."""

import common
import lightning
import torch
from lightning.fabric.strategies import DDPStrategy

strategy = DDPStrategy(process_group_backend=common.BACKEND)
fabric = lightning.Fabric(accelerator="cpu", devices=2, strategy=strategy)
fabric.launch()
net = common.network()
net, optimizer = fabric.setup(net, torch.optim.SGD(net.parameters(), lr=0.1))
for x, y in fabric.setup_dataloaders(torch.utils.data.DataLoader(common.data(), batch_size=8)):
    optimizer.zero_grad()
    fabric.backward(torch.nn.functional.cross_entropy(net(x), y))
    optimizer.step()
common.report(net.module, steps=4)
