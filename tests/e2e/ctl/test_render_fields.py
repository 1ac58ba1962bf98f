# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan
"""reductionctl render: each field of the public API is printed, or is an error that names it and its line."""

import re
import unittest

import harness
from vertex import API, MESSAGES, problems, render, snake

try:
    import yaml
except ImportError:
    yaml = None

OPTIONS = ["--reduction-server-count=3", "--reduction-server-image=REDUCER", "--bandwidth=100gbit"]
SPEC = {"jobSpec": "CustomJob", "trialJobSpec": "HyperparameterTuningJob", "trainingTaskInputs": "TrainingPipeline"}
SAMPLES = {"boolean": True, "integer": 987, "number": 98.75, "any": "Xany", "texts": {"xkey": "xvalue"}}


def worker(replicas):
    return {"machineSpec": {"machineType": "n1-standard-16"}, "replicaCount": replicas,
            "containerSpec": {"imageUri": "TRAINER"}}


def base(key):
    """A job with its spec under a key."""
    spec = {"workerPoolSpecs": [worker(1), worker(7)]}
    return {key: {"trialJobSpec": spec} if key == "search" else spec}


def leaves(kind, seen=()):
    """All fields below a type: (path, sample). A path has names, and 0 for the first element of a list."""
    kind = kind.removeprefix("output ")
    if kind.startswith("list "):
        yield from (((0, *path), value) for path, value in leaves(kind.removeprefix("list "), seen))
    elif kind in MESSAGES:
        for name, inner in MESSAGES[kind].items() if kind not in seen else ():
            yield from (((name, *path), value) for path, value in leaves(inner, (*seen, kind)))
    else:
        yield (), SAMPLES.get(kind, "Xtext")


def put(job, path, value):
    """Sets a value in a job, and makes what is missing on the way."""
    for i, name in enumerate(path):
        last = i + 1 == len(path)
        if isinstance(job, list):
            if not job:
                job.append(value if last else [] if path[i + 1] == 0 else {})
            elif last:
                job[0] = value
            job = job[0]
        elif last:
            job[name] = value
        else:
            job = job.setdefault(name, [] if path[i + 1] == 0 else {})


def get(job, path):
    for name in path:
        job = job[name]
    return job


def in_snake(value):
    """The same job with the names of Python. Keys of users have no capitals here."""
    if isinstance(value, dict):
        return {snake(name): in_snake(item) for name, item in value.items()}
    return [in_snake(item) for item in value] if isinstance(value, list) else value


def set_everywhere(job, path, value):
    """Sets a field; one of a worker pool in both pools, as the SDK wants it."""
    put(job, path, value)
    if "workerPoolSpecs" in path:
        at = path.index("workerPoolSpecs") + 1
        put(get(job, path[:at])[1], path[at + 1:], value)


def cases():
    """(form, path, sample) of all fields of the three kinds of jobs."""
    for key, form in SPEC.items():
        for path, value in leaves(form):
            if path[0] != "trainingTaskInputs":
                yield key, path, value
    for path, value in leaves("CustomJobSpec"):
        yield "trainingTaskInputs", ("trainingTaskInputs", *path), value


@unittest.skipIf(yaml is None, "Python's yaml is missing: install the package python3-yaml")
class Fields(unittest.TestCase):
    def named(self, text, path, stderr):
        """Whether an error names the field and the line where it is."""
        found = re.search(r"<stdin>:(\d+):\d+: (\S+): found", stderr)
        self.assertTrue(found, stderr)
        name = re.sub(r"\[\d+\]$", "", found[2]).split(".")[-1]
        self.assertIn(name, [spelled for n in path if isinstance(n, str) for spelled in (n, snake(n))], stderr)
        line = text.splitlines()[int(found[1]) - 1]
        self.assertTrue(name in line or snake(name) in line, (line, stderr))

    def check_field(self, key, path, value):
        if path[-1] in ("replicaCount", "machineType"):
            value = 5 if path[-1] == "replicaCount" else "n1-standard-32"
        job = base(key)
        set_everywhere(job, path, value)
        if path[-1] == "replicaCount":
            get(job, path[:-2])[0]["replicaCount"] = 1
            path = (*path[:-2], 1, path[-1])
        if path[-1] == "value":
            set_everywhere(job, (*path[:-1], "name"), "NAME")
        for spelled, names in ((job, path), (in_snake(job), [snake(n) if isinstance(n, str) else n for n in path])):
            text = yaml.safe_dump(spelled, sort_keys=False)
            self.plain(spelled, text, names)
            self.gcloud(key, job, text, path)
            self.sdk(text, path, value)

    def plain(self, job, text, path):
        done = render(text, *OPTIONS)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("has no such field", done.stderr)
        self.assertEqual(get(yaml.safe_load(done.stdout), path), get(job, path))

    def gcloud(self, key, job, text, path):
        done = render(text, *OPTIONS, "--gcloud")
        if done.returncode:
            if key == "trainingTaskInputs":
                self.assertIn("found a TrainingPipeline, which no command of gcloud creates", done.stderr)
            else:
                self.named(text, path, done.stderr)
            return
        command, config = done.stdout.split("\n", 1)
        config = yaml.safe_load(config.removesuffix("END_OF_JOB\n"))
        form = "CustomJobSpec" if key == "jobSpec" else "HyperparameterTuningJob"
        self.assertEqual(list(problems(config, form)), [])
        value = get(job, path)
        if key == "trialJobSpec":
            self.assertEqual(get(config, path), value)
        elif path[0] == key:
            self.assertEqual(get(config, path[1:]), value)
        else:
            self.assertIn(str({"xkey": "'xkey'='xvalue'"}.get("".join(value) if isinstance(value, dict) else 0, value)),
                          command)

    def sdk(self, text, path, value):
        done = render(text, *OPTIONS, "--sdk")
        if done.returncode:
            if "found a search" not in done.stderr:
                self.named(text, path, done.stderr)
            return
        arguments = eval(f"dict({done.stdout})")  # pylint: disable=eval-used
        if path[-1] == "replicaCount":
            self.assertEqual(arguments["replica_count"], 6)
            return
        texts = [str(v) for v in arguments.values() if not isinstance(v, bool)]
        found = arguments.get(snake(path[-1])) is True if value is True else any(str(value) in t for t in texts) or \
            path[-2:] == ("env", 0) or value in arguments.values()
        self.assertTrue(found, (path, arguments))

    def test_each_field_is_printed_or_named(self):
        n = 0
        for key, path, value in cases():
            n += 1
            with self.subTest(path=path):
                self.check_field(key, path, value)
        self.assertGreater(n, 150)

    def test_labels_and_key_reach_gcloud(self):
        job = {"displayName": "it's", "labels": {"team": "ml", "a": "b"},
               "encryptionSpec": {"kmsKeyName": "projects/k"}, **base("jobSpec")}
        done = render(yaml.safe_dump(job), *OPTIONS, "--gcloud")
        self.assertEqual(done.stdout.split("\n")[0],
                         "gcloud ai custom-jobs create --region=\"$REGION\" --display-name='it'\\''s' "
                         "--labels='a'='b','team'='ml' --kms-key='projects/k' --config=/dev/stdin <<'END_OF_JOB'")
        job["labels"]["a"] = "b,c=d"
        done = render(yaml.safe_dump(job), *OPTIONS, "--gcloud")
        self.assertIn("labels: found a label with", done.stderr)

    def test_a_search_stays_a_search(self):
        job = {"displayName": "s", "maxTrialCount": 20, "parallelTrialCount": 4, "labels": {"a": "b"},
               "studySpec": {"metrics": [{"metricId": "loss", "goal": "MINIMIZE"}]}, **base("trialJobSpec")}
        for spelled in (job, in_snake(job)):
            done = render(yaml.safe_dump(spelled), *OPTIONS, "--gcloud")
            command, config = done.stdout.split("\n", 1)
            self.assertEqual(command, "gcloud ai hp-tuning-jobs create --region=\"$REGION\" --display-name='s' "
                                      "--config=/dev/stdin <<'END_OF_JOB'")
            config = yaml.safe_load(config.removesuffix("END_OF_JOB\n"))
            self.assertEqual(list(problems(config, "HyperparameterTuningJob")), [])
            for name in ("maxTrialCount", "parallelTrialCount", "labels", "studySpec"):
                self.assertEqual(config[name], job[name])
            self.assertEqual(config["trialJobSpec"]["workerPoolSpecs"][2]["replicaCount"], 3)

    def test_the_table_is_that_of_the_api(self):
        self.assertEqual(API["revision"], "20261106")
        done = render(yaml.safe_dump({**base("jobSpec"), "zzzzz": 1}), *OPTIONS)
        self.assertEqual(done.returncode, 0)
        self.assertIn("CustomJob of the API of 2026-11-06 has no such field; it is kept", done.stderr)

    def test_wrong_fields_and_values(self):
        """(what is wrong, its sentence)"""
        for text, sentence in (
            ("imageUrl: T", "<stdin>:4:22: workerPoolSpecs[0].containerSpec.imageUrl: found an unknown field, expected "
                            "imageUri"),
            ("imageUri: T, args: [1]", '.args[0]: found "1", expected a text, in quotes if it looks like a number'),
            ("imageUri: T, env: [{name: A, value: 1}]", '.env[0].value: found "1", expected a text, in quotes'),
            ("imageUri: T, image_uri: U", ".imageUri: found a second time, expected once (first in line 4)"),
        ):
            job = "workerPoolSpecs:\n- machineSpec: {machineType: n1-standard-16}\n  replicaCount: 8\n" \
                  f"  containerSpec: {{   {text}}}\n"
            with self.subTest(text=text):
                done = render(job, *OPTIONS)
                self.assertEqual(done.returncode, 1)
                self.assertIn(sentence, done.stderr)


if __name__ == "__main__":
    harness.main()
