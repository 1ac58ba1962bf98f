# SPDX-License-Identifier: Apache-2.0
"""A training that torchrun starts again: rank 1 kills itself in each of the first KILLS attempts, one step later each
time. A checkpoint follows each step."""

import os
import pathlib
import signal

import common
import torch

FILE = pathlib.Path(os.environ["CHECKPOINT"])
KILLS = int(os.environ["KILLS"])

common.start()
rank, n = torch.distributed.get_rank(), torch.distributed.get_world_size()
attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
net = common.network()
first = 0
if FILE.exists():
    saved = torch.load(FILE)
    first = saved["step"]
    net.load_state_dict(saved["net"])
ddp = torch.nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
torch.distributed.barrier()  # all ranks have read the file
for step in range(first, 24):
    generator = torch.Generator().manual_seed(step * n + rank)
    x, y = torch.randn(8, 40, generator=generator), torch.randint(0, 10, (8,), generator=generator)
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(ddp(x), y).backward()
    optimizer.step()
    if rank == 0:
        torch.save({"step": step + 1, "net": net.state_dict()}, f"{FILE}.new")
        os.replace(f"{FILE}.new", FILE)
    torch.distributed.barrier()
    if rank == 1 and attempt < KILLS and step == attempt:
        os.kill(os.getpid(), signal.SIGKILL)
common.report(net, steps=1)
torch.distributed.destroy_process_group()
