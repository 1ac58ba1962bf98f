#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Runs in a bare root, as root: what a user does who has wheels of two versions (user.py).

    wheel_user.py WHEEL OTHER

The first one is on both machines, the other one also on the first machine, in an environment of its own.
"""

import pathlib
import subprocess
import sys
import time

import user
from user import HOME, TLS, USER, done, environment, must

ENV, OTHER = HOME / "env", HOME / "other"
BIN = ENV / "bin"
SUM = """
import numpy, reduction
x = numpy.ones(1 << 20, numpy.float32)
with reduction.Communicator() as comm:
    comm.all_reduce(x, op="sum")
    assert (x == comm.world_size).all()
"""
TRAIN = """
import torch, reduction.torch
torch.distributed.init_process_group("reduction")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(100, 10))
rank = torch.distributed.get_rank()
for step in range(20):
    model.zero_grad()
    model(torch.full((4, 100), float(rank + 1))).sum().backward()
assert torch.allclose(model.module.weight.grad, torch.full((10, 100), 10.0)), model.module.weight.grad
torch.distributed.destroy_process_group()
"""
LOSS = """
import numpy, reduction
with reduction.Communicator() as comm:
    for step in range(1500):
        x = numpy.full(1 << 18, step, numpy.float32)
        comm.all_reduce(x)
        assert (x == step * comm.world_size).all()
"""


def python(code):
    return ["python", "-c", code]


def pip(env, *arguments):
    must([*USER, env / "bin/pip", "-q", "--disable-pip-version-check", *arguments], env=environment())


def everything():
    return {p for p in ENV.rglob("*") if "__pycache__" not in p.parts}


def first_sum(someone, wheel):
    began = time.monotonic()
    pip(ENV, "install", "--no-index", wheel)
    someone.certificates(next(ENV.glob("lib/python3*/site-packages/reduction/share")) / "make-certs.sh")
    config = user.job("job", ["10.99.0.1:7600"])
    first = someone.reducer("m0")
    someone.end(someone.ranks(python(SUM), config, "first"), "first")
    done(f"first sum over two machines {time.monotonic() - began:.1f} s after pip install began")
    return first, config


def versions(someone, config, other):
    """Another version in another environment of the same machine: each for itself, both in one job, both through one
    agent of either version."""
    must([*USER, "python3", "-m", "venv", "--system-site-packages", OTHER], env=environment())
    pip(OTHER, "install", "--no-index", other)
    second = user.User([OTHER / "bin", BIN])  # the second machine has the first version
    numbers = [u.on("m0", "reductionctl", "--version").splitlines()[0] for u in (someone, second)]
    if numbers[0] == numbers[1]:
        sys.exit(f"both environments have {numbers[0]}")
    both = [u.ranks(python(SUM), config, f"beside-{i}", 2, ["m0"]) for i, u in enumerate((someone, second))]
    for i, started in enumerate(both):
        someone.end(started, f"beside-{i}")
    someone.end(second.ranks(python(SUM), config, "mixed", 2), "mixed")
    for i, owner in enumerate((someone, second)):
        socket = HOME / f"agent-{i}.sock"
        agent = owner.start("m0", ["reduction-agent", "--config", config, "--socket", socket], "agent.log")
        while not socket.exists():
            if agent.poll() is not None:
                sys.exit((HOME / "agent.log").read_text())
            time.sleep(0.05)
        both = [u.ranks(python(SUM), config, f"agent-{i}-{j}", 2, ["m0"], REDUCTION_AGENT=socket)
                for j, u in enumerate((someone, second))]  # fmt: skip
        for j, started in enumerate(both):
            someone.end(started, f"agent-{i}-{j}")
        someone.stop(agent)
    done("two versions side by side: alone, in one job, with one agent of either version")


def plugin(someone):
    folder = someone.on("m0", "python", "-c", "import reduction; print(reduction.__path__[0] + '/lib')").strip()
    line = someone.on("m0", "python", "-m", "reduction.nccl")
    if folder not in line:
        sys.exit(f"{line} does not name {folder}")
    someone.on("m0", "python", "-c", f"import ctypes; ctypes.CDLL('{folder}/libnccl-net-reduction.so')")
    done("NCCL plugin")


def main():
    wheel, other = sys.argv[1:]
    user.machines()
    must([*USER, "python3", "-m", "venv", "--system-site-packages", ENV], env=environment())
    before = everything()
    someone = user.User([BIN, BIN])
    first, config = first_sum(someone, wheel)
    if subprocess.run(["python3", "-c", "import torch"], capture_output=True).returncode == 0:
        someone.end(someone.ranks(python(TRAIN), config, "train", 2), "train")
        done("PyTorch's DDP on two nodes with two ranks each")
    someone.look(config)
    someone.failover(python(LOSS))
    versions(someone, config, other)
    someone.hard(python(SUM), config, next(ENV.glob("lib/python3*/site-packages")))
    someone.authorities()
    plugin(someone)
    someone.stop(first)
    pip(ENV, "uninstall", "-y", "reduction")
    left = everything() - before
    if left:
        sys.exit(f"pip uninstall leaves {', '.join(map(str, left))}")
    done("pip uninstall leaves nothing")


if __name__ == "__main__":
    main()
