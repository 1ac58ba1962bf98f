# SPDX-License-Identifier: Apache-2.0
"""Copies of a State of the communication hook: within a model that is copied, and in a file."""

import copy
import datetime
import io
import os

import torch

import reduction
import reduction.torch
from reduction.torch import State, allreduce_hook

torch.distributed.init_process_group(
    "gloo", init_method="file://" + os.path.abspath("store"), rank=int(os.environ["RANK"]),
    world_size=int(os.environ["WORLD_SIZE"]),
)  # fmt: skip
with State() as state:
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
    model.register_comm_hook(state, allreduce_hook)
    assert copy.deepcopy(state) is state
    assert copy.deepcopy({"hook": state})["hook"] is state
    copy.deepcopy(model)
    file = io.BytesIO()
    torch.save({"hook": state}, file)
    file.seek(0)
    try:
        loaded = torch.load(file, weights_only=False)["hook"]
    except TypeError:  # torch 1.12 and before has no weights_only
        file.seek(0)
        loaded = torch.load(file)["hook"]
    assert (loaded.op, loaded.timeout, loaded.prioritize) == (state.op, state.timeout, state.prioritize)
    loaded.close()
    try:
        loaded.submit(torch.ones(3), 0)
    except reduction.ClosedError as exc:
        assert "loaded from a file" in str(exc), exc
    else:
        raise AssertionError("a State of a file has no communicator")
    request = state.comm.barrier(async_op=True)
    request.wait(datetime.timedelta.max.total_seconds())
    request = state.comm.barrier(async_op=True)
    request.wait(float("inf"))
    model(torch.ones(2, 4)).sum().backward()
print("copied")
torch.distributed.destroy_process_group()
