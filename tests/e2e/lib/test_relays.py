#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# run: beside-others
"""Groups of ranks with relays: sums are right, in a deterministic job with the same bits whatever is lost, and chunks
do go through relays. Reducers r0 and r1 relay for the group of ranks 0 and 1, r2 and r3 for that of ranks 2 and 3."""

import os
import pathlib
import shutil
import signal
import tempfile
import unittest
import unittest.mock

import certs
import harness
import relays
import test_failover
from test_http import HAS_HTTP

# (relay, home): the shards of four reducers are dealt in turn, and so are their relays
ACROSS = {("r0", "r2"), ("r1", "r3")}
ALL = ACROSS | {(home, relay) for relay, home in ACROSS}
LARGEST = 100_000 if harness.SLOW else 400_000
SMALL_CHUNKS = {"chunk_bytes": "4KiB"}
DETECT = test_failover.DETECT


def plan(deterministic=False, agents=0, **more):
    return {
        "largest": LARGEST, "deterministic": deterministic, "style": "random" if deterministic else "exact",
        "groups": [0, 1] if agents else [0, 0, 1, 1], **more,
    }  # fmt: skip


class Right(unittest.TestCase):
    def run_job(self, cluster, pairs=ALL, **more):
        agents = len(cluster.agents)
        sums = test_failover.Job(self, cluster, **plan(agents=agents, **more)).done()
        self.assertEqual(cluster.relayed(), pairs)
        return sums

    def test_operations_of_all_kinds(self):
        for agents in (0, 2):
            for deterministic in (False, True):
                with self.subTest(agents=agents, deterministic=deterministic):
                    config = {"job": {"deterministic": deterministic}, "sharding": SMALL_CHUNKS}
                    with relays.Cluster(agents=agents, lanes=2, config=config) as c:
                        self.run_job(c, deterministic=deterministic, cases=100)

    def test_default_chunks(self):
        """And checksums, with one lane."""
        with relays.Cluster(config={"job": {"checksum": True, "deterministic": True}}) as c:
            self.run_job(c, deterministic=True, cases=50)

    def test_same_bits_without_relays(self):
        """Whether reducers know the groups or not, and whichever have a relay."""
        config = {"job": {"deterministic": True}, "sharding": SMALL_CHUNKS}
        one = [relays.GROUPS[0], {"name": "rack-b"}]
        with relays.Cluster(config=config) as c:
            sums = self.run_job(c, deterministic=True, cases=60)
        with relays.Cluster(config=config, groups=one) as c:
            self.assertEqual(self.run_job(c, ACROSS, deterministic=True, cases=60), sums)
        with relays.Cluster(config=config, without=[2]) as c:
            self.assertEqual(self.run_job(c, set(), deterministic=True, cases=60), sums)
        with relays.Cluster(config=config, without=range(4)) as c:
            self.assertEqual(self.run_job(c, set(), deterministic=True, cases=60), sums)

    def test_uneven_groups(self):
        """One rank is alone in its group, whose only relay it is that r3 plays."""
        groups = [{"name": "rack-a", "relays": {"0-7": "r0"}}, {"name": "rack-b", "relays": ["r3"]}]
        with relays.Cluster(groups=groups, lanes=2, config={"sharding": SMALL_CHUNKS}) as c:
            c.group_of = lambda i, n: {"REDUCTION_GROUP": "rack-b" if i == 3 else "rack-a"}
            test_failover.Job(self, c, **plan(cases=60)).done()
            self.assertLessEqual({("r3", "r0"), ("r3", "r1"), ("r3", "r2")}, c.relayed())

    @unittest.skipUnless(harness.HAS_GRPC, "no gRPC in this build")
    def test_workers_over_grpc(self):
        """Relays connect over TCP, to the reducers' `address`."""
        with relays.Cluster(transport="grpc", lanes=2, config={"sharding": SMALL_CHUNKS}) as c:
            self.run_job(c, cases=60)

    @unittest.skipIf(harness.SAN, "the library to preload has no sanitizer")
    def test_homes_with_two_addresses(self):
        """Reducers listen on the second one only."""
        shim = {"LD_PRELOAD": str(harness.BUILD / "tests" / "e2e" / "shim_addresses.so")}
        with unittest.mock.patch.dict(os.environ, shim), relays.Cluster(host="two.test") as c:
            self.run_job(c, cases=20)

    @unittest.skipUnless(HAS_HTTP, "this build has no HTTP (libmicrohttpd-dev)")
    def test_bytes(self):
        """Each group sends the sum of what it has for the homes of the other group: 5 N bytes arrive at reducers
        instead of 4 N."""
        sums = harness.python("""
            import numpy, reduction, worker
            with reduction.Communicator() as comm:
                for i in range(8):
                    x = numpy.full(1 << 20, comm.rank + 1.0, "float32")
                    comm.all_reduce(x)
                    assert (x == 10).all()
                worker.say("summed")
                worker.listen()
            """)
        received = {}
        for without in ((), range(4)):
            with relays.Cluster(without=without, server_args=["--http", "127.0.0.1:0"]) as c:
                workers = c.start_workers(relays.WORLD, sums)
                for w in workers:
                    w.said("summed")
                # uplinks are still there; what is in a report belongs to ranks
                received[len(without)] = c.received_bytes()
                for w in workers:
                    w.tell()
                self.assertEqual(c.wait_all(workers), [0] * relays.WORLD)
                self.assertGreaterEqual(c.received_bytes(), received[len(without)])
        self.assertGreater(received[4], 4 * 8 * 4 << 20)
        self.assertAlmostEqual(received[0] / received[4], 1.25, delta=0.02)


class Guarded(unittest.TestCase):
    """Uplinks prove that they know the job's secret, and use TLS as the ranks do."""

    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="reduction-"))
        self.addCleanup(shutil.rmtree, self.dir)

    def run_job(self, config, server, pairs=ALL):
        config = {"sharding": SMALL_CHUNKS, **config}
        with relays.Cluster(config=config, server=server, lanes=2) as c:
            test_failover.Job(self, c, **plan(cases=40)).done()
            self.assertEqual(c.relayed(), pairs)

    def secret(self, name, text="0123456789abcdef-of-the-job\n"):
        path = self.dir / name
        path.write_text(text)
        path.chmod(0o600)
        return str(path)

    def test_secret(self):
        secret = self.secret("test.secret")
        self.run_job({"security": {"secret": secret}}, {"server": {"secrets_dir": str(self.dir)}})

    def test_tls(self):
        of = certs.Folder(self.dir, "reducer:localhost,127.0.0.1")
        self.run_job(of.worker(), of.reducer("localhost"))

    def test_tls_and_secret(self):
        of = certs.Folder(self.dir, "reducer:localhost,127.0.0.1")
        config = of.worker(secret=self.secret("test.secret"))
        self.run_job(config, {**of.reducer("localhost"), "server": {"secrets_dir": str(self.dir)}})

    def test_mutual_tls(self):
        """The certificate of a relay is for clients as well, and a rule of `access` lets it in."""
        of = certs.Folder(self.dir, "client:team-a")
        of.valid("both", "20200101000000Z", "21200101000000Z")
        access = [{"certificate": "team-a", "jobs": "test"}, {"certificate": "localhost", "jobs": "*"}]
        self.run_job(of.worker("team-a"), {**of.reducer("both", mutual=True), "access": access})


class Failover(unittest.TestCase):
    """As test_failover.py."""

    KINDS = [(0, True), (2, False)] if harness.SLOW else [(0, True), (2, False), (2, True), (0, False)]
    known = {}

    def each_kind(self, scenario, gates, kinds=KINDS, timeouts=None, **more):
        timeouts = timeouts or {}
        for agents, deterministic in kinds:
            how = plan(deterministic, agents, **more)
            config = {"job": {"deterministic": deterministic}, "sharding": SMALL_CHUNKS, **timeouts}
            with self.subTest(agents=agents, deterministic=deterministic):
                with relays.Cluster(agents=agents, lanes=2, config=config) as c:
                    job = test_failover.Job(self, c, gates=gates, **how)
                    scenario(c, job)
                    sums = job.done()
                    self.assertNotEqual(c.relayed(), set())
                if deterministic:
                    if agents not in self.known:
                        with relays.Cluster(agents=agents, lanes=2, config=config) as c:
                            self.known[agents] = test_failover.Job(self, c, **how).done()
                    self.assertEqual(sums, self.known[agents])

    def test_killed_at_a_gate(self):
        """Then another one of the same group: its ranks send everything straight."""

        def scenario(c, job):
            for gate, victim in ((30, 0), (70, 1)):
                job.at_gate(gate)
                c.reducers[victim].kill()
                job.go(gate)

        self.each_kind(scenario, {30: 1, 70: 2})

    def test_killed_while_data_flows(self):
        """One relay of each group, then one that comes back, and the last."""

        def scenario(c, job):
            for number, victim in ((15, 1), (40, 3)):
                job.reached(number)
                c.reducers[victim].kill()
            job.reached(70)
            c.start_reducer(1)
            job.back(1)
            job.at_gate(108)
            c.reducers[0].kill()
            job.go(108)

        self.each_kind(scenario, {108: 3})

    def test_all_relays_of_a_group_at_once(self):
        def scenario(c, job):
            job.reached(30)
            for victim in (2, 3):
                c.reducers[victim].kill()

        self.each_kind(scenario, {})

    def test_stopped_for_a_while(self):
        def scenario(c, job):
            for gate, victim in ((10, 1), (60, 2)):
                job.at_gate(gate)
                c.reducers[victim].signal(signal.SIGSTOP)
                job.go(gate)
                job.at_gate(gate + 30)
                c.reducers[victim].signal(signal.SIGCONT)
                job.go(gate + 30)

        self.each_kind(scenario, {10: 0, 40: 1, 60: 2, 90: 3}, timeouts=DETECT)

    def test_drained(self):
        def scenario(c, job):
            for gate, victim in ((10, 2), (60, 0)):
                job.at_gate(gate)
                c.reducers[victim].signal(signal.SIGTERM)
                c.reducers[victim].wait_text("draining")
                job.go(gate)
                job.at_gate(gate + 30)
                self.assertEqual(c.reducers[victim].wait(), 0)
                job.go(gate + 30)

        self.each_kind(scenario, {10: 0, 40: 1, 60: 2, 90: 3})


if __name__ == "__main__":
    harness.main()
