# SPDX-License-Identifier: Apache-2.0
"""A worker that runs operations of all kinds, several at once, and checks them: worker_mixed.py PLAN.json

PLAN.json: {"seed", "cases": how many, "in_flight", "largest": elements, "style", "deterministic": bool, "local": ranks
that an agent adds up, "gates": {number of a case: rank}}; with "wire": [up, down] and "nearest": bool, operations are
those of encoded.py; with "groups", that of each node, the job has groups. Before it starts the case at a gate,
that rank says so and waits until it is told to go on, so that the operations of the others stay pending. All say "at"
for every case that they start, and at the end the checksums of all results. Rank i % world size compares case i with
the oracle.
"""

import json
import sys

import encoded
import mixed
import reduction
import worker

BARRIERS = 50  # one before the last of every so many cases


def make_case(plan, number, rank, world_size):
    check = number % world_size == rank
    if "wire" in plan:
        return encoded.Case(plan, number, rank, world_size, check)
    return mixed.Case(
        plan["seed"], number, rank, world_size, plan["largest"], plan["style"], plan["deterministic"], plan["local"],
        check=check, groups=plan.get("groups"),
    )  # fmt: skip


def run(plan, comm, sums, errors):
    flying = []

    def finish_one():
        crc, error = flying.pop(0).finish()
        sums.append(crc)
        if error:
            errors.append(error)

    for number in range(plan["cases"]):
        case = make_case(plan, number, comm.rank, comm.world_size)
        if plan["gates"].get(str(number)) == comm.rank:
            worker.say("gate", case=number)
            worker.listen()
        if number % BARRIERS == BARRIERS - 1:
            comm.barrier()
        flying.append(case.start(comm))
        worker.say("at", case=number)
        if len(flying) >= plan["in_flight"]:
            finish_one()
    while flying:
        finish_one()
    comm.barrier()


def main():
    with open(sys.argv[1], encoding="utf-8") as f:
        plan = json.load(f)
    sums, errors = [], []

    def all_of_it():
        with reduction.Communicator() as comm:
            run(plan, comm, sums, errors)

    found = worker.attempt(all_of_it)
    worker.say("end", sums=sums, wrong=errors[:5], **found)


main()
