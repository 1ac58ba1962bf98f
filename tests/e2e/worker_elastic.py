# SPDX-License-Identifier: Apache-2.0
"""A training that torchrun may restart at any step: worker_elastic.py FOLDER STEPS PLAN

It goes on from the checkpoint in FOLDER, which rank 0 writes after each step. PLAN (JSON, all is optional):
    {"die": [RANK, STEP]}                       that rank kills itself in that step's backward pass, unless restarted
    {"hold": [[STEP, WORLD_SIZE, [RANK ...]]]}  these ranks of such a world wait before that step, once, to be ended
    {"same": true}                              all ranks have the same data, so that 2 or 4 give the same bits
    {"group": true}                             the backend `reduction`, instead of gloo and the hook
"""

import json
import os
import pathlib
import signal
import sys
import zlib

import torch
import torch.distributed

import reduction.torch

folder, steps, plan = pathlib.Path(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3])
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
restarts = int(os.environ["TORCHELASTIC_RESTART_COUNT"])


def say(what, **values):
    """One line in one write: ranks share their standard output."""
    os.write(1, (json.dumps({"what": what, "rank": rank, "world": world, **values}) + "\n").encode())


torch.set_num_threads(1)
torch.manual_seed(0)
net = torch.nn.Sequential(*(torch.nn.Linear(120, 120) for _ in range(4)))
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
step = 0
if (folder / "checkpoint").exists():
    saved = torch.load(folder / "checkpoint")
    net.load_state_dict(saved["net"])
    optimizer.load_state_dict(saved["optimizer"])
    step = saved["step"]

torch.distributed.init_process_group("reduction" if plan.get("group") else "gloo")
model = torch.nn.parallel.DistributedDataParallel(net, bucket_cap_mb=0.1)
state = None
if plan.get("group"):
    pairs = [torch.distributed.new_group([i, i + 1]) for i in range(0, world, 2)]
    torch.distributed.all_reduce(torch.ones(1), group=pairs[rank // 2])
else:
    state = reduction.torch.State()
    model.register_comm_hook(state, reduction.torch.allreduce_hook)
say("begin", step=step, restarts=restarts)

while step < steps:
    held = folder / f"held-{step}-{rank}"
    if [step, world] in [[s, w] for s, w, ranks in plan.get("hold", []) if rank in ranks] and not held.exists():
        held.touch()
        say("hold", step=step)
        signal.pause()
    seed = 1000 * step + (0 if plan.get("same") else rank)
    x = torch.randn(16, 120, generator=torch.Generator().manual_seed(seed))
    optimizer.zero_grad()
    loss = model(x).square().mean()
    if plan.get("die") == [rank, step] and restarts == 0:
        net[2].weight.register_hook(lambda _: os.kill(os.getpid(), signal.SIGKILL))
    loss.backward()
    optimizer.step()
    step += 1
    if rank == 0:
        torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, folder / "new")
        (folder / "new").replace(folder / "checkpoint")
        say("saved", step=step)
if state:
    state.close()
else:
    torch.distributed.destroy_process_group()  # a rank that ends without it looks lost to those that still receive
crc = zlib.crc32(b"".join(p.detach().numpy().tobytes() for p in net.parameters()))
say("trained", crc=crc, restarts=restarts)
os._exit(0)  # gloo's threads and torch's destructors can deadlock (torch 1.13)
