# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan
"""reductionctl render: managed jobs with reducers filled in, checked against the schema of the public API."""

import pathlib
import subprocess
import tempfile
import unittest

import harness
from vertex import problems, render

try:
    import yaml
except ImportError:
    yaml = None

WORKER = """machineSpec: {{machineType: a2-highgpu-8g, acceleratorType: NVIDIA_TESLA_A100, acceleratorCount: 8}}
    replicaCount: {}
    containerSpec: {{imageUri: TRAINER_IMAGE, args: [--lr, "0.1"]}}"""
TWO_POOLS = f"""workerPoolSpecs:
  - {WORKER.format(1)}
  - {WORKER.format(7)}
"""
ENABLE = "reductionServerConfig: {enable: true, imageUri: REDUCER_IMAGE}\n"


@unittest.skipIf(yaml is None, "Python's yaml is missing: install the package python3-yaml")
class Render(unittest.TestCase):
    def good(self, text, *options):
        done = render(text, *options)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.explained = done.stderr
        return yaml.safe_load(done.stdout)

    def spec(self, text, *options):
        found = self.good(text, *options)
        spec = found.get("jobSpec") or found.get("trialJobSpec") or found
        self.assertEqual(list(problems(spec, "CustomJobSpec")), [])
        return spec

    def refused(self, text, *sentences, options=(), code=1):
        done = render(text, *options)
        self.assertEqual(done.returncode, code, done.stdout)
        for sentence in sentences:
            self.assertIn(sentence, done.stderr)

    def test_the_schema_refuses_what_the_api_refuses(self):
        raw = yaml.safe_load(TWO_POOLS + ENABLE)
        self.assertEqual(list(problems(raw, "CustomJobSpec")), ["job: unknown reductionServerConfig"])
        raw = {"workerPoolSpecs": [{"containerSpec": {"args": [1]}}]}
        self.assertEqual(len(list(problems(raw, "CustomJobSpec"))), 1)

    def test_rule_of_the_service(self):
        """8 workers of 100 Gbit/s need 25 reducers of 32 Gbit/s, and 5 need 16."""
        spec = self.spec(TWO_POOLS + ENABLE)
        before, pools = yaml.safe_load(TWO_POOLS)["workerPoolSpecs"], spec["workerPoolSpecs"]
        self.assertEqual(pools[2], {"machineSpec": {"machineType": "n1-highcpu-16"}, "replicaCount": 25,
                                    "containerSpec": {"imageUri": "REDUCER_IMAGE"}})
        for i in range(2):
            self.assertEqual(pools[i]["containerSpec"].pop("env"), [{"name": "REDUCTION_BANDWIDTH", "value": "32gbit"}])
            self.assertEqual(pools[i], before[i])
        self.assertIn("8 workers x 100 Gbit/s (a2-highgpu-8g) = 800 Gbit/s\n"
                      "25 reducers x 32 Gbit/s (n1-highcpu-16) = 800 Gbit/s: the least number", self.explained)
        self.assertIn("80 ms through the reducers, 140 ms in a ring: 1.75 times as long", self.explained)
        five = TWO_POOLS.replace("replicaCount: 7", "replicaCount: 4")
        self.assertEqual(self.spec(five + ENABLE)["workerPoolSpecs"][2]["replicaCount"], 16)

    def test_as_people_write_it(self):
        """In a pool, beside the pools, at the root, in the third pool; and as the tool wanna writes it."""
        in_pool = TWO_POOLS + "    reductionServerConfig: {enable: true, imageUri: REDUCER_IMAGE}\n"
        indented = "".join("  " + line + "\n" for line in TWO_POOLS.splitlines())
        third = "  - machineSpec: {machineType: n2-highcpu-16}\n    containerSpec: {imageUri: REDUCER_IMAGE}\n" \
                "    replicaCount: 9\n    reductionServerConfig: {}\n"
        for text, machine, count in (
            (in_pool, "n1-highcpu-16", 25),
            ("displayName: x\njobSpec:\n" + indented + "  " + ENABLE, "n1-highcpu-16", 25),
            ("displayName: x\njobSpec:\n" + indented + ENABLE, "n1-highcpu-16", 25),
            ("studySpec: {}\ntrialJobSpec:\n" + indented + ENABLE, "n1-highcpu-16", 25),
            (TWO_POOLS + third, "n2-highcpu-16", 9),
            (TWO_POOLS + "reduction_server: {replica_count: 3, machine_type: n2-highcpu-8, "
             "container_uri: REDUCER_IMAGE}", "n2-highcpu-8", 3),
        ):
            with self.subTest(text=text):
                pool = self.spec(text)["workerPoolSpecs"][2]
                self.assertEqual((pool["machineSpec"]["machineType"], pool["replicaCount"]), (machine, count))
                self.assertEqual(pool["containerSpec"]["imageUri"], "REDUCER_IMAGE")

    def test_one_pool(self):
        one = f"workerPoolSpecs:\n  - {WORKER.format(1)}\n"
        self.assertEqual(self.spec(one + ENABLE)["workerPoolSpecs"][1], {})
        self.assertIn("reducers do not help this job, it has too few nodes", self.explained)
        pools = self.spec(one.replace("replicaCount: 1", "replicaCount: 8") + ENABLE)["workerPoolSpecs"]
        self.assertEqual([p["replicaCount"] for p in pools], [1, 7, 25])
        self.assertIn("pool 0 may have one replica: the other 7 are pool 1 now", self.explained)
        self.assertEqual(pools[0]["containerSpec"], pools[1]["containerSpec"])

    def test_options(self):
        pool = self.spec(TWO_POOLS, "--reduction-server-count", "12", "--reduction-server-machine-type=c3-odd",
                         "--reducer-bandwidth", "50gbit", "--reduction-server-image", "I", "--bandwidth=100gbit",
                         "--price-worker", "30", "--price-reducer", "0.8")["workerPoolSpecs"][2]
        self.assertEqual(pool, {"machineSpec": {"machineType": "c3-odd"}, "replicaCount": 12,
                                "containerSpec": {"imageUri": "I"}})
        self.assertIn("their links are the bottleneck; 16 would be as fast", self.explained)
        self.assertIn("an hour costs 240.00 for the workers and 9.60 for the reducers: it pays if steps become more "
                      "than 3.8 % shorter", self.explained)
        off = self.good(TWO_POOLS + "reductionServerConfig: {enable: false}\n")
        self.assertEqual(off, yaml.safe_load(TWO_POOLS))

    def test_secret(self):
        """Each replica gets the path of the secret; without one there is a warning."""
        warning = "warning: no secret: every machine in the job's network may join"
        self.spec(TWO_POOLS + ENABLE)
        self.assertIn(warning, self.explained)
        inside = ENABLE.replace("imageUri", "secret: /s, imageUri")
        for text, options, path in ((TWO_POOLS + ENABLE, ["--secret", "/t"], "/t"), (TWO_POOLS + inside, [], "/s"),
                                    (TWO_POOLS + inside, ["--secret=/t"], "/t")):
            for pool in self.spec(text, *options)["workerPoolSpecs"]:
                self.assertIn({"name": "REDUCTION_SECRET", "value": path}, pool["containerSpec"]["env"])
            self.assertNotIn(warning, self.explained)
        for path in ("/s #1", "/s: 1", "[/s]", "true", 'it"s'):
            for pool in self.spec(TWO_POOLS + ENABLE, "--secret", path)["workerPoolSpecs"]:
                self.assertIn({"name": "REDUCTION_SECRET", "value": path}, pool["containerSpec"]["env"])
        done = render(TWO_POOLS + ENABLE, "--sdk", "--secret", "/t")
        self.assertIn('"REDUCTION_SECRET": "/t"', done.stdout)
        self.assertIn("# the SDK gives variables to workers only: the image of the reducers must set", done.stdout)

    def test_machines(self):
        """A file of the user has precedence over the table of the program."""
        with tempfile.TemporaryDirectory(prefix="reduction-") as name:
            path = pathlib.Path(name) / "machines.yaml"
            path.write_text("machines:\n  a2-highgpu-8g: 50gbit\n  odd: 25gbit\n")
            pools = self.spec(TWO_POOLS + ENABLE.replace("imageUri", "machineType: odd, imageUri"),
                              f"--machines={path}")["workerPoolSpecs"]
            self.assertEqual(pools[2]["replicaCount"], 16)
            self.assertIn("8 workers x 50 Gbit/s (a2-highgpu-8g) = 400 Gbit/s\n16 reducers x 25 Gbit/s (odd)",
                          self.explained)
            for text, sentence in (
                ("a: 1gbit\n", f"{path}: found no table, expected one such as machines: {{n1-highcpu-16: 32gbit}}"),
                ("machines: {a: 1gbit}\nb: 1\n", f"{path}:2:1: b: found a key, expected machines alone"),
                ("machines:\n  a: fast\n",
                 f'{path}:2:6: machines.a: found "fast", expected a bandwidth such as 32gbit'),
                ("machines: {a: 1gbit, a: 2gbit}\n", f"{path}:1:22: machines.a: found a second time, expected once"),
                ("machines: {[]: 1gbit}\n", f"{path}:1:12: machines: expected the name of a machine type"),
            ):
                path.write_text(text)
                self.refused(TWO_POOLS + ENABLE, sentence, options=[f"--machines={path}"])
            self.refused(TWO_POOLS + ENABLE, "none.yaml", options=["--machines=/none.yaml"])

    def test_texts_without_quotes(self):
        """Some of them need quotes in a block: a lone dash of a list in one line, and line breaks."""
        odd = TWO_POOLS + ENABLE + "odd: {a: [-, -x], b: one\n\n    two}\n"
        self.assertEqual(self.good(odd)["odd"], {"a": ["-", "-x"], "b": "one\ntwo"})

    def test_values_keep_their_types(self):
        odd = TWO_POOLS + ENABLE
        odd += 'odd: {a: "1", b: 1, c: null, d: [], e: "x\\ny\\u00e9", f: [[1, "2"]], "g h": ~}\n'
        self.assertEqual(self.good(odd)["odd"],
                         {"a": "1", "b": 1, "c": None, "d": [], "e": "x\nyé", "f": [[1, "2"]], "g h": None})

    def test_gcloud_runs(self):
        """The printed command is run by a shell, with a gcloud that keeps what it was given."""
        indented = "".join("  " + line + "\n" for line in TWO_POOLS.splitlines())
        done = render("displayName: it's\njobSpec:\n" + indented + ENABLE, "--gcloud")
        self.assertEqual(done.returncode, 0, done.stderr)
        with tempfile.TemporaryDirectory(prefix="reduction-") as name:
            tool = pathlib.Path(name) / "gcloud"
            tool.write_text('#!/bin/sh\nprintf "%s\\n" "$@" >"${0%/*}/argv"\ncat >"${0%/*}/stdin"\n')
            tool.chmod(0o755)
            subprocess.run(["sh", "-ec", done.stdout], check=True, env={"PATH": f"{name}:/usr/bin:/bin", "REGION": "r"})
            argv = (tool.parent / "argv").read_text().splitlines()
            spec = yaml.safe_load((tool.parent / "stdin").read_text())
        self.assertEqual(argv, ["ai", "custom-jobs", "create", "--region=r", "--display-name=it's",
                                "--config=/dev/stdin"])
        self.assertEqual(list(problems(spec, "CustomJobSpec")), [])
        self.assertEqual(spec["workerPoolSpecs"][2]["replicaCount"], 25)

    def test_sdk_is_python(self):
        done = render(TWO_POOLS + ENABLE, "--sdk")
        self.assertEqual(eval(f"dict({done.stdout})"), {  # pylint: disable=eval-used
            "machine_type": "a2-highgpu-8g", "accelerator_type": "NVIDIA_TESLA_A100", "accelerator_count": 8,
            "container_uri": "TRAINER_IMAGE", "replica_count": 8, "args": ["--lr", "0.1"],
            "environment_variables": {"REDUCTION_BANDWIDTH": "32gbit"},
            "reduction_server_replica_count": 25, "reduction_server_machine_type": "n1-highcpu-16",
            "reduction_server_container_uri": "REDUCER_IMAGE"})
        other = TWO_POOLS.replace("TRAINER_IMAGE", "OTHER_IMAGE", 1)
        self.refused(other + ENABLE, "workerPoolSpecs[1]: found another value than in pool 0", options=["--sdk"])

    def test_errors_have_line_and_field(self):
        third = "  - containerSpec: {imageUri: PS}\n"
        for text, sentence in (
            ("", "<stdin>: found no mapping, expected a CustomJob with workerPoolSpecs"),
            ("worker_pool_specs: []\n",
             "<stdin>:1:20: workerPoolSpecs: found an empty list, expected a list of worker pools"),
            (TWO_POOLS, "<stdin>:2:3: reductionServerConfig: not found, expected it in a worker pool"),
            (TWO_POOLS + "reductionServerConfig: {enable: yes}\n",
             '<stdin>:8:33: reductionServerConfig.enable: found "yes", expected true or false'),
            (TWO_POOLS + "reductionServerConfig: {replicacount: 1}\n",
             '<stdin>:8:25: reductionServerConfig: found unknown key "replicacount", expected replicaCount'),
            (TWO_POOLS + "reductionServerConfig: {replicaCount: 0}\n",
             '<stdin>:8:39: reductionServerConfig.replicaCount: found "0", expected a whole number from 1 to 256'),
            (TWO_POOLS + "reductionServerConfig: {bandwidth: fast}\n",
             '<stdin>:8:36: reductionServerConfig.bandwidth: found "fast", expected a bandwidth such as 32gbit'),
            (TWO_POOLS + "reductionServerConfig: {enable: true}\n",
             "<stdin>:8:24: reductionServerConfig.imageUri: not found, expected the image"),
            (TWO_POOLS + "reductionServerConfig: {machineType: x, imageUri: y}\n",
             'reductionServerConfig.bandwidth: not found, and the bandwidth of machine type "x" is not known'),
            (TWO_POOLS + "    reductionServerConfig: {}\n" + ENABLE,
             "<stdin>:8:28: workerPoolSpecs[1].reductionServerConfig: found a second time, expected once (first in "
             "line 9)"),
            (TWO_POOLS.replace("replicaCount: 1", "replicaCount: 2") + ENABLE,
             'workerPoolSpecs[0].replicaCount: found "2", expected 1: the primary replica'),
            (TWO_POOLS.replace("a2-highgpu-8g", "odd") + ENABLE,
             '<stdin>:2:32: workerPoolSpecs[0].machineSpec.machineType: found "odd", expected a machine type'),
            (TWO_POOLS + third + ENABLE,
             "<stdin>:8:5: workerPoolSpecs[2]: found a pool of its own, expected none or {}"),
            (TWO_POOLS.replace('"0.1"]', '"0.1"], env: {A: b}', 1) + ENABLE,
             "<stdin>:4:72: workerPoolSpecs[0].containerSpec.env: found a mapping, expected a list"),
            ("workerPoolSpecs: [{machineSpec: {machineType: a2-highgpu-8g}, containerSpec: x}]\n" + ENABLE,
             '<stdin>:1:78: workerPoolSpecs[0].containerSpec: found "x", expected a mapping'),
            (TWO_POOLS + "    reductionServerConfig: {}\n  - machineSpec: []\n",
             "<stdin>:9:18: workerPoolSpecs[2].machineSpec: found a list, expected a mapping"),
            (TWO_POOLS + ENABLE + "? [a]\n: b\n", "<stdin>:9:3: a key: found a list, expected a text"),
        ):
            with self.subTest(sentence=sentence):
                self.refused(text, sentence)
        self.refused(TWO_POOLS, "--reduction-server-count: found", options=["--reduction-server-count", "x"], code=2)
        done = subprocess.run([harness.binary("reductionctl"), "render", "-"], input="", capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("found no kind of job, expected --vertex", done.stderr)


if __name__ == "__main__":
    harness.main()
