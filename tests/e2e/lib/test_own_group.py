#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# run: beside-others
"""The group of a rank, or of its node's agent: ranks open a communicator only if their machine is in one."""

import unittest

import harness

CONFIG_ERROR = -10
RANK = harness.python("""
    import numpy, reduction, worker
    def run():
        with reduction.Communicator() as comm:
            x = numpy.ones(100000, "float32")
            comm.all_reduce(x)
            assert (x == comm.world_size).all()
    worker.say("end", **worker.attempt(run))
    """)
NOWHERE = {"groups": [{"name": "one", "relays": ["r0"]}, {"name": "two", "relays": ["r1"]}]}
LOOPBACK = {"groups": [{"name": "one", "relays": ["r0"]}, {"name": "two", "addresses": ["127.0.0.0/8"]}]}


class OwnGroup(unittest.TestCase):
    def check(self, procs, code, message=""):
        for p in procs:
            end = p.said("end", timeout=60)
            self.assertEqual(end["code"], code, end)
            self.assertIn(message, end["message"])

    def test_variable(self):
        with harness.Cluster(reducers=2, config=NOWHERE) as c:
            procs = c.start_workers(2, RANK, env=lambda rank: {"REDUCTION_GROUP": ["one", "two"][rank]})
            self.check(procs, 0)

    def test_none(self):
        with harness.Cluster(reducers=2, config=NOWHERE) as c:
            procs = c.start_workers(2, RANK)
            self.check(procs, CONFIG_ERROR, "is in no group, expected one of one, two: add it to nodes or addresses")

    def test_unknown(self):
        with harness.Cluster(reducers=2, config=NOWHERE) as c:
            procs = c.start_workers(1, RANK, env={"REDUCTION_GROUP": "three"})
            self.check(procs, CONFIG_ERROR, 'REDUCTION_GROUP: found "three", expected the name of a group, one of one')

    def test_agents(self):
        """The group is that of the agent, whatever the ranks' environment says."""
        with harness.Cluster(reducers=2, agents=2, config=LOOPBACK) as c:
            self.check(c.start_workers(4, RANK, env={"REDUCTION_GROUP": "three"}), 0)

    def test_agents_in_no_group(self):
        with harness.Cluster(reducers=2, agents=2, config=NOWHERE) as c:
            self.check(c.start_workers(4, RANK), CONFIG_ERROR, "is in no group, expected one of one, two: add it")

    def test_groups_that_differ(self):
        """Ranks whose files have other relays are refused."""
        with harness.Cluster(reducers=2, config=LOOPBACK | {"timeouts": {"connect": "3s"}}) as c:
            procs = [
                c.start_worker(0, 2, RANK),
                c.start_worker(1, 2, RANK, config={"groups": LOOPBACK["groups"][:1] + [{"name": "x", "nodes": "x"}]},
                               env={"REDUCTION_GROUP": "one"}),
            ]  # fmt: skip
            ends = [p.said("end", timeout=60) for p in procs]
            self.assertNotEqual([end["code"] for end in ends], [0, 0])
            self.assertTrue(any("config" in end["message"] for end in ends), ends)


if __name__ == "__main__":
    harness.main()
