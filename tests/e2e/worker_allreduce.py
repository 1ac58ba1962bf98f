# SPDX-License-Identifier: Apache-2.0
"""A worker that runs many all-reduces and checks them: worker_allreduce.py CASES.json

CASES.json: {"in_flight": operations at once, "deterministic": bool, "partials": bool (False), "cases": [[op, dtype,
count, style, how], ...]}. how: "in" place, "out" of place, "buffer" (memory of the communicator). partials: as
oracle.check() has it. Rank i % world size compares case i with the oracle; all ranks say a checksum of every result,
which the test program compares.
"""

import json
import sys
import zlib

import numpy
import oracle
import reduction
import worker


class Case:
    """One operation under way."""

    def __init__(self, comm, number, op, dtype, count, style, how):
        self.op, self.dtype, self.style, self.number = op, dtype, style, number
        self.world = range(comm.world_size)
        self.count = count
        mine = oracle.make(dtype, count, style, number, comm.rank)
        out = None
        if how == "buffer":
            self.send = comm.empty_buffer(count, dtype)
            self.send[:] = mine
        else:
            self.send = mine
        if how == "out":
            out = numpy.full(count, 77, oracle.carrier(dtype))
            self.untouched = mine.copy()
        else:
            self.untouched = None
        self.request = comm.all_reduce(
            self.send, op, async_op=True, out=out, dtype="bfloat16" if dtype == "bfloat16" else None,
            name=f"case {number}",
        )

    def finish(self, rank, deterministic, partials):
        """Waits; returns the checksum of the result and a sentence when something is wrong."""
        got = self.request.wait()
        error = ""
        if self.untouched is not None and self.send.tobytes() != self.untouched.tobytes():
            error = f"case {self.number} has changed its send buffer"
        if self.number % len(self.world) == rank:
            parts = [oracle.make(self.dtype, self.count, self.style, self.number, r) for r in self.world]
            found = oracle.check(self.dtype, self.op, self.style, parts, got, deterministic, partials)
            if found:
                error = f"case {self.number}: {found}"
        return zlib.crc32(got.tobytes()), error


def main():
    with open(sys.argv[1], encoding="utf-8") as f:
        plan = json.load(f)
    sums, errors, flying = [], [], []
    with reduction.Communicator() as comm:
        def finish_one():
            crc, error = flying.pop(0).finish(comm.rank, plan["deterministic"], plan.get("partials", False))
            sums.append(crc)
            if error:
                errors.append(error)

        for number, case in enumerate(plan["cases"]):
            flying.append(Case(comm, number, *case))
            if len(flying) >= plan["in_flight"]:
                finish_one()
        while flying:
            finish_one()
        done = comm.stats().ops_done
    worker.say("done", sums=sums, errors=errors[:5], ops_done=done)


main()
