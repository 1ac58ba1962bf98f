#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# run: beside-others
"""The agent reads its configuration again on SIGHUP: later jobs use it, running jobs keep theirs."""

import json
import signal
import unittest

import harness

# Sums once for each line of its input.
SUMS = harness.python("""
    import numpy, reduction, worker
    with reduction.Communicator() as comm:
        worker.say("open")
        while worker.listen():
            x = numpy.ones(1000, dtype="float32")
            comm.all_reduce(x)
            worker.say("sum", value=float(x[0]))
    """)


class Reload(unittest.TestCase):
    def setUp(self):
        self.c = harness.Cluster(reducers=2, agents=1, config={"agent": {"single_node": "reducers"}})
        self.c.__enter__()
        self.addCleanup(self.c.__exit__, None, None, None)
        self.agent = self.c.agents[0]
        self.path = self.agent.argv[self.agent.argv.index("--config") + 1]

    def write(self, change):
        with open(self.path, encoding="utf-8") as f:
            tree = json.load(f)
        change(tree)
        harness.write_whole(self.c.dir / self.path, json.dumps(tree))

    def hang_up(self, expected):
        self.agent.signal(signal.SIGHUP)
        self.agent.wait_text(expected)

    def sum(self, ranks):
        for rank in ranks:
            rank.tell("more")
        for rank in ranks:
            rank.wait_text('"what": "sum", "value": 2.0', stream="out")

    def test_later_jobs_use_the_new_file(self):
        old = self.c.start_workers(2, SUMS)
        for rank in old:
            rank.said("open")
        self.write(lambda tree: tree["reducers"].pop(0))
        self.hang_up('info +reload result="new jobs use the configuration, running jobs keep theirs" jobs=1')
        new = self.c.start_workers(2, SUMS, env={"REDUCTION_JOB": "later"})
        for rank in new:
            rank.said("open")
        self.c.reducers[1].wait_text("job-started job=later ")
        self.assertNotIn("job=later", self.c.reducers[0].err)
        self.sum(old)
        self.sum(new)
        for rank in old + new:
            rank.tell()
        self.assertEqual(self.c.wait_all(old + new), [0] * 4)
        self.assertEqual(self.agent.stop(), 0)

    def test_a_wrong_file_changes_nothing(self):
        self.write(lambda tree: tree.update(sharding={"windows": 1}))
        self.hang_up(r'error +reload result="kept the old configuration" reason=".*sharding: found unknown key')
        ranks = self.c.start_workers(2, SUMS)
        for rank in ranks:
            rank.said("open")
        self.sum(ranks)

    def test_what_needs_a_restart_is_said(self):
        self.write(lambda tree: tree.update(job={**tree["job"], "max_ops": 7}, logging={"level": "debug"}))
        self.hang_up('warn +reload result="changes of job.max_ops need a restart"')
        ranks = self.c.start_workers(2, SUMS)
        self.agent.wait_text("debug +client-joined")
        for rank in ranks:
            rank.said("open")
        self.sum(ranks)


class WithoutAFile(unittest.TestCase):
    def test_sighup_does_not_end_it(self):
        with harness.Cluster(start=False) as c:
            agent = c.start("agent", [harness.binary("reduction-agent"), "--socket", str(c.dir / "a.sock")])
            agent.wait_text("listening")
            agent.signal(signal.SIGHUP)
            agent.wait_text('error +reload .*reason="started without a configuration file, so there is nothing to ')
            self.assertEqual(agent.stop(), 0)


if __name__ == "__main__":
    harness.main()
