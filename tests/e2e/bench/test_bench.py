# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan all-only
"""reduction-bench: its numbers, its processes, and how it ends.

Not under ThreadSanitizer: the program has no threads of its own, and test_capi covers those of the library.
"""

import json
import os
import pathlib
import re
import signal
import time
import unittest

import harness

BENCH = harness.binary("reduction-bench")


def local(*more, ranks=2, reducers=1):
    """A command that needs no other process."""
    return [BENCH, "--ranks", ranks, "--local-reducers", reducers, *map(str, more)]


def children(pid):
    """Returns the process ids of the children of a process."""
    return [int(p) for p in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def command(pid):
    """Returns the first word of a process's command line, "" if it has ended."""
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode()
    except OSError:
        return ""


def wait_gone(pids, seconds=20):
    """Waits until the processes have ended; returns those that have not."""
    deadline = time.monotonic() + seconds * harness.SCALE
    while (left := [p for p in pids if command(p)]) and time.monotonic() < deadline:
        time.sleep(0.02)
    return left


class Bench(unittest.TestCase):
    def setUp(self):
        self.cluster = harness.Cluster(start=False, reducers=0)
        self.cluster.__enter__()
        self.addCleanup(self.cluster.__exit__, None, None, None)

    def bench(self, argv, timeout=60, status=0):
        p = self.cluster.start("reduction-bench", argv)
        self.assertEqual(p.wait(timeout), status, p.report())
        return p

    def test_all_types_and_operations(self):
        argv = local("-d", "all", "-o", "all", "-b", 0, "-e", "16K", "-f", 16384, "-n", 2, "-w", 1, "--json", ranks=3)
        rows = [json.loads(line) for line in self.bench(argv).out.splitlines()]
        self.assertEqual(len(rows), 10 * 5 * 3 * 2)  # dtypes, operations, sizes (0, 1, 16K), places
        self.assertEqual({row["wrong"] for row in rows}, {0})
        self.assertEqual({row["dtype"] for row in rows} | {row["op"] for row in rows}, set(
            "int8 uint8 int32 uint32 int64 uint64 float16 float32 float64 bfloat16 sum prod max min avg".split()))

    def test_one_node(self):
        """With reducers, which the only node does not need."""
        argv = local("--mode", "node", "-d", "float16", "-o", "avg", "-b", 0, "-e", "1M", "-f", 1024, "-n", 2, ranks=3)
        out = self.bench(argv).out
        self.assertIn("all ranks are on this node, which sums in its shared memory: the local reducers are idle", out)
        self.assertIn("wrong elements: 0", out)

    def test_numbers(self):
        argv = local("-b", "1M", "-e", "1M", "-n", 5, "--inplace", "no", "--json", ranks=4, reducers=2)
        (row,) = [json.loads(line) for line in self.bench(argv).out.splitlines()]
        self.assertEqual((row["bytes"], row["count"], row["ranks"], row["iters"]), (1 << 20, 1 << 18, 4, 5))
        times = row["time_us"]
        self.assertTrue(0 < times["min"] <= times["p50"] <= times["p99"] <= times["max"], times)
        self.assertTrue(times["min"] <= times["avg"] <= times["max"], times)
        self.assertAlmostEqual(row["algbw"], row["bytes"] / times["avg"] / 1e3, places=4)
        self.assertAlmostEqual(row["busbw"], row["algbw"] * 1.5, places=4)

    def test_table(self):
        out = self.bench(local("-b", "4K", "-e", "64K", "-f", 4, "-n", 3, "-a", 4, "--lanes", 2)).out
        rows = [line.split() for line in out.splitlines() if not line.startswith("#")]
        for row, count in zip(rows, (1024, 4096, 16384)):
            self.assertEqual(row[:4], [str(4 * count), str(count), "float32", "sum"])
        self.assertEqual(len(rows), 3)
        for row in rows:
            self.assertEqual((len(row), row[9], row[15]), (16, "0", "0"), row)
        self.assertRegex(out.splitlines()[-1], r"^# 3 rows in .* wrong elements: 0$")

    def test_tensors(self):
        """Three rows for each size; a group of 200 tensors sends as many bytes as one tensor of their total size."""
        argv = local("-b", 1000, "-e", 1000, "-n", 5, "--tensors", 200, "--json", ranks=3, reducers=2)
        rows = [json.loads(line) for line in self.bench(argv).out.splitlines()]
        self.assertEqual([row["way"] for row in rows], ["separate"] * 2 + ["grouped"] * 2 + ["single"] * 2)
        self.assertEqual({(row["tensors"], row["bytes"], row["count"]) for row in rows}, {(200, 200_000, 50_000)})
        self.assertEqual({row["wrong"] for row in rows}, {0})
        separate, grouped, single = (row["sent"] for row in rows[::2])
        self.assertLessEqual(grouped, 1.05 * single)
        self.assertGreater(separate, grouped)
        table = self.bench(local("-b", "2K", "-e", "2K", "-n", 2, "--tensors", 3, "--inplace", "no")).out
        ways = [line.split()[4] for line in table.splitlines() if not line.startswith("#")]
        self.assertEqual(ways, ["separate", "grouped", "single"])

    def test_behind(self):
        """Three rows for each size; only the time of the small operation counts; both sums are right."""
        argv = local("-b", "4K", "-e", "4K", "-n", 3, "--behind", "8M", "--json", "--inplace", "only", reducers=2)
        rows = [json.loads(line) for line in self.bench(argv).out.splitlines()]
        self.assertEqual([row["way"] for row in rows], ["alone", "behind", "urgent"])
        self.assertEqual({(row["behind"], row["bytes"], row["wrong"]) for row in rows}, {(8 << 20, 4096, 0)})
        self.assertLess(rows[0]["sent"], 3 * 4096)
        for row in rows[1:]:
            self.assertGreater(row["sent"], 8 << 20)
        table = self.bench(local("-b", "2K", "-e", "2K", "-n", 2, "--behind", "1M", "--inplace", "no")).out
        ways = [line.split()[4] for line in table.splitlines() if not line.startswith("#")]
        self.assertEqual(ways, ["alone", "behind", "urgent"])

    def test_not_checked(self):
        out = self.bench(local("-e", "4K", "-n", 1, "-c", 0, "--inplace", "only", "--malloc")).out
        self.assertRegex(out, r"(?m)^ +4096 .* N/A$")

    def test_help_and_mistakes(self):
        self.assertIn("--local-reducers", self.bench([BENCH, "--help"]).out)
        for words, sentence in (
            (["--frob"], "unrecognized option"),
            (["-d", "float8"], 'found "float8"'),
            (["-n", "0"], 'found "0", expected 1 to'),
            (["-b", "12Q"], 'found "12Q", expected a size'),
            (["-b", "2M", "-e", "1M"], "-b is larger than -e"),
            (["-f", "1"], "expected a number above 1"),
            (["--inplace", "maybe"], "both, only or no"),
            (["--local-reducers", "2"], "needs --ranks"),
            (["--lanes", "2"], "--local-reducers"),
            (["--tensors", "2", "--async", "2"], "--tensors and --async cannot be given together"),
            (["--behind", "0"], "expected a size above 0"),
            (["--behind", "1M", "--async", "2"], "--behind cannot be given together with --tensors or --async"),
            (["--tensors", "4096", "-e", "4000000G"], "-e times --tensors is too large"),
            (["word"], 'unexpected argument "word"'),
        ):
            with self.subTest(words):
                p = self.bench([BENCH] + words, status=2)
                self.assertIn(sentence, p.err)
                self.assertEqual(p.out, "")

    def test_a_reducer_that_does_not_start(self):
        p = self.bench(local("--cpu", "z80"), status=1)
        self.assertIn("reducer r0 ended at its start", p.err)
        self.assertIn("z80", p.err)

    def start_long(self):
        """Starts a bench that does not end by itself; returns it and the ids of its processes, reducers first."""
        p = self.cluster.start("reduction-bench", local("-b", "1M", "-e", "1M", "-n", 1000000, reducers=2))
        p.wait_text("count", stream="out")  # the header: everything has started
        return p, sorted(children(p.pid), key=lambda pid: "server" not in command(pid))

    def temporary(self, pids):
        """Returns where the reducers among the processes write their logs."""
        return pathlib.Path(os.readlink(f"/proc/{pids[0]}/fd/2")).parent

    def test_signals(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(number):
                p, pids = self.start_long()
                folder = self.temporary(pids)
                self.assertTrue(folder.exists())
                p.signal(number)
                self.assertEqual(p.wait(30), 128 + number, p.report())
                self.assertEqual(wait_gone(pids), [])
                self.assertFalse(folder.exists())

    def test_killed(self):
        p, pids = self.start_long()
        folder = self.temporary(pids)
        self.assertEqual(len(pids), 4)
        os.kill(p.pid, signal.SIGKILL)
        self.assertEqual(wait_gone(pids), [])
        p.wait()
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()

    def test_reducer_killed(self):
        p, pids = self.start_long()
        os.kill(pids[1], signal.SIGKILL)
        self.assertEqual(p.wait(60), 1, p.report())
        self.assertRegex(p.err, r"reduction-bench: reducer r\d ended")
        self.assertEqual(wait_gone(pids), [])

    def test_rank_killed(self):
        p, pids = self.start_long()
        os.kill(pids[3], signal.SIGKILL)
        self.assertEqual(p.wait(60), 1, p.report())
        self.assertRegex(p.err, r"reduction-bench: rank [01] was ended by signal 9")
        self.assertTrue(re.search(r"reduction-bench: rank [01]: .*rank [01]", p.err), p.err)
        self.assertEqual(wait_gone(pids), [])


class Launched(unittest.TestCase):
    """As one rank of a job of another launcher."""

    def test_through_agents(self):
        with harness.Cluster(reducers=2, agents=2) as c:
            procs = c.run(4, [BENCH, "-b", "4K", "-e", "1M", "-n", 3, "--json"])
            rows = [json.loads(line) for line in procs[0].out.splitlines()]
            self.assertEqual([(row["ranks"], row["wrong"]) for row in rows], [(4, 0)] * 10)
            self.assertEqual([p.out for p in procs[1:]], ["", "", ""])

    def test_ranks_disagree(self):
        with harness.Cluster() as c:
            procs = c.run(2, lambda rank: [BENCH, "-e", "4K", "-o", ["sum", "max"][rank]], check=False)
            for p in procs:
                self.assertEqual(p.code, 1, p.report())
                self.assertRegex(p.err, r"reduction-bench: rank [01]: .*max")


if __name__ == "__main__":
    harness.main()
