# SPDX-License-Identifier: Apache-2.0
# run: beside-others all-only
"""torchrun restarts a training: after a rank was killed, when a node joins, when a node is lost. Reducers and agents
keep running, and the final parameters are equal, bit by bit, to those of a training without faults.
"""

import importlib.util
import json
import re
import shutil
import subprocess
import sys
import unittest

import harness

STEPS = 12
MISSING = not shutil.which("torchrun") or importlib.util.find_spec("torch") is None


@unittest.skipIf(MISSING, "there is no torchrun")
@unittest.skipIf(harness.SAN, "torchrun's own time-outs are too short for sanitizers")
class Elastic(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        """Debian 13's PyTorch 2.6 is built without libuv, which its own torchrun asks for in any case."""
        store = "import torch.distributed as d; d.TCPStore('127.0.0.1', 0, 1, True)"
        found = subprocess.run([sys.executable, "-c", store], capture_output=True, text=True)
        if "without libuv" in found.stderr:
            raise unittest.SkipTest("torchrun cannot work with a PyTorch built without libuv")

    def port(self):
        """One where nobody else listens until the test's end."""
        held = harness.reserve_port()
        self.addCleanup(held.close)
        return held.getsockname()[1]

    def cluster(self, agents):
        c = harness.Cluster(reducers=2, agents=agents, config={"job": {"deterministic": True}})
        self.enterContext(c)
        return c

    def torchrun(self, c, name, plan, node=0, agent="direct", options=()):
        """Starts a node's launcher. `name` is the job's, and that of its folder, which all nodes share. `agent`: its
        number, "direct", "node", or "" for what is the default."""
        folder = c.dir / name
        folder.mkdir(exist_ok=True)
        env = harness.worker_env() | {
            "REDUCTION_CONFIG": c.write_config("job.yaml"), "REDUCTION_JOB": name,
            **harness.reach(c.socket_path(agent) if isinstance(agent, int) else agent),
        }
        # torch 1.13 of Debian fails unless it redirects
        argv = ["torchrun", "--redirects=2", "--tee=2", "--monitor_interval=0.2", *options,
                harness.ROOT / "tests/e2e/worker_elastic.py", folder, STEPS, json.dumps(plan)]
        return c.start(f"torchrun {name} {node}", argv, env)

    def one_node(self, c, name, plan, ranks=4, agent="direct"):
        options = ["--nnodes=1", f"--nproc_per_node={ranks}", "--max_restarts=2", "--rdzv_backend=c10d",
                   "--rdzv_endpoint=127.0.0.1:0"]
        return self.torchrun(c, name, plan, agent=agent, options=options)

    def node(self, c, name, plan, node, port, nnodes, agent="direct"):
        options = [f"--nnodes={nnodes}", "--nproc_per_node=2", "--max_restarts=3", "--rdzv_backend=c10d",
                   f"--rdzv_endpoint=127.0.0.1:{port}", f"--rdzv_id={name}",
                   f"--rdzv_conf=is_host={int(node == 0)},last_call_timeout=6"]
        return self.torchrun(c, name, plan, node, agent, options)

    def trained(self, launchers, world):
        """Returns the checksum of the final parameters, equal on all ranks of a world."""
        for p in launchers:
            self.assertEqual(p.wait(150), 0, p.report())
        said = [o for p in launchers for o in p.objects() if o["what"] == "trained"]
        self.assertEqual(sorted(o["rank"] for o in said), list(range(world)))
        self.assertEqual({o["world"] for o in said}, {world})
        self.assertEqual(len({o["crc"] for o in said}), 1, said)
        return said[0]["crc"]

    def begun(self, launchers):
        """Returns (world size, step) with which rank 0 began its trainings, in order."""
        return [(o["world"], o["step"]) for p in launchers for o in p.objects()
                if o["what"] == "begin" and o["rank"] == 0]

    def generations(self, c, name):
        """Returns the generations of a job that a reducer has started, in order, and their world sizes."""
        found = re.findall(rf"job-started job={name} generation=(\d+) run=\S+ world_size=(\d+)", c.reducers[0].err)
        return [(int(g), int(w)) for g, w in found]

    def test_rank_killed(self):
        c = self.cluster(agents=1)
        plan = {"die": [2, 5]}
        plain = self.one_node(c, "plain", {})
        killed = self.one_node(c, "killed", plan)
        expected = self.trained([plain], 4)
        self.assertEqual(self.begun([plain]), [(4, 0)])
        self.assertEqual(self.trained([killed], 4), expected)
        self.assertEqual(self.begun([killed]), [(4, 0), (4, 5)])
        self.assertEqual(self.generations(c, "killed"), [(0, 4), (1, 4)])
        killed = self.one_node(c, "agent", plan, agent=0)
        self.assertEqual(self.trained([killed], 4), expected)
        self.assertEqual(self.begun([killed]), [(4, 0), (4, 5)])
        self.assertEqual(self.generations(c, "agent"), [(0, 1), (1, 1)])

    def test_serving_rank_killed(self):
        """Without a daemon, from torchrun's environment alone."""
        c = self.cluster(agents=0)
        port = self.port()
        plain = self.one_node(c, "plain", {}, agent="")
        killed = self.one_node(c, "killed", {"die": [0, 5]}, agent="")
        nodes = [self.node(c, "two", {"die": [0, 5]}, i, port, "2", agent="") for i in range(2)]
        self.assertEqual(self.trained([killed], 4), self.trained([plain], 4))
        self.assertEqual(self.begun([killed]), [(4, 0), (4, 5)])
        self.assertEqual(self.generations(c, "killed"), [(0, 1), (1, 1)])
        self.trained(nodes, 4)
        self.assertEqual(self.generations(c, "two"), [(0, 2), (1, 2)])

    def test_process_group(self):
        """The backend `reduction` is opened anew after a restart, with its subgroups."""
        c = self.cluster(agents=0)
        plain = self.one_node(c, "plain", {"group": True})
        killed = self.one_node(c, "killed", {"group": True, "die": [2, 5]})
        self.assertEqual(self.trained([killed], 4), self.trained([plain], 4))
        self.assertEqual(self.begun([killed]), [(4, 0), (4, 5)])
        self.assertEqual(self.generations(c, "killed"), [(0, 4), (1, 4)])
        pairs = self.generations(c, r"killed@[0-9a-f]{16}")
        self.assertEqual(sorted(pairs), [(0, 2), (0, 2), (1, 2), (1, 2)])

    def test_nodes_count_restarts_differently(self):
        """torchrun counts one restart on the node of the killed rank and none on the other; they join nevertheless."""
        c = self.cluster(agents=2)
        port = self.port()
        plan = {"die": [2, 5], "hold": [[5, 4, [0, 1]]]}  # so that the other node's processes notice nothing
        nodes = [self.node(c, "two", plan, i, port, "2", agent=i) for i in range(2)]
        self.trained(nodes, 4)
        counts = {o["restarts"] for p in nodes for o in p.objects() if o["what"] == "trained"}
        self.assertEqual(counts, {0, 1}, "torchrun counts otherwise than it did")
        self.assertEqual(self.begun(nodes), [(4, 0), (4, 5)])
        self.assertEqual(self.generations(c, "two"), [(0, 2), (1, 2)])

    def test_nodes_come_and_go(self):
        """2 ranks, 4, and 2 again."""
        c = self.cluster(agents=0)
        # torchrun sorts nodes by their process numbers: the new one may have any two of
        # the ranks
        plan, new_plan = {"same": True, "hold": [[4, 2, [0, 1]]]}, {"same": True, "hold": [[8, 4, [0, 1, 2, 3]]]}
        port = self.port()
        plain = self.one_node(c, "plain", {"same": True}, ranks=2)
        first = self.node(c, "elastic", plan, 0, port, "1:2")
        expected = self.trained([plain], 2)
        first.wait_text(r'"what": "hold", "rank": 0, .*"step": 4', timeout=60, stream="out")
        second = self.node(c, "elastic", new_plan, 1, port, "1:2")
        second.wait_text(r'"what": "hold".*"step": 8', timeout=60, stream="out")
        # rank 0 may save the step later than others hold before the next one
        writer = next(p for p in (first, second) if (4, 4) in self.begun([p]))
        writer.wait_text(r'"what": "saved", "rank": 0, "world": 4, "step": 8', timeout=60, stream="out")
        second.kill()  # with its ranks
        self.assertEqual(self.trained([first], 2), expected)
        begun = sorted(self.begun([first, second]), key=lambda world_and_step: world_and_step[1])
        self.assertEqual(begun, [(2, 0), (4, 4), (2, 8)])
        # a node that joins is no restart, so the same generation comes again with another
        # world size
        self.assertEqual(self.generations(c, "elastic"), [(0, 2), (0, 4), (1, 2)])


if __name__ == "__main__":
    harness.main()
