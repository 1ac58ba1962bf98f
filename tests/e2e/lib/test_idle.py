# SPDX-License-Identifier: Apache-2.0
# run: beside-others
"""Threads poll for a moment after small operations, since the next one may follow before they are awake again, but no
longer: a thread that waits for a late rank, or has nothing to do, takes no processor time.
"""

import os
import time
import unittest

import harness

# Many small operations, then one for which the last rank keeps all others waiting.
RANK = harness.python("""
    import numpy, reduction, worker
    with reduction.Communicator() as comm:
        x = numpy.ones(64, "float32")
        for _ in range(300):
            comm.all_reduce(x, op="max")
        worker.say("idle")
        worker.listen()
        comm.all_reduce(x, op="max")
        worker.say("end", most=float(x.max()))
    """)

PART = 0.1  # of the processor time that a thread which never sleeps would take
LONG = 1.0  # s


def cpu_s(proc):
    """Returns the processor time of a process so far."""
    with open(f"/proc/{proc.pid}/stat", encoding="utf-8") as f:
        fields = f.read().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Idle(unittest.TestCase):
    def asleep(self, procs):
        """All that these do they have done a moment from now."""
        time.sleep(LONG / 4)  # in which a rank that is told to can begin to wait
        before = [cpu_s(p) for p in procs]
        begun = time.monotonic()
        time.sleep(LONG)
        part = PART * (time.monotonic() - begun)
        for p, then in zip(procs, before):
            self.assertLessEqual(cpu_s(p) - then, part, p.report())

    def run_with(self, agents):
        with harness.Cluster(reducers=2, lanes=2, agents=agents) as c:
            workers = c.start_workers(2, RANK)
            for w in workers:
                w.said("idle")
            procs = c.reducers + c.agents + workers
            self.asleep(procs)
            workers[0].tell("go")
            self.asleep(procs)
            workers[1].tell("go")
            for w in workers:
                self.assertEqual(w.said("end")["most"], 1.0)
                self.assertEqual(w.wait(), 0, w.report())

    def test_direct(self):
        self.run_with(agents=0)

    def test_agents(self):
        self.run_with(agents=1)


if __name__ == "__main__":
    harness.main()
