# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan
"""reductionctl render: jobs as people have them, above all with Google's reducers; and machines that do not exist."""

import json
import re
import unittest

import harness
from vertex import problems, render, snake

try:
    import yaml
except ImportError:
    yaml = None

GOOGLE = "us-docker.pkg.dev/vertex-ai-restricted/training/reductionserver:latest"
OURS = "--reduction-server-image=OURS"
A100 = {"machineType": "a2-highgpu-8g", "acceleratorType": "NVIDIA_TESLA_A100", "acceleratorCount": 8}


def pools(image=GOOGLE):
    return [{"machineSpec": dict(A100), "replicaCount": 1, "containerSpec": {"imageUri": "TRAINER", "args": ["--lr"]}},
            {"machineSpec": dict(A100), "replicaCount": 7, "containerSpec": {"imageUri": "TRAINER", "args": ["--lr"]}},
            {"machineSpec": {"machineType": "n2-highcpu-16"}, "replicaCount": 24, "containerSpec": {"imageUri": image}}]


def dump(job):
    """YAML without anchors."""
    return yaml.safe_dump(json.loads(json.dumps(job)), sort_keys=False)


def in_snake(value):
    if isinstance(value, dict):
        return {snake(name): in_snake(item) for name, item in value.items()}
    return [in_snake(item) for item in value] if isinstance(value, list) else value


def pipeline(specs):
    """What kfp 2.17 compiles of a CustomTrainingJobOp, without its long parts: counts are 8.0 there."""
    floats = json.loads(json.dumps(in_snake(specs)), parse_int=float)
    component = {"inputDefinitions": {"parameters": {"worker_pool_specs": {
        "defaultValue": [], "isOptional": True, "parameterType": "LIST"}}}}
    task = {"componentRef": {"name": "comp-t"}, "inputs": {"parameters": {
        "display_name": {"runtimeValue": {"constant": "d"}},
        "worker_pool_specs": {"runtimeValue": {"constant": floats}}}}}
    return {"components": {"comp-t": component},
            "deploymentSpec": {"executors": {"exec-t": {"container": {"args": ["{{$.inputs.parameters['x']}}"]}}}},
            "root": {"dag": {"tasks": {"t": task}}}, "schemaVersion": "2.1.0"}


COMMAND = f"""#!/bin/sh
# starts the training
gcloud beta ai custom-jobs create \\
    --region=us-central1 --project my-project \\
    --display-name="it's" --labels=team=ml,kind=test \\
    --kms-key=projects/k --service-account=me@x \\
    --worker-pool-spec=machine-type=a2-highgpu-8g,accelerator-type=nvidia-tesla-a100,accelerator-count=8,\\
container-image-uri=TRAINER \\
    --worker-pool-spec=replica-count=7,machine-type=a2-highgpu-8g,accelerator-type=NVIDIA_TESLA_A100,\\
accelerator-count=8,container-image-uri=TRAINER \\
    --worker-pool-spec=machine-type=n2-highcpu-16,replica-count=24,container-image-uri={GOOGLE} \\
    --args=--lr,'0.1' --enable-web-access
"""


@unittest.skipIf(yaml is None, "Python's yaml is missing: install the package python3-yaml")
class Forms(unittest.TestCase):
    def good(self, text, *options):
        done = render(text, OURS, *options)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.explained = done.stderr
        return done.stdout

    def refused(self, text, sentence, *options):
        done = render(text, *options)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn(sentence, done.stderr)

    def test_each_form_with_the_reducers_of_google(self):
        """Image replaced; counts, machine types and everything else as before."""
        spec = {"workerPoolSpecs": pools(), "serviceAccount": "me@x"}
        for job, at in (
            (spec, lambda j: j["workerPoolSpecs"]),
            ({"displayName": "x", "jobSpec": spec}, lambda j: j["jobSpec"]["workerPoolSpecs"]),
            ({"studySpec": {}, "trialJobSpec": spec}, lambda j: j["trialJobSpec"]["workerPoolSpecs"]),
            ({"displayName": "x", "trainingTaskInputs": spec}, lambda j: j["trainingTaskInputs"]["workerPoolSpecs"]),
            ({"trainingTaskInputs": {"studySpec": {}, "trialJobSpec": spec}},
             lambda j: j["trainingTaskInputs"]["trialJobSpec"]["workerPoolSpecs"]),
            ({"displayName": "x", "job_spec": in_snake(spec)}, lambda j: j["job_spec"]["worker_pool_specs"]),
            (in_snake(pools()), lambda j: j),
            (pipeline(pools()), lambda j: j["root"]["dag"]["tasks"]["t"]["inputs"]["parameters"]["worker_pool_specs"]
             ["runtimeValue"]["constant"]),
        ):
            for text in (dump(job), json.dumps(job, indent=1)):
                with self.subTest(text=text):
                    self.one_form(text, job, at)

    def one_form(self, text, job, at):
        out = self.good(text)
        found = json.loads(out) if text[0] in "{[" else yaml.safe_load(out)
        self.assertIn("the image of Google's reducers (line ", self.explained)
        self.assertIn("8 workers x 100 Gbit/s (a2-highgpu-8g) = 800 Gbit/s\n24 reducers x 32 Gbit/s (n2-highcpu-16)",
                      self.explained)
        spelled = "container_spec" in at(found)[0]
        container, image = ("container_spec", "image_uri") if spelled else ("containerSpec", "imageUri")
        self.assertEqual(at(found)[2][container][image], "OURS")
        at(found)[2][container][image] = GOOGLE
        for pool in at(found)[:2]:
            self.assertEqual(pool[container].pop("env"), [{"name": "REDUCTION_BANDWIDTH", "value": "32gbit"}])
        self.assertEqual(found, job)

    def test_tags_and_digests(self):
        for image in (GOOGLE.removesuffix(":latest"), GOOGLE.removesuffix(":latest") + "@sha256:12",
                      GOOGLE.replace("us-", "europe-")):
            self.good(dump({"workerPoolSpecs": pools(image)}))
        self.refused(dump({"workerPoolSpecs": pools(GOOGLE.replace("server:", "server2:"))}),
                     "workerPoolSpecs[2]: found a pool of its own", OURS)

    def test_google_refused(self):
        job = pools()
        self.refused(dump(job), "workerPoolSpecs[2].containerSpec.imageUri: found Google's reducers; expected "
                                          "the image that replaces them: --reduction-server-image")
        self.refused(dump([job[0], job[2]]), "workerPoolSpecs[1].containerSpec.imageUri: found Google's "
                                                       "reducers, expected them as worker pool 2", OURS)
        job[2]["containerSpec"]["args"] = ["--x"]
        self.refused(dump(job), "workerPoolSpecs[2].containerSpec.args: found a value, expected none", OURS)

    def test_the_example_of_the_page(self):
        page = (harness.ROOT / "deploy/vertex/README.md").read_text(encoding="utf-8")
        page = page.split("## From Google's Reduction Server")[1].split("\n## ")[0]
        job, lines = re.findall(r"```(?:yaml|console)\n(.*?)```", page, re.S)
        command, *output = lines.splitlines()
        self.assertEqual(command, "$ reductionctl render --vertex old.yaml --reduction-server-image REDUCER_IMAGE "
                                  "> new.yaml")
        done = render(job, "--reduction-server-image", "REDUCER_IMAGE")
        self.assertEqual(done.stderr.splitlines()[:3], output[:3])
        new, old = yaml.safe_load(done.stdout), yaml.safe_load(job)
        self.assertEqual(list(problems(new, "CustomJobSpec")), [])
        old["workerPoolSpecs"][2]["containerSpec"]["imageUri"] = "REDUCER_IMAGE"
        for pool in old["workerPoolSpecs"][:2]:
            pool["containerSpec"]["env"] = [{"name": "REDUCTION_BANDWIDTH", "value": "32gbit"}]
        self.assertEqual(new, old)

    def test_command(self):
        job = yaml.safe_load(self.good(COMMAND))
        self.assertEqual(list(problems(job, "CustomJob")), [])
        want = pools("OURS")
        for pool in want[:2]:
            pool["containerSpec"] |= {"args": ["--lr", "0.1"],
                                      "env": [{"name": "REDUCTION_BANDWIDTH", "value": "32gbit"}]}
        self.assertEqual(job, {"displayName": "it's", "labels": {"team": "ml", "kind": "test"},
                               "encryptionSpec": {"kmsKeyName": "projects/k"},
                               "jobSpec": {"serviceAccount": "me@x", "enableWebAccess": True, "workerPoolSpecs": want}})
        again = self.good(COMMAND, "--gcloud")
        self.assertIn("gcloud ai custom-jobs create --region='us-central1' --project='my-project' "
                      "--display-name='it'\\''s' --labels='team'='ml','kind'='test' --kms-key='projects/k'", again)
        arguments = eval(f"dict({self.good(COMMAND, '--sdk')})")  # pylint: disable=eval-used
        self.assertEqual((arguments["location"], arguments["project"], arguments["labels"]),
                         ("us-central1", "my-project", {"team": "ml", "kind": "test"}))
        self.assertEqual((arguments["reduction_server_replica_count"], arguments["reduction_server_container_uri"]),
                         (24, "OURS"))

    def test_pool_options_alone(self):
        job = yaml.safe_load(self.good(
            "--worker-pool-spec='^;^machine-type=n1-standard-16;container-image-uri=T' \\\n--worker-pool-spec=\n"))
        self.assertEqual(job["jobSpec"]["workerPoolSpecs"][1], {})
        self.assertIn("warning: a job of one worker exchanges no gradients with others", self.explained)

    def test_wrong_commands(self):
        start = "gcloud ai custom-jobs create "
        for text, sentence in (
            (start + "--region=$REGION", "<stdin>:1:30: found a variable of the shell, expected its value"),
            (start + '--region="$REGION"', "<stdin>:1:30: found a variable of the shell"),
            (start + "--config=job.yaml", "<stdin>:1:30: --config: found the name of a file, expected the job in"),
            (start + "--format=json", "<stdin>:1:30: --format: found an option that is no field of a job"),
            (start + "--region=a --region=b", "<stdin>:1:41: --region: found the option a second time"),
            (start + "--region", "<stdin>:1:30: --region: found no value, expected one"),
            (start + "--labels=a", "--labels: found a label without value"),
            (start + "--worker-pool-spec=local-package-path=x", "<stdin>:1:30: --worker-pool-spec: local-package-path: "
                                                                "found a key that no field of a job stands for"),
            (start + "--region='a", "<stdin>:1:30: found a quote without its end"),
            (start + "--region=a; ls", "<stdin>:1:30: found more than a command and its options"),
            (start + "--region=a\n  --project=b", "<stdin>:2:3: found a second command, expected one"),
            ("gcloud ai hp-tuning-jobs create", "<stdin>:1:11: found another command, expected gcloud ai custom-jobs"),
            (start, "workerPoolSpecs: found an empty list, expected a list of worker pools"),
        ):
            with self.subTest(text=text):
                self.refused(text, sentence, OURS)

    def test_kubeflow_has_one_list(self):
        two = pipeline(pools())
        two["root"]["dag"]["tasks"]["u"] = two["root"]["dag"]["tasks"]["t"]
        self.refused(dump(two), "found a second list of worker pools, expected one", OURS)
        self.refused(dump(pipeline([])), "worker_pool_specs: not found, expected a Kubeflow pipeline", OURS)
        self.refused(dump(pipeline(pools())), "found a Kubeflow pipeline, which no command of gcloud creates",
                     OURS, "--gcloud")

    def machine(self, **values):
        job = pools()
        for pool in job[:2]:
            pool["machineSpec"] = values
        return dump(job)

    def test_machines_that_do_not_exist(self):
        for kind, accelerator, count, sentence in (
            ("a2-highgpu-8g", "NVIDIA_A100", 8, 'acceleratorType: found "NVIDIA_A100", expected NVIDIA_TESLA_A100'),
            ("a2-ultragpu-8g", "nvidia-a100", 8, 'found "nvidia-a100", expected NVIDIA_TESLA_A100'),
            ("n1-standard-32", "NVIDIA_T4", 2, 'found "NVIDIA_T4", expected NVIDIA_TESLA_T4'),
            ("n1-standard-32", "NVIDIA_TESLA_A100", 1,
             "expected a K80, P4, P100, T4 or V100, which N1 machines such as n1-standard-32 may have; machines that "
             "have it are called such as a2-highgpu-1g"),
            ("a2-highgpu-8g", "NVIDIA_TESLA_T4", 8,
             'found "NVIDIA_TESLA_T4", expected NVIDIA_TESLA_A100, which is part of a2-highgpu-8g'),
            ("a2-highgpu-8g", "NVIDIA_TESLA_A100", 4, 'acceleratorCount: found "4", expected 8, as many as'),
            ("n1-standard-16", "NVIDIA_TESLA_T4", 8, 'acceleratorCount: found "8", expected 1, 2 or 4'),
            ("c3-standard-22", "NVIDIA_L4", 1,
             "expected none, since c3-standard-22 has none; machines that have it are called such as g2-standard-4"),
        ):
            with self.subTest(kind=kind, accelerator=accelerator):
                self.refused(self.machine(machineType=kind, acceleratorType=accelerator, acceleratorCount=count),
                             sentence, OURS)

    def test_machines_of_today(self):
        for kind, accelerator, count in (
            ("a3-highgpu-8g", "NVIDIA_H100_80GB", 8), ("a3-megagpu-8g", "NVIDIA_H100_MEGA_80GB", 8),
            ("a3-ultragpu-8g", "NVIDIA_H200_141GB", 8), ("a4-highgpu-8g", "NVIDIA_B200", 8),
            ("g2-standard-96", "NVIDIA_L4", 8), ("n1-standard-96", "NVIDIA_TESLA_V100", 8),
            ("c3-highcpu-176", None, 0), ("c4-standard-192", None, 0), ("n2d-highcpu-32", None, 0),
        ):
            with self.subTest(kind=kind):
                values = {"acceleratorType": accelerator, "acceleratorCount": count} if accelerator else {}
                self.good(self.machine(machineType=kind, **values))
                self.assertNotIn("not checked", self.explained)
                self.assertIn(f"Gbit/s ({kind})", self.explained)

    def test_unknown_machines_are_a_warning(self):
        self.good(self.machine(machineType="a9-huge-8g", acceleratorType="NVIDIA_X900", acceleratorCount=8))
        self.assertIn("has no a9-huge-8g with NVIDIA_X900; not checked", self.explained)
        self.assertIn("8 workers, 24 reducers: not compared, since the bandwidth of a9-huge-8g is not known",
                      self.explained)


if __name__ == "__main__":
    harness.main()
