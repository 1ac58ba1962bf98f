# SPDX-License-Identifier: Apache-2.0
"""reductionctl as a user runs it: output, error messages and exit status."""

import os
import pathlib
import subprocess
import tempfile
import unittest

import harness

CTL = harness.BUILD / "bin/reductionctl"
EXAMPLES = sorted((harness.ROOT / "config/examples").glob("*.yaml"))


def ctl(*args, stdout=subprocess.PIPE):
    done = subprocess.run([CTL, *args], stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=20 * harness.SCALE)
    return done.returncode, done.stdout, done.stderr


class Reductionctl(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="reduction-")
        self.addCleanup(folder.cleanup)
        self.file = pathlib.Path(folder.name) / "a.yaml"

    def test_check_examples(self):
        self.assertGreaterEqual(len(EXAMPLES), 6)
        for example in EXAMPLES:
            status, out, err = ctl("check", str(example))
            self.assertEqual((status, err), (0, ""))
            self.assertTrue(out.startswith(f"{example}: ok: "), out)

    def test_check_says_what_a_worker_needs(self):
        status, out, err = ctl("check", str(harness.ROOT / "config/examples/four-reducers.yaml"))
        self.assertEqual((status, err), (0, ""))
        self.assertIn(
            ": ok: 4 reducers with 16 lanes, 64 shards, chunks of 32KiB, window 4, at most 2MiB in flight a worker\n",
            out,
        )

    def test_check_bad_file(self):
        self.file.write_text("sharding:\n  window: 0\n")
        expected = f"reductionctl: {self.file}:2:11: sharding.window: found \"0\", expected a whole number from 1 to 1024\n"
        for command in "check", "print", "map":
            self.assertEqual(ctl(command, str(self.file)), (1, "", expected))

    def test_print_can_be_read_again(self):
        for example in EXAMPLES:
            status, first, err = ctl("print", str(example))
            self.assertEqual((status, err), (0, ""))
            self.file.write_text(first)
            self.assertEqual(ctl("print", str(self.file)), (0, first, ""))

    def test_print_without_file(self):
        status, out, err = ctl("print")
        self.assertEqual((status, err), (0, ""))
        self.assertIn('    address: "127.0.0.1:7600"\n', out)
        self.assertIn("  detect: 10s\n", out)

    def test_map(self):
        self.file.write_text(
            "reducers: [{id: a, address: x, lanes: 2}, {id: b, address: y}]\n"
            "sharding: {map: {0-2: a, 3: b}}\n"
        )
        status, out, err = ctl("map", str(self.file))
        self.assertEqual((status, err), (0, ""))
        lines = [line.split() for line in out.splitlines()]
        self.assertEqual(lines[1:3], [["a", "x:7600", "3", "75.00%", "2"], ["b", "y:7600", "1", "25.00%", "1"]])
        self.assertEqual(lines[5:], [["0", "a", "0"], ["1", "a", "1"], ["2", "a", "0"], ["3", "b", "0"]])

    def test_reference_is_the_readme(self):
        readme = (harness.ROOT / "config/README.md").read_text()
        self.assertEqual(ctl("reference"), (0, readme, ""))

    def test_help_and_version(self):
        self.assertEqual(ctl("--help")[::2], (0, ""))
        self.assertTrue(ctl("--help")[1].startswith("Usage: reductionctl COMMAND [FILE]\n"))
        self.assertTrue(ctl("check", "--help")[1].startswith("Usage: reductionctl check FILE\n"))
        self.assertRegex(ctl("--version")[1], r"^reductionctl \d+\.\d+\.\d+\n$")

    def test_wrong_usage(self):
        for args, said in [
            ((), "Usage: reductionctl COMMAND [FILE]"),
            (("chekc",), 'reductionctl: found unknown command "chekc", did you mean check?'),
            (("xyzzy",), 'reductionctl: found unknown command "xyzzy"'),
            (("--frob",), 'reductionctl: found unknown option "--frob"'),
            (("check",), 'reductionctl: found no file, expected one after "check"'),
            (("check", "--frob"), 'reductionctl: found unknown option "--frob"'),
            (("check", "a", "b"), 'reductionctl: found one argument too many: "b"'),
            (("reference", "a"), 'reductionctl: found one argument too many: "a"'),
        ]:
            status, out, err = ctl(*args)
            self.assertEqual((status, out, err.splitlines()[0]), (2, "", said))

    @unittest.skipUnless(os.path.exists("/dev/full"), "there is no /dev/full")
    def test_full_disk(self):
        with open("/dev/full", "w") as full:
            status, _, err = ctl("print", stdout=full)
        self.assertEqual((status, err), (1, "reductionctl: cannot write to standard output: No space left on device\n"))


if __name__ == "__main__":
    harness.main()
