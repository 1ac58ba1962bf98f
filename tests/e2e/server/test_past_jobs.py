#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# run: beside-others
"""reductionctl jobs, and /jobs: what is remembered of jobs that have ended."""

import json
import tempfile
import time
import unittest

import harness
from test_http import GRPC, HAS_HTTP, HTTP, ctl, get, grpc_of, http_of, run_until_end, until


def fields(event):
    return {f["key"]: f["value"] for f in event["fields"]}


@unittest.skipUnless(harness.HAS_GRPC and HAS_HTTP, "this build has no gRPC or no HTTP")
class PastJobs(unittest.TestCase):
    def records(self, reducer):
        return json.loads(get(http_of(reducer), "/jobs")[2])

    def test_records(self):
        with harness.Cluster(reducers=2, server_args=[*HTTP, *GRPC]) as c:
            addresses = [grpc_of(r) for r in c.reducers]
            self.assertEqual(len(ctl("jobs", *addresses[:1]).splitlines()), 1)
            before = time.time()
            for job, end in (("good", "finish"), ("ill", "nan"), ("dead", "kill"), ("stopped", "abort")):
                run_until_end(c, end, {"job": {"name": job}})
            for reducer in c.reducers:
                until(lambda: len(self.records(reducer)) == 4, "four records")
                good, ill, dead, stopped = (fields(e) for e in self.records(reducer))
                self.assertEqual([e["sequence"] for e in self.records(reducer)], [1, 2, 3, 4])
                self.assertGreaterEqual(self.records(reducer)[0]["unix_ms"], int(before) * 1000)
                self.assertEqual({k: good[k] for k in ("job", "generation", "run", "world_size", "joined", "ended")},
                                 {"job": "good", "generation": "0", "run": "test", "world_size": "2", "joined": "2",
                                  "ended": "finished"})
                self.assertEqual((good["rank"], good["reason"], good["nonfinite"]), ("", "", ""))
                self.assertIn(good["operations"], ("1", "2"))  # each has one chunk, on one of the reducers
                self.assertEqual(ill["ended"], "finished")
                self.assertGreater(int(good["received_bytes"]), 0)
                self.assertRegex(ill["nonfinite"], r"^rank 1 .* sent NaN: element 5 of all-reduce 1$")
                self.assertEqual((dead["ended"], dead["rank"]), ("rank-lost", "1"))
                self.assertRegex(dead["reason"], r"^rank 1 \(.*\) was lost: ")
                self.assertEqual(stopped["ended"], "aborted")
                self.assertIn("a test", stopped["reason"])
                # a rank that was lost is a failure of the job
                reducer.wait_text(r"warn +job-aborted job=dead generation=0 reason=\"rank 1 \(.*was lost")
                self.assertNotIn("job-left", reducer.err)
            config = c.write_config("asked", {"reducers": [
                {"id": f"r{i}", "address": c.address(i), "grpc": addresses[i]} for i in (0, 1)]})  # fmt: skip
            rows = ctl("jobs", str(config)).splitlines()
            self.assertEqual([r.split()[2] for r in rows[1:5]], ["good", "ill", "dead", "stopped"], rows)
            self.assertEqual(rows[1].split()[3:5] + rows[1].split()[7:8], ["0", "2", "2"])  # ran "1 s"
            self.assertEqual([r.split()[-1] for r in rows[1:5]], ["finished", "finished", "rank-lost", "aborted"])
            self.assertRegex("\n".join(rows[5:]), r"(?m)^  ill, generation 0: first NaN or infinity: rank 1 ")
            self.assertRegex("\n".join(rows[5:]), r"(?m)^  dead, generation 0: rank 1 \(.*\) was lost: ")
            self.assertEqual(len(ctl("jobs", "--json", str(config)).splitlines()), 8)
            self.assertEqual(len(ctl("jobs", "--job", "dead", str(config)).splitlines()), 3)

    def test_records_on_disk(self):
        """They are there after kill -9 and after a normal restart; another process may not use the same folder."""
        with tempfile.TemporaryDirectory() as folder:
            config = {"server": {"state_dir": folder}}
            with harness.Cluster(reducers=1, server_config=config, server_args=[*HTTP, *GRPC]) as c:
                for number in (1, 2):
                    reducer = c.reducers[0]
                    run_until_end(c, "finish", {"job": {"name": f"job{number}"}})
                    until(lambda: len(self.records(reducer)) == number, "its record")
                    before = self.records(reducer)
                    (reducer.kill if number == 1 else reducer.stop)()
                    reducer.wait()
                    c.start_reducer(0)
                    self.assertEqual(self.records(c.reducers[0]), before)
                second = c.start("second", [harness.binary("reduction-server"), "--listen", "127.0.0.1:0", "--config",
                                            c.write_config("server.yaml", config), *HTTP])  # fmt: skip
                self.assertEqual(second.wait(), 1)
                self.assertIn(f"server.state_dir: {folder}/jobs is in use by another process", second.err)
            env = {"STATE_DIRECTORY": folder}  # as systemd sets it
            with harness.Cluster(reducers=0) as c:
                third = c.start("third", [harness.binary("reduction-server"), "--listen", "127.0.0.1:0", *HTTP], env)
                third.wait_text("listening")
                self.assertEqual([fields(e)["job"] for e in self.records(third)], ["job1", "job2"])
                self.assertEqual(third.stop(), 0)


if __name__ == "__main__":
    harness.main()
