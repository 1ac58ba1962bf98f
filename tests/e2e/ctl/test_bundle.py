#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan
"""reductionctl support-bundle: what is in the archive, and that no secret is."""

import json
import os
import pathlib
import subprocess
import tarfile
import tempfile
import unittest

import harness
from test_control import STEADY

TOKEN, INLINE, VARIABLE = "token-of-a-test-in-a-file", "secret/written-into-the-file", "secret-of-the-environment"


@unittest.skipUnless(harness.HAS_GRPC, "this build has no gRPC")
class Bundle(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="reduction-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def bundle(self, *targets, env=None):
        """Makes a bundle; returns the exit status, its files by their names behind the folder, and standard error."""
        out = self.folder / "bundle.tar.gz"
        out.unlink(missing_ok=True)
        done = subprocess.run(
            [harness.binary("reductionctl"), "support-bundle", "--output", out, *targets],
            env={**os.environ, **harness.sanitizer_env(["reductionctl"]), **(env or {})},
            capture_output=True, text=True, timeout=120 * harness.SCALE,
        )  # fmt: skip
        if done.returncode not in (0, 3):
            return done.returncode, {}, done.stderr
        self.assertEqual(done.stdout, f"{out}\n")
        self.assertEqual(out.stat().st_mode & 0o777, 0o600)
        with tarfile.open(out, "r:gz") as tar:
            names = tar.getnames()
            self.assertEqual(len({n.split("/")[0] for n in names}), 1)
            self.assertTrue(names[0].startswith("reduction-support-"))
            files = {n.split("/", 1)[1]: tar.extractfile(n).read() for n in names}
        return done.returncode, files, done.stderr

    def test_no_secret_is_in_it(self):
        token = self.folder / "token"
        token.write_text(TOKEN + "\n")
        token.chmod(0o600)
        server = {"server": {"grpc": "127.0.0.1:0"}, "security": {"read_token": str(token)}}
        with harness.Cluster(server_config=server) as c:
            address = c.reducers[0].wait_text(r"\bgrpc-ready\b.*?address=(\S+)").group(1)
            # a name that comes from elsewhere and has the bytes of a secret
            ranks = c.start_workers(2, STEADY, {"REDUCTION_RUN": f"run.{VARIABLE}"})
            for rank in ranks:
                rank.wait_text("running", stream="out")
            job = self.folder / "job.yaml"
            job.write_text(json.dumps({
                "reducers": [{"id": "r0", "address": c.address(0), "grpc": address},
                             {"id": "r1", "address": "127.0.0.1:1", "grpc": "127.0.0.1:1"}],
                "security": {"secret": INLINE, "read_token": str(token)},
            }))  # fmt: skip
            env = {"REDUCTION_SECRET": VARIABLE, "REDUCTION_LOG": "info", "NCCL_TOKEN": str(token)}
            status, files, err = self.bundle(str(job), env=env)
            for rank in ranks:
                rank.tell()
            c.wait_all(ranks)
        self.assertEqual(status, 3)  # r1 has not answered
        self.assertIn("127.0.0.1:1", err)
        for name, data in files.items():
            for secret in (TOKEN, INLINE, VARIABLE):
                self.assertNotIn(secret.encode(), data, name)
        text = {name: data.decode(errors="replace") for name, data in files.items()}
        self.assertRegex(text["targets.txt"], r"(?m)^r0 \(.*\): answered$")
        self.assertRegex(text["targets.txt"], r"(?m)^r1 \(.*\): no answer: .*connection refused; is gRPC on there")
        self.assertIn('secret: "the file with this name (not shown: ', text["configuration/01.yaml"])
        self.assertIn(f"read_token: {token}\n", text["configuration/01.yaml"])
        self.assertIn("REDUCTION_SECRET=(left out)\n", text["environment.txt"])
        self.assertIn("REDUCTION_LOG=info\n", text["environment.txt"])
        state = json.loads(text["targets/01-r0/status.json"])
        self.assertEqual(state["jobs"][0]["run"], "run." + "*" * len(VARIABLE))
        self.assertIn('\nreduction_job_ranks{reduction_job="test"} 2\n', text["targets/01-r0/metrics.txt"])
        events = [json.loads(line)["name"] for line in text["targets/01-r0/events.jsonl"].splitlines()]
        self.assertIn("job-started", events)
        self.assertNotIn("targets/02-r1/status.json", files)

    def test_secrets_of_jobs(self):
        """Those in secrets_dir, where a name that comes from elsewhere has their bytes; also escaped in JSON."""
        secrets = [f'"of\\a-job-{i}-\N{EURO SIGN}-\N{MUSICAL SYMBOL G CLEF}' for i in range(3)]
        folder = self.folder / "secrets"
        folder.mkdir()
        for i, secret in enumerate(secrets):
            (folder / f"job{i}.secret").write_text(secret + "\n", encoding="utf-8")
        server = self.folder / "server.yaml"
        server.write_text(json.dumps({"server": {"secrets_dir": str(folder)}}))
        env = {"NCCL_ODD": " ".join(secrets), "NCCL_JSON": json.dumps({"x": secrets}),
               "NCCL_UTF8": json.dumps({"x": secrets}, ensure_ascii=False),
               "NCCL_LINE": json.dumps(json.dumps({"x": secrets}))}  # fmt: skip
        status, files, _ = self.bundle(str(server), env=env)
        self.assertEqual(status, 3)  # no reducer runs
        lines = dict(x.split("=", 1) for x in files["environment.txt"].decode().splitlines() if x.startswith("NCCL_"))
        self.assertEqual(lines["NCCL_ODD"], " ".join("*" * len(s.encode()) for s in secrets))
        for name in "NCCL_JSON", "NCCL_UTF8", "NCCL_LINE":
            found = json.loads(lines[name])
            found = json.loads(found) if name == "NCCL_LINE" else found
            self.assertEqual({c for s in found["x"] for c in s}, {"*"}, name)
        self.assertIn(f"secrets_dir: {folder}\n", files["configuration/01.yaml"].decode())

    def test_many_secrets_and_one_in_another(self):
        secrets = {f"S{i}_TOKEN": f"token-of-{i}-{'x' * i}" for i in range(100)}
        secrets["LONGER_PASSWORD"] = secrets["S0_TOKEN"] + "tail-of-a-longer-one"
        status, files, err = self.bundle(env={**secrets, "NCCL_ODD": " ".join(secrets.values())})
        self.assertEqual((status, err), (0, ""))
        (line,) = [x for x in files["environment.txt"].decode().splitlines() if x.startswith("NCCL_ODD=")]
        self.assertEqual(line, "NCCL_ODD=" + " ".join("*" * len(s) for s in secrets.values()))

    def test_this_machine(self):
        status, files, err = self.bundle()
        self.assertEqual((status, err), (0, ""))
        text = {name: data.decode(errors="replace") for name, data in files.items()}
        own = pathlib.Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text()
        self.assertIn(f"/proc/sys/net/ipv4/tcp_congestion_control: {own}", text["machine/network.txt"])
        self.assertIn("/proc/sys/net/ipv4/tcp_fastopen_key: (left out)\n", text["machine/network.txt"])
        self.assertRegex(text["machine/network.txt"], r"/proc/sys/net/core/rmem_max: \d+\n")
        self.assertIn("TcpExt:", text["machine/network.txt"])
        self.assertRegex(text["machine/links.txt"], r"/sys/class/net/lo/mtu: \d+\n")
        self.assertIn("$ uname -srvm: Linux ", text["machine/versions.txt"])
        self.assertRegex(text["machine/memory.txt"], r"MemTotal: +\d+ kB")
        self.assertIn("Cpus_allowed_list:", text["machine/limits.txt"])
        self.assertIn("journalctl", text["log/journal.txt"])
        self.assertRegex(text["targets.txt"], r"^made by reductionctl \d")

    def test_an_invalid_file_and_a_file_that_exists(self):
        job = self.folder / "job.yaml"
        job.write_text(f"security: {{sekret: {INLINE}}}\n")
        status, files, err = self.bundle(str(job), "127.0.0.1:1")
        self.assertEqual(status, 3)
        self.assertIn("sekret", err)
        self.assertIn(f"{job}: the file is invalid", files["targets.txt"].decode())
        self.assertIn("127.0.0.1:1: no answer", files["targets.txt"].decode())
        self.assertNotIn(INLINE, "".join(data.decode(errors="replace") for data in files.values()))
        (self.folder / "there").write_text("")
        argv = [harness.binary("reductionctl"), "support-bundle", "--output", self.folder / "there"]
        done = subprocess.run(argv, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("File exists", done.stderr)


if __name__ == "__main__":
    harness.main()
