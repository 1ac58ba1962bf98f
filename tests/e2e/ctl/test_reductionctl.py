# SPDX-License-Identifier: Apache-2.0
# run: beside-others
"""reductionctl as a user runs it: output, error messages and exit status.
"""

import json
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

import harness

CTL = harness.BUILD / "bin/reductionctl"
EXAMPLES = sorted((harness.ROOT / "config/examples").glob("*.yaml"))
MIXED = str(harness.ROOT / "config/examples/mixed.yaml")


def ctl(*args, stdout=subprocess.PIPE, env=None):
    done = subprocess.run([CTL, *args], stdout=stdout, stderr=subprocess.PIPE, text=True, env=os.environ | (env or {}),
                          timeout=20 * harness.SCALE)  # fmt: skip
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

    GROUPS = (
        "reducers: [{id: a, address: 'x:1'}, {id: b, address: 'y:1'}, {id: c, address: 'z:1'}]\n"
        "sharding: {map: {0: a, 1: b, 2-3: c}}\n"
        "groups: [{name: one, relays: [a]}, {name: two, relays: {0: b}}, {name: three}]\n"
    )

    def test_map_of_groups(self):
        self.file.write_text(self.GROUPS)
        status, out, err = ctl("map", str(self.file), env={"REDUCTION_GROUP": "two"})
        self.assertEqual((status, err), (0, ""))
        lines = [line.split() for line in out.splitlines()]
        self.assertEqual(
            lines[5:9],
            [["group", "relay", "shards", "share"], ["one", "a", "3", "75.00%"], ["two", "b", "1", "25.00%"],
             ["three", "-", "0", "0.00%"]],
        )  # fmt: skip
        self.assertEqual(lines[10], "this machine is in group two".split())
        self.assertEqual(
            lines[13:],
            [["0", "a", "0", "two:", "b"], ["1", "b", "0", "one:", "a"], ["2", "c", "0", "one:", "a"],
             ["3", "c", "0", "one:", "a"]],
        )  # fmt: skip
        status, out, err = ctl("map", str(self.file))
        self.assertRegex(out, r"\nmachine \S+ \(addresses .*\) is in no group, expected one of one, two, three: ")
        status, out, err = ctl("map", str(self.file), env={"REDUCTION_GROUP": "four"})
        self.assertIn('\nREDUCTION_GROUP: found "four", expected the name of a group, one of one, two, three\n', out)

    def test_check_of_groups(self):
        self.file.write_text(self.GROUPS)
        status, out, err = ctl("check", str(self.file), env={"REDUCTION_GROUP": "two"})
        self.assertEqual((status, err), (0, ""))
        self.assertIn("groups: ok: this machine is in group two\n", out)
        self.assertIn(": ok: group one: 3 of 4 shards are relayed by a\n", out)
        self.assertIn(": ok: group two: 1 of 4 shards is relayed by b\n", out)
        self.assertIn(": ok: group three: 0 of 4 shards are relayed\n", out)
        # the file may be for another machine
        status, out, err = ctl("check", str(self.file))
        self.assertEqual((status, err), (0, ""))
        self.assertNotIn("this machine is in group", out)
        self.file.write_text(re.sub("'[xyz]:", "'127.0.0.1:", self.GROUPS.replace("y:1", "y:2").replace("z:1", "z:3")))
        status, out, err = ctl("check", str(self.file), "--role", "worker")
        self.assertEqual(status, 1)
        self.assertIn(f"{self.file}:3:9: groups: machine ", err)
        self.assertIn(" is in no group, expected one of one, two, three: add it", err)

    def test_check_of_groups_without_relays(self):
        self.file.write_text(
            "reducers: [{id: a, address: x}, {id: b, address: y}]\ngroups: [{name: one}, {name: two}]\n"
        )
        status, out, err = ctl("check", str(self.file))
        self.assertEqual(status, 0)
        self.assertIn(":2:9: warning: groups: no group has a relay: all chunks go straight to their reducers\n", err)

    def plan(self, *args):
        status, out, err = ctl("plan", *args, "--json")
        self.assertEqual((status, err), (0, ""))
        return json.loads(out)

    def test_plan_of_the_mixed_example(self):
        status, out, err = ctl("plan", MIXED)
        self.assertEqual((status, err), (0, ""))
        comments = [line for line in out.splitlines() if line.startswith("#")]
        self.assertTrue(comments[0].startswith("# yes, unless it overlaps with computing anyway: "), out)
        self.assertIn("# all-reduce of 100 MiB, 6 workers, 8 reducers, 8 machines", comments)
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
        self.assertEqual(got["needed"], {"bandwidth": 10**10, "to_beat_ring": 4, "to_reach_least": 6,
                                         "for_this_time": 5})  # fmt: skip
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

    def test_plan_of_long_links(self):
        """--rtt is for reducers of which the file says none, and is written with the plan."""
        self.assertIsNone(self.plan(MIXED)["long_links"])
        self.file.write_text("plan: {workers: 4, bandwidth: 1gbit}\n"
                             "reducers: [{id: a, address: a, rtt: 50ms}, {id: b, address: b}]\n")
        self.assertEqual(self.plan(str(self.file))["long_links"]["rtt_s"], 0.05)
        planned = self.file.with_name("planned.yaml")
        got = self.plan(str(self.file), "--rtt", "200ms", "--write", str(planned))
        self.assertEqual(got["long_links"]["rtt_s"], 0.2)
        self.assertGreater(got["long_links"]["retained_bytes"], 0)
        self.assertRegex(planned.read_text(), r"(?s)50ms.*200ms")
        status, out, err = ctl("plan", str(self.file))
        self.assertEqual((status, err), (0, ""))
        self.assertIn("# long links, round trip 50 ms: this all-reduce takes ", out)
        self.file.write_text(self.file.read_text() + out)  # comments and the map can stand in the file
        self.assertEqual(ctl("check", str(self.file))[::2], (0, ""))
        status, out, err = ctl("plan", MIXED, "--rtt", "3s")
        self.assertEqual((status, out), (2, ""))
        self.assertTrue(err.startswith('reductionctl: --rtt: found "3s", expected a number with ms'), err)

    def test_plan_is_written(self):
        planned = self.file.with_name("planned.yaml")
        got = self.plan(MIXED, "--write", str(planned), "--workers", "5")
        self.assertEqual(os.listdir(planned.parent), ["planned.yaml"])
        status, out, _ = ctl("map", str(planned))
        self.assertEqual(status, 0)
        self.assertEqual([line.split()[1] for line in out.splitlines()[-got["shards"]:]], got["owner"])
        text = planned.read_text()
        self.assertIn("  workers: 5\n", text)
        self.assertIn("server:\n  listen: \"127.0.0.1:7600\"\n  grpc: \"\"\n  http: \"\"\n  http_tls: off\n"
                      "  http_insecure: false\n  lanes: auto\n", text)
        # over the file that it is made from, and the same comes out
        status, out, err = ctl("plan", str(planned), "--write", str(planned))
        self.assertEqual((status, err, out.splitlines()[-1]), (0, "", f"written to {planned}"))
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
        self.assertEqual((status, err), (0, ""))
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
            (
                "reducers: [{id: a, address: a, bandwidth: 1gbit}]\n",
                "plan.workers: found no workers, expected at least 2, there, in the list workers, or from --workers",
            ),
            (
                "plan: {workers: 2}\nreducers: [{id: a, address: a, bandwidth: 1gbit}]\n",
                "plan.bandwidth: found no bandwidth for the link of worker-0, expected one there, at its worker or "
                "reducer, or from --bandwidth",
            ),
            (
                "plan: {workers: 4, bandwidth: 1gbit, racks: 2}\n",
                "plan.uplink: found no bandwidth of the 2 racks, expected one there or from --uplink",
            ),
        ]:
            self.file.write_text(text)
            self.assertEqual(ctl("plan", str(self.file)), (1, "", f"reductionctl: {self.file}: {said}\n"))
        status, out, err = ctl("plan", "--workers", "4", "--bandwidth", "1gbit", "--racks", "2")
        self.assertEqual((status, out), (1, ""))
        self.assertTrue(err.startswith("reductionctl: plan.uplink: found no bandwidth"), err)

    def test_plan_of_the_first_file_of_the_readme(self):
        """Without workers and bandwidth there are relative times, and what to add."""
        readme = (harness.ROOT / "README.md").read_text()
        text = readme.split("```yaml\n")[1].split("```")[0]
        self.assertIn("reducers:", text)
        self.file.write_text("\n".join(line[3:] for line in text.splitlines()))
        status, out, err = ctl("plan", str(self.file))
        self.assertEqual((status, err), (0, ""))
        self.assertIn("2 reducers", out)
        self.assertIn("add --workers N and --bandwidth RATE,\nor plan.workers and plan.bandwidth to the file", out)
        got = self.plan(str(self.file))
        self.assertEqual(got["missing"], ["workers", "bandwidth"])
        row = got["relative"][2]
        self.assertEqual((row["workers"], row["reducers"], row["ring"], row["time"]), (8, 2, 1.75, 4))
        self.assertEqual((row["to_beat_ring"], row["to_reach_least"]), (5, 8))
        got = self.plan(str(self.file), "--workers", "4")
        self.assertEqual((got["missing"], len(got["relative"])), (["bandwidth"], 1))
        got = self.plan(str(self.file), "--workers", "4", "--bandwidth", "1Gbps")
        self.assertEqual(got["verdict"]["reason"], "slower-than-ring")

    def test_plan_without_a_file(self):
        args = ["--workers", "8", "--reducers", "16", "--bandwidth", "25gbit", "--bytes", "1GB", "--step", "300ms",
                "--ranks-per-node", "8", "--wire", "bf16"]  # fmt: skip
        got = self.plan(*args)
        self.assertAlmostEqual(got["time_s"], 0.16, 6)
        self.assertAlmostEqual(got["ring_s"], 0.28, 6)
        self.assertAlmostEqual(got["ring_of_ranks_s"], 0.16 * 2 * 63 / 64, 6)
        self.assertAlmostEqual(got["step_no_overlap_s"]["reducers"], 0.46, 6)
        self.assertEqual(got["needed"]["for_this_time"], 8)
        self.assertEqual((len(got["reducers"]), got["workers"], got["sent_bytes"]), (16, 8, 5 * 10**8))
        status, out, err = ctl("plan", *args)
        self.assertEqual((status, err), (0, ""))
        lines = out.splitlines()
        self.assertTrue(lines[0].startswith("yes"), out)
        self.assertIn("  8 reducers on machines of their own (25gbit) suffice for this time", lines)
        self.assertIn("  measured: 0.8 to 1.6 CPU s for each GiB that workers send (bench/README.md)", lines)
        self.assertRegex(out, r"worker-0 \.\. worker-7 .* bottleneck\n")
        self.assertNotIn("sharding:", out)
        self.assertFalse([line for line in lines if line.startswith("#") or line != line.rstrip() or len(line) > 120])
        self.assertEqual(len(self.plan("--workers", "6", "--bandwidth", "10Gbit")["reducers"]), 6)

    def test_plan_with_8_bits(self):
        """A ring has none: it is one of 16 bits."""
        args = ["--workers", "8", "--bandwidth", "1gbit", "--bytes", "128MB", "--wire", "fp8"]
        got = self.plan(*args)
        self.assertEqual((got["sent_bytes"], got["ring_bytes"]), (32500000, 64000000))
        self.assertAlmostEqual(got["speedup"], 1.75 * 64 / 32.5, 6)
        status, out, err = ctl("plan", *args)
        self.assertEqual((status, err), (0, ""))
        self.assertIn("yes: the all-reduce takes 260 ms, 3.45 times as fast as a 16-bit ring (896 ms)\n", out)
        self.assertIn("all-reduce of 128 MB, sent as 32.5 MB of fp8 (a 16-bit ring: 64 MB), 8 workers", out)

    def test_plan_writes_a_valid_file_for_other_numbers_of_reducers(self):
        ids = ("reducer-1", "reducer-2", "x")
        self.file.write_text("plan: {workers: 4, bandwidth: 10gbit}\njob: {min_reducers: 3}\nreducers:\n" + "".join(
            f"- {{id: {name}, address: '{at}:7600'}}\n" for name, at in zip(ids, ("a", "reducer-2", "reducer-4"))))
        written = self.file.with_suffix(".new.yaml")
        for n, names in ((1, ids[:1]), (3, ids), (5, ids + ("reducer-3", "reducer-5"))):
            got = self.plan(str(self.file), "--reducers", str(n), "--write", str(written))
            self.assertEqual(tuple(r["id"] for r in got["reducers"]), names)
            status, out, err = ctl("check", str(written))
            self.assertEqual((status, err), (0, ""), out)

    def test_plan_in_the_documents(self):
        text = (harness.ROOT / "deploy/README.md").read_text()
        command, output = text.split("```console\n$ reductionctl plan ")[1].split("```")[0].split("\n", 1)
        begin, _, _ = output.partition("...\n")
        status, out, err = ctl("plan", *command.split())
        self.assertEqual((status, out[: len(begin)], err), (0, begin, ""))

    def test_plan_knows_racks(self):
        args = ["--workers", "8", "--reducers", "8", "--bandwidth", "250mbit", "--racks", "2", "--uplink"]
        rates = ("1gbit", "500mbit", "250mbit")
        flat = [self.plan(*args, uplink, "--relays", "off") for uplink in rates]
        self.assertEqual([got["verdict"]["reason"] for got in flat], ["faster", "slower-than-ring", "slower-than-ring"])
        self.assertEqual([got["relays"] for got in flat], [{}] * 3)
        for uplink, gain in zip(rates, (1.75, 1.53125, 1.4)):
            got = self.plan(*args, uplink)
            self.assertAlmostEqual(got["speedup"], gain, 6)
            self.assertEqual(sorted(got["relays"]), ["rack-0", "rack-1"] if gain < 1.75 else [])
        status, out, _ = ctl("plan", *args, "250mbit", "--relays=off")
        self.assertEqual(status, 0)
        self.assertTrue(out.startswith("no: do not use reducers here: "), out)
        self.assertIn("spread evenly over 2 racks, each joined to the others with 250mbit\n", out)
        self.assertRegex(out, r"rack-0 \.\. rack-1 .* 4\.000x  100%  bottleneck\n")
        # the same from a file
        self.file.write_text("plan: {workers: 8, bandwidth: 250mbit, racks: 2, uplink: 250mbit}\n")
        got, other = self.plan(*args, "250mbit"), self.plan(str(self.file), "--reducers", "8")
        self.assertEqual((got["time_s"], got["racks"]), (other["time_s"], other["racks"]))

    def test_plan_with_relays(self):
        """Text and JSON say the same, and the file that is written is good and gives the same plan."""
        args = ["--workers", "8", "--bandwidth", "250mbit", "--bytes", "1GB", "--racks", "2", "--uplink", "500mbit",
                "--price-uplink", "0.01"]
        planned = self.file.with_name("planned.yaml")
        status, out, err = ctl("plan", *args, "--write", str(planned))
        self.assertEqual((status, err), (0, ""))
        self.assertFalse([line for line in out.splitlines() if line != line.rstrip() or len(line) > 120])
        self.assertIn("1.53 times as fast as a ring", out)
        self.assertIn("reducers relay for their racks: without relays it takes 64 s\n", out)
        self.assertIn("  rack-1: worker-4, worker-5, worker-6, worker-7; reducers reducer-1, ", out)
        self.assertRegex(out, r"a 2-D ring, pipelined +56 s +1\.000x +2 GB +40\.00\n")
        self.assertTrue(out.endswith("replace the nodes worker-N of its groups\n"), out)
        self.assertRegex(out, r"reducer-0 \.\. reducer-7 .* 12\.50%    7\.14%   1\.143x  100%  bottleneck\n")
        status, out, err = ctl("check", str(planned))
        self.assertEqual((status, err), (0, ""), out)
        self.assertIn("group rack-0: 32 of 112 shards are relayed by reducer-0, reducer-2, reducer-4 and ", out)
        got, again = self.plan(*args), self.plan(str(planned))
        self.assertEqual({k: got[k] for k in ("time_s", "owner", "relays", "ways", "racks")},
                         {k: again[k] for k in ("time_s", "owner", "relays", "ways", "racks")})
        self.assertEqual([sum(r is not None for r in relays) for relays in got["relays"].values()], [32, 32])
        self.assertEqual(sum(r["relayed"] for r in got["reducers"]), 64)
        self.assertAlmostEqual(got["ways"]["flat"]["price_1000"], 160)
        # the groups of a file stay as they are, with new relays
        text = planned.read_text()
        self.file.write_text(text.replace("rack-0", "left").replace("worker-", "gpu-"))
        status, out, err = ctl("plan", str(self.file), "--write", str(planned))
        self.assertEqual((status, err), (0, ""))
        self.assertIn("in the groups of the file, 2 racks, each joined", out)
        self.assertIn("  left: gpu-0, gpu-1, gpu-2, gpu-3; reducers reducer-0, ", out)
        self.assertIn('name: left\n    nodes: "gpu-0,gpu-1,gpu-2,gpu-3"\n', planned.read_text())
        self.assertEqual(ctl("check", str(planned))[0], 0)

    def test_plan_of_the_example_with_two_racks(self):
        example = str(harness.ROOT / "config/examples/two-racks.yaml")
        args = [example, "--workers", "8", "--bandwidth", "25gbit"]
        status, out, err = ctl("plan", *args)
        self.assertEqual((status, err), (0, ""))
        self.assertIn("#   no relays were considered: the groups of the file need --uplink\n", out)
        status, out, err = ctl("plan", *args, "--uplink", "50gbit")
        self.assertEqual((status, err), (0, ""))
        self.assertIn("#   rack-a: worker-0, worker-1, worker-2, worker-3; reducers ra0, ra1, ra2, ra3\n", out)
        self.assertIn("\ngroups:\n  - name: rack-a\n", out)
        # what is printed can replace the sections of the file
        lines = (harness.ROOT / "config/examples/two-racks.yaml").read_text().split("\ngroups:")[0]
        self.file.write_text(lines + "\n" + out)
        self.assertEqual(ctl("check", str(self.file))[0], 0)

    def test_plan_of_sharded_training(self):
        args = ["--bandwidth", "250mbit", "--bytes", "16MiB", "--step", "300ms", "--sharded"]
        # what the bytes allow: (1 + 1/n) S both at once, 2 S in a step of fsdp, where a ring has 3 (n - 1) / n S
        for n, gain in ((4, 1.125), (8, 1.3125), (16, 1.40625), (32, 1.453125)):
            found = self.plan("--workers", str(n), *args, "fsdp")
            line = (16 << 20) / (250e6 / 8)
            self.assertAlmostEqual(found["both_s"]["reducers"], (1 + 1 / n) * line)
            self.assertAlmostEqual(found["both_s"]["ring"], 2 * (n - 1) / n * line)
            self.assertAlmostEqual(found["sends_s"]["ring"] / found["sends_s"]["reducers"], gain)
            self.assertAlmostEqual(found["step_no_overlap_s"]["reducers"], 0.3 + found["sends_s"]["reducers"])
        for kind, helps in (("fsdp", True), ("zero1", True), ("zero2", False), ("zero3", True), ("hsdp", True)):
            self.assertIs(self.plan("--workers", "8", *args, kind)["helps"], helps, kind)
        # only what is scattered is encoded: beside a ring of bfloat16
        found = self.plan("--workers", "8", *args, "fsdp", "--wire", "fp8")
        line, block = (8 << 20) / (250e6 / 8), 130 / 256  # 2 bytes of scale for 128 elements, of 1 byte and not 2
        self.assertAlmostEqual(found["all_gather_s"]["reducers"], 7 / 8 * line)
        self.assertAlmostEqual(found["both_s"]["reducers"], max(block + 1 / 8, block / 8 + 7 / 8) * line, 4)
        # one reducer for 8 workers: a ring is faster
        self.assertFalse(self.plan("--workers", "8", "--reducers", "1", *args, "fsdp")["helps"])
        out = ctl("plan", "--workers", "8", *args, "fsdp")[1]
        self.assertIn("1.31 times as fast as with rings", out)
        self.assertIn("both at once", out)
        for words, why in (
            (["--sharded", "ddp"], 'found "ddp", expected fsdp, zero1, zero2, zero3 or hsdp'),
            (["--sharded", "fsdp"], "needs the number of workers and the bandwidth"),
        ):
            code, _, err = ctl("plan", *words)
            self.assertEqual(code, 2)
            self.assertIn(why, err)

    def test_plan_knows_prices(self):
        args = ["--workers", "4", "--bandwidth", "10gbit", "--bytes", "1GB", "--step", "300ms", "--price-worker", "30"]
        got = self.plan(*args, "--price-reducer", "1.5")
        self.assertAlmostEqual(got["price_1000_steps_no_overlap"]["ring"], 1500 / 3600 * 120, 6)
        self.assertAlmostEqual(got["price_1000_steps_no_overlap"]["reducers"], 1100 / 3600 * 126, 6)
        self.assertIn("worth the price", got["verdict"]["text"])
        got = self.plan(*args, "--price-reducer", "30")
        self.assertEqual((got["verdict"]["helps"], got["verdict"]["reason"]), (False, "too-dear"))

    def test_plan_chooses_lanes_for_the_bandwidth(self):
        """Of an option as of a file."""
        planned, from_file = self.file.with_name("planned.yaml"), self.file.with_name("from-file.yaml")
        reducers = "reducers: [{id: a, address: a}, {id: b, address: b, lanes: 2}]\n"
        self.file.write_text(reducers)
        self.plan(str(self.file), "--workers", "4", "--bandwidth", "100gbit", "--write", str(planned))
        self.file.write_text(reducers + "plan: {workers: 4, bandwidth: 100gbit}\n")
        self.plan(str(self.file), "--write", str(from_file))
        self.assertEqual(planned.read_text(), from_file.read_text())
        self.assertEqual([line for line in planned.read_text().splitlines() if "lanes:" in line],
                         ["    lanes: 10", "    lanes: 2", "  lanes: auto"])  # fmt: skip
        # a file to begin with
        status, out, err = ctl("plan", "--workers", "4", "--bandwidth", "100gbit", "--write", str(planned))
        self.assertEqual((status, err), (0, ""))
        self.assertEqual(out.splitlines()[-1], f"written to {planned}; replace the addresses reducer-N:7600")
        self.assertEqual(planned.read_text().count("lanes: 10\n"), 4)
        self.assertEqual(ctl("check", str(planned))[::2], (0, ""))

    def test_plan_knows_the_memory_of_a_reducer(self):
        """It is what a reducer announces when a job opens."""
        for sharding in "", "sharding: {window: 4, priorities: 3, chunk_bytes: 64KiB}\n":
            with harness.Cluster(reducers=1) as c:
                self.file.write_text(f'reducers: [{{id: r0, address: "{c.address(0)}"}}]\n{sharding}')
                bench = c.start("bench", [harness.binary("reduction-bench"), "--config", self.file, "--ranks", "3",
                                          "-b", "1K", "-e", "1K"])  # fmt: skip
                bench.wait(60)
                announced = int(re.search(r"job-opened .*memory_bytes=(\d+)", c.reducers[0].err)[1])
                got = self.plan(str(self.file), "--workers", "3", "--bandwidth", "1gbit")
                self.assertAlmostEqual(got["each_reducer"]["memory_bytes"] / announced, 1, delta=0.05)

    def test_reference_is_the_readme(self):
        readme = (harness.ROOT / "config/README.md").read_text()
        self.assertEqual(ctl("reference"), (0, readme, ""))

    def test_help_and_version(self):
        self.assertEqual(ctl("--help")[::2], (0, ""))
        self.assertTrue(ctl("--help")[1].startswith("Usage: reductionctl COMMAND [FILE] [OPTION]...\n"))
        self.assertLessEqual(max(map(len, ctl("plan", "--help")[1].splitlines())), 120)
        self.assertTrue(ctl("check", "--help")[1].startswith("Usage: reductionctl check [FILE] [OPTION]...\n"))
        self.assertRegex(ctl("--version")[1], r"^reductionctl \d+\.\d+\.\d+, OpenSSL \S+ .*\n$")

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
            (("print", "a", "--json"), 'reductionctl: found unknown option "--json"'),
            (("plan", "a", "b"), 'reductionctl: found one argument too many: "b"'),
            (("plan", "--reducers", "0"), 'reductionctl: --reducers: found "0", expected a whole number from 1 to 256'),
            (("plan", "--wire=fp4"), 'reductionctl: --wire: found "fp4", expected fp32, bf16, fp16, fp8, int8 or int4'),
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
                ("plan", "--bytes", "1Gb"),
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
