#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan
"""The Python client agent/examples/grpc_client.py in jobs with C workers over TCP and over gRPC.

Not under ThreadSanitizer: it reports races in Python's own gRPC.
"""

import pathlib
import shutil
import subprocess
import unittest

import harness

WORKER = harness.python("""
    import os, sys
    import numpy, reduction
    count, rank = int(sys.argv[1]), int(os.environ["RANK"])
    with reduction.Communicator() as comm:
        x = numpy.random.default_rng(rank).integers(-1000, 1000, count).astype(numpy.float32)
        numpy.save(f"result{rank}.npy", comm.all_reduce(x))
""", "COUNT")

CLIENT = """
import sys, numpy, client
address, job, rank, world_size, count = sys.argv[1:]
x = numpy.random.default_rng(int(rank)).integers(-1000, 1000, int(count)).astype(numpy.float32)
numpy.save(f"result{rank}.npy", client.all_reduce(address, job, int(rank), int(world_size), x))
"""


def make_client(folder):
    proto = harness.ROOT / "proto"
    plugin = "/usr/bin/grpc_python_plugin"
    subprocess.run(
        ["protoc", f"-I{proto}", f"--python_out={folder}", f"--grpc_python_out={folder}",
         f"--plugin=protoc-gen-grpc_python={plugin}", str(proto / "reduction.proto")],
        check=True,
    )
    shutil.copy(harness.ROOT / "agent/examples/grpc_client.py", pathlib.Path(folder, "client.py"))


@unittest.skipUnless(harness.HAS_GRPC, "this build has no gRPC")
class Interop(unittest.TestCase):
    def job(self, count, ours, python):
        """C workers over these transports and so many Python clients; all must get the sum that numpy computes."""
        import numpy

        world = len(ours) + python
        with harness.Cluster(transport="grpc") as c:
            make_client(c.dir)
            tcp = c.reducers[0].wait_text(r"\blistening\b.*?address=(\S+)").group(1)
            address = {"grpc": c.address(0), "tcp": tcp}
            procs = []
            for rank, transport in enumerate(ours):
                config = {"job": {"transport": transport},
                          "reducers": [{"id": "r0", "address": address[transport], "lanes": 1}]}
                procs.append(c.start_worker(rank, world, [*WORKER[:-1], str(count)], config=config))
            for rank in range(len(ours), world):
                argv = [harness.PYTHON, "-c", CLIENT, c.address(0), "test", rank, world, count]
                procs.append(c.start(f"python client {rank}", argv, {"REDUCTION_RUN": "test"}))
            for p in procs:
                self.assertEqual(p.wait(30), 0, p.report())
            parts = [numpy.random.default_rng(r).integers(-1000, 1000, count) for r in range(world)]
            for rank in range(world):
                got = numpy.load(c.dir / f"result{rank}.npy")
                self.assertTrue((got == sum(parts)).all(), f"rank {rank} has another sum")

    def test_python_beside_c_over_both_transports(self):
        self.job(100000, ["tcp", "grpc"], python=1)

    def test_small_operation(self):
        self.job(1000, ["grpc"], python=2)

    def test_python_alone(self):
        self.job(32 * 8192, [], python=2)

    def test_as_a_program(self):
        with harness.Cluster(transport="grpc") as c:
            make_client(c.dir)
            argv = [harness.PYTHON, "client.py", c.address(0), "test"]
            clients = [c.start(f"client {r}", [*argv, r, 2]) for r in (0, 1)]
            for p in clients:
                self.assertEqual(p.wait(30), 0, p.report())
                self.assertRegex(p.out, r"^\[0\.0*e\+00 2\.0*e\+00 4\.0*e\+00 \.\.\. ")

    def test_a_refusal_has_a_reason(self):
        """Ranks that disagree about the job: the second one reads why."""
        with harness.Cluster(transport="grpc") as c:
            make_client(c.dir)
            first = c.start("client 0", [harness.PYTHON, "client.py", c.address(0), "test", 0, 2])
            c.reducers[0].wait_text("job-opened")
            second = c.start("client 1", [harness.PYTHON, "client.py", c.address(0), "test", 1, 3])
            self.assertNotEqual(second.wait(30), 0)
            self.assertIn("world size", second.err)
            first.kill()


if __name__ == "__main__":
    harness.main()
