# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan
"""The process group `reduction` where ranks reach the reducers and the store, and not each other."""

import importlib.util
import sys
import unittest

import harness

sys.path.insert(0, str(harness.ROOT / "bench/net"))
import lab as net  # noqa: E402

WORKER = harness.ROOT / "tests/e2e/worker_torch_mesh.py"
NO_CARD = {"GLOO_SOCKET_IFNAME": "nocard0"}


@unittest.skipIf(importlib.util.find_spec("torch") is None or harness.SAN, "no torch, or too slow with it")
class Mesh(unittest.TestCase):
    def check(self, argv, world_size=1, **options):
        with harness.Cluster(reducers=2) as c:
            c.run(world_size, [harness.PYTHON, *argv], timeout=60, **options)

    def test_no_way(self):
        self.check([WORKER, "no_way"], 3, env=NO_CARD)

    def test_no_way_in_the_name_of_gloo(self):
        self.check(["-m", "reduction.torch", WORKER, "no_way", "gloo"], 2, env=NO_CARD)

    def test_missing(self):
        self.check([WORKER, "missing"], 2)

    def test_addresses(self):
        self.check([WORKER, "addresses"])

    def test_slow(self):
        self.check([WORKER, "slow"])

    def test_hosts(self):
        """Ranks 0 to 2 on hosts whose names have no address, the reducer on host 3. Then two hosts are cut apart."""
        try:
            net.check_machine()
        except net.LabError as exc:
            self.skipTest(str(exc))
        with net.Lab(4, rate="none") as lab, harness.Cluster(reducers=0) as c:
            reducer = f"{lab.address(3)}:7600"
            path = c.write_config("job.yaml", {"job": {"name": "test"}, "reducers": [{"id": "r0", "address": reducer}]})

            def start(host, name, argv, env=None):
                inside = ["ip", "netns", "exec", lab.namespace(host), "unshare", "--uts", "sh", "-c",
                          'hostname "$0" && exec "$@"', f"h{host}"]  # fmt: skip
                return c.start(name, [*inside, *map(str, argv)], env)

            server = [harness.binary("reduction-server"), "--config", path, "--insecure", "--listen", reducer]
            c.reducers.append(start(3, "reducer", server))
            c.reducers[0].wait_text("listening")
            env = harness.worker_env() | harness.reach("direct") | {
                "REDUCTION_CONFIG": path, "WORLD_SIZE": "3", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}  # fmt: skip
            store = f"tcp://{lab.address(0)}:7700"
            ranks = [
                start(i, f"rank {i}", [harness.PYTHON, WORKER, "hosts", store, lab.address(i)], env | {"RANK": str(i)})
                for i in range(3)
            ]
            for p in ranks:
                p.said("connected", timeout=60)
            lab.cut(1, 2)
            lab.cut(2, 1)
            for p in ranks:
                p.tell()
            for p, code in zip(ranks, c.wait_all(ranks, timeout=60)):
                self.assertEqual(code, 0, p.report())


if __name__ == "__main__":
    harness.main()
