#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# run: beside-others
"""Two trainings whose jobs have the same name are never summed together: every rank says which run it belongs to."""

import itertools
import unittest

import harness

# Opens, waits for a line, sums its value, and says what it got.
SUM = harness.python("""
    import sys, numpy, reduction, worker
    comm = []
    worker.say("open", **worker.attempt(lambda: comm.append(reduction.Communicator())))
    if comm:
        worker.listen()
        x = numpy.full(1000, float(sys.argv[1]), dtype="float32")
        worker.say("sum", **worker.attempt(comm[0].all_reduce, x), value=float(x[0]))
        comm[0].close()
    """)


def value(number):
    return [*SUM, str(number)]


def torchrun(run, **more):
    """Returns the variables of torchrun that identify a run."""
    return {"REDUCTION_RUN": "", "TORCHELASTIC_RUN_ID": run, "MASTER_ADDR": "node0", "MASTER_PORT": 29500, **more}


class Identity(unittest.TestCase):
    def check_refused(self, rank, *says):
        said = rank.said("open")
        self.assertEqual(said["error"], "MismatchError", said)
        for words in ("two trainings use the job name test: ", "set REDUCTION_RUN to the same text", *says):
            self.assertIn(words, said["message"])
        self.assertLess(said["seconds"], 30)  # of 60 until timeouts.connect

    def check_sum(self, ranks, expected):
        for rank in ranks:
            self.assertEqual(rank.said("open")["error"], None)
        for rank in ranks:
            rank.tell()
        for rank in ranks:
            said = rank.said("sum")
            self.assertEqual((said["error"], said["value"]), (None, expected))

    def two_trainings(self, cluster, arrived, env=None):
        """Rank 0 of one training meets rank 1 of another, which is refused; then its own."""
        env = env or {}
        first = cluster.start_worker(0, 2, value(1), env={**torchrun("one"), **env})
        arrived()
        stranger = cluster.start_worker(1, 2, value(100), env={**torchrun("two"), **env})
        self.check_refused(
            stranger, f"rank 1 (pid {stranger.pid} on ", " has run torchrun:two@node0:29500",
            f"rank 0 (pid {first.pid} on ",
            " has run torchrun:one@node0:29500. Give each training its own job.name",
        )  # fmt: skip
        # people repeat the id of a tutorial, at another port
        tutorial = cluster.start_worker(1, 2, value(100), env={**torchrun("one", MASTER_PORT=1), **env})
        self.check_refused(tutorial, " has run torchrun:one@node0:1, ")
        second = cluster.start_worker(1, 2, value(2), env={**torchrun("one"), **env})
        self.check_sum([first, second], 3.0)
        self.assertEqual(cluster.wait_all([first, second]), [0, 0])

    def test_reducers_compare(self):
        with harness.Cluster(reducers=2) as c:
            self.two_trainings(c, lambda: c.reducers[1].wait_text("job-opened .*run=torchrun:one@node0"))

    def test_the_agent_compares(self):
        with harness.Cluster(agents=1, config={"logging": {"level": "debug"}}) as c:
            self.two_trainings(c, lambda: c.agents[0].wait_text("client-joined"))

    def test_reducers_compare_agents(self):
        """Each agent has one training."""
        with harness.Cluster(agents=2) as c:
            first = c.start_worker(0, 2, value(1), env=torchrun("one"))
            c.reducers[0].wait_text("job-opened .*run=torchrun:one@node0")
            stranger = c.start_worker(1, 2, value(100), env=torchrun("two"))
            self.check_refused(stranger, " has run torchrun:two@node0", " has run torchrun:one@node0")
            second = c.start_worker(1, 2, value(2), env=torchrun("one"))
            self.check_sum([first, second], 3.0)

    def test_without_a_name_trainings_do_not_meet(self):
        config = {"job": {"name": ""}}
        with harness.Cluster() as c:
            one = c.start_workers(2, value(1), env=torchrun("one"), config=config)
            two = c.start_workers(2, value(100), env=torchrun("two"), config=config)
            self.check_sum(one, 2.0)
            self.check_sum(two, 200.0)
            for run in ("one", "two"):
                name = rf"torchrun-{run}-node0-29500-[0-9a-f]{{8}}"
                c.reducers[0].wait_text(rf"job-started job={name} .*run=torchrun:{run}@node0:29500")
            alone = c.start_worker(0, 1, value(5), env={"REDUCTION_RUN": ""}, config=config)
            self.check_sum([alone], 5.0)
            c.reducers[0].wait_text("job-started job=default .*run=\"\" ")

    def test_two_spellings_of_the_master(self):
        """Without a name for the job its ranks wait in two jobs, and each reads where the others are."""
        with harness.Cluster(config={"job": {"name": ""}}) as c:
            ranks = [c.start_worker(r, 2, value(1), env=torchrun("one", MASTER_ADDR=address))
                     for r, address in enumerate(("node0", "node0.example.com"))]  # fmt: skip
            for rank, other in zip(ranks, reversed(ranks)):
                rank.wait_text(rf"it says: rank \d \(pid {other.pid} on .*write MASTER_ADDR in one way on all nodes")
                rank.kill()

    def test_ranks_without_anything_in_common(self):
        """Nothing tells such ranks from those of another start, whether the job has a name or not."""
        for name in "", "test":
            with self.subTest(name), harness.Cluster(config={"job": {"name": name}}) as c:
                for rank in c.start_workers(2, value(5), env={"REDUCTION_RUN": ""}):
                    said = rank.said("open")
                    self.assertEqual(said["error"], "ConfigError")
                    self.assertIn("nothing tells this start of 2 ranks from another one", said["message"])
                    self.assertIn("Set REDUCTION_RUN to the same text on all its ranks", said["message"])

    def test_a_newer_generation_without_a_run_ends_nothing(self):
        """One process by hand, while a job of its name runs."""
        with harness.Cluster() as c:
            running = c.start_workers(2, value(1))
            for rank in running:
                self.assertEqual(rank.said("open")["error"], None)
            other = c.start_worker(0, 1, value(100), env={"REDUCTION_GENERATION": 1, "REDUCTION_RUN": ""})
            self.check_refused(other, "rank 0 (pid ", " has no run, ", " has run test. Give each")
            for rank in running:
                rank.tell()
            for rank in running:
                self.assertEqual(rank.said("sum")["value"], 2.0)

    def test_a_newer_generation_of_another_run_ends_nothing(self):
        with harness.Cluster() as c:
            running = c.start_workers(2, value(1), env=torchrun("one"))
            for rank in running:
                self.assertEqual(rank.said("open")["error"], None)
            other = c.start_worker(
                0, 2, value(100), env=torchrun("two", TORCHELASTIC_RESTART_COUNT=1),
                config=harness.SOON,
            )  # fmt: skip
            said = other.said("open")
            self.assertIn("two trainings use the job name test", said["message"])
            for rank in running:
                rank.tell()
            for rank in running:
                self.assertEqual(rank.said("sum")["value"], 2.0)

    def test_the_user_names_the_run(self):
        """REDUCTION_RUN counts more than the launcher."""
        with harness.Cluster() as c:
            ranks = [
                c.start_worker(r, 2, value(r + 1), env={**torchrun(f"id-{r}"), "REDUCTION_RUN": "night-7"})
                for r in range(2)
            ]
            self.check_sum(ranks, 3.0)
            c.reducers[0].wait_text("job-started job=test .*run=night-7 ")
            wrong = c.start_worker(0, 2, value(1), env={"REDUCTION_RUN": "night 7"})
            self.assertIn(
                'REDUCTION_RUN: found "night 7", expected 1 to 127 printable characters without spaces',
                wrong.said("open")["message"],
            )

    def test_one_run_for_two_starts(self):
        """A person gives two starts one REDUCTION_RUN. Their launchers show that they are two."""
        slurm = {"RANK": "", "WORLD_SIZE": "", "SLURM_NTASKS": 2, "SLURM_JOB_ID": 7, "REDUCTION_LOCAL_WORLD_SIZE": 2}
        cases = [
            ("MASTER_PORT", "2", "1", [{"MASTER_PORT": port} for port in (1, 2)]),
            ("namespace", "b", "a", [{"POD_NAMESPACE": space} for space in "ab"]),
            ("launcher", "slurm:7.2", "slurm:7.1", [{**slurm, "SLURM_STEP_ID": step} for step in (1, 2)]),
            ("torchrun-of-node0", "x_2", "x_1",
             [{"GROUP_RANK": 0, "GROUP_WORLD_SIZE": 1, "TORCHELASTIC_ERROR_FILE": f"/tmp/x_{i}/attempt_0/0/error.json"}
              for i in (1, 2)]),
        ]  # fmt: skip
        for agents, (what, theirs, ours, env) in itertools.product((0, 1), cases):
            with (
                self.subTest(what, agents=agents),
                harness.Cluster(agents=agents, config={"logging": {"level": "debug"}}) as c,
            ):

                def start(rank, number, training):
                    place = {"SLURM_PROCID": rank, "REDUCTION_LOCAL_RANK": rank} if what == "launcher" else {}
                    return c.start_worker(rank, 2, value(number), env={**env[training], **place})

                first = start(0, 1, 0)
                if agents:
                    c.agents[0].wait_text("client-joined")
                else:
                    c.reducers[0].wait_text("job-opened")
                said = start(1, 100, 1).said("open")
                self.assertEqual(said["error"], "MismatchError", said)
                self.assertRegex(said["message"],
                                 f"two trainings use the job name test and one run: {what} is {theirs} to rank 1 .pid "
                                 rf"\d+ on .*, and {ours} to rank 0 .pid {first.pid} on .*. Give each")  # fmt: skip
                self.check_sum([first, start(1, 2, 0)], 3.0)

    def test_status_shows_the_run(self):
        with harness.Cluster(server_config={"server": {"grpc": "127.0.0.1:0"}}) as c:
            ranks = c.start_workers(2, value(1), env=torchrun("one"))
            for rank in ranks:
                self.assertEqual(rank.said("open")["error"], None)
            address = c.reducers[0].wait_text(r"\bgrpc-ready\b.*?address=(\S+)").group(1)
            ctl = c.start("reductionctl", [harness.binary("reductionctl"), "status", address])
            self.assertEqual(ctl.wait(), 0, ctl.report())
            self.assertIn("\n  run torchrun:one@node0:29500\n", ctl.out)
            self.check_sum(ranks, 2.0)


if __name__ == "__main__":
    harness.main()
