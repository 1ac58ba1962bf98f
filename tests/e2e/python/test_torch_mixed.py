# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan
"""Trainings of torch.distributed that start at the same time. Only a store of their own tells them apart."""

import importlib.util
import unittest

import harness

TRAINING = r"""
import datetime, sys, torch, torch.distributed as dist, reduction.torch
kind, store, rank, value = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
backend = "reduction" if kind == "backend" else "gloo"
dist.init_process_group(backend, init_method="file://" + store, rank=rank, world_size=2,
                        timeout=datetime.timedelta(seconds=30))
if kind == "backend":
    group = dist.new_group([0, 1])
    sums = [dist.all_reduce, lambda x: dist.all_reduce(x, group=group)]
else:
    state = reduction.torch.State()
    sums = [state.comm.all_reduce]
for step in range(20):
    for call in sums:
        x = torch.full((1000,), value)
        call(x)
        assert (x == 2 * value).all(), f"a foreign sum: {x[0]} of {value}"
print("own sums", flush=True)
"""
LONG = "5f7c3d1e-0000-4000-8000-0123456789ab-0123456789abcdef-0123456789abcdef"


@unittest.skipIf(importlib.util.find_spec("torch") is None or harness.SAN, "no torch, or too slow with it")
class Mixed(unittest.TestCase):
    def trainings(self, c, kind, env, n=3):
        """Starts n trainings of two ranks each at once; returns the processes of all of them."""
        procs = []
        for training in range(n):
            for rank in range(2):
                argv = [*harness.python(TRAINING), kind, c.dir / f"store{training}", rank, 1 + 100 * training]
                procs.append(c.start(f"training {training} rank {rank}", argv, {**harness.worker_env(), **env(rank)}))
        c.wait_all(procs, 120)
        for p in procs:
            self.assertNotIn("a foreign sum", p.err)
        return procs

    def own(self, kind, env, agents=0):
        """Trainings without a name run side by side."""
        many = {"max_jobs": 100}
        config = {"job": {"name": ""}, "agent": many}
        with harness.Cluster(reducers=2, agents=agents, config=config, server_config={"server": many}) as c:
            path = c.write_config("worker.yaml")
            socket = c.socket_path(0) if agents else "direct"
            for p in self.trainings(c, kind, lambda rank: {"REDUCTION_CONFIG": path, **env(rank, socket)}):
                self.assertEqual((p.code, p.out), (0, "own sums\n"), p.report())

    @staticmethod
    def spawned(rank, socket):
        """mp.spawn: the processes have no variables at all."""
        return {"REDUCTION_MODE": "direct"}

    @staticmethod
    def torchrun(rank, socket):
        """torchrun with the rendezvous id of a tutorial, for all trainings of a host; within the node."""
        own = {"REDUCTION_MODE": "node"} if socket == "direct" else {"REDUCTION_AGENT": socket}
        return {
            "TORCHELASTIC_RUN_ID": LONG, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "RANK": str(rank),
            "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", **own,
        }  # fmt: skip

    def test_spawned_with_the_backend(self):
        self.own("backend", self.spawned)

    def test_spawned_with_the_hook(self):
        self.own("hook", self.spawned)

    def test_one_rendezvous_id_within_the_node(self):
        self.own("backend", self.torchrun)

    def test_one_rendezvous_id_with_an_agent(self):
        self.own("backend", self.torchrun, agents=1)

    def test_one_name(self):
        """The name of a job says that it is one: a training at the same time is refused, and both sides are named. A
        rank that is admitted when the first training has ended waits for one that was refused, until its timeout."""
        with harness.Cluster(reducers=2) as c:
            path = c.write_config("worker.yaml")
            env = {"REDUCTION_CONFIG": path, **self.spawned(0, "")}
            for p in self.trainings(c, "backend", lambda rank: env):
                if p.code:
                    self.assertRegex(p.err, "two trainings use the job name test(@[0-9a-f]{16})?: rank . .* has run "
                                     "|rank . of 2 has not joined job test")  # fmt: skip
                else:
                    self.assertEqual(p.out, "own sums\n")

    def test_one_name_one_after_the_other(self):
        """A training that starts when the one before has just ended, or was killed, has its name at once."""
        with harness.Cluster(reducers=2) as c:
            env = {"REDUCTION_CONFIG": c.write_config("worker.yaml"), **self.spawned(0, "")}
            for _ in range(3):
                for p in self.trainings(c, "backend", lambda rank: env, n=1):
                    self.assertEqual((p.code, p.out), (0, "own sums\n"), p.report())
                (c.dir / "store0").unlink(missing_ok=True)


if __name__ == "__main__":
    harness.main()
