#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan
"""A process that gets no more threads (shim_threads.c): a daemon says so and does not start, or serves jobs; a training
process gets an error, or works. None of them is aborted.
"""

import subprocess
import unittest

import harness

SHIM = harness.BUILD / "tests" / "e2e" / "shim_threads.so"
MOST = 16  # threads that each of the programs needs at most

# Opens a communicator while 0, 1, 2, ... more threads can be started, until that is enough.
RANK = harness.python(f"""
    import ctypes, numpy, reduction, worker
    limit = ctypes.CDLL(None).shim_threads_limit
    for n in range({MOST}):
        limit(n)
        try:
            with reduction.Communicator(mode=worker.listen(), generation=n) as comm:
                comm.all_reduce(numpy.ones(10, dtype="float32"))
                comm.all_reduce(numpy.ones(1000000, dtype="float32"))
            worker.say("tried", n=n, error=None)
        except (reduction.ReductionError, RuntimeError) as exc:  # RuntimeError: of Python, which starts one too
            worker.say("tried", n=n, error=str(exc))
        limit(-1)
    """)


@unittest.skipIf(harness.SAN, "sanitizers start threads of their own")
class Threads(unittest.TestCase):
    def daemon(self, program, argv, listening):
        """Starts it with more threads each time, until it listens. Returns that process."""
        for n in range(MOST):
            p = subprocess.Popen([harness.binary(program), *argv], stderr=subprocess.PIPE, text=True,
                                 env={"LD_PRELOAD": str(SHIM), "REDUCTION_THREADS": str(n)})  # fmt: skip
            said = ""
            for line in p.stderr:
                said += line
                if listening in line:
                    self.addCleanup(self.end, p)
                    return n, p, line
            p.stderr.close()
            self.assertEqual(p.wait(), 1, said)
            self.assertRegex(said, r"thread.*(Resource temporarily unavailable|cannot)|cannot.*thread", n)
        self.fail(f"{program} does not listen with {MOST} threads")

    def end(self, p):
        p.terminate()
        p.communicate(timeout=60)
        self.assertEqual(p.returncode, 0)

    def test_a_reducer(self):
        n, _, line = self.daemon("reduction-server", ["--listen", "127.0.0.1:0", "--lanes", "1"], " listening ")
        self.assertGreater(n, 1)
        address = line.split("address=")[1].split()[0]
        with harness.Cluster(reducers=0, config={"reducers": [{"id": "r0", "address": address}]}) as c:
            c.run(2, harness.python("""
                import numpy, reduction
                with reduction.Communicator() as comm:
                    assert comm.all_reduce(numpy.ones(1000, dtype="float32"))[0] == 2
                """))

    def test_a_training_process(self):
        """With the node's agent inside, and without."""
        for mode in "node", "direct":
            with self.subTest(mode), harness.Cluster() as c:
                w = c.start_worker(0, 1, RANK, env={"LD_PRELOAD": str(SHIM), "OPENBLAS_NUM_THREADS": "1"})
                for _ in range(MOST):
                    w.tell(mode)
                self.assertEqual(c.wait_all([w]), [0])
                errors = [said["error"] for said in w.objects() if said["what"] == "tried"]
                self.assertEqual(len(errors), MOST)
                self.assertIn("thread", errors[0])
                self.assertIsNone(errors[-1])


if __name__ == "__main__":
    harness.main()
