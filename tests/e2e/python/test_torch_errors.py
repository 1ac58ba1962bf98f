# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan
"""The process group `reduction`: wrong use and lost ranks are errors on every rank."""

import importlib.util
import unittest

import harness

WORKER = harness.ROOT / "tests/e2e/worker_torch_errors.py"


@unittest.skipIf(importlib.util.find_spec("torch") is None or harness.SAN, "no torch, or too slow with it")
class Errors(unittest.TestCase):
    def check(self, function, world_size=2, **options):
        with harness.Cluster(reducers=2, **options) as c:
            c.run(world_size, [harness.PYTHON, WORKER, function], timeout=60)

    def test_misuse(self):
        self.check("misuse")

    def test_monitored(self):
        self.check("monitored", world_size=3)

    def test_mismatch(self):
        self.check("mismatch", world_size=3)

    def test_shutdown(self):
        self.check("shutdown")

    def test_aborted(self):
        self.check("aborted")

    def test_callbacks(self):
        self.check("callbacks")

    def test_close_while_opening(self):
        self.check("close_while_opening", world_size=1)

    def test_noted_by_another(self):
        self.check("noted_by_another", world_size=1)

    def test_abort_while_starting(self):
        self.check("abort_while_starting", world_size=1)

    def test_timeout(self):
        self.check("timeout")

    def test_reopened(self):
        self.check("reopened")

    def test_world_sizes(self):
        self.check("world_sizes", world_size=3)

    def test_backends(self):
        self.check("backends")

    def test_refused(self):
        self.check("missing", server_config={"server": {"max_jobs": 1}})

    def test_rank_killed(self):
        with harness.Cluster(reducers=2, agents=1) as c:
            procs = c.start_workers(3, [harness.PYTHON, WORKER, "killed"])
            for p in procs:
                p.wait_text("trained", stream="out", timeout=60)
            procs[2].kill()
            for p in procs[:2]:
                self.assertEqual(p.wait(60), 0, p.report())


if __name__ == "__main__":
    harness.main()
