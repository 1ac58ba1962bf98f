# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan all-only
"""Training with DeepSpeed's ZeRO on CPUs over the process group `reduction`, beside gloo. Skips without DeepSpeed,
which is in PyPI."""

import json
import subprocess
import unittest

import harness

WORKER = harness.ROOT / "tests/e2e/worker_torch_deepspeed.py"
HAS = subprocess.run([harness.PYTHON, "-c", "import deepspeed"], capture_output=True).returncode == 0
STAGES = (1, 2, 3)


@unittest.skipIf(not HAS or harness.SAN, f"{harness.PYTHON} has no deepspeed, or it is too slow")
class DeepSpeed(unittest.TestCase):
    def losses(self, backend, world_size):
        """Returns the losses of all stages on each rank."""
        with harness.Cluster(reducers=2) as c:
            procs = c.run(world_size, [harness.PYTHON, WORKER, backend, *map(str, STAGES)], timeout=180)
            said = [[p.wait_text(rf"stage {stage}: (.*)", stream="out")[1] for stage in STAGES] for p in procs]
            return [list(map(json.loads, each)) for each in said]

    def test_stages(self):
        for world_size in (2, 3):
            with self.subTest(world_size):
                ours, gloo = self.losses("reduction", world_size), self.losses("gloo", world_size)
                for rank in range(world_size):
                    for stage, found, wanted in zip(STAGES, ours[rank], gloo[rank]):
                        self.assertEqual(len(found), 5)
                        for a, b in zip(found, wanted):
                            self.assertAlmostEqual(a, b, delta=1e-4, msg=f"{rank}, {stage}: {found}, {wanted}")


if __name__ == "__main__":
    harness.main()
