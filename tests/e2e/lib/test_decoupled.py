# SPDX-License-Identifier: Apache-2.0
# run: beside-others grpc
"""Decoupled ranks: a rank sends its whole step while the other one has not begun it, and a reducer that dies then costs
no bit. Without `sharding.decoupled` it waits after a window of chunks."""

import time
import unittest

import harness

MIB = 1 << 20
STEP = [500_000, 3, 260_000, 40_000]  # elements of float32: more than 3 MB
WORKER = """
import hashlib, json, sys, numpy, reduction
sizes = json.loads(sys.argv[1])
with reduction.Communicator() as comm:
    def contribution(rank, i):
        return numpy.random.default_rng([rank, i]).standard_normal(sizes[i]).astype("float32")
    comm.barrier()
    print("ready", flush=True)
    assert sys.stdin.readline()
    x = [contribution(comm.rank, i) for i in range(len(sizes))]
    requests = [comm.all_reduce(a, async_op=True) for a in x]
    print("started", flush=True)
    for i, (request, a) in enumerate(zip(requests, x)):
        request.wait()
        assert (a == contribution(0, i) + contribution(1, i)).all(), i
    print("done", flush=True)
"""
CONFIG = {"sharding": {"window": 2, "chunk_bytes": "32KiB", "decoupled": "4MiB", "priorities": 1}}
WINDOWS = 2 * 2 * (32 << 10)  # two chunks on each of two lanes


class Decoupled(unittest.TestCase):
    def begin(self, c):
        """Starts both ranks; only the first one begins the step. Returns them."""
        procs = c.start_workers(2, harness.python(WORKER, str(STEP)))
        for p in procs:
            p.wait_text("ready", stream="out")
        self.before = c.received_bytes()
        procs[0].tell()
        procs[0].wait_text("started", stream="out")
        return procs

    def arrived(self, c, least):
        """Waits until the reducers have received so many bytes of the step."""
        deadline = time.monotonic() + 30 * harness.SCALE
        while c.received_bytes() - self.before < least:
            self.assertLess(time.monotonic(), deadline, f"{c.received_bytes() - self.before} bytes came")
            time.sleep(0.02)

    def end(self, procs, c):
        procs[1].tell()
        self.assertEqual(c.wait_all(procs), [0, 0], "".join(p.report() for p in procs))
        for p in procs:
            self.assertIn("done", p.out)

    def cluster(self, config=CONFIG, **how):
        return harness.Cluster(reducers=2, config=config, server_args=("--http", "127.0.0.1:0"), **how)

    def test_a_step_is_sent_alone(self):
        for deterministic in False, True:
            with self.cluster({**CONFIG, "job": {"deterministic": deterministic}}) as c:
                procs = self.begin(c)
                self.arrived(c, 4 * sum(STEP))
                self.end(procs, c)

    def test_agents(self):
        with self.cluster(agents=2) as c:
            procs = self.begin(c)
            self.arrived(c, 4 * sum(STEP))
            self.end(procs, c)

    def test_a_reducer_dies_then(self):
        with self.cluster() as c:
            procs = self.begin(c)
            self.arrived(c, 4 * sum(STEP))
            c.reducers[0].kill()
            procs[0].wait_text("reducer-lost reducer=r0")
            self.end(procs, c)

    def test_without_it_a_rank_waits(self):
        sharding = {**CONFIG["sharding"], "decoupled": "off"}
        with self.cluster({"sharding": sharding}) as c:
            procs = self.begin(c)
            procs[0].wait_text("operation-late")
            self.assertLess(c.received_bytes() - self.before, WINDOWS + 16384)
            self.end(procs, c)

    def test_memory_is_known_when_a_job_joins(self):
        for deterministic, needs in (False, r"27\d{7}"), (True, r"5[34]\d{7}"):
            config = {"sharding": {"decoupled": "32MiB"}, "job": {"deterministic": deterministic}}
            with harness.Cluster(config=config, server_config={"server": {"memory": "100MiB"}}) as c:
                for p in c.run(2, harness.python(WORKER, str(STEP)), check=False):
                    self.assertEqual(p.code, 1)
                    self.assertRegex(
                        p.err, rf"needs {needs} bytes of memory, this reducer's server\.memory is 104857600: make "
                               r"sharding\.decoupled")  # fmt: skip


if __name__ == "__main__":
    harness.main()
