# SPDX-License-Identifier: Apache-2.0
"""A worker that sums all gradients of a model, round after round: worker_tensors.py ROUNDS IN_FLIGHT SLOW_RANK

A round's operation on a tensor is started as soon as this rank has the sum of the round before, whatever the others
have; IN_FLIGHT "all" starts a whole round before it waits for the round before. SLOW_RANK stops again and again for
a while.
Every value says which round, tensor and rank it comes from, so that a sum of two rounds' parts shows.
"""

import math
import random
import sys
import time

import model
import numpy
import reduction
import worker

ROUNDS, ALL_IN_FLIGHT, SLOW = int(sys.argv[1]), sys.argv[2] == "all", int(sys.argv[3])


def value(round_, tensor, rank):
    return round_ * 1000 + tensor + rank * 100_000


def main():
    sizes = [math.prod(shape) for shape in model.shapes()]
    lags = random.Random(3)
    wrong = []
    with reduction.Communicator() as comm:
        before = [None] * len(sizes)
        # "all": two buffers for each tensor, since both rounds are under way
        buffers = [[numpy.empty(n, "float32") for n in sizes] for _ in range(2)]

        def check(round_, tensor, request):
            got = request.wait()
            want = sum(value(round_, tensor, rank) for rank in range(comm.world_size))
            if not (got == want).all():
                wrong.append([round_, tensor, float(got[got != want][0]), want])

        for round_ in range(ROUNDS):
            for tensor in range(len(sizes)):
                if before[tensor] and not ALL_IN_FLIGHT:
                    check(round_ - 1, tensor, before[tensor])
                if comm.rank == SLOW and lags.random() < 0.1:
                    time.sleep(lags.random() * 0.02)
                buffer = buffers[round_ % 2][tensor]
                buffer[:] = value(round_, tensor, comm.rank)
                request = comm.all_reduce(buffer, async_op=True, name=f"tensor {tensor}")
                if before[tensor] and ALL_IN_FLIGHT:
                    check(round_ - 1, tensor, before[tensor])
                before[tensor] = request
        for tensor, request in enumerate(before):
            check(ROUNDS - 1, tensor, request)
        worker.say("done", wrong=wrong[:5], ops_done=comm.stats().ops_done)


main()
