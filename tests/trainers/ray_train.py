# SPDX-License-Identifier: Apache-2.0
"""Ray Train with two workers on this machine; TorchConfig makes the process group."""

import tempfile

import common
import ray
import ray.train
import ray.train.torch
import torch


def train():
    net = ray.train.torch.prepare_model(common.network())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    rank, n = torch.distributed.get_rank(), torch.distributed.get_world_size()
    for x, y in torch.utils.data.DataLoader(torch.utils.data.Subset(common.data(), range(rank, 64, n)), batch_size=8):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
    assert torch.distributed.get_backend() == common.BACKEND
    common.report(net.module, steps=4)


with tempfile.TemporaryDirectory() as folder:
    ray.init(num_cpus=2, include_dashboard=False, _temp_dir=folder, _node_ip_address="127.0.0.1")
    backend = ray.train.torch.TorchConfig(backend=common.BACKEND)
    ray.train.torch.TorchTrainer(
        train, torch_config=backend, scaling_config=ray.train.ScalingConfig(num_workers=2),
        run_config=ray.train.RunConfig(storage_path=folder),
    ).fit()  # fmt: skip
    ray.shutdown()
