# SPDX-License-Identifier: Apache-2.0
"""A rank of a training: train.py PLAN, where PLAN is JSON.

{"framework": "torch" or "numpy"; "steps"; "every": steps between checkpoints; "folder": folder of checkpoints}. A small
network learns the outputs of another network with fixed weights for random points. With torch it is in
DistributedDataParallel with the hook of reduction.torch; with numpy every gradient is an all-reduce of its own or part
of a group, or all are reduce-scattered and gathered in two halves. After a restart it continues from the last
checkpoint. It prints "step" with the exact loss of each step, and at the end a checksum of all parameters. Generation
and ranks are in the environment. """

import json
import os
import pathlib
import sys
import zlib

import numpy
import reduction
import worker

INPUTS, HIDDEN, CLASSES, BATCH, RATE, MOMENTUM = 48, 192, 10, 24, 0.05, 0.9
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
_TEACHER = numpy.random.default_rng(7).standard_normal((INPUTS, CLASSES)).astype("float32")


def batch(step):
    """Returns the training data of this rank for a step."""
    x = numpy.random.default_rng([step, RANK]).standard_normal((BATCH, INPUTS)).astype("float32")
    return x, (x @ _TEACHER).argmax(axis=1)


class Numpy:
    """The network in numpy."""

    def __init__(self, plan):
        rng = numpy.random.default_rng(11)
        shapes = [(INPUTS, HIDDEN), (HIDDEN,), (HIDDEN, HIDDEN), (HIDDEN,), (HIDDEN, CLASSES), (CLASSES,)]
        self.parameters = [(rng.standard_normal(s) * 0.1).astype("float32") for s in shapes]
        self.momentum = [numpy.zeros(s, "float32") for s in shapes]
        self.comm = reduction.Communicator()
        self.comm.barrier()  # before it, ranks may know different things of the job
        self.shards = self.comm.can_shard

    def _gradients(self, x, y):
        w1, b1, w2, b2, w3, b3 = self.parameters
        h1 = numpy.tanh(x @ w1 + b1)
        h2 = numpy.tanh(h1 @ w2 + b2)
        z = h2 @ w3 + b3
        e = numpy.exp(z - z.max(axis=1, keepdims=True))
        p = e / e.sum(axis=1, keepdims=True)
        loss = -numpy.log(p[numpy.arange(BATCH), y]).mean()
        p[numpy.arange(BATCH), y] -= 1
        dz = p / numpy.float32(BATCH)
        d2 = (dz @ w3.T) * (1 - h2 * h2)
        d1 = (d2 @ w2.T) * (1 - h1 * h1)
        return float(loss), [x.T @ d1, d1.sum(0), h1.T @ d2, d2.sum(0), h2.T @ dz, dz.sum(0)]

    def _sharded(self, gradients):
        """Averages them as sharded training does: while a half is gathered, the other one is scattered."""
        flat = numpy.concatenate([g.ravel() for g in gradients])
        halves = numpy.zeros((2, -(-flat.size // (2 * WORLD)) * WORLD), "float32")
        halves.ravel()[: flat.size] = flat
        parts = numpy.empty((2, halves.shape[1] // WORLD), "float32")
        self.comm.reduce_scatter(halves[0], "avg", out=parts[0], name="first half")
        scatter = self.comm.reduce_scatter(halves[1], "avg", out=parts[1], async_op=True, name="second half")
        self.comm.all_gather(parts[0], out=halves[0], name="first half")
        scatter.wait()
        self.comm.all_gather(parts[1], out=halves[1], name="second half")
        at = 0
        for g in gradients:
            g[...] = halves.ravel()[at : at + g.size].reshape(g.shape)
            at += g.size

    def step(self, number):
        loss, gradients = self._gradients(*batch(number))
        if self.shards and number % 3 == 2:
            self._sharded(gradients)
        elif number % 2:
            with self.comm.group() as group:
                for g in gradients:
                    group.all_reduce(g, "avg")
        else:  # the last layer's first, as in backward
            requests = [
                self.comm.all_reduce(g, "avg", async_op=True, name=f"gradient {i}", priority=1 - i // 4)
                for i, g in reversed(list(enumerate(gradients)))
            ]
            for request in requests:
                request.wait()
        for p, m, g in zip(self.parameters, self.momentum, gradients):
            m *= MOMENTUM
            m += g
            p -= numpy.float32(RATE) * m
        return loss

    def save(self, path):
        with open(path, "wb") as f:
            numpy.savez(f, *self.parameters, *self.momentum)

    def load(self, path):
        with numpy.load(path) as saved:
            arrays = [saved[name] for name in saved.files]
        self.parameters, self.momentum = arrays[: len(arrays) // 2], arrays[len(arrays) // 2 :]

    def checksum(self):
        crc = 0
        for p in self.parameters:
            crc = zlib.crc32(p.tobytes(), crc)
        return crc

    def close(self):
        self.comm.close()


class Torch:
    """The network in torch, with the hook."""

    def __init__(self, plan):
        import torch
        import reduction.torch

        self.torch = torch
        torch.set_num_threads(1)
        torch.manual_seed(3)
        generation = os.environ["REDUCTION_GENERATION"]
        store = torch.distributed.FileStore(f"{plan['folder']}/store{generation}", WORLD)
        torch.distributed.init_process_group("gloo", store=store, rank=RANK, world_size=WORLD)
        nn = torch.nn
        self.net = nn.Sequential(
            nn.Linear(INPUTS, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, CLASSES)
        )
        self.optimizer = torch.optim.SGD(self.net.parameters(), RATE, MOMENTUM)
        self.model = None

    def _begin(self):
        import reduction.torch

        self.state = reduction.torch.State()
        self.model = self.torch.nn.parallel.DistributedDataParallel(self.net, bucket_cap_mb=0.05)
        self.model.register_comm_hook(self.state, reduction.torch.allreduce_hook)

    def step(self, number):
        if self.model is None:  # after load(): DDP copies the parameters of rank 0 to all
            self._begin()
        x, y = batch(number)
        loss = self.torch.nn.functional.cross_entropy(self.model(self.torch.from_numpy(x)), self.torch.from_numpy(y))
        self.optimizer.zero_grad()
        try:
            loss.backward()
        except RuntimeError:
            if self.state.error is not None:
                raise self.state.error from None
            raise
        self.optimizer.step()
        return loss.item()

    def save(self, path):
        self.torch.save([self.net.state_dict(), self.optimizer.state_dict()], path)

    def load(self, path):
        net, optimizer = self.torch.load(path)
        self.net.load_state_dict(net)
        self.optimizer.load_state_dict(optimizer)

    def checksum(self):
        crc = 0
        for p in self.net.parameters():
            crc = zlib.crc32(p.detach().numpy().tobytes(), crc)
        return crc

    def close(self):
        if self.model is not None:
            self.state.close()


def train(plan):
    folder = pathlib.Path(plan["folder"])
    saved = sorted(folder.glob("step*.checkpoint"))
    learner = {"torch": Torch, "numpy": Numpy}[plan["framework"]](plan)
    first = 0
    if saved:
        learner.load(saved[-1])
        first = int(saved[-1].stem[4:])
    for number in range(first, plan["steps"]):
        worker.say("step", step=number, loss=learner.step(number).hex())
        if RANK == 0 and (number + 1) % plan["every"] == 0 and number + 1 < plan["steps"]:
            learner.save(folder / "being-written")
            os.replace(folder / "being-written", folder / f"step{number + 1:06}.checkpoint")
    worker.say("trained", checksum=learner.checksum())
    learner.close()


found = worker.attempt(train, json.loads(sys.argv[1]))
worker.say("end", **found)
# gloo's threads and torch's destructors can deadlock at the end (torch 1.13)
sys.stdout.flush()
os._exit(0)
