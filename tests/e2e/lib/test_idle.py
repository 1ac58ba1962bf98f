# SPDX-License-Identifier: Apache-2.0
# run: beside-others
"""Threads poll for a moment after small operations, since the next one may follow before they are awake again, but no
longer: a thread that waits for a late rank, or has nothing to do, takes no processor time. The kernel keeps the
connections alive, however rare heartbeats are: a NAT must not forget them.
"""

import contextlib
import os
import subprocess
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


def keeps_alive(port):
    """Returns whether the worker's end of each connection to 127.0.0.2 at this port sends TCP's keepalives."""
    rows = []
    for family in "tcp", "tcp6":  # gRPC's sockets are IPv6
        with contextlib.suppress(FileNotFoundError), open(f"/proc/net/{family}", encoding="utf-8") as f:
            rows += [line.split() for line in f]
    timers = [row[5][:2] for row in rows if row[2].endswith(f"0200007F:{port:04X}") and row[3] == "01"]
    return bool(timers) and set(timers) == {"02"}


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

    def test_keepalive(self):
        """Both ends of each connection, with heartbeats that are slower than a NAT's memory."""
        slow = {"timeouts": {"detect": "600s"}}
        with harness.Cluster(transport="tcp", lanes=2, config=slow, server_config=slow) as c:
            workers = c.start_workers(2, RANK)
            for w in workers:
                w.said("idle")
            port = c.address(0).rsplit(":", 1)[1]
            argv = ["ss", "-Htno", "state", "established", f"( sport = {port} or dport = {port} )"]
            deadline = time.monotonic() + 20 * harness.SCALE
            while True:  # until no bytes are on their way, since a socket shows one timer
                ends = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()
                if len(ends) == 8 and all("timer:(keepalive," in end for end in ends):
                    break
                self.assertLess(time.monotonic(), deadline, ends)
            for w in workers:
                w.tell("go")
            self.assertEqual(c.wait_all(workers), [0, 0])

    @unittest.skipUnless(harness.HAS_GRPC, "built without gRPC")
    def test_keepalive_over_grpc(self):
        """The worker's end. The reducer has another address than its machine's own, so that the worker looks for it."""
        with harness.Cluster(start=False, transport="grpc") as c:
            where = ["--listen", "127.0.0.1:0", "--grpc", "127.0.0.2:0"]
            argv = [harness.binary("reduction-server"), "--insecure", *where]
            address = c.start("reducer", argv).wait_text(r"\bgrpc-ready\b.*?address=(\S+)").group(1)
            config = {"timeouts": {"detect": "10min"}, "reducers": [{"id": "r0", "address": address, "grpc": address}]}
            worker = c.start_worker(0, 1, RANK, config=config)
            worker.said("idle")
            deadline = time.monotonic() + 20 * harness.SCALE
            while not keeps_alive(int(address.rsplit(":", 1)[1])):
                self.assertLess(time.monotonic(), deadline, "a connection has no keepalives")
                time.sleep(0.1)
            worker.tell()
            self.assertEqual(worker.wait(), 0, worker.report())

    def test_direct(self):
        self.run_with(agents=0)

    def test_agents(self):
        self.run_with(agents=1)


if __name__ == "__main__":
    harness.main()
