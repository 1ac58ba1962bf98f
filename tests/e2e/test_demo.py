# SPDX-License-Identifier: Apache-2.0
# run: beside-others
"""`make demo` without the installation: it trains, compares, and leaves nothing behind.
"""

import importlib.util
import os
import re
import signal
import unittest

import harness

MISSING = [name for name in ("torch", "sklearn") if importlib.util.find_spec(name) is None]


@unittest.skipIf(MISSING, f"there is no {' and no '.join(MISSING)}")
@unittest.skipIf(harness.SAN, "the demo is for people")
class Demo(unittest.TestCase):
    def setUp(self):
        self.cluster = harness.Cluster(start=False, reducers=0)
        self.cluster.__enter__()
        self.addCleanup(self.cluster.__exit__, None, None, None)

    def start(self, epochs):
        script = harness.ROOT / "agent" / "examples" / "demo" / "demo.py"
        argv = [harness.PYTHON, script, "--build", harness.BUILD, "--epochs", epochs]
        return self.cluster.start("demo", argv, env={"TMPDIR": str(self.cluster.dir)})

    def test_to_the_end(self):
        p = self.start(2)
        self.assertEqual(p.wait(120), 0, p.report())
        self.assertEqual(len(re.findall(r"epoch  2 of 2   loss \d\.\d+   test accuracy +\d+\.\d %", p.out)), 2)
        self.assertRegex(p.out, r"sent per worker and step .*\(0\.5\d G\).*\(1\.5\d G\)")
        self.assertIn("The loss curves agree", p.out)
        self.assertEqual(list(self.cluster.dir.iterdir()), [])

    def test_interrupted(self):
        p = self.start(1000)
        p.wait_text(r"epoch  2 of", stream="out", timeout=60)
        p.signal(signal.SIGINT)
        self.assertEqual(p.wait(30), 130, p.report())
        self.assertEqual(list(self.cluster.dir.iterdir()), [])

    def test_a_reducer_dies(self):
        p = self.start(1000)
        p.wait_text(r"epoch  2 of", stream="out", timeout=60)
        pid = int(re.search(r"reducer r1 +pid (\d+)", p.out).group(1))
        os.kill(pid, signal.SIGKILL)
        self.assertEqual(p.wait(30), 1, p.report())
        who = r"(reducer r1|rank \d with reducers|agent of node \d)"  # whoever the demo looked at first
        self.assertRegex(p.err, f"demo: {who} ended with exit status -?[0-9]+:\n")
        self.assertIn("    | ", p.err)
        self.assertEqual(list(self.cluster.dir.iterdir()), [])


if __name__ == "__main__":
    harness.main()
