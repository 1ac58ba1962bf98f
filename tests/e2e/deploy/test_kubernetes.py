# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan all-only
"""deploy/kubernetes: the fields that matter, and the commands of the pods, read from the YAML and run in namespaces."""

import copy
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import harness
import replicas

try:
    import yaml
except ImportError:
    yaml = None

FOLDER = harness.ROOT / "deploy/kubernetes"
# in place of Prometheus: what a reducer answers to a token
SCRAPE = """
import sys, urllib.error, urllib.request
request = urllib.request.Request("http://reducer-0:7603/metrics", headers={"Authorization": "Bearer " + sys.argv[1]})
try:
    with urllib.request.urlopen(request, timeout=60) as answer:
        print(answer.status)
except urllib.error.HTTPError as e:
    print(e.code)
"""
# the group of the processes in the image
IMAGE = (harness.ROOT / "deploy/container/Containerfile").read_text(encoding="utf-8")
IMAGE_GROUP = int(re.search(r"^USER \d+:(\d+)$", IMAGE, re.M)[1])
INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"


def rendered():
    """The objects that kustomize makes, by kind; without kubectl those of the files."""
    if shutil.which("kubectl"):
        text = subprocess.run(["kubectl", "kustomize", FOLDER], check=True, capture_output=True, text=True).stdout
    else:
        text = (FOLDER / "reducers.yaml").read_text(encoding="utf-8")
    return {o["kind"]: o for o in yaml.safe_load_all(text)}


def with_metrics(objects):
    """What the component makes of the objects: its patches add items to lists."""
    component = yaml.safe_load((FOLDER / "metrics/kustomization.yaml").read_text(encoding="utf-8"))
    objects = copy.deepcopy(objects)
    for patch in component["patches"]:
        for step in yaml.safe_load((FOLDER / "metrics" / patch["path"]).read_text(encoding="utf-8")):
            *path, end = step["path"].split("/")[1:]
            at = objects[patch["target"]["kind"]]
            for part in path:
                at = at[int(part) if isinstance(at, list) else part]
            assert step["op"] == "add" and end == "-", step
            at.append(step["value"])
    return objects


def example(name, kind):
    objects = yaml.safe_load_all((FOLDER / f"examples/{name}.yaml").read_text(encoding="utf-8"))
    (found,) = [o for o in objects if o["kind"] == kind]
    return found


def pods():
    """All pods with a training, as (where, pod template)."""
    yield "job", example("job", "Job")["spec"]["template"]
    (node,) = example("trainjob", "TrainingRuntime")["spec"]["template"]["spec"]["replicatedJobs"]
    yield "trainjob", node["template"]["spec"]["template"]
    for name, part in example("pytorchjob", "PyTorchJob")["spec"]["pytorchReplicaSpecs"].items():
        yield f"pytorchjob {name}", part["template"]


def matches(selector, labels):
    return all(labels.get(k) == v for k, v in selector["matchLabels"].items())


@unittest.skipIf(yaml is None, "Python's yaml is missing: install the package python3-yaml")
class Files(unittest.TestCase):
    def check_mounts(self, pod, where):
        """Each mount has a volume; the image's user may read secrets through its group, and others may not."""
        volumes = {v["name"]: v for v in pod["volumes"]}
        for c in [*pod.get("initContainers", []), *pod["containers"]]:
            for m in c["volumeMounts"]:
                self.assertIn(m["name"], volumes, f"{where} {c['name']}")
        self.assertEqual(volumes["job"]["configMap"]["name"], "reduction-job")
        self.assertEqual(volumes["secret"]["secret"]["secretName"], "reduction-secret")
        self.assertEqual(volumes["secret"]["secret"]["defaultMode"], 0o440, where)
        self.assertEqual(pod["securityContext"]["fsGroup"], IMAGE_GROUP, where)

    def test_reducers(self):
        o = rendered()
        spec = o["StatefulSet"]["spec"]
        labels, pod = spec["template"]["metadata"]["labels"], spec["template"]["spec"]
        (c,) = pod["containers"]
        config = yaml.safe_load((FOLDER / "job.yaml").read_text(encoding="utf-8"))
        self.assertEqual(len(config["reducers"]), spec["replicas"])
        for i, reducer in enumerate(config["reducers"]):  # names of the pods by way of the headless service
            host = f"{o['StatefulSet']['metadata']['name']}-{i}.{spec['serviceName']}"
            self.assertEqual((reducer["address"], reducer["grpc"]), (f"{host}:7600", f"{host}:7601"))
        self.assertEqual(o["Service"]["metadata"]["name"], spec["serviceName"])
        self.assertEqual(o["Service"]["spec"]["clusterIP"], "None")
        for kind in ("PodDisruptionBudget", "StatefulSet"):
            self.assertTrue(matches(o[kind]["spec"]["selector"], labels), kind)
        self.assertTrue(matches(o["NetworkPolicy"]["spec"]["podSelector"], labels))
        self.assertTrue(matches({"matchLabels": o["Service"]["spec"]["selector"]}, labels))
        self.assertEqual(o["PodDisruptionBudget"]["spec"]["maxUnavailable"], 1)
        ports = {p["containerPort"] for p in c["ports"]}
        self.assertEqual(ports, {7600, 7601})
        for rule in o["NetworkPolicy"]["spec"]["ingress"]:
            self.assertEqual({p["port"] for p in rule["ports"]}, ports)
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            self.assertEqual(c[probe]["grpc"]["port"], 7601)
        self.assertGreater(pod["terminationGracePeriodSeconds"], 30)  # timeouts.drain
        self.assertTrue(pod["securityContext"]["runAsNonRoot"] and pod["affinity"]["podAntiAffinity"])
        self.check_mounts(pod, "reducer")
        if "ConfigMap" in o:
            self.assertEqual(o["ConfigMap"]["metadata"], {"name": "reduction-job", "namespace": "training"})
            self.assertEqual(yaml.safe_load(o["ConfigMap"]["data"]["job.yaml"]), config)

    def test_metrics(self):
        """The PodMonitor finds the pods, their port and the token."""
        o = with_metrics(rendered())
        monitor = yaml.safe_load((FOLDER / "metrics/podmonitor.yaml").read_text(encoding="utf-8"))
        template = o["StatefulSet"]["spec"]["template"]
        self.assertEqual((monitor["apiVersion"], monitor["kind"]), ("monitoring.coreos.com/v1", "PodMonitor"))
        self.assertTrue(matches(monitor["spec"]["selector"], template["metadata"]["labels"]))
        (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
        ports = {p["name"]: p["containerPort"] for p in template["spec"]["containers"][0]["ports"]}
        self.assertEqual((endpoint["path"], ports[endpoint["port"]]), ("/metrics", 7603))
        self.assertIn({"port": 7603}, o["NetworkPolicy"]["spec"]["ingress"][-1]["ports"])
        credentials = endpoint["authorization"]["credentials"]
        mounts = {m["name"]: m["mountPath"] for m in template["spec"]["containers"][0]["volumeMounts"]}
        secrets = {v["name"]: v["secret"]["secretName"] for v in template["spec"]["volumes"] if "secret" in v}
        self.assertEqual(credentials["name"], secrets["secret"])
        config = yaml.safe_load((FOLDER / "job.yaml").read_text(encoding="utf-8"))
        self.assertEqual(config["security"]["read_token"], f"{mounts['secret']}/{credentials['key']}")
        self.assertIn(f"--from-file={credentials['key']}=", (FOLDER / "README.md").read_text(encoding="utf-8"))

    @unittest.skipUnless(shutil.which("kubectl"), "kubectl is not installed")
    def test_kubectl_renders_the_component(self):
        with tempfile.TemporaryDirectory(prefix="reduction-") as name:
            folder = shutil.copytree(FOLDER, pathlib.Path(name) / "kubernetes")
            with open(folder / "kustomization.yaml", "a", encoding="utf-8") as f:
                f.write("components: [metrics]\n")
            done = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            found = {o["kind"]: o for o in yaml.safe_load_all(done.stdout)}
        self.assertEqual(found.pop("PodMonitor")["metadata"]["namespace"], "training")
        self.assertEqual(found, with_metrics(rendered()))

    def test_trainings(self):
        allowed = rendered()["NetworkPolicy"]["spec"]["ingress"][0]["from"][0]["podSelector"]
        for where, template in pods():
            with self.subTest(where):
                pod = template["spec"]
                (agent,) = pod["initContainers"]
                (training,) = pod["containers"]
                self.assertEqual(agent["restartPolicy"], "Always")
                self.assertTrue(matches(allowed, template["metadata"]["labels"]))
                self.check_mounts(pod, where)
                mounts = {m["name"]: m["mountPath"] for m in training["volumeMounts"]}
                env = {e["name"]: e.get("value") for e in training["env"]}
                self.assertEqual(env["REDUCTION_CONFIG"], f"{mounts['job']}/job.yaml")
                self.assertEqual(env["REDUCTION_AGENT"], f"{mounts['socket']}/agent.sock")
                probe = ["sh", "-c", f"test -S {env['REDUCTION_AGENT']}"]
                self.assertEqual(agent["startupProbe"]["exec"]["command"], probe)


@replicas.needed
@unittest.skipIf(yaml is None, "Python's yaml is missing: install the package python3-yaml")
class Run(unittest.TestCase):
    """In place of kubelet: the volumes are mounted where the YAML wants them, and the commands run."""

    def start(self, r, name, pod, container, env=None, index=0):
        """Starts a container of a pod in a replica. Containers of one replica share the volume `socket`."""
        sources = {"job": FOLDER, "secret": r.dir / "secret", "socket": r.dir / f"socket-{name}"}
        (r.dir / f"socket-{name}").mkdir(exist_ok=True)
        mounts = [f"mkdir -p {m['mountPath']} && mount --bind {sources[m['name']]} {m['mountPath']}"
                  for m in container["volumeMounts"]]
        full = dict(env or {})
        for e in container.get("env", []):
            full[e["name"]] = e["value"] if "value" in e else str(index)
            if "value" not in e:
                self.assertEqual(e["valueFrom"]["fieldRef"]["fieldPath"], INDEX)
        argv = [harness.binary(container["command"][0]), *container["command"][1:]]
        return r.start(name, argv, full, before=" && ".join(mounts))

    def secret(self, r):
        """The Secret of the page, as it is mounted."""
        folder = r.dir / "secret"
        folder.mkdir()
        for key in ("secret", "token"):
            (folder / key).write_text(f"{key}-0123456789abcdef0123456789abcdef\n")
            os.chmod(folder / key, 0o400)

    def test_plain_job(self):
        reducer = with_metrics(rendered())["StatefulSet"]["spec"]["template"]["spec"]
        pod = example("job", "Job")["spec"]["template"]["spec"]
        names = ["reducer-0", "reducer-1", "bench-0", "bench-1"]
        with replicas.Replicas(names, {n: [f"{n}.reducers"] for n in names[:2]}) as r:
            self.secret(r)
            (r.dir / "stranger.yaml").write_text(yaml.safe_dump(
                {"reducers": yaml.safe_load((FOLDER / "job.yaml").read_text(encoding="utf-8"))["reducers"]}))
            reducers = [self.start(r, n, reducer, reducer["containers"][0]) for n in names[:2]]
            for p in reducers:
                p.wait_text("listening address=")
            agents = [self.start(r, n, pod, pod["initContainers"][0]) for n in names[2:]]
            for n, p in zip(names[2:], agents):
                p.wait_text("listening socket=/run/reduction/agent.sock")
                self.assertTrue((r.dir / f"socket-{n}/agent.sock").is_socket())
            for token, status in (("token", 200), ("wrong", 401)):
                prometheus = r.start("bench-0", ["python3", "-c", SCRAPE, f"{token}-0123456789abcdef0123456789abcdef"])
                self.assertEqual(prometheus.wait(), 0, prometheus.report())
                self.assertRegex(prometheus.out, rf"{status}\n")
            # the port of the metrics leaves that of the workers as it is
            stranger = r.start("bench-1", [harness.binary("reduction-bench"), "--ranks", "1"],
                               {"REDUCTION_CONFIG": str(r.dir / "stranger.yaml"), "REDUCTION_MODE": "direct"})
            self.assertNotEqual(stranger.wait(), 0, stranger.report())
            self.assertRegex(stranger.out + stranger.err, "secret")
            benches = []
            for i, n in enumerate(names[2:]):
                kubelet = {"JOB_COMPLETION_INDEX": str(i), "HOSTNAME": f"reduction-bench-{i}"}
                benches.append(self.start(r, n, pod, pod["containers"][0], kubelet, i))
            for p in benches:
                self.assertEqual(p.wait(), 0, p.report())
            self.assertRegex(benches[0].err + benches[0].out, r"run=kubernetes:reduction-bench")
            self.assertRegex(benches[0].out, r"(?m)^ +16777216 ")
            for p in agents + reducers:
                self.assertEqual(p.stop(), 0, p.report())

    def test_agents_of_the_other_jobs(self):
        """Their command lines and configurations are ones that the agent accepts."""
        with replicas.Replicas(["node", "reducer-0", "reducer-1"],
                               {n: [f"{n}.reducers"] for n in ("reducer-0", "reducer-1")}) as r:
            self.secret(r)
            for where, template in pods():
                agent = dict(template["spec"]["initContainers"][0])
                agent["command"] = [*agent["command"], "--check"]
                p = self.start(r, "node", template["spec"], agent)
                self.assertEqual(p.wait(), 0, f"{where}: {p.report()}")


class Page(unittest.TestCase):
    def test_files_of_the_page(self):
        text = (FOLDER / "README.md").read_text(encoding="utf-8")
        for path in re.findall(r"deploy/kubernetes/\S+\.yaml", text):
            self.assertTrue((harness.ROOT / pathlib.Path(path)).exists(), path)


if __name__ == "__main__":
    harness.main()
