# SPDX-License-Identifier: Apache-2.0
# run: beside-others all-only
"""`make demo-elastic` without the installation, with short pauses: it trains twice, compares, draws, and leaves nothing
behind."""

import importlib.util
import re
import signal
import sys
import unittest
import xml.etree.ElementTree

import harness

DEMO = harness.ROOT / "agent" / "examples" / "demo"
MISSING = [name for name in ("numpy", "sklearn") if importlib.util.find_spec(name) is None]


@unittest.skipIf(MISSING, f"there is no {' and no '.join(MISSING)}")
@unittest.skipIf(harness.SAN, "the demo is for people")
class DemoElastic(unittest.TestCase):
    def setUp(self):
        self.cluster = harness.Cluster(start=False, reducers=0)
        self.cluster.__enter__()
        self.addCleanup(self.cluster.__exit__, None, None, None)
        self.plot = self.cluster.dir / "plots" / "elastic.svg"

    def start(self):
        argv = [harness.PYTHON, DEMO / "elastic.py", "--build", harness.BUILD, "--rest", "0.2", "--plot", self.plot]
        return self.cluster.start("demo", argv, env={"TMPDIR": str(self.cluster.dir)})

    def test_complete_run(self):
        p = self.start()
        self.assertEqual(p.wait(120), 0, p.report())
        self.assertEqual(len(re.findall(r"^  r\d (starts|drains|is killed) .* knows after \d", p.out, re.M)), 8, p.out)
        steps, same = re.search(r"^  steps +(\d+)\n  of these with the same loss, .* (\d+)\n", p.out, re.M).groups()
        self.assertEqual(steps, same)
        self.assertGreater(int(steps), 20)
        self.assertIn("have changed no bit", p.out)
        self.assertLessEqual(max(map(len, p.out.splitlines())), 120)
        texts = [t.text for t in xml.etree.ElementTree.parse(self.plot).iter("{http://www.w3.org/2000/svg}text")]
        for text in ("equal bit for bit", "+r2 start", "−r0 drain", "−r1 kill", "reducers that sum"):
            self.assertIn(text, texts)
        self.assertEqual(list(self.cluster.dir.iterdir()), [self.plot.parent])

    def test_interrupted(self):
        p = self.start()
        p.wait_text(r"r2 starts .*\n", stream="out", timeout=60)
        p.signal(signal.SIGINT)
        self.assertEqual(p.wait(30), 130, p.report())
        self.assertEqual(list(self.cluster.dir.iterdir()), [])


@unittest.skipIf(harness.SAN, "numpy alone")
@unittest.skipIf(MISSING, f"there is no {' and no '.join(MISSING)}")
class Compare(unittest.TestCase):
    """Losses or weights that differ in one place are found."""

    @classmethod
    def setUpClass(cls):
        sys.path.insert(0, str(DEMO))
        cls.addClassCleanup(sys.path.remove, str(DEMO))
        import elastic
        import elastic_plot

        cls.elastic, cls.plot = elastic, elastic_plot

    def results(self, loss=0.5, digest="a"):
        return [{"steps": [[10.0, 0.1, 1.0], [10.2, 0.1, loss]], "digest": d} for d in ("a", digest)]

    def test_equal(self):
        self.assertTrue(self.elastic.compare(self.results(), self.results()))

    def test_different(self):
        self.assertFalse(self.elastic.compare(self.results(), self.results(loss=0.5 + 2**-24)))
        self.assertFalse(self.elastic.compare(self.results(digest="b"), self.results()))

    def test_the_drawing_says_so(self):
        one, two = self.results()[0]["steps"], self.results(loss=0.6)[0]["steps"]
        self.assertIn("equal bit for bit", self.plot.draw(one, one, [(10.1, "start", 2)], 2))
        self.assertIn("THEY DIFFER", self.plot.draw(one, two, [(10.1, "start", 2)], 2))


if __name__ == "__main__":
    harness.main()
