# SPDX-License-Identifier: Apache-2.0
"""A worker that sums the same data repeatedly: worker_deterministic.py PLAN.json

PLAN.json: {"rounds": n, "cases": [[op, dtype, count], ...]}. In every round each rank starts its operations after
a time of its own, drawn at random, so that contributions arrive in many orders. All ranks say a checksum of every
result; rank 0 compares the first round with the sum in rank order, bit by bit.
"""

import json
import random
import sys
import time
import zlib

import oracle
import reduction
import worker


def main():
    with open(sys.argv[1], encoding="utf-8") as f:
        plan = json.load(f)
    errors, sums = [], []
    with reduction.Communicator() as comm:
        ranks = range(comm.world_size)
        delays = random.Random(f"rank {comm.rank}")
        parts = [
            [oracle.make(dtype, count, "random", number, rank) for rank in ranks]
            for number, (op, dtype, count) in enumerate(plan["cases"])
        ]
        for round_ in range(plan["rounds"]):
            comm.barrier()
            requests = []
            for (op, dtype, count), of in zip(plan["cases"], parts):
                time.sleep(delays.choice([0, 0.0005, 0.001, 0.002, 0.004]))
                requests.append(
                    comm.all_reduce(
                        of[comm.rank].copy(), op, async_op=True, dtype="bfloat16" if dtype == "bfloat16" else None
                    )
                )
            results = [request.wait() for request in requests]
            sums.append([zlib.crc32(x.tobytes()) for x in results])
            if round_ == 0 and comm.rank == 0:
                for (op, dtype, _), of, got in zip(plan["cases"], parts, results):
                    errors += filter(None, [oracle.check(dtype, op, "random", of, got, deterministic=True)])
    worker.say("done", sums=sums, errors=errors)


main()
