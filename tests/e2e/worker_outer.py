# SPDX-License-Identifier: Apache-2.0
"""A rank of a training on several sites with reduction.torch.Outer: worker_outer.py PLAN. PLAN is JSON, all but sites
is optional:

    {"sites": 2, "ranks": 2}       sites, and ranks of each; REDUCTION's rank is that of all of them
    {"steps": 12}                  inner steps
    {"store": PORT}                Members meet in the store at this port; otherwise a Communicator joins the sites
    {"site": "s1"}                 name of the site, with a store
    {"reports": true}              says each step, and takes the next when it is told to; "end STEP": goes on to it
    {"outer": {...}}               options of Outer
"""

import json
import os
import sys
import zlib

import torch
import torch.distributed as dist
import worker

import reduction
from reduction.torch import Members, Outer

plan = {"ranks": 1, "steps": 12, "outer": {}, **json.loads(sys.argv[1])}
rank = int(os.environ["RANK"])
site, local = divmod(rank, plan["ranks"])
torch.set_num_threads(1)
group = None
if plan["ranks"] > 1:
    where = f"file://{os.path.abspath(f'site-{site}')}"
    dist.init_process_group("gloo", init_method=where, rank=local, world_size=plan["ranks"])
    group = dist.group.WORLD

torch.manual_seed(site)  # the sites' models differ until Outer has copied the first site's
net = torch.nn.Sequential(*(torch.nn.Linear(150, 150, bias=False) for _ in range(2)))
inner = torch.nn.parallel.DistributedDataParallel(net) if group else net
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
comm = None
if local == 0 and "store" in plan:
    store = dist.TCPStore("127.0.0.1", plan["store"], None, False, wait_for_workers=False)
    comm = Members(store, plan["site"], plan["sites"], patience=5, run="test")
elif local == 0:
    comm = reduction.Communicator(rank=site, world_size=plan["sites"], mode="direct")

outer = Outer(list(net), comm, group=group, **{"sync_every": 4, **plan["outer"]})
worker.say("begin", step=outer.steps)
while outer.steps < plan["steps"]:
    generator = torch.Generator().manual_seed(1000 * outer.steps + rank)
    optimizer.zero_grad()
    inner(torch.randn(8, 150, generator=generator)).square().mean().backward()
    optimizer.step()
    outer.step()
    if plan.get("reports"):
        worker.say("step", step=outer.steps, outer=outer.outer_steps)
        word, _, last = worker.listen().partition(" ")
        if word == "end":
            plan.update(steps=int(last), reports=False)
outer.synchronize()
crc = zlib.crc32(b"".join(p.detach().numpy().tobytes() for p in net.parameters()))
worker.say("trained", crc=crc, step=outer.steps, outer=outer.outer_steps)
outer.close()
if comm is not None:
    comm.close()
sys.stdout.flush()
os._exit(0)  # threads of gloo may wait for peers that have ended
