# SPDX-License-Identifier: Apache-2.0
# run: beside-others
"""REDUCTION_REDUCERS: reducers, agents, workers and reductionctl without a file."""

import unittest

import harness

RANKS = """
    import numpy, reduction
    with reduction.Communicator() as comm:
        x = numpy.full(300000, comm.rank + 1, "float32")
        comm.all_reduce(x)
        print(comm.rank, x.min(), x.max(), flush=True)
"""
TORCH = """
    import torch, reduction.torch
    torch.distributed.init_process_group("reduction", init_method="env://")
    x = torch.full((300000,), torch.distributed.get_rank() + 1.0)
    torch.distributed.all_reduce(x)
    print(torch.distributed.get_rank(), x.min().item(), x.max().item(), flush=True)
    torch.distributed.destroy_process_group()
"""


def the_list(c):
    return ",".join(c.address(i) for i in range(len(c.reducers)))


class List(unittest.TestCase):
    def sums(self, c, env, code=RANKS):
        """Two ranks; `env` is a function of the rank. Their sum must be right. Returns them."""
        procs = c.start_workers(2, harness.python(code), env=env)
        for rank, p in enumerate(procs):
            self.assertEqual(p.wait(120), 0, p.report())
            self.assertEqual(p.out, f"{rank} 3.0 3.0\n")
        return procs

    def test_workers_with_the_list_and_with_a_file(self):
        """The digest of both is the same."""
        with harness.Cluster(reducers=2, transport="tcp") as c:
            reducers = the_list(c)
            for other in ({"REDUCTION_CONFIG": "", "REDUCTION_REDUCERS": reducers}, {}):
                procs = self.sums(c, lambda rank: {"REDUCTION_CONFIG": "", "REDUCTION_REDUCERS": reducers,
                                                   "REDUCTION_JOB": "test"} if rank == 0 else
                                  {"REDUCTION_JOB": "test", **other})
                self.assertRegex(procs[0].err, r"communicator-open .*reducers=2 config=REDUCTION_REDUCERS")

    def test_agent(self):
        with harness.Cluster(reducers=2, transport="tcp") as c:
            env = {"REDUCTION_CONFIG": "", "REDUCTION_REDUCERS": the_list(c)}
            argv = [harness.binary("reduction-agent"), "--socket", c.socket_path(0)]
            agent = c.start("agent", argv, env)
            agent.wait_text(r"\blistening\b")
            agent.wait_text("configuration source=REDUCTION_REDUCERS reducers=2")
            self.sums(c, lambda rank: {**env, **harness.reach(c.socket_path(0)), "LOCAL_RANK": str(rank),
                                       "LOCAL_WORLD_SIZE": "2"})
            self.assertEqual(agent.stop(), 0, agent.report())

    def test_torch(self):
        with harness.Cluster(reducers=1, transport="tcp") as c, harness.reserve_port() as port:
            env = {"REDUCTION_CONFIG": "", "REDUCTION_REDUCERS": the_list(c), "MASTER_ADDR": "127.0.0.1",
                   "MASTER_PORT": str(port.getsockname()[1])}
            port.close()
            self.sums(c, lambda rank: env, TORCH)

    def test_reductionctl(self):
        def ctl(*args, **env):
            p = c.start("reductionctl", [harness.binary("reductionctl"), *args], env)
            p.wait()
            return p

        with harness.Cluster(reducers=1, transport="tcp", server_args=["--grpc", "127.0.0.1:0"]) as c:
            p = ctl("check", "--connect", REDUCTION_REDUCERS=the_list(c))
            self.assertEqual(p.code, 0, p.report())
            self.assertRegex(p.out, r"reducer r0 \(127.0.0.1:\d+\): ")
            path = c.write_config("job.yaml")
            ours, theirs = ctl("map", REDUCTION_REDUCERS=the_list(c)), ctl("map", REDUCTION_CONFIG=path)
            self.assertEqual(ours.out, theirs.out)
            self.assertEqual(ours.out, ctl("map", path, REDUCTION_REDUCERS="other").out)  # a file that is named
            for command in ("check", "map", "status", "doctor", "events"):
                p = ctl(command, REDUCTION_REDUCERS="a", REDUCTION_CONFIG=path)
                self.assertEqual(p.code, 1)
                self.assertIn(f'REDUCTION_CONFIG ("{path[:60]}") and REDUCTION_REDUCERS ("a"): found both', p.err)
            for command, code in (("status", 1), ("doctor", 3)):  # they ask port 7601 of each
                p = ctl(command, REDUCTION_REDUCERS="127.0.0.99:1")
                self.assertEqual(p.code, code, p.report())
                self.assertIn("r0 (127.0.0.99:7601)", p.err + p.out)
            for command in ("check", "status", "drain", "render"):
                self.assertEqual(ctl(command).code, 2)
            for command in ("drain", "reload", "render"):  # nothing happens to reducers that were not named
                self.assertEqual(ctl(command, REDUCTION_REDUCERS=the_list(c)).code, 2)

    def test_errors(self):
        with harness.Cluster(start=False) as c:
            for env, text in (
                ({"REDUCTION_REDUCERS": "a,b:0"}, 'variable REDUCTION_REDUCERS: entry 2: found "b:0", expected host, '),
                ({"REDUCTION_REDUCERS": "a", "REDUCTION_CONFIG": "job.yaml"},
                 'REDUCTION_CONFIG ("job.yaml") and REDUCTION_REDUCERS ("a"): found both, expected one'),
            ):
                worker = c.start("worker", harness.python(RANKS), {**harness.worker_env(), **env})
                agent = c.start("agent", [harness.binary("reduction-agent"), "--socket", c.dir / "a"], env)
                self.assertEqual((worker.wait(), agent.wait()), (1, 1))
                for p in (worker, agent):
                    self.assertIn(text, p.err)
                    self.assertEqual(p.err.count("entry 2"), text.count("entry 2"), p.report())


if __name__ == "__main__":
    harness.main()
