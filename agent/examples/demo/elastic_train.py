# SPDX-License-Identifier: Apache-2.0
"""One rank of `make demo-elastic`: trains a perceptron in NumPy, with gradients that reducers sum.

elastic.py starts it. It knows nothing of reducers that come and go: it opens a communicator and calls all_reduce().
"""

import argparse
import hashlib
import json
import os
import time

import numpy as np

import reduction

LAYERS = (64, 512, 256, 10)
RATE = 0.02


def parse_arguments():
    p = argparse.ArgumentParser()
    p.add_argument("--data", required=True, help="images and labels, written by elastic.py")
    p.add_argument("--out", required=True, help="file of this rank's results; rank 0 also writes its steps there")
    p.add_argument("--batch", type=int, default=32, help="images for each rank and step")
    p.add_argument("--steps", type=int, help="end after that many")
    p.add_argument("--until", help="end after the step in which rank 0 finds this file")
    return p.parse_args()


class Perceptron:
    """Weights and gradients, each in one array, so that one all-reduce sums all of them. Behind the gradients, in the
    same array, are the loss of this rank's images, and whether this was the last step."""

    def __init__(self, ranks):
        self.ranks = ranks
        shapes = [s for n, m in zip(LAYERS, LAYERS[1:]) for s in ((n, m), (m,))]
        count = sum(int(np.prod(s)) for s in shapes)
        self.weights, self.message = np.empty(count, np.float32), np.empty(count + 2, np.float32)
        self.w, self.g = self.views(self.weights, shapes), self.views(self.message, shapes)
        random = np.random.default_rng(1)
        for w in self.w:
            w[...] = random.standard_normal(w.shape) * np.sqrt(2 / w.shape[0]) if w.ndim == 2 else 0

    @staticmethod
    def views(array, shapes):
        found, at = [], 0
        for s in shapes:
            found.append(array[at : at + int(np.prod(s))].reshape(s))
            at += int(np.prod(s))
        return found

    def backward(self, x, labels):
        """Computes the gradients of the mean loss over the images of all ranks, this rank's part of them."""
        inputs = []
        for i in range(0, len(self.w), 2):
            inputs.append(x)
            x = x @ self.w[i] + self.w[i + 1]
            if i + 2 < len(self.w):
                np.maximum(x, 0, out=x)
        x -= x.max(axis=1, keepdims=True)
        np.exp(x, out=x)
        x /= x.sum(axis=1, keepdims=True)
        rows, n = np.arange(len(labels)), len(labels) * self.ranks
        self.message[-2] = -np.log(x[rows, labels]).sum() / n
        x[rows, labels] -= 1
        x /= n
        for i in range(len(self.w) - 2, -1, -2):
            np.matmul(inputs[i // 2].T, x, out=self.g[i])
            x.sum(axis=0, out=self.g[i + 1])
            if i:
                x = (x @ self.w[i].T) * (inputs[i // 2] > 0)

    def step(self):
        self.weights -= RATE * self.message[:-2]


def train(args, comm):
    """Returns the steps of this rank: when each ended, what it took, its loss over all ranks' images."""
    with np.load(args.data) as data:
        images, labels = data["images"], data["labels"]
    model, steps, last = Perceptron(comm.world_size), [], False
    comm.barrier()
    while not last:
        begun = time.time()
        batch = np.random.default_rng([2, len(steps)]).integers(len(images), size=args.batch * comm.world_size)
        mine = batch[comm.rank * args.batch : (comm.rank + 1) * args.batch]
        model.backward(images[mine], labels[mine])
        ends = len(steps) + 1 == args.steps if args.steps else os.path.exists(args.until)
        model.message[-1] = comm.rank == 0 and ends
        comm.all_reduce(model.message)  # the only line about reducers
        model.step()
        last = model.message[-1] > 0
        ended = time.time()
        steps.append((ended, ended - begun, float(model.message[-2])))
    return steps, hashlib.sha256(model.weights.tobytes()).hexdigest()


def main():
    args = parse_arguments()
    with reduction.Communicator() as comm:
        steps, digest = train(args, comm)
    with open(args.out, "w", encoding="ascii") as f:
        json.dump({"steps": steps, "digest": digest}, f)


if __name__ == "__main__":
    main()
