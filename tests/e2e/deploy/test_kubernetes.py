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

import certs
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
# in place of kubelet: its GET, without a certificate, of a certificate that it does not verify
PROBE = """
import socket, ssl, sys
port, path = sys.argv[1:]
context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
with context.wrap_socket(socket.create_connection(("reducer-0", int(port)), timeout=60)) as s:
    s.sendall(f"GET {path} HTTP/1.1\\r\\nHost: 10.1.2.3:{port}\\r\\nUser-Agent: kube-probe/1.29\\r\\n"
              "Accept: */*\\r\\nConnection: close\\r\\n\\r\\n".encode())
    print("status", s.makefile("rb").readline().split()[1].decode())
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


def with_component(name, objects):
    """What a component makes of the objects."""
    component = yaml.safe_load((FOLDER / name / "kustomization.yaml").read_text(encoding="utf-8"))
    objects = copy.deepcopy(objects)
    for patch in component["patches"]:
        text = patch["patch"] if "patch" in patch else (FOLDER / name / patch["path"]).read_text(encoding="utf-8")
        if patch["target"]["kind"] not in objects:
            continue
        for step in yaml.safe_load(text):
            *path, end = step["path"].split("/")[1:]
            at = objects[patch["target"]["kind"]]
            for part in path:
                at = at[int(part) if isinstance(at, list) else part]
            if end == "-":
                assert step["op"] == "add", step
                at.append(step["value"])
                continue
            end = int(end) if isinstance(at, list) else end
            assert step["op"] == "add" or at[end], step
            at[end] = step["value"]
    return objects


def with_metrics(objects):
    return with_component("metrics", objects)


def violations(pod):
    """What of a pod the Pod Security Standard "restricted" of Kubernetes 1.29 refuses, as sentences: the fields of its
    page, with those of "baseline"."""
    of_pod = pod.get("securityContext", {})
    kinds = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
    for field in ("hostNetwork", "hostPID", "hostIPC"):
        if pod.get(field):
            yield field
    for volume in pod.get("volumes", []):
        yield from (f"volume {kind}" for kind in set(volume) - {"name"} - kinds)
    if of_pod.get("sysctls"):
        yield "sysctls"
    for c in [*pod.get("initContainers", []), *pod["containers"], *pod.get("ephemeralContainers", [])]:
        own = {**of_pod, **c.get("securityContext", {})}
        if own.get("privileged") or own.get("procMount", "Default") != "Default" or "windowsOptions" in own:
            yield f"{c['name']}: privileged"
        if own.get("seLinuxOptions") or own.get("appArmorProfile", {}).get("type") == "Unconfined":
            yield f"{c['name']}: SELinux or AppArmor"
        if any("hostPort" in port for port in c.get("ports", [])):
            yield f"{c['name']}: hostPort"
        if own.get("allowPrivilegeEscalation") is not False:
            yield f"{c['name']}: allowPrivilegeEscalation"
        if own.get("runAsNonRoot") is not True or own.get("runAsUser") == 0:
            yield f"{c['name']}: runAsNonRoot"
        if own.get("seccompProfile", {}).get("type") not in ("RuntimeDefault", "Localhost"):
            yield f"{c['name']}: seccompProfile"
        capabilities = own.get("capabilities", {})
        if capabilities.get("drop") != ["ALL"] or set(capabilities.get("add", [])) - {"NET_BIND_SERVICE"}:
            yield f"{c['name']}: capabilities"


def gibibytes(text):
    return int(re.fullmatch(r"(\d+)Gi(?:B)?", text)[1])


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
        *hook, address = c["lifecycle"]["preStop"]["exec"]["command"]
        self.assertEqual((hook[:2], address), (["reductionctl", "drain"], "127.0.0.1:7601"))
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

    def test_pod_security(self):
        """All pods pass "restricted"."""
        reducers = with_component("tls", with_metrics(rendered()))["StatefulSet"]["spec"]["template"]
        for where, template in [("reducers", reducers), *pods()]:
            self.assertEqual(list(violations(template["spec"])), [], where)
        pod = reducers["spec"]
        for change in ({"hostNetwork": True}, {"volumes": [{"name": "a", "hostPath": {"path": "/"}}]},
                       {"securityContext": {}}, {"initContainers": [{"name": "a"}]},
                       {"securityContext": {**pod["securityContext"], "runAsUser": 0}}):
            self.assertNotEqual(list(violations({**pod, **change})), [], change)

    def test_memory_beside_shared_memory(self):
        """The limit of a container is above what its configuration lets it use."""
        config = yaml.safe_load((FOLDER / "job.yaml").read_text(encoding="utf-8"))
        for where, template in pods():
            (agent,) = template["spec"]["initContainers"]
            self.assertGreater(gibibytes(agent["resources"]["limits"]["memory"]),
                               gibibytes(config["agent"]["shm_bytes"]), where)
        (reducer,) = rendered()["StatefulSet"]["spec"]["template"]["spec"]["containers"]
        self.assertGreater(gibibytes(reducer["resources"]["limits"]["memory"]), 4)  # server.memory

    def test_identity_of_a_run(self):
        """The namespace, and what differs between two starts, are in the run."""
        found = {where: {e["name"]: e for e in template["spec"]["containers"][0]["env"]} for where, template in pods()}
        for where, env in found.items():
            self.assertEqual(env["POD_NAMESPACE"]["valueFrom"]["fieldRef"]["fieldPath"], "metadata.namespace", where)
        for where, run, labels in (
            ("job", "$(POD_NAMESPACE)/$(JOB_UID)", {"JOB_UID": "batch.kubernetes.io/controller-uid"}),
            ("trainjob", "$(POD_NAMESPACE)/$(JOBSET)/$(ATTEMPT)",
             {"JOBSET": "jobset.sigs.k8s.io/jobset-name", "ATTEMPT": "jobset.sigs.k8s.io/restart-attempt"}),
        ):
            env = found[where]
            self.assertEqual(env["REDUCTION_RUN"]["value"], run)
            names = list(env)
            for name, label in labels.items():
                self.assertEqual(env[name]["valueFrom"]["fieldRef"]["fieldPath"], f"metadata.labels['{label}']")
                self.assertLess(names.index(name), names.index("REDUCTION_RUN"))  # only then it is put in

    def test_tls(self):
        """Two configurations for one job: that of the reducers has the key."""
        plain = yaml.safe_load((FOLDER / "job.yaml").read_text(encoding="utf-8"))
        ours, theirs = (yaml.safe_load((FOLDER / "tls" / name).read_text(encoding="utf-8"))
                        for name in ("reducer.yaml", "job.yaml"))
        self.assertEqual(plain["reducers"], ours["reducers"])
        self.assertEqual(plain["reducers"], theirs["reducers"])
        self.assertEqual(plain["agent"], theirs["agent"])
        self.assertNotIn("key", theirs["security"])
        o = with_component("tls", with_metrics({**rendered(), "PodMonitor": yaml.safe_load(
            (FOLDER / "metrics/podmonitor.yaml").read_text(encoding="utf-8"))}))
        self.assertEqual(o["PodMonitor"]["spec"]["podMetricsEndpoints"][0]["scheme"], "https")
        (c,) = o["StatefulSet"]["spec"]["template"]["spec"]["containers"]
        self.assertEqual(c["lifecycle"], {})
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            self.assertNotIn("grpc", c[probe])
            self.assertEqual((c[probe]["httpGet"]["scheme"], c[probe]["httpGet"]["port"]), ("HTTPS", 7603))

    @unittest.skipUnless(shutil.which("kubectl"), "kubectl is not installed")
    def test_kubectl_renders_the_components(self):
        for components in (["metrics"], ["tls"], ["metrics", "tls"]):
            with self.subTest(components), tempfile.TemporaryDirectory(prefix="reduction-") as name:
                folder = shutil.copytree(FOLDER, pathlib.Path(name) / "kubernetes")
                with open(folder / "kustomization.yaml", "a", encoding="utf-8") as f:
                    f.write(f"components: [{', '.join(components)}]\n")
                done = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.check_rendered({o["kind"]: o for o in yaml.safe_load_all(done.stdout)}, components)

    def check_rendered(self, found, components):
        expected = rendered()
        if "metrics" in components:
            expected["PodMonitor"] = yaml.safe_load((FOLDER / "metrics/podmonitor.yaml").read_text(encoding="utf-8"))
            expected["PodMonitor"]["metadata"]["namespace"] = "training"
        for component in components:
            expected = with_component(component, expected)
        if "tls" in components:
            files = {name: (FOLDER / "tls" / name).read_text(encoding="utf-8") for name in ("job.yaml", "reducer.yaml")}
            expected["ConfigMap"]["data"] = files
        self.assertEqual(found, expected)

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

    config = FOLDER  # of the ConfigMap

    def start(self, r, name, pod, container, env=None, index=0):
        """Starts a container of a pod in a replica. Containers of one replica share the volume `socket`."""
        sources = {"job": self.config, "secret": r.dir / "secret", "socket": r.dir / f"socket-{name}",
                   "tls": r.dir / "tls", "authority": r.dir / "authority"}
        for volume in (f"socket-{name}", "authority"):
            (r.dir / volume).mkdir(exist_ok=True)
        fields = {INDEX: str(index), "metadata.namespace": "training",
                  "metadata.labels['batch.kubernetes.io/controller-uid']": "uid-1"}
        mounts = [f"mkdir -p {m['mountPath']} && mount --bind {sources[m['name']]} {m['mountPath']}"
                  for m in container["volumeMounts"]]
        full = dict(env or {})
        for e in container.get("env", []):
            value = e["value"] if "value" in e else fields[e["valueFrom"]["fieldRef"]["fieldPath"]]
            full[e["name"]] = re.sub(r"\$\((\w+)\)", lambda m: full[m[1]], value)
        argv = [harness.binary(container["command"][0]), *container["command"][1:]]
        return r.start(name, argv, full, before=" && ".join(mounts))

    def secret(self, r):
        """The Secret of the page, as it is mounted."""
        folder = r.dir / "secret"
        folder.mkdir()
        for key in ("secret", "token"):
            (folder / key).write_text(f"{key}-0123456789abcdef0123456789abcdef")
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
            self.assertRegex(benches[0].err + benches[0].out, r"run=\S*training/uid-1")
            self.assertRegex(benches[0].out, r"(?m)^ +16777216 ")
            for p in agents + reducers:
                self.assertEqual(p.stop(), 0, p.report())

    def probe(self, r, container, kind, status):
        http = container[kind]["httpGet"]
        kubelet = r.start("reducer-0", ["python3", "-c", PROBE, str(http["port"]), http["path"]])
        self.assertEqual(kubelet.wait(), 0, kubelet.report())
        self.assertIn(f"status {status}\n", kubelet.out)

    def test_tls(self):
        """kubelet's probes of a reducer with TLS, and a job of agents that have the authority alone."""
        self.config = FOLDER / "tls"
        pod = with_component("tls", rendered())["StatefulSet"]["spec"]["template"]["spec"]
        (reducer,) = pod["containers"]
        job = example("job", "Job")["spec"]["template"]["spec"]
        names = ["reducer-0", "reducer-1", "bench-0", "bench-1"]
        with replicas.Replicas(names, {n: [f"{n}.reducers"] for n in names[:2]}) as r:
            self.secret(r)
            made = certs.Folder(r.dir / "made", "reducer:reducer-0.reducers,reducer-1.reducers")
            for folder, files in (("tls", {"tls.crt": "reducer-0.reducers.pem", "tls.key": "reducer-0.reducers.key",
                                           "ca.crt": "ca.pem"}), ("authority", {"ca.crt": "ca.pem"})):
                (r.dir / folder).mkdir()
                for name, source in files.items():
                    shutil.copy(made.file(source), r.dir / folder / name)
            reducers = [self.start(r, n, pod, reducer) for n in names[:2]]
            for p in reducers:
                p.wait_text("http-ready ")
            for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
                self.probe(r, reducer, kind, 200)
            agents = [self.start(r, n, job, job["initContainers"][0]) for n in names[2:]]
            for p in agents:
                p.wait_text("listening socket=/run/reduction/agent.sock")
            benches = [self.start(r, n, job, job["containers"][0], index=i) for i, n in enumerate(names[2:])]
            for p in benches:
                self.assertEqual(p.wait(), 0, p.report())
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
    def test_secrets_have_no_newline(self):
        """Prometheus puts the token into a header as it is. The command of the page runs with a kubectl of its own."""
        text = (FOLDER / "README.md").read_text(encoding="utf-8")
        (command,) = re.findall(r"^kubectl .*create secret generic.*$", text, re.M)
        with tempfile.TemporaryDirectory(prefix="reduction-") as name:
            tool = pathlib.Path(name) / "kubectl"
            tool.write_text('#!/bin/sh\nfor a; do case $a in --from-file=*) f=${a#--from-file=}; echo "${f%%=*}" '
                            '"$(od -An -c "${f#*=}" | tr -d " \\n")";; esac; done\n')
            tool.chmod(0o755)
            done = subprocess.run(["bash", "-ec", command], capture_output=True, text=True,
                                  env={"PATH": f"{name}:/usr/bin:/bin"})
        self.assertEqual(done.returncode, 0, done.stderr)
        found = dict(line.split() for line in done.stdout.splitlines())
        self.assertEqual(sorted(found), ["secret", "token"])
        for value in found.values():
            self.assertRegex(value, "^[0-9a-f]{64}$")

    def test_files_of_the_page(self):
        text = (FOLDER / "README.md").read_text(encoding="utf-8")
        for path in re.findall(r"deploy/kubernetes/\S+\.yaml", text):
            self.assertTrue((harness.ROOT / pathlib.Path(path)).exists(), path)


if __name__ == "__main__":
    harness.main()
