# SPDX-License-Identifier: Apache-2.0
# run: beside-others all-only
"""`make demo` without the installation: it trains, checks the sums, and leaves nothing behind.
"""

import importlib.util
import os
import pathlib
import pty
import re
import select
import signal
import unittest

import harness


def read(path):
    """The content of a file of /proc; nothing if its process has ended."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


MISSING = [name for name in ("torch", "sklearn") if importlib.util.find_spec(name) is None]


@unittest.skipIf(MISSING, f"there is no {' and no '.join(MISSING)}")
@unittest.skipIf(harness.SAN, "the demo is for people")
class Demo(unittest.TestCase):
    def setUp(self):
        self.cluster = harness.Cluster(start=False, reducers=0)
        self.cluster.__enter__()
        self.addCleanup(self.cluster.__exit__, None, None, None)

    def start(self, epochs, *more):
        script = harness.ROOT / "agent" / "examples" / "demo" / "demo.py"
        argv = [harness.PYTHON, script, "--build", harness.BUILD, "--epochs", epochs, *more]
        return self.cluster.start("demo", argv, env={"TMPDIR": str(self.cluster.dir)})

    def test_complete_run(self):
        p = self.start(2)
        self.assertEqual(p.wait(120), 0, p.report())
        self.assertEqual(len(re.findall(r"^  loss of each epoch: \d\.\d{4} \d\.\d{4}$", p.out, re.M)), 2)
        self.assertRegex(p.out, r"sent per worker and step .*\(0\.5\d G\).*\(1\.5\d G\)")
        elements = 4 * 24 * 283786  # ranks, steps of 2 epochs, parameters
        self.assertRegex(p.out, rf"averages checked, elements on all ranks +{elements:,} +{elements:,}\n")
        self.assertRegex(p.out, r"outside the rounding bound +0 +0\n")
        self.assertIn("The sums are right", p.out)
        self.assertLessEqual(len(p.out.partition("3. Compared")[2].splitlines()), 25)
        self.assertLessEqual(max(map(len, p.out.splitlines())), 120)
        self.assertEqual(list(self.cluster.dir.iterdir()), [])

    def test_a_wrong_sum_is_found(self):
        p = self.start(1, "--wrong-sum")
        self.assertEqual(p.wait(120), 1, p.report())
        self.assertRegex(p.out, r"reducers: 1 of \d+ elements are WRONG, the worst by \d\.\d times the rounding bound")
        self.assertNotIn("gloo: ", p.out)
        self.assertNotIn("The sums are right", p.out)

    def test_interrupted(self):
        p = self.start(1000)
        p.wait_text(r"loss of each epoch:( \d\.\d+){2}", stream="out", timeout=60)
        p.signal(signal.SIGINT)
        self.assertEqual(p.wait(30), 130, p.report())
        self.assertEqual(list(self.cluster.dir.iterdir()), [])

    def test_interrupted_while_it_compiles(self):
        """Ctrl-C in a terminal: make, the compilers and the temporary files disappear."""
        build = self.cluster.dir / "build"
        temporary = self.cluster.dir / "tmp"
        temporary.mkdir()
        env = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(harness.ROOT)
            os.execvpe("make", ["make", "demo", f"BUILD={build}"], dict(env, TMPDIR=str(temporary)))
        said = b""
        while b"compiling: " not in said:
            self.assertTrue(select.select([terminal], [], [], 120)[0], said)
            said += os.read(terminal, 4096)
        os.write(terminal, b"\x03")
        while select.select([terminal], [], [], 120)[0]:
            try:
                said += os.read(terminal, 4096)
            except OSError:  # the last process has closed the terminal
                break
        os.close(terminal)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        self.assertNotEqual(status, 0, said)
        self.assertNotIn(b"A convolutional network", said)
        self.assertEqual(list(temporary.iterdir()), [])
        left = [p for p in pathlib.Path("/proc").glob("[0-9]*/cmdline") if str(build).encode() in read(p)]
        self.assertEqual(left, [])

    def test_a_reducer_is_killed(self):
        p = self.start(1000)
        p.wait_text(r"loss of each epoch:( \d\.\d+){2}", stream="out", timeout=60)
        pid = int(re.search(r"reducer r1 +pid (\d+)", p.out).group(1))
        os.kill(pid, signal.SIGKILL)
        self.assertEqual(p.wait(30), 1, p.report())
        who = r"(reducer r1|rank \d with reducers|agent of node \d)"  # whoever the demo looked at first
        self.assertRegex(p.err, f"demo: {who} ended with exit status -?[0-9]+:\n")
        self.assertIn("    | ", p.err)
        self.assertEqual(list(self.cluster.dir.iterdir()), [])


@unittest.skipIf(harness.SAN, "numpy alone")
@unittest.skipIf(importlib.util.find_spec("numpy") is None, "there is no numpy")
class Check(unittest.TestCase):
    """agent/examples/demo/check.py: right averages pass for any order of addition, wrong ones fail."""

    @classmethod
    def setUpClass(cls):
        file = harness.ROOT / "agent" / "examples" / "demo" / "check.py"
        spec = importlib.util.spec_from_file_location("check", file)
        cls.check = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(cls.check)

    def contributions(self, n, scale):
        import numpy

        random = numpy.random.default_rng(n)
        return [(random.standard_normal(4096) * scale).astype(numpy.float32) for _ in range(n)]

    def test_every_order_of_addition_passes(self):
        import itertools

        import numpy

        for n, scale in ((2, 1.0), (3, 1e-30), (4, 1e-3), (4, 1e-44), (4, 1e30)):
            parts = self.contributions(n, scale)
            for order in itertools.permutations(parts):
                total = order[0].copy()
                for part in order[1:]:
                    total += part
                divided_first = sum((p / numpy.float32(n) for p in order[1:]), order[0] / numpy.float32(n))
                for average in (total / numpy.float32(n), divided_first):
                    with self.subTest(n=n, scale=scale):
                        wrong, worst = self.check.compare(average, parts)
                        self.assertEqual(wrong, 0)
                        self.assertLessEqual(worst, 1)

    def test_wrong_averages_fail(self):
        import numpy

        parts = self.contributions(4, 1e-3)
        right = sum(parts[1:], parts[0].copy()) / numpy.float32(4)

        def off(average):
            self.check.damage(average, parts)

        def nan(average):
            average[17] = numpy.nan

        def infinite(average):
            average[17] = numpy.inf

        def one_rank_missing(average):
            average[17] = (parts[0][17] + parts[1][17] + parts[2][17]) / numpy.float32(4)

        def one_rank_twice(average):
            average[17] += parts[0][17] / numpy.float32(4)

        for fault in (off, nan, infinite, one_rank_missing, one_rank_twice):
            with self.subTest(fault.__name__):
                average = right.copy()
                fault(average)
                wrong, worst = self.check.compare(average, parts)
                self.assertEqual(wrong, 1)
                self.assertFalse(worst <= 1)


if __name__ == "__main__":
    harness.main()
