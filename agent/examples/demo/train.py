# SPDX-License-Identifier: Apache-2.0
"""One worker of the demo: an ordinary DistributedDataParallel training. demo.py starts it; so does torchrun:

    torchrun --nproc_per_node 2 train.py --gradients reducers
    torchrun --nproc_per_node 2 train.py --gradients gloo

Only two lines are about reducers; they are marked <--. The rest of this file is the model, the data set (the 1797
handwritten digits that come with scikit-learn) and what the demo reports at the end: sums, losses, times, bytes.
"""

import argparse
import hashlib
import json
import os
import pathlib
import socket
import struct
import time

import numpy
import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import reduction.torch
from check import Recorder

TCP_INFO_BYTES_SENT, TCP_INFO_BYTES_RETRANS = 200, 208  # offsets in Linux's struct tcp_info


def parse_arguments():
    p = argparse.ArgumentParser()
    p.add_argument("--gradients", choices=["reducers", "gloo"], required=True)
    p.add_argument("--epochs", type=int, default=10)
    p.add_argument("--batch", type=int, default=32, help="images for each rank and step")
    p.add_argument("--threads", type=int, default=1, help="threads of PyTorch in this process")
    p.add_argument("--out", type=pathlib.Path, help="folder for this rank's results; with it sums are checked")
    p.add_argument("--wrong-bucket", type=int, help="spoil one element of this bucket's average")
    return p.parse_args()


def digits():
    """Training and test set: images of 8 x 8 pixels in 0..1 and their digits, split in the same way everywhere."""
    data = load_digits()
    order = numpy.random.RandomState(0).permutation(len(data.images))
    images = torch.tensor(data.images[order] / 16, dtype=torch.float32).unsqueeze(1)
    labels = torch.tensor(data.target[order], dtype=torch.int64)
    return TensorDataset(images[360:], labels[360:]), (images[:360], labels[:360])


def network():
    """A small convolutional network of 283,786 parameters."""
    torch.manual_seed(1)  # the same start for both trainings
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 32, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.Conv2d(32, 64, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(64 * 4 * 4, 256),
        torch.nn.ReLU(),
        torch.nn.Linear(256, 10),
    )


def tcp_connections():
    """Those to other workers: local port, peer's port, payload bytes sent so far (the kernel's TCP_INFO)."""
    found = []
    store = int(os.environ["MASTER_PORT"])  # torch's key-value store, used at the start only
    for name in os.listdir("/proc/self/fd"):
        try:
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(name))) as s:
                if s.family not in (socket.AF_INET, socket.AF_INET6) or s.type != socket.SOCK_STREAM:
                    continue
                info = s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
                sent = struct.unpack_from("<Q", info, TCP_INFO_BYTES_SENT)[0]
                sent -= struct.unpack_from("<Q", info, TCP_INFO_BYTES_RETRANS)[0]
                port, peer = s.getsockname()[1], s.getpeername()[1]
                if store not in (port, peer):
                    found.append({"port": port, "peer": peer, "sent": sent})
        except OSError:
            continue  # closed meanwhile, or listening
    return found


class Run:
    """The training of one rank."""

    def __init__(self, args):
        self.args = args
        dist.init_process_group("gloo")  # DistributedDataParallel needs one for its start in any case
        self.rank = dist.get_rank()
        self.train_set, self.test_set = digits()
        self.model = DistributedDataParallel(network(), bucket_cap_mb=0.5)
        self.state = None
        hook = default_hooks.allreduce_hook  # what DistributedDataParallel does without a hook
        if args.gradients == "reducers":
            self.state = reduction.torch.State()  # <--
            hook = reduction.torch.allreduce_hook  # <--
        self.recorder = None
        if args.out:
            self.recorder = Recorder(args.out, self.rank, dist.get_world_size(), args.wrong_bucket)
            hook = self.recorder.wrap(hook)
        self.model.register_comm_hook(self.state, hook)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        self.loss_of = torch.nn.CrossEntropyLoss()

    def barrier(self):
        if self.state:
            self.state.comm.barrier()
        else:
            dist.barrier()

    def accuracy(self):
        images, labels = self.test_set
        with torch.no_grad():
            return (self.model.module(images).argmax(1) == labels).float().mean().item()

    def check_sums(self):
        """Compares this epoch's averaged gradients with the exact averages of what all ranks contributed."""
        if self.recorder:
            self.recorder.write()
            self.barrier()
            self.recorder.compare()
            self.barrier()
            self.recorder.clear()

    def parameter_digest(self):
        digest = hashlib.sha256()
        for p in self.model.parameters():
            digest.update(p.detach().numpy().tobytes())
        return digest.hexdigest()

    def epoch(self, loader):
        """Loss of each step."""
        losses = []
        for images, labels in loader:
            self.optimizer.zero_grad()
            loss = self.loss_of(self.model(images), labels)
            loss.backward()  # gradients are averaged over all ranks while backward still runs
            self.optimizer.step()
            losses.append(loss.item())
        return losses

    def train(self):
        sampler = DistributedSampler(self.train_set, seed=2)
        loader = DataLoader(self.train_set, batch_size=self.args.batch, sampler=sampler)
        result = {"rank": self.rank, "step_losses": [], "epoch_losses": [], "accuracy": [], "seconds": 0.0}
        sampler.set_epoch(0)
        self.barrier()
        result["before"] = self.traffic()
        for epoch in range(self.args.epochs):
            sampler.set_epoch(epoch)
            started = time.monotonic()
            losses = self.epoch(loader)
            seconds = time.monotonic() - started
            result["seconds"] += seconds
            result["step_losses"] += losses
            result["epoch_losses"].append(sum(losses) / len(losses))
            if self.rank == 0:
                result["accuracy"].append(self.accuracy())
                print(f"{result['epoch_losses'][-1]:.4f}", flush=True)
            self.check_sums()
        self.barrier()
        result["after"] = self.traffic()
        self.barrier()  # nobody leaves, closing connections, before all have looked
        result["digest"] = self.parameter_digest()
        result["checked"] = self.recorder.result() if self.recorder else None
        result["parameters"] = sum(p.numel() for p in self.model.parameters())
        return result

    def traffic(self):
        """What this worker's own TCP connections, and its node's agent, have sent so far."""
        agent = self.state.comm.stats().tx_bytes if self.state else 0
        return {"agent": agent, "connections": tcp_connections()}

    def close(self):
        if self.state:
            self.state.close()
        dist.destroy_process_group()


def main():
    args = parse_arguments()
    torch.set_num_threads(args.threads)
    run = Run(args)
    result = run.train()
    if args.out:
        (args.out / f"{args.gradients}-{run.rank}.json").write_text(json.dumps(result))
    run.close()


if __name__ == "__main__":
    main()
