# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan
"""Managed jobs: programs without arguments find role, port and peers in CLUSTER_SPEC or TF_CONFIG.

The replicas are network namespaces, and the texts are those of the managed service, with their line breaks.
"""

import json
import os
import unittest

import harness
import replicas

POOLS = ["workerpool0-ab-0", "workerpool1-ab-0", "workerpool1-ab-1", "workerpool2-ab-0", "workerpool2-ab-1",
         "workerpool3-ab-0"]
NAMES = [f"cmle-training-{p}" for p in POOLS]
CLUSTER_SPEC = """{"cluster":{"workerpool0":["cmle-training-workerpool0-ab-0:2222"],
 "workerpool1":["cmle-training-workerpool1-ab-0:2222","cmle-training-workerpool1-ab-1:2222"],
 "workerpool2":["cmle-training-workerpool2-ab-0:2222","cmle-training-workerpool2-ab-1:2222"],
 "workerpool3":["cmle-training-workerpool3-ab-0:2222"]},
 "environment":"cloud",
 "task":{"type":"%s","index":%d,"trial":"TRIAL_ID"},
 "job":{"...":"..."}}"""
TF_NAMES = ["training-workerpool0-ID-0", "training-workerpool1-ID-0", "training-workerpool1-ID-1",
            "training-workerpool2-ID-0"]
TF_CONFIG = """{"cluster":{"chief":["training-workerpool0-ID-0:2222"],"ps":["training-workerpool2-ID-0:2222"],
 "worker":["training-workerpool1-ID-0:2222","training-workerpool1-ID-1:2222"]},
 "environment":"cloud","task":{"cloud":"ID","index":%d,"trial":"1","type":"%s"}}"""
WORKER = """
    import numpy, reduction
    with reduction.Communicator() as comm:
        x = numpy.full(300000, comm.rank + 1, "float32")
        comm.all_reduce(x)
        print(comm.rank, comm.world_size, x.min(), x.max(), flush=True)
"""
SERVER, AGENT = harness.binary("reduction-server"), harness.binary("reduction-agent")


def cluster(pool, index):
    return {"CLUSTER_SPEC": CLUSTER_SPEC % (pool, index)}


@replicas.needed
class InNamespaces(unittest.TestCase):
    def workers_sum(self, r, envs):
        """Runs a worker in each replica, whose sum must be that of three ranks. Returns them."""
        workers = [r.start(name, harness.python(WORKER), harness.worker_env() | env) for name, env in envs]
        for rank, p in enumerate(workers):
            self.assertEqual(p.wait(), 0, p.report())
            self.assertEqual(p.out, f"{rank} 3 6.0 6.0\n")
        return workers

    def test_cluster_spec_with_reducers_agents_and_a_secret(self):
        with replicas.Replicas(NAMES) as r:
            secret = r.dir / "secret"
            secret.write_text("0123456789abcdef0123456789abcdef\n")
            os.chmod(secret, 0o400)
            env = {"REDUCTION_SECRET": str(secret), "REDUCTION_WEIGHTS": "1,2"}
            reducers = [r.start(NAMES[3 + i], [SERVER], env | cluster("workerpool2", i)) for i in range(2)]
            for p in reducers:
                p.wait_text(r"listening address=.*:2222\b")
                p.wait_text(r"configuration source=CLUSTER_SPEC index=\d workers=3 reducers=2 "
                            r"run=cluster:cmle-\S*\.TRIAL_ID")
                self.assertNotIn("insecure", p.err)
            places = [("workerpool0", 0), ("workerpool1", 0), ("workerpool1", 1)]
            # each start has a /run of its own, so agent and worker meet at a path in the
            # folder of the test
            agents = []
            for name, place in zip(NAMES, places):
                agents.append(r.start(name, [AGENT], env | cluster(*place),
                                      before=f"mkdir -p {r.dir}/{name} && mount --bind {r.dir}/{name} /run/reduction"))
            for p in agents:
                p.wait_text("listening socket=/run/reduction/agent.sock")
                p.wait_text("configuration source=CLUSTER_SPEC")
            workers = self.workers_sum(r, [
                (name, cluster(*place) | {"REDUCTION_AGENT": f"{r.dir}/{name}/agent.sock"})
                for name, place in zip(NAMES, places)])
            workers[0].wait_text("communicator-open .*config=CLUSTER_SPEC")
            for p in agents + reducers:
                self.assertEqual(p.stop(), 0, p.report())

    def test_tf_config_with_workers_alone(self):
        with replicas.Replicas(TF_NAMES) as r:
            reducer = r.start(TF_NAMES[3], [SERVER], {"TF_CONFIG": TF_CONFIG % (0, "ps")})
            reducer.wait_text("listening address=")
            reducer.wait_text("insecure reason=.no REDUCTION_SECRET")
            tasks = [(0, "chief"), (0, "worker"), (1, "worker")]
            workers = self.workers_sum(r, [(n, {"TF_CONFIG": TF_CONFIG % task}) for n, task in zip(TF_NAMES, tasks)])
            workers[0].wait_text("insecure reason=.no REDUCTION_SECRET")
            self.assertEqual(reducer.stop(), 0, reducer.report())


class Refused(unittest.TestCase):
    def ends(self, argv, env, *texts, code=1):
        p = harness.Proc(os.path.basename(argv[0]), argv, env)
        self.assertEqual(p.wait(), code, p.report())
        for text in texts:
            self.assertIn(text, p.err)

    def test_other_roles_and_broken_texts(self):
        self.ends([SERVER], cluster("workerpool1", 0), 'task.type: found "workerpool1", a worker; expected workerpool2')
        self.ends([AGENT], cluster("workerpool3", 0), 'task.type: found "workerpool3", an evaluator')
        self.ends([SERVER], {"CLUSTER_SPEC": "{"}, "environment variable CLUSTER_SPEC:2:1: ")
        spec = json.loads(CLUSTER_SPEC % ("workerpool0", 0))
        del spec["cluster"]["workerpool2"]
        self.ends(harness.python(WORKER), harness.worker_env() | {"CLUSTER_SPEC": json.dumps(spec)},
                  "cluster.workerpool2: found no reducers")

    def test_no_authentication_outside_of_a_managed_network(self):
        spec = json.loads(CLUSTER_SPEC % ("workerpool2", 0))
        del spec["environment"]
        self.ends([SERVER], {"CLUSTER_SPEC": json.dumps(spec)},
                  "CLUSTER_SPEC: server.listen: *:2222 is not a loopback address and this reducer has no "
                  "authentication")

    def test_a_secret_that_is_missing(self):
        self.ends([SERVER], cluster("workerpool2", 0) | {"REDUCTION_SECRET": "/etc/none"},
                  "CLUSTER_SPEC: server.secret: ", "/etc/none")

    def test_a_file_or_listen_wins(self):
        with harness.Cluster(reducers=0) as c:
            c.dir.joinpath("f.yaml").write_text("server: {listen: '127.0.0.1:0'}\n")
            p = harness.Proc("server", [SERVER, "--config", f"{c.dir}/f.yaml"], cluster("workerpool0", 0))
            p.wait_text(r"configuration source=\S*f.yaml")
            p.wait_text("listening address=")  # it handles signals now
            self.assertEqual(p.stop(), 0, p.report())
        p = harness.Proc("server", [SERVER, "--listen", "127.0.0.1:0"], cluster("workerpool0", 0))
        p.wait_text("configuration source=defaults")
        p.wait_text("listening address=")
        self.assertEqual(p.stop(), 0, p.report())


if __name__ == "__main__":
    harness.main()
