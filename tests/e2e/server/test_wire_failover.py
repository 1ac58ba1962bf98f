# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan
"""Encodings while a reducer is killed within a step and comes back, over TCP, TLS, gRPC and gRPC with TLS: all ranks
get the bits of proto/python/blocks.py, and with random rounding those of a job without faults.

Not under ThreadSanitizer: it reports races in what OpenSSL does for gRPC, and test_failover covers those of failovers.
"""

import os
import unittest

import harness
import test_failover
import test_tls

CASES = {"seed": 7, "cases": 56, "in_flight": 6, "largest": 60_000, "style": "random", "deterministic": True}
# LeakSanitizer itself crashes at times, on threads of gRPC that are ending
os.environ["LSAN_OPTIONS"] = "use_tls=0:print_suppressions=0"


class Failover(test_tls.Tls):
    def job(self, c, up, down, rounding, gates):
        return test_failover.Job(self, c, wire=[up, down], nearest=rounding == "nearest", gates=gates, **CASES)

    def lost_and_back(self, up, down, rounding="nearest", agents=0, tls=True, **how):
        job = {"deterministic": True, "wire": {"up": up, "down": down, "rounding": rounding}}
        plain = {"job": job, "sharding": {"chunk_bytes": "4KiB"}}
        config = {**plain, **(self.good.worker() if tls else {})}
        c = self.cluster(None if tls else {}, config, reducers=2, lanes=2, agents=agents, **how)
        disturbed = self.job(c, up, down, rounding, {10: 0, 30: 3, 40: 1})
        disturbed.at_gate(10)
        c.reducers[0].kill()
        disturbed.go(10)
        disturbed.at_gate(30)
        c.start_reducer(0)
        disturbed.back(0)
        disturbed.go(30)
        disturbed.at_gate(40)
        c.reducers[1].kill()
        disturbed.go(40)
        sums = disturbed.done()
        if rounding != "nearest":
            with harness.Cluster(reducers=2, agents=agents, config=plain, transport="tcp") as quiet:
                self.assertEqual(sums, self.job(quiet, up, down, rounding, {}).done())

    def test_tcp(self):
        self.lost_and_back("bf16", "int8", tls=False, transport="tcp")

    def test_tls(self):
        self.lost_and_back("int8", "bf16", "stochastic", agents=2, transport="tcp")

    @unittest.skipUnless(harness.HAS_GRPC, "this build has no gRPC")
    def test_grpc(self):
        self.lost_and_back("fp8", "fp8", agents=2, tls=False, transport="grpc")

    @unittest.skipUnless(harness.HAS_GRPC, "this build has no gRPC")
    def test_grpc_and_tls(self):
        self.lost_and_back("int8", "int8", transport="grpc")
        self.lost_and_back("fp8", "fp8", "stochastic", agents=2, transport="grpc")


if __name__ == "__main__":
    harness.main()
