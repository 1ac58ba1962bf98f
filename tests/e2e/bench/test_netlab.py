# SPDX-License-Identifier: Apache-2.0
# run: alone no-tsan all-only
"""The network laboratory: shard maps from reductionctl plan, verdicts, and that nothing of it is left behind.

Not under ThreadSanitizer: the laboratory has no threads.
"""

import ctypes
import os
import pathlib
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import unittest

import harness

NET = harness.ROOT / "bench/net"
sys.path.insert(0, str(NET))
import cases  # noqa: E402
import lab as net  # noqa: E402
import rack_maps  # noqa: E402
import racks  # noqa: E402
import report  # noqa: E402

MIB = 1 << 20


def why_not():
    """Why no laboratory can be made here, or None."""
    if not (harness.BUILD / "bench/tcp-loop").exists():
        return "tcp-loop is not built with sanitizers"
    try:
        net.check_machine()
    except net.LabError as e:
        return str(e)
    return None


WHY_NOT = why_not()


def line(case, system, size, speed, **more):
    """A line of net.jsonl."""
    c = cases.BY_NAME[case]
    return {
        "case": case, "system": system, "n": c.n, "k": c.k, "rate": c.rate, "queue_ms": c.queue_ms, "bytes": size,
        "algbw_MBps_median": speed, "min": speed - 1, "max": speed + 1,
        "wire_tx_over_S": 1.002, "wire_rx_over_S": 1.002,
        "server_cpu_s_per_GiB": None, "line_MBps": 100.0, "bound_MBps": 120.0, "ring_bound_MBps": 80.0, "p50_us": 100.0,
        "p99_us": 200.0, "busy": 0.5, "dropped": 0, "runs": [speed], "wrong": 0, "hung": 0, "failed": 0,
        "mixed": c.mixed, "half": c.half, "delay_us": 0, "cc": "cubic", "mode": "quick", "run": "a"} | more


class Plan(unittest.TestCase):
    """Where reducers are, which shards they get, and what the links allow."""

    def test_bounds_are_the_closed_form(self):
        """Within 10 parts in a million: it is told bandwidths in whole kbit/s."""
        for case in cases.TABLE:
            for mixed in {case.mixed, False} if case.kind == cases.SHAPED and not (case.half or case.racks) else ():
                with self.subTest(case.name, mixed=mixed):
                    place = case.placement(mixed)
                    plan = place.plan(harness.BUILD, 16 * MIB)
                    link_s = 16 * MIB / (place.payload[0] / 8)
                    self.assertAlmostEqual(plan["time_s"] / link_s, cases.closed_form_over_S(case.n, case.k, mixed),
                                           delta=1e-5)
                    self.assertAlmostEqual(plan["ring_s"] / link_s, 2 * (case.n - 1) / case.n, delta=1e-5)

    def test_a_plan_that_fails(self):
        with self.assertRaisesRegex(net.LabError, "reductionctl plan .*expected"):
            cases.BY_NAME["n4"].placement(False).plan(harness.BUILD, 0)


    def test_bounds_of_racks(self):
        """Time of ours less a round trip between racks, with the busiest uplink's load, and of the rings, in units of S
        and of a host's link."""
        expected = {
            ("racks2-full", "flat"): (1, 4, 1.75, 1.75), ("racks2-full", "declared"): (1, 4, 1.75, 1.75),
            ("racks2-2to1", "flat"): (2, 4, 1.75, 1.75), ("racks2-2to1", "groups"): (5 / 4, 1, 1.75, 1.75),
            ("racks2-2to1", "mixture-2to1"): (8 / 7, 16 / 7, 1.75, 1.75),
            ("racks2-4to1", "mixture-4to1"): (16 / 13, 16 / 13, 1.75, 1.75),
            ("racks2-8to1", "flat"): (8, 4, 3.5, 2), ("racks2-8to1", "groups"): (2, 1, 3.5, 2),
            ("racks2-k10-4to1", "groups"): (1, 1, 1.75, 1.75), ("racks2-k10-8to1", "groups"): (2, 1, 3.5, 2),
            ("racks2-mixed-4to1", "groups"): (35 / 32, 1, 1.75, 1.75),
            ("racks3-4to1", "flat"): (4, 4, 11 / 6, 11 / 6), ("racks3-4to1", "groups"): (5 / 4, 1, 11 / 6, 11 / 6),
            ("zones-20ms-cubic", "groups"): (5 / 4, 1, 1.75, 1.75),
            ("zones-20ms-bbr", "groups"): (5 / 4, 1, 1.75, 1.75),
        }  # fmt: skip
        for (name, of), numbers in expected.items():
            with self.subTest(name, of=of):
                place = rack_maps.RackPlacement(cases.BY_NAME[name], of)
                plan, link_s = place.plan(harness.BUILD, 16 * MIB), 16 * MIB / (place.payload[0] / 8)
                times = [plan[key] / link_s for key in ("time_s", "ring_s", "ring_2d_s")]
                times[0] -= cases.BY_NAME[name].racks.rtt_ms / 1e3 / link_s
                for found, number in zip([times[0], place.uplink_per_S(), *times[1:]], numbers):
                    self.assertAlmostEqual(found, number, delta=1e-9)

    def test_map_of_racks(self):
        sections = rack_maps.RackPlacement(cases.BY_NAME["racks2-4to1"], "mixture-4to1").map.sections()
        self.assertEqual(sections["sharding"]["shards"], 104)
        self.assertEqual([sorted(g["relays"].values()) for g in sections["groups"]],
                         [["r0", "r1", "r2", "r3"], ["r4", "r5", "r6", "r7"]])
        sections = rack_maps.RackPlacement(cases.BY_NAME["racks3-4to1"], "groups").map.sections()
        self.assertEqual(set(sections["sharding"]["map"].values()), {"r12", "r13", "r14"})
        self.assertEqual(sections["groups"][1], {"name": "rack1", "relays": ["r4", "r5", "r6", "r7"]})


class Report(unittest.TestCase):
    """Verdicts, tables, plots, and the file of lines."""

    lines = [
        {"run": "a", "machine": {"cpu": "Z80", "cores": 2, "kernel": "6.1", "load": 0.0, "cc": "cubic"}},
        line("n4", "reduction", 4 * MIB, 96.0), line("n4", "gloo", 4 * MIB, 60.0), line("n4", "ompi", 4 * MIB, 66.0),
        line("n4", "reduction", 16 * MIB, 94.0, server_cpu_s_per_GiB=1.2, wire_rx_over_S=1.03),
        line("n4", "bare-loop", 16 * MIB, 99.0, server_cpu_s_per_GiB=1.0),
        line("loopback", "reduction", 4 * MIB, 500.0), line("loopback", "ompi", 4 * MIB, 400.0),
        line("loopback", "ompi-shm", 4 * MIB, 900.0), line("loopback", "reduction/local", 4 * MIB, 990.0),
        line("loopback", "reduction/local+malloc", 4 * MIB, 810.0),
        line("latency", "reduction", 4096, 30.0, p50_us=90.0), line("latency", "ompi", 4096, 40.0, p50_us=60.0),
        {"case": "kernels", "kernel": "sum", "dtype": "float32", "table": "avx2", "bytes": 64 * MIB, "gbps_median": 8.0,
         "plain_add_gbps": 10.0, "memcpy_gbps": 12.0, "over_plain_add": 0.8, "tsc_ghz": 2.0, "tsc_per_byte_sent": 0.25,
         "run": "a"},
    ]

    def test_verdicts(self):
        found = {(c.case, c.bytes, c.what): (round(c.value, 3), c.verdict) for c in report.checks_of(self.lines)}
        self.assertEqual(found, {
            ("n4", 4 * MIB, "of a plain TCP flow"): (0.96, "OK"),
            ("n4", 4 * MIB, "times the best peer"): (1.455, "MISS"),
            ("n4", 16 * MIB, "of a plain TCP flow"): (0.94, "MISS"),
            ("n4", 16 * MIB, "payload sent / S"): (1.002, "OK"),
            ("n4", 16 * MIB, "payload received / S"): (1.03, "MISS"),
            ("n4", 16 * MIB, "reducers' CPU time / bare loop's"): (1.2, "MISS"),
            ("loopback", 4 * MIB, "times the best peer"): (1.25, "OK"),  # shared memory is no TCP peer
            ("loopback", 4 * MIB, "by default, ordinary memory, times Open MPI in shared memory"): (0.9, "MISS"),
            ("loopback", 4 * MIB, "by default, shared buffers, times Open MPI in shared memory"): (1.1, "OK"),
            ("latency", 4096, "reduction p50 / Open MPI's over TCP"): (1.5, "OK"),
            ("latency", 4096, "reduction p50 / Open MPI's over TCP, goal"): (1.5, "MISS"),
            ("kernels", 0, "float32 sum / plain add"): (0.8, "MISS"),
        })

    def test_racks(self):
        """The best of ours with groups is compared with the better ring, and not with the 2-D ring."""
        speeds = {"reduction/flat": 6.0, "reduction/groups": 18.0, "reduction/mixture-4to1": 20.0, "gloo": 16.0,
                  "ompi-ring": 10.0, "gloo-2d": 19.0}  # fmt: skip
        more = {"racks": 2, "links_allow_MBps": 24.0, "uplink_per_S": 1.25}
        lines = [line("racks2-4to1", system, 16 * MIB, speed, **more) for system, speed in speeds.items()]
        self.assertEqual(
            [(check.what, round(check.value, 3), check.verdict, check.peer) for check in report.checks_of(lines)],
            [("reduction/mixture-4to1, times the best ring", 1.25, "MISS", "gloo 16.0"),
             ("reduction/mixture-4to1, of what plan expects", 0.833, "MISS", "plan 24.0")])
        row = "| racks2-4to1 | 16 MiB | Reduction Server, mixture-4to1 | 20.0 (19.0-21.0) | 24.0 | 1.25 | 1.25 |"
        self.assertIn(row, report.markdown(lines, [], pathlib.Path(".")))



@unittest.skipIf(WHY_NOT, WHY_NOT)
class Laboratory(unittest.TestCase):
    """Hosts come and go."""

    def setUp(self):
        self.cluster = harness.Cluster(start=False, reducers=0)
        self.cluster.__enter__()
        self.addCleanup(self.cluster.__exit__, None, None, None)

    def netlab(self, *words):
        argv = [harness.PYTHON, str(harness.ROOT / "bench/netlab"), "--build", str(harness.BUILD), *map(str, words)]
        return self.cluster.start("netlab", argv)

    def hosts_of(self, p):
        return net._namespaces_of(f"{net.PREFIX}{p.pid}")

    def test_command(self):
        p = self.netlab("--hosts", 2, "--rate", "100mbit", "--", "sh", "-c", "echo {i} of {n} at {addr1}; hostname")
        self.assertEqual(p.wait(), 0, p.report())
        self.assertEqual(sorted(p.out.splitlines()), ["[0] 0 of 2 at 10.99.0.2", "[0] h0", "[1] 1 of 2 at 10.99.0.2",
                                                      "[1] h1"])
        self.assertEqual(self.hosts_of(p), [])

    def test_one_that_fails_ends_all(self):
        p = self.netlab("--hosts", 2, "--", "sh", "-c", "test {i} = 0 && exec sleep 1000; exit 3")
        self.assertEqual(p.wait(), 3, p.report())
        self.assertEqual(self.hosts_of(p), [])

    def test_signals(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(number):
                p = self.netlab("--hosts", 2, "--delay-us", 1000, "--", "sh", "-c", "echo up; sleep 1000")
                p.wait_text(r"^\[1\] up", stream="out")
                p.signal(number)
                self.assertEqual(p.wait(), 128 + number, p.report())
                self.assertEqual(self.hosts_of(p), [])

    def test_racks_command(self):
        p = self.netlab("--hosts", 4, "--racks", 2, "--uplink", "100mbit", "--counters", "--", "true")
        self.assertEqual(p.wait(), 0, p.report())
        self.assertRegex(p.err, r"(?s)rack +up +down.*\n +0 +\d+ .*\n +1 +\d+ ")
        self.assertEqual(self.hosts_of(p), [])


@unittest.skipIf(WHY_NOT, WHY_NOT)
class Racks(unittest.TestCase):
    """Two racks of two hosts, a host at the spine, and uplinks of a quarter of a host's rate."""

    RACKS, HOST, UPLINK = [0, 0, 1, 1, None], 100, 25  # rates in Mbit/s

    def flow(self, lab, a, b):
        """Sends from host a to host b for a second; returns MB/s of TCP payload, the bytes that each uplink carried up
        and down, and the bytes that b received."""
        before, received = lab.uplinks(), lab.counters()[b]["rx_payload"]
        tool = harness.BUILD / "bench/tcp-loop"
        sink = lab.popen(b, [tool, "sink", 5001], stdout=subprocess.PIPE, text=True)
        lab.run(a, [tool, "flow", lab.address(b), 5001, 1], timeout=20)
        speed = float(re.search(r'"MBps": *([\d.]+)', sink.communicate(timeout=20)[0])[1])
        moved = net.counters_between(before, lab.uplinks())
        return speed, [(u["up_payload"], u["down_payload"]) for u in moved], lab.counters()[b]["rx_payload"] - received

    def check(self, delay_us):
        lab = racks.RackLab(self.RACKS, f"{self.UPLINK}mbit", uplink_queue_ms=40, uplink_delay_us=delay_us,
                            rate=f"{self.HOST}mbit", queue_ms=40, build=harness.BUILD)
        with lab:
            within, apart, out = self.flow(lab, 0, 1), self.flow(lab, 1, 2), self.flow(lab, 2, 4)
            # namespaces of the hosts, of the racks' switches, and of the spine
            self.assertEqual(len(net._namespaces_of(lab.prefix)), 5 + 2 + 1)
        self.assertEqual(net._namespaces_of(lab.prefix), [])
        self.assertFalse((net.LOCKS / lab.prefix).exists())
        for (speed, _, _), rate in ((within, self.HOST), (apart, self.UPLINK), (out, self.UPLINK)):
            line = net.payload_bits(rate) / 8
            # a bucket is full at first, and a flow is short
            self.assertTrue(0.7 * line < speed < 1.2 * line, (speed, line))
        self.assertLess(max(sum(within[1], ())), 1000)  # options of a few acknowledgements and packets without data
        for (_, uplinks, received), ways in ((apart, [(0, 0), (1, 1)]), (out, [(1, 0)])):
            for rack, way in ways:
                self.assertAlmostEqual(uplinks[rack][way] / received, 1, delta=0.01)
        (up0, down0), (up1, down1) = apart[1]
        self.assertLess(max(down0, up1), 0.01 * min(up0, down1))  # acknowledgements have no payload
        self.assertLess(max(out[1][0]), 1000)

    def test_uplinks(self):
        self.check(0)

    def test_uplinks_with_delay(self):
        self.check(5000)

    def test_racks_without_hosts(self):
        with self.assertRaisesRegex(net.LabError, "expected a host in each rack"):
            racks.RackLab([0, 2], "1gbit")


SO_MAX_PACING_RATE, UNPACED = 47, 2**64 - 1
PIDFD_GETFD = 438
TWO_RANKS = """
import sys, threading, reduction

def run(rank):
    with reduction.Communicator(rank=rank, world_size=2, mode="direct", run="one", config="job.yaml") as comm:
        comm.barrier()
        print("up\\n", end="", flush=True)
        sys.stdin.read()

for rank in range(2):
    threading.Thread(target=run, args=[rank]).start()
"""


def pacing_rates(pid):
    """Returns the SO_MAX_PACING_RATE of each TCP connection of a process."""
    libc, found = ctypes.CDLL(None, use_errno=True), []
    process = os.pidfd_open(pid)
    for fd in os.listdir(f"/proc/{pid}/fd"):
        if not os.readlink(f"/proc/{pid}/fd/{fd}").startswith("socket:"):
            continue
        with socket.socket(fileno=libc.syscall(PIDFD_GETFD, process, int(fd), 0)) as s:
            try:
                s.getpeername()
            except OSError:
                continue  # it listens
            if s.family == socket.AF_INET:
                found.append(struct.unpack("=Q", s.getsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, 8))[0])
    os.close(process)
    return found


@unittest.skipIf(WHY_NOT, WHY_NOT)
class Pacing(unittest.TestCase):
    """The kernel paces connections of ranks and reducers if their round trip is 10 ms or longer."""

    def rates(self, delay_us):
        lab = net.Lab(2, delay_us=delay_us, build=harness.BUILD)
        with tempfile.TemporaryDirectory() as folder, lab:
            at = f"{lab.address(1)}:7600"
            job = f"job: {{name: far}}\nreducers: [{{id: r0, address: '{at}'}}]\n"
            pathlib.Path(folder, "job.yaml").write_text(job, encoding="ascii")
            quiet = {"stderr": subprocess.DEVNULL, "cwd": folder}
            server = lab.popen(1, [harness.BUILD / "bin/reduction-server", "--insecure", "--listen", at], **quiet)
            worker = lab.popen(0, [harness.PYTHON, "-c", TWO_RANKS], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               text=True, env={**os.environ, **harness.worker_env()}, **quiet)  # fmt: skip
            self.assertEqual([worker.stdout.readline() for _ in range(2)], ["up\n", "up\n"])
            rates = [pacing_rates(p.pid) for p in (worker, server)]
            for p in (worker, server):
                net.end(p)
        self.assertEqual([len(each) for each in rates], [2, 2])
        return sum(rates, [])

    def test_long_links(self):
        self.assertTrue(all(rate < UNPACED for rate in self.rates(8000)))

    def test_others(self):
        self.assertEqual(set(self.rates(1000)), {UNPACED})


@unittest.skipIf(WHY_NOT, WHY_NOT)
class Measuring(unittest.TestCase):
    """Launches that hang or fail, and a whole run."""

    def start(self, cluster, folder, *words):
        argv = [harness.PYTHON, str(NET / "bench.py"), "--build", str(harness.BUILD), "--out", folder]
        return cluster.start("bench-net", argv + ["--repeats", "1", "--seconds", "0.05", *words])

    def bench(self, folder, *words):
        """What bench-net prints, and its lines; the test is skipped while another one measures."""
        with harness.Cluster(start=False, reducers=0) as c:
            p = self.start(c, folder, *words)
            if p.wait(120) == 1 and "measures on this machine already" in p.err:
                self.skipTest(p.err.strip())
            self.assertEqual(p.code, 0, p.report())
            return p.out, report.read(pathlib.Path(folder) / "net.jsonl")

    def test_own_case(self):
        with tempfile.TemporaryDirectory() as folder:
            out, lines = self.bench(folder, "--n", "2", "--rate", "100mbit", "--delay-us", "500", "--bytes", "256KiB",
                                    "--peers", "bare-loop")
        self.assertRegex(out, r"^about \d+ minutes on an idle machine, 1 pass: own ")
        ours, loop = [r for r in lines if "system" in r]
        self.assertEqual((ours["system"], ours["case"], ours["wrong"], ours["failed"]), ("reduction", "own", 0, 0))
        self.assertEqual(loop["system"], "bare-loop")
        for r in (ours, loop):
            # after a pause a link's bucket is full, and few operations are soon over
            self.assertTrue(0 < r["algbw_MBps_median"] < 1.2 * r["bound_MBps"], r)
            self.assertTrue(0.99 < r["wire_tx_over_S"] < 1.3 and 0.99 < r["wire_rx_over_S"] < 1.3, r)

if __name__ == "__main__":
    harness.main()
