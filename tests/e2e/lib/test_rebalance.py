#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# run: alone no-tsan all-only
"""sharding.rebalance in the network laboratory: the link of one reducer becomes slow, and is repaired. With `on` the
shares follow while operations run; with `log` rank 0 says what they would be. Where one path is slow, ranks connect
anew. Every sum is right."""

import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

import harness

sys.path.insert(0, str(harness.ROOT / "bench/net"))
import lab as net  # noqa: E402

RANKS, REDUCERS = 2, 3  # hosts 0 and 1 are ranks, the others reducers
SOON = 45  # seconds within which a change must be found: some on an idle machine

RANK = """
import pathlib, sys
import numpy, reduction
end, n = pathlib.Path(sys.argv[1]), 1 << 18
with reduction.Communicator() as comm:
    parts = [numpy.random.default_rng(r).standard_normal(n).astype(numpy.float32) for r in range(comm.world_size)]
    expected = sum(parts[1:], parts[0].copy())
    last = numpy.zeros(1, numpy.float32)
    count = 0
    while not last[0]:
        x = parts[comm.rank].copy()
        comm.all_reduce(x)
        assert x.tobytes() == expected.tobytes(), f"operation {count} is wrong"
        last[0] = comm.rank == 0 and end.exists()
        comm.all_reduce(last)
        count += 1
    print("right", count, flush=True)
"""


def why_not():
    """Why no laboratory can be made here, or None."""
    if harness.SAN:
        return "shares follow the network in the laboratory with the default build"
    try:
        net.check_machine()
    except net.LabError as e:
        return str(e)
    return None


@unittest.skipIf(why_not(), why_not())
class Rebalance(unittest.TestCase):
    def start(self, lab, folder, rebalance):
        """Starts reducers and ranks; returns the ranks."""
        reducers = [f"{{id: r{j}, address: '{lab.address(RANKS + j)}:7600'}}" for j in range(REDUCERS)]
        (folder / "job.yaml").write_text(
            f"job: {{name: rebalance, deterministic: true}}\nreducers: [{', '.join(reducers)}]\n"
            f"sharding: {{rebalance: {rebalance}, shards: 256, priorities: 1}}\n")  # fmt: skip
        for j in range(REDUCERS):
            log = open(folder / f"r{j}.log", "w", encoding="utf-8")
            self.addCleanup(log.close)
            lab.popen(RANKS + j, [harness.binary("reduction-server"), "--insecure", "--lanes", 1, "--grpc",
                                  "127.0.0.1:7601", "--listen", f"{lab.address(RANKS + j)}:7600"],
                      stderr=log, stdin=subprocess.DEVNULL)  # fmt: skip
        for j in range(REDUCERS):
            self.wait_for(folder / f"r{j}.log", "listening")
        ranks = []
        for rank in range(RANKS):
            env = os.environ | harness.worker_env() | {
                "REDUCTION_CONFIG": str(folder / "job.yaml"), "REDUCTION_MODE": "direct", "REDUCTION_RUN": "rebalance",
                "RANK": str(rank), "WORLD_SIZE": str(RANKS)}  # fmt: skip
            err = open(folder / f"rank{rank}.log", "w", encoding="utf-8")
            self.addCleanup(err.close)
            ranks.append(lab.popen(rank, harness.python(RANK, folder / "end"), env=env, stderr=err,
                                   stdout=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL))  # fmt: skip
        return ranks

    def wait_for(self, log, text, times=1):
        until = time.monotonic() + SOON
        while log.read_text(encoding="utf-8").count(text) < times:
            self.assertLess(time.monotonic(), until, f"{times} times {text!r} in:\n{log.read_text()[-2000:]}")
            time.sleep(0.1)
        return [line for line in log.read_text(encoding="utf-8").splitlines() if text in line][times - 1]

    def finish(self, folder, ranks):
        (folder / "end").touch()
        for p in ranks:
            out, _ = p.communicate(timeout=60)
            self.assertEqual((p.returncode, out.split()[0]), (0, "right"), (folder / "rank0.log").read_text()[-2000:])

    def run_job(self, rebalance, check):
        with tempfile.TemporaryDirectory() as name, net.Lab(RANKS + REDUCERS, rate="100mbit", cc="cubic",
                                                            build=harness.BUILD) as lab:  # fmt: skip
            folder = pathlib.Path(name)
            ranks = self.start(lab, folder, rebalance)
            self.wait_for(folder / "rank0.log", "communicator-open")
            check(lab, folder / "rank0.log")
            self.finish(folder, ranks)

    def test_on(self):
        def check(lab, log):
            lab.set_rate(RANKS, "40mbit")
            line = self.wait_for(log, "rebalanced")
            self.assertRegex(line, r"reducer r0 \([0-9.:]+\) is busy for \d+ % of the communication")
            self.assertRegex(line, r"r0 33\.\d % -> [12]\d\.\d %, r1 33\.\d % -> [34]\d\.\d %")
            # every reducer says so, too
            shown = lab.run(RANKS + 1, [harness.binary("reductionctl"), "status", "127.0.0.1:7601"])
            self.assertRegex(shown, r"shares of the reducers: [12]\d\.\d%, [34]\d\.\d%, [34]\d\.\d%, set 1 time\n")
            lab.set_rate(RANKS, "100mbit")
            self.wait_for(log, "rebalanced", 2)

        self.run_job("on", check)

    def test_collision(self):
        """The path of the connections that exist is slow, and connections from other ports have another one."""

        def check(lab, log):
            ports = lab.ports(1, RANKS)
            self.assertTrue(ports)
            lab.set_path_rate(1, RANKS, "5mbit", ports)
            line = self.wait_for(log, "rebalanced")
            self.assertRegex(line, r"path between rank 1 and reducer r0 .* is slow: .*; all ranks connect to it anew")
            self.wait_for(log, "reducer-back")
            self.assertTrue(lab.ports(1, RANKS))
            self.assertFalse(set(ports) & set(lab.ports(1, RANKS)))

        self.run_job("on", check)

    def test_log(self):
        def check(lab, log):
            lab.set_rate(RANKS, "40mbit")
            self.assertIn("with sharding.rebalance: on: r0 33.", self.wait_for(log, "unbalanced"))
            self.assertNotIn("rebalanced", log.read_text(encoding="utf-8"))

        self.run_job("log", check)


if __name__ == "__main__":
    unittest.main(verbosity=2)
