# SPDX-License-Identifier: Apache-2.0
"""A loop in two processes of torch.multiprocessing.spawn(), which sets no variable about a rank's place."""

import os
import tempfile

import common
import torch
import torch.multiprocessing


def train(rank, store):
    if common.BACKEND == "reduction":
        import reduction.torch  # noqa: F401
    torch.distributed.init_process_group(common.BACKEND, init_method=f"file://{store}", rank=rank, world_size=2)
    net = common.network()
    ddp = torch.nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    rows = torch.utils.data.Subset(common.data(), range(rank, 64, 2))
    for x, y in torch.utils.data.DataLoader(rows, batch_size=8):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(ddp(x), y).backward()
        optimizer.step()
    common.report(net, steps=4)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(train, (os.path.join(folder, "store"),), nprocs=2)
