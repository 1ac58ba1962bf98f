#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan
"""reductionctl doctor on real jobs: one with a slow rank, one without a problem, none at all, silent reducers."""

import json
import os
import pathlib
import ssl
import subprocess
import tempfile
import time
import unittest

import certs
import harness
import wire
from test_control import GRPC, STEADY, ctl


@unittest.skipUnless(harness.HAS_GRPC, "this build has no gRPC")
class Doctor(unittest.TestCase):
    def address(self, cluster):
        return cluster.reducers[0].wait_text(r"\bgrpc-ready\b.*?address=(\S+)").group(1)

    def findings(self, *target):
        status, out, err = ctl("doctor", "--json", "--seconds", "5", *target)
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
            self.assertEqual((late[0]["rank"], late[0]["process"]), (1, address))
            self.assertGreaterEqual(late[0]["held"], 4)
            status, out, _ = ctl("doctor", "--seconds", "5", address)
            self.assertEqual(status, 3)
            self.assertRegex(out, r" \(in [45] of 5 looks, 1 s each\)\n   do:   ")
            for w in workers:
                w.tell()
            c.wait_all(workers)

    def test_all_is_well(self):
        with harness.Cluster(lanes=1, server_config=GRPC) as c:
            address = self.address(c)
            found = self.findings(address)
            self.assertEqual((found["jobs"], found["windows"], found["findings"]), (0, 1, []))
            self.assertEqual(ctl("doctor", address)[1], "There is no job.\n")
            # ranks that pause together: the reducer waits for nobody
            env = {"SLOW": -1}
            workers = c.start_workers(1, STEADY, env)
            for w in workers:
                w.wait_text("running", stream="out")
            found = self.findings(address)
            self.assertEqual((found["jobs"], found["windows"], found["seconds"]), (1, 5, 5))
            load = ("lane-busy", "lane-starved", "slots-used")  # other tests use the cores too
            self.assertEqual([f for f in found["findings"] if f["id"] not in load], [])
            for w in workers:
                w.tell()
            c.wait_all(workers)
            c.reducers[0].wait_text("job-closed")
            self.assertRegex(ctl("doctor", address)[1],
                             r"^There is no job\. The last one, test, ended \d+ m?s ago: finished\.\n$")
            self.assertEqual(ctl("doctor", "--job", "other", address)[1], "There is no job.\n")

    def test_reducers_that_do_not_answer(self):
        """They are findings beside those of the others; the reducers are those of REDUCTION_CONFIG."""
        with harness.Cluster(lanes=1, server_config=GRPC) as c, tempfile.TemporaryDirectory() as folder:
            config = {"job": {"name": "test"}, "reducers": [
                {"id": "r0", "address": "127.0.0.1:7600", "grpc": self.address(c)},
                {"id": "r1", "address": "127.0.0.1:7602", "grpc": "127.0.0.1:1"}]}  # fmt: skip
            path = harness.write_whole(pathlib.Path(folder) / "job.yaml", json.dumps(config))
            done = subprocess.run([harness.binary("reductionctl"), "doctor", "--json"], capture_output=True, text=True,
                                  env={**os.environ, "REDUCTION_CONFIG": str(path)})  # fmt: skip
            self.assertEqual((done.returncode, done.stderr), (3, ""))
            found = json.loads(done.stdout)["findings"]
            self.assertEqual([(f["id"], f["what"]) for f in found], [("no-answer", "r1 does not answer")])
            self.assertIn("r1 (127.0.0.1:1): connection refused", found[0]["evidence"])
        # all of them
        found = self.findings("127.0.0.1:1")["findings"]
        self.assertEqual([f["id"] for f in found], ["no-answer"])

    def test_why_a_job_has_ended(self):
        """Until its next generation begins."""
        with harness.Cluster(lanes=1, server_config=GRPC) as c:
            address = self.address(c)
            workers = c.start_workers(2, STEADY)
            for w in workers:
                w.wait_text("running", stream="out")
            workers[1].kill()
            workers[0].wait()
            c.reducers[0].wait_text("job-closed")
            found = self.findings(address)
            self.assertEqual((found["jobs"], [f["id"] for f in found["findings"]]), (0, ["job-ended"]))
            self.assertEqual((found["findings"][0]["job"], found["findings"][0]["what"]),
                             ("test", "generation 0 has ended"))  # fmt: skip
            self.assertRegex(found["findings"][0]["evidence"], r"\d+ s ago: rank 1 \(pid \d+ on .*\) was lost: ")
            self.assertEqual(self.findings(address, "--job", "other")["findings"], [])
            workers = c.start_workers(2, STEADY, {"TORCHELASTIC_RESTART_COUNT": 1})
            for w in workers:
                w.wait_text("running", stream="out")
            self.assertNotIn("job-ended", [f["id"] for f in self.findings(address)["findings"]])
            for w in workers:
                w.tell()
            c.wait_all(workers)

    def refusal(self, address, job, reason):
        found = [f for f in self.findings(address)["findings"] if f["job"] == job]
        self.assertEqual([(f["id"], f["what"]) for f in found], [("refused", "workers are refused")])
        self.assertRegex(found[0]["evidence"], r": \d+ times? in 5 min, \d+ s ago 127.0.0.1:\d+: .*" + reason)

    def test_a_wrong_secret(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in (("test.secret", "the reducer's secret"), ("mine", "another secret of some length")):
                path = pathlib.Path(folder) / name
                path.write_text(text)
                path.chmod(0o600)
            server = {"server": {**GRPC["server"], "secrets_dir": folder}}
            with harness.Cluster(lanes=1, transport="tcp", server_config=server,
                                 config={"security": {"secret": str(path)}}) as c:  # fmt: skip
                address = self.address(c)
                for job, reason in (("test", "the file of its security.secret differs from this reducer's"),
                                    ("wrong", "this reducer has no secret for job wrong")):  # fmt: skip
                    c.start_worker(0, 1, STEADY, config={"job": {"name": job}}).wait()
                    self.refusal(address, job, reason)
                worker = c.start_worker(0, 1, STEADY, config={"security": {"secret": f"{folder}/test.secret"}})
                worker.wait_text("running", stream="out")
                worker.tell()
                worker.wait()
                found = self.findings(address)["findings"]
                self.assertEqual([(f["id"], f["job"]) for f in found], [("refused", "wrong")])

    def test_an_expired_certificate(self):
        with tempfile.TemporaryDirectory() as folder:
            files = certs.Folder(folder, "reducer:localhost,127.0.0.1", "client:me")
            files.expired("late")
            server = {**files.reducer("localhost", mutual=True)}
            server["server"] = {**server.get("server", {}), **GRPC["server"]}
            with harness.Cluster(lanes=1, transport="tcp", server_config=server) as c:
                with c.connect(0) as sock, self.assertRaises((ssl.SSLError, ConnectionError)):
                    with files.client_context("late").wrap_socket(sock) as tls:
                        tls.sendall(wire.hello())
                        if not tls.recv(1):
                            raise ConnectionError
                c.reducers[0].wait_text("connection-refused")
                options = ["--authority", files.file("ca.pem"), "--certificate", files.file("me.pem"),
                           "--key", files.file("me.key")]  # fmt: skip
                found = self.findings(self.address(c), *options)["findings"]
                self.assertEqual([f["id"] for f in found], ["refused"], found)
                self.assertIn("certificate has expired", found[0]["evidence"])

    def test_wrong_usage(self):
        self.assertEqual(ctl("doctor")[0], 2)
        for seconds in ("4", "x"):
            status, _, err = ctl("doctor", "--seconds", seconds, "127.0.0.1:1")
            self.assertEqual(status, 2)
            self.assertIn(f'--seconds: found "{seconds}"', err)


if __name__ == "__main__":
    harness.main()
