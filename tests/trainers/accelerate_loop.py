# SPDX-License-Identifier: Apache-2.0
"""A loop with Accelerate, in a process group that the program has made."""

import accelerate
import common
import torch

common.start()
accelerator = accelerate.Accelerator(cpu=True)
net = common.network()
net, optimizer, rows = accelerator.prepare(
    net, torch.optim.AdamW(net.parameters(), lr=0.01), torch.utils.data.DataLoader(common.data(), batch_size=8)
)
for x, y in rows:
    optimizer.zero_grad()
    accelerator.backward(torch.nn.functional.cross_entropy(net(x), y))
    accelerator.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
assert isinstance(net, torch.nn.parallel.DistributedDataParallel)
common.report(accelerator.unwrap_model(net), steps=4)
accelerator.end_training()
