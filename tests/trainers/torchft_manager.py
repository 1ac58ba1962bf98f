# SPDX-License-Identifier: Apache-2.0
"""torchft's Manager with two replicas of one rank each. Every step must be committed by both."""

import datetime
import os
import subprocess
import sys

import common
import reduction.torchft
import torch
import torchft
from torch.distributed import TCPStore

STEPS = 6


def replica(number):
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    if common.BACKEND == "reduction":
        group = reduction.torchft.ProcessGroupReduction(timeout=datetime.timedelta(seconds=60))
    else:
        group = torchft.ProcessGroupGloo(timeout=datetime.timedelta(seconds=60))
    net = common.network()
    manager = torchft.Manager(
        pg=group, load_state_dict=net.load_state_dict, state_dict=net.state_dict,
        min_replica_size=2, rank=0, world_size=1, store_addr="127.0.0.1", store_port=store.port,
        replica_id=f"replica{number}", hostname="127.0.0.1", timeout=datetime.timedelta(seconds=120),
        quorum_timeout=datetime.timedelta(seconds=120), connect_timeout=datetime.timedelta(seconds=120),
    )  # fmt: skip
    ddp = torchft.DistributedDataParallel(manager, net)
    optimizer = torchft.Optimizer(manager, torch.optim.SGD(net.parameters(), lr=0.1))
    rows = torch.utils.data.DataLoader(torch.utils.data.Subset(common.data(96), range(number, 96, 2)), batch_size=8)
    for x, y in rows:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(ddp(x), y).backward()
        optimizer.step()
    assert manager.current_step() == STEPS, f"{manager.current_step()} steps were committed, expected {STEPS}"
    common.report(net, steps=STEPS)
    manager.shutdown(wait=False)
    sys.stdout.flush()
    os._exit(0)  # torchft's threads do not end


if len(sys.argv) > 1:
    replica(int(sys.argv[1]))
from torchft.coordination import LighthouseServer  # noqa: E402

lighthouse = LighthouseServer(bind="127.0.0.1:0", min_replicas=2, join_timeout_ms=60000)
address = lighthouse.address().split("://")[1].rsplit(":", 1)[1]
env = {**os.environ, "TORCHFT_LIGHTHOUSE": f"http://127.0.0.1:{address}"}
replicas = [subprocess.Popen([sys.executable, __file__, str(i)], env=env) for i in range(2)]
statuses = [process.wait() for process in replicas]
lighthouse.shutdown()
sys.exit(max(map(abs, statuses)))
