#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# run: beside-others
"""reductionctl trace on real jobs: each event of each chunk is there once, in its order, on reducers and agents."""

import collections
import json
import unittest

import harness
from test_control import GRPC, STEADY, ctl

RANKS, LARGE, CHUNK = 4, 100000 * 4, 32 << 10  # STEADY alternates operations of LARGE bytes and of 4
CHUNKS = {0: -(-LARGE // CHUNK), 1: 1}  # by the parity of an operation's number
PHASES = {"reducer": ["receive", "wait and sum", "send result"], "worker": ["send", "wait for result"]}


def spans(trace, category):
    """The chunks of reducers or workers: {(op, chunk, rank): [times of its points]}."""
    found = collections.defaultdict(dict)
    for ev in trace["traceEvents"]:
        if ev["ph"] == "X" and ev["cat"] == category and ev["name"] in PHASES[category]:
            args = ev["args"]
            of = found[args["op"], args["chunk"], args["rank"]]
            assert ev["name"] not in of, ev
            of[ev["name"]] = (ev["ts"], ev["ts"] + ev["dur"])
    ordered = {}
    for key, of in found.items():
        phases = [of[name] for name in PHASES[category]]
        for a, b in zip(phases, phases[1:]):
            assert a[1] == b[0], of  # a phase begins where the one before ends
        ordered[key] = [phases[0][0], *(end for _, end in phases)]
    return ordered


@unittest.skipUnless(harness.HAS_GRPC, "this build has no gRPC")
class Trace(unittest.TestCase):
    def addresses(self, cluster):
        return [r.wait_text(r"\bgrpc-ready\b.*?address=(\S+)").group(1) for r in cluster.reducers]

    def record(self, *args):
        status, out, err = ctl("trace", *args)
        self.assertEqual(status, 0, err)
        return json.loads(out), err

    def running(self, workers):
        for w in workers:
            w.wait_text("running", stream="out")

    def stop(self, cluster, workers):
        for w in workers:
            w.tell()
        cluster.wait_all(workers)

    def check(self, trace, ops, category="reducer", ranks=RANKS):
        found = spans(trace, category)
        numbers = sorted({op for op, _, _ in found})
        self.assertEqual(numbers, list(range(numbers[0], numbers[0] + ops)))
        expected = {(op, c, r) for op in numbers for c in range(CHUNKS[op % 2]) for r in range(ranks)}
        self.assertEqual(set(found), expected)
        for key, at in found.items():
            self.assertEqual(at, sorted(at), key)
        return found

    def check_reducers(self, trace, ops, ranks=RANKS):
        found = self.check(trace, ops, ranks=ranks)
        for op, chunk, _ in found:  # a chunk is summed once, when the last rank's part is complete
            sums = {found[op, chunk, r][2] for r in range(ranks)}
            self.assertEqual(len(sums), 1)
            self.assertGreaterEqual(min(sums), max(found[op, chunk, r][1] for r in range(ranks)))
        return found

    def test_two_reducers(self):
        with harness.Cluster(reducers=2, lanes=2, server_config=GRPC) as c:
            workers = c.start_workers(RANKS, STEADY)
            self.running(workers)
            trace, said = self.record(*self.addresses(c), "--ops", "6")
            self.check_reducers(trace, 6)
            about = trace["otherData"]
            self.assertEqual((about["dropped"], about["complete"], about["clocks_agree"]), (0, True, True))
            self.assertRegex(said, r"job test: operations \d+ to \d+\n\d+ events of 2 processes, whose clocks are ")
            # both clocks are one
            first, second = about["clocks"]
            self.assertEqual((first["offset_us"], first["error_us"]), (0, 0))
            self.assertLessEqual(abs(second["offset_us"]), second["error_us"])
            # slices of a thread do not overlap but in each other
            threads = collections.defaultdict(list)
            for ev in trace["traceEvents"]:
                if ev["ph"] == "X" and ev["name"].startswith("op "):
                    threads[ev["pid"], ev["tid"]].append((ev["ts"], ev["ts"] + ev["dur"]))
            for slices in threads.values():
                slices.sort()
                self.assertTrue(all(a[1] <= b[0] for a, b in zip(slices, slices[1:])))
            self.stop(c, workers)

    def test_agents(self):
        """With agents the ranks of a job on its reducers are nodes, and the worker's side of each chunk is known."""
        nodes = 2
        with harness.Cluster(reducers=2, agents=nodes, lanes=2, server_config=GRPC, start=False) as c:
            for i in range(2):
                c.start_reducer(i)
            for i in range(nodes):
                c.start_agent(i, {"agent": {**c.config.get("agent", {}), "grpc": f"unix:{c.dir}/status{i}.sock"}})
            agents = [a.wait_text(r"\bgrpc-ready\b.*?address=(\S+)").group(1) for a in c.agents]
            workers = c.start_workers(RANKS, STEADY)
            self.running(workers)
            trace, said = self.record(*self.addresses(c), *agents, "--ops", "4")
            reducers = self.check_reducers(trace, 4, nodes)
            nodes_side = self.check(trace, 4, "worker", nodes)
            self.assertEqual(set(reducers), set(nodes_side))
            about = trace["otherData"]
            self.assertEqual((about["dropped"], about["complete"], about["clocks_agree"]), (0, True, True), said)
            for key, (begun, complete, summed, _) in reducers.items():  # on the aligned clocks, whole microseconds
                sending, _, result = nodes_side[key]
                self.assertLessEqual(sending, complete + 1, key)
                self.assertLessEqual(summed, result + 1, key)
            for clock in about["clocks"]:  # all clocks are one
                self.assertLessEqual(abs(clock["offset_us"]), clock["error_us"], about)
            self.stop(c, workers)

    def test_a_file_and_an_output(self):
        with harness.Cluster(reducers=2, server_config=GRPC) as c:
            workers = c.start_workers(RANKS, STEADY)
            self.running(workers)
            tree = {"reducers": [{"id": f"r{i}", "address": c.address(i), "grpc": a}
                                 for i, a in enumerate(self.addresses(c))]}
            file, out = c.dir / "job.yaml", c.dir / "trace.json"
            file.write_text(json.dumps(tree))
            status, said, err = ctl("trace", str(file), "--job", "test", "--output", str(out))
            self.assertEqual((status, said), (0, ""), err)
            trace = json.loads(out.read_text())
            self.check_reducers(trace, 1)
            names = {ev["args"]["name"] for ev in trace["traceEvents"] if ev["name"] == "process_name"}
            self.assertEqual(names, {f"reducer r{i} ({a})" for i, a in enumerate(self.addresses(c))})
            self.stop(c, workers)

    def test_no_room(self):
        with harness.Cluster(server_config=GRPC) as c:
            workers = c.start_workers(RANKS, STEADY)
            self.running(workers)
            trace, said = self.record(self.addresses(c)[0], "--ops", "10", "--records", "20")
            events = 5 * sum(CHUNKS.values()) * (3 * RANKS + 1)  # begun, complete, returned of each rank; one sum
            self.assertEqual(trace["otherData"]["dropped"], events - 20)
            self.assertIn(f"{events - 20} events had no room", said)
            self.stop(c, workers)

    def test_errors(self):
        status, _, err = ctl("trace")
        self.assertEqual((status, err.splitlines()[0]),
                         (2, 'reductionctl: found neither HOST:PORT nor a file, expected one after "trace"'))
        status, _, err = ctl("trace", "127.0.0.1:1")
        self.assertEqual(status, 1)
        self.assertIn("127.0.0.1:1", err)
        for option, most in (("--ops", 10000), ("--records", 65536), ("--limit", 60)):
            status, _, err = ctl("trace", "127.0.0.1:1", option, "0")
            self.assertEqual(status, 2)
            self.assertIn(f'{option}: found "0", expected a whole number from 1 to {most}', err)
        with harness.Cluster(server_config=GRPC) as c:
            address = self.addresses(c)[0]
            self.assertEqual(ctl("trace", address), (1, "", "reductionctl: no job runs there\n"))
            self.assertEqual(ctl("trace", address, "--job", "a"), (1, "", 'reductionctl: no job "a" runs there\n'))
            idle = harness.python("""
                import sys, reduction
                with reduction.Communicator() as comm:
                    print("running", flush=True)
                    sys.stdin.readline()
            """)
            workers = c.start_workers(2, idle)
            self.running(workers)
            self.assertEqual(ctl("trace", address, "--limit", "1"),
                             (1, "", "reductionctl: no operation began within 1 s\n"))
            self.stop(c, workers)


if __name__ == "__main__":
    harness.main()
