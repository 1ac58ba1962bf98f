#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan
"""reductionctl doctor on real jobs: one with a slow rank, one without a problem, none at all."""

import json
import time
import unittest

import harness
from test_control import GRPC, STEADY, ctl


@unittest.skipUnless(harness.HAS_GRPC, "this build has no gRPC")
class Doctor(unittest.TestCase):
    def address(self, cluster):
        return cluster.reducers[0].wait_text(r"\bgrpc-ready\b.*?address=(\S+)").group(1)

    def findings(self, address):
        status, out, err = ctl("doctor", "--json", address)
        self.assertEqual(err, "")
        found = json.loads(out)
        self.assertEqual(status, 3 if found["findings"] else 0)
        return found

    def test_a_slow_rank(self):
        with harness.Cluster(lanes=2, server_config=GRPC) as c:
            address = self.address(c)
            workers = c.start_workers(3, STEADY, {"SLOW": 1, "PAUSE": 0.1})
            for w in workers:
                w.wait_text("running", stream="out")
            deadline = time.monotonic() + 30 * harness.SCALE
            while not (late := [f for f in self.findings(address)["findings"] if f["id"] == "rank-late"]):
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.1)
            self.assertEqual((len(late), late[0]["job"]), (1, "test"))
            self.assertIn("rank 1 (", late[0]["what"])
            status, out, _ = ctl("doctor", address)
            self.assertEqual(status, 3)
            self.assertIn("   do:   ", out)
            for w in workers:
                w.tell()
            c.wait_all(workers)

    def test_all_is_well(self):
        with harness.Cluster(lanes=1, server_config=GRPC) as c:
            address = self.address(c)
            self.assertEqual(self.findings(address), {"jobs": 0, "findings": []})
            self.assertEqual(ctl("doctor", address)[1], "There is no job.\n")
            # ranks that pause together: the reducer waits for nobody
            env = {"SLOW": -1}
            workers = c.start_workers(1, STEADY, env)
            for w in workers:
                w.wait_text("running", stream="out")
            found = self.findings(address)
            load = ("lane-busy", "lane-starved", "slots-used")  # other tests use the cores too
            self.assertEqual([f for f in found["findings"] if f["id"] not in load], [])
            for w in workers:
                w.tell()
            c.wait_all(workers)

    def test_wrong_usage(self):
        self.assertEqual(ctl("doctor")[0], 2)
        status, _, err = ctl("doctor", "127.0.0.1:1")
        self.assertEqual(status, 1)
        self.assertIn("127.0.0.1:1", err)


if __name__ == "__main__":
    harness.main()
