# SPDX-License-Identifier: Apache-2.0
"""A worker of the soak: load.py PLAN, where PLAN is JSON.

{"seed"; "cases": number of different operations; "largest": maximum of elements; "in_flight"; "local": ranks that an
agent sums; "batches": number of times that all cases run, 0: until rank 0 reads a line}. After each batch the ranks
compare checksums of their results through the communicator itself. Rank 0 prints "progress" at the end of a batch, at
most once a second; all ranks print "end".
"""

import json
import os
import random
import sys
import threading
import time

import mixed
import numpy
import reduction
import worker


class Load:
    def __init__(self, comm, plan):
        self.comm, self.plan, self.wrong = comm, plan, []
        self._told = threading.Event()
        self.cases = [
            mixed.Case(plan["seed"], n, comm.rank, comm.world_size, plan["largest"], local=plan["local"])
            for n in range(plan["cases"])
        ]
        if comm.rank == 0:
            threading.Thread(target=lambda: (sys.stdin.readline(), self._told.set()), daemon=True).start()

    def batch(self, number):
        """Runs all cases in an order that is the same on all ranks; returns a checksum of all results."""
        order = list(self.cases)
        random.Random(f"{self.plan['seed']} batch {number}").shuffle(order)
        flying, total = [], 0
        while order or flying:
            if order and len(flying) < self.plan["in_flight"]:
                flying.append(order.pop().start(self.comm))
                continue
            crc, error = flying.pop(0).finish()
            total = (total * 31 + crc) % (1 << 32)
            if error:
                self.wrong.append(error)
        return total

    def is_same_everywhere(self, crc):
        both = numpy.array([crc, -crc], numpy.int64)
        self.comm.all_reduce(both, "max")
        return both[0] == crc and both[1] == -crc

    def goes_on(self, number):
        word = numpy.array([self._told.is_set() or number + 1 == self.plan["batches"]], numpy.uint8)
        self.comm.broadcast(word, 0)
        return not word[0]

    def run(self):
        number, said = 0, 0.0
        while True:
            if not self.is_same_everywhere(self.batch(number)):
                self.wrong.append(f"batch {number}: ranks have different bits")
            goes_on = self.goes_on(number)
            if self.comm.rank == 0 and (not goes_on or time.monotonic() - said > 1):
                said = time.monotonic()
                worker.say("progress", batch=number, ops=self.comm.stats().ops_done)
            if not goes_on:
                return
            number += 1


def main():
    wrong = []

    def all_of_it():
        with reduction.Communicator() as comm:
            load = Load(comm, json.loads(sys.argv[1]))
            load.wrong = wrong
            load.run()

    found = worker.attempt(all_of_it)
    worker.say("end", wrong=wrong[:5], **found)
    sys.stdout.flush()
    os._exit(0)  # the reading thread may be blocked in its call


main()
