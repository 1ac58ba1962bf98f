# SPDX-License-Identifier: Apache-2.0
# run: beside-others
"""reductionctl as a user runs it: output, error messages and exit status.
"""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import harness

CTL = harness.BUILD / "bin/reductionctl"
EXAMPLES = sorted((harness.ROOT / "config/examples").glob("*.yaml"))
MIXED = str(harness.ROOT / "config/examples/mixed.yaml")


def ctl(*args, stdout=subprocess.PIPE):
    done = subprocess.run([CTL, *args], stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=20 * harness.SCALE)
    return done.returncode, done.stdout, done.stderr


class Reductionctl(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="reduction-")
        self.addCleanup(folder.cleanup)
        self.file = pathlib.Path(folder.name) / "a.yaml"

    def test_check_examples(self):
        """With the certificates that they name, in a folder of the test's."""
        etc = self.file.parent
        subprocess.run([harness.ROOT / "deploy/make-certs.sh", etc / "tls", "reducer:r0.cluster", "client:vision"],
                       check=True, stdout=subprocess.DEVNULL)  # fmt: skip
        self.assertGreaterEqual(len(EXAMPLES), 8)
        for example in EXAMPLES:
            self.file.write_text(example.read_text().replace("/etc/reduction/tls/", f"{etc}/tls/"))
            status, out, err = ctl("check", str(self.file))
            self.assertEqual((status, err), (0, ""), example)
            self.assertIn(f"{self.file}: ok: ", out)

    def test_check_reports_missing_settings_of_workers(self):
        status, out, err = ctl("check", str(harness.ROOT / "config/examples/four-reducers.yaml"))
        self.assertEqual((status, err), (0, ""))
        self.assertIn(
            ": ok: 4 reducers with 16 lanes, 64 shards, chunks of 32KiB, window 4, at most 2560KiB in flight a "
            "worker\n",
            out,
        )

    def test_check_bad_file(self):
        self.file.write_text("sharding:\n  window: 0\n")
        expected = (
            f"reductionctl: {self.file}:2:11: sharding.window: "
            'found "0", expected a whole number from 1 to 1024\n'
        )
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

    def plan(self, *args):
        status, out, err = ctl("plan", *args, "--json")
        self.assertEqual((status, err), (0, ""))
        return json.loads(out)

    def test_plan_of_the_mixed_example(self):
        status, out, err = ctl("plan", MIXED)
        self.assertEqual((status, err), (0, ""))
        comments = [line for line in out.splitlines() if line.startswith("#")]
        self.assertEqual(comments[0], "# all-reduce of 100MiB, 6 workers, 8 reducers, 8 machines")
        self.assertTrue([line for line in comments if line.startswith("# verdict: yes, to the extent that ")], out)
        # what is printed can stand in a file as it is, and that file gives the same map
        whole = (harness.ROOT / "config/examples/mixed.yaml").read_text() + out
        self.file.write_text(whole)
        self.assertEqual(ctl("check", str(self.file))[::2], (0, ""))
        self.assertEqual(ctl("plan", str(self.file)), (0, out, ""))

    def test_plan_in_json(self):
        n, k, size, rate = 6, 2, 100 << 20, 10e9 / 8
        got = self.plan(MIXED)
        optimum = 2 * n * (n - 1) * size / ((n * n + k * n - 2 * k) * rate)
        self.assertAlmostEqual(got["optimum_s"] / optimum, 1, 6)
        self.assertAlmostEqual(got["mixed_s"] / optimum, 1, 6)
        self.assertAlmostEqual(got["dedicated_s"] / (n * size / (k * rate)), 1, 6)
        self.assertAlmostEqual(got["ring_s"] / (2 * (n - 1) * size / (n * rate)), 1, 6)
        self.assertAlmostEqual(got["least_s"] / (size / rate), 1, 6)
        self.assertLessEqual(got["time_s"], optimum * 1.02)
        self.assertAlmostEqual(got["speedup"], got["ring_s"] / got["time_s"], 4)
        self.assertEqual(got["needed"], {"bandwidth": 10**10, "to_beat_ring": 4, "to_reach_least": 6})
        self.assertEqual((got["verdict"]["helps"], got["verdict"]["reason"]), (True, "if-not-hidden"))
        self.assertEqual(got["step_s"], 0.2)
        owners = got["owner"]
        self.assertEqual(len(owners), got["shards"])
        for reducer in got["reducers"]:
            self.assertEqual(owners.count(reducer["id"]), reducer["shards"])
        self.assertEqual([m["host"] for m in got["machines"]], [f"gpu-{i}" for i in range(6)] + ["cpu-0", "cpu-1"])
        for machine in got["machines"]:
            self.assertAlmostEqual(machine["in_over_S"] * size / rate / got["time_s"], machine["busy"], 4)
            self.assertEqual(machine["in_over_S"], machine["out_over_S"])

    def test_plan_options_override_the_file(self):
        got = self.plan(MIXED, "--bytes=1GiB", "--step", "1min", "--workers=8", "--bandwidth", "25gbit")
        self.assertEqual((got["bytes"], got["workers"], got["step_s"]), (1 << 30, 8, 60))
        self.assertEqual({m["bandwidth"] for m in got["machines"]}, {25 * 10**9})
        self.assertEqual([m["host"] for m in got["machines"][5:8]], ["gpu-5", "worker-6", "worker-7"])
        self.assertEqual((got["verdict"]["helps"], got["verdict"]["reason"]), (False, "compute-bound"))
        self.assertIn("the step of 60 s is compute-bound", got["verdict"]["text"])

    def test_plan_is_written(self):
        planned = self.file.with_name("planned.yaml")
        got = self.plan(MIXED, "--write", str(planned), "--workers", "5")
        self.assertEqual(os.listdir(planned.parent), ["planned.yaml"])
        status, out, _ = ctl("map", str(planned))
        self.assertEqual(status, 0)
        self.assertEqual([line.split()[1] for line in out.splitlines()[-got["shards"]:]], got["owner"])
        text = planned.read_text()
        self.assertIn("  workers: 5\n", text)
        self.assertIn("server:\n  listen: \"127.0.0.1:7600\"\n  grpc: \"\"\n  lanes: auto\n", text)
        # over the file that it is made from, and the same comes out
        status, out, err = ctl("plan", str(planned), "--write", str(planned))
        self.assertEqual((status, err, out.splitlines()[-1]), (0, "", f"# written to {planned}"))
        self.assertEqual(planned.read_text(), text)

    def test_plan_that_cannot_be_written(self):
        status, out, err = ctl("plan", MIXED, "--write", "/nonexistent/a.yaml")
        self.assertEqual((status, out), (1, ""))
        self.assertEqual(err, "reductionctl: cannot create /nonexistent/a.yaml.new: No such file or directory\n")

    def test_plan_of_a_slower_link(self):
        self.file.write_text(
            "plan: {workers: 4, bandwidth: 1gbit}\n"
            "reducers: [{id: a, address: a}, {id: b, address: b}, {id: c, address: c, bandwidth: 500mbit}]\n"
        )
        status, out, err = ctl("plan", str(self.file), "--json")
        if status == 1 and "built without a library" in err:
            self.skipTest("built without Clp")
        got = json.loads(out)
        shards = [reducer["shards"] for reducer in got["reducers"]]
        self.assertEqual((shards[0], shards[1]), (2 * shards[2], 2 * shards[2]))

    def test_plan_names_unused_reducers(self):
        self.file.write_text(
            "plan: {workers: 3, bandwidth: 1gbit}\n"
            "reducers: [{id: a, address: a}, {id: b, address: b}, {id: c, address: worker-0}, {id: d, address: d}]\n"
        )
        status, out, err = ctl("plan", str(self.file))
        self.assertEqual((status, err), (0, ""))
        self.assertNotIn('": c\n', out)
        self.assertIn("# not used, may be left out of the list of reducers: c\n", out)

    def test_plan_with_missing_settings(self):
        for text, said in [
            ("", "plan.workers: found no workers, expected at least 2, there, in the list workers, or from --workers"),
            (
                "plan: {workers: 2}\n",
                "plan.bandwidth: found no bandwidth for the link of worker-0, expected one there, at its worker or "
                "reducer, or from --bandwidth",
            ),
        ]:
            self.file.write_text(text)
            self.assertEqual(ctl("plan", str(self.file)), (1, "", f"reductionctl: {self.file}: {said}\n"))

    def test_reference_is_the_readme(self):
        readme = (harness.ROOT / "config/README.md").read_text()
        self.assertEqual(ctl("reference"), (0, readme, ""))

    def test_help_and_version(self):
        self.assertEqual(ctl("--help")[::2], (0, ""))
        self.assertTrue(ctl("--help")[1].startswith("Usage: reductionctl COMMAND [FILE] [OPTION]...\n"))
        self.assertTrue(ctl("check", "--help")[1].startswith("Usage: reductionctl check FILE\n"))
        self.assertRegex(ctl("--version")[1], r"^reductionctl \d+\.\d+\.\d+\n$")

    def test_wrong_usage(self):
        for args, said in [
            ((), "Usage: reductionctl COMMAND [FILE] [OPTION]..."),
            (("chekc",), 'reductionctl: found unknown command "chekc", did you mean check?'),
            (("xyzzy",), 'reductionctl: found unknown command "xyzzy"'),
            (("--frob",), 'reductionctl: found unknown option "--frob"'),
            (("check",), 'reductionctl: found no file, expected one after "check"'),
            (("check", "--frob"), 'reductionctl: found unknown option "--frob"'),
            (("check", "a", "b"), 'reductionctl: found one argument too many: "b"'),
            (("reference", "a"), 'reductionctl: found one argument too many: "a"'),
            (("check", "a", "--json"), 'reductionctl: found unknown option "--json"'),
            (("plan",), 'reductionctl: found no file, expected one after "plan"'),
            (("plan", MIXED, "--frob"), 'reductionctl: found unknown option "--frob"'),
            (("plan", MIXED, "-workers", "3"), 'reductionctl: found unknown option "-workers"'),
            (("plan", MIXED, "--workers"), 'reductionctl: found no value after "--workers"'),
            (("plan", MIXED, "--json=yes"), 'reductionctl: found a value where none is taken: "--json=yes"'),
            (
                ("plan", MIXED, "--workers=one"),
                'reductionctl: --workers: found "one", expected a whole number from 2 to 4096, or auto',
            ),
            (
                ("plan", MIXED, "--bandwidth", "10"),
                'reductionctl: --bandwidth: found "10", expected a number with kbit, mbit or gbit, or as 10Gbps '
                "(B would be bytes), from 1kbit to 100000gbit, or unknown",
            ),
            (
                ("plan", MIXED, "--bytes", "1Gb"),
                'reductionctl: --bytes: found "1Gb", expected bytes, or a number with KiB, MiB, GiB, kB, MB or GB '
                "(b would be bits), from 1 to 16384GiB",
            ),
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
