#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan
"""Command lines of the programs: help, version, exit codes, configuration errors, logs.

Not under ThreadSanitizer: these programs end before they start a second thread.
"""

import json
import re
import signal
import subprocess
import unittest

import harness

PROGRAMS = ["reduction-server", "reduction-agent", "reductionctl", "reduction-bench"]


class Cli(unittest.TestCase):
    def attempt(self, cluster, program, *args, timeout=20):
        """Runs a program to its end, with any status."""
        p = cluster.start(program, [harness.binary(program), *args])
        p.wait(timeout)
        return p

    def check(self, program, rows, timeout=20):
        """rows: (arguments, exit status, regular expression of what it writes to stderr)."""
        with harness.Cluster(reducers=0) as c:
            for args, code, pattern in rows:
                with self.subTest(program=program, args=args):
                    p = self.attempt(c, program, *args, timeout=timeout)
                    self.assertEqual(p.code, code, p.report())
                    self.assertRegex(p.err, pattern)
                    self.assertEqual(p.out, "")

    def test_help_and_version(self):
        with harness.Cluster(reducers=0) as c:
            for program in PROGRAMS:
                with self.subTest(program):
                    p = self.attempt(c, program, "--help")
                    self.assertEqual((p.code, p.err), (0, ""))
                    self.assertTrue(p.out.startswith(f"Usage: {program} "), p.out)
                    self.assertLessEqual(max(map(len, p.out.splitlines())), 120)
                    if program in ("reduction-server", "reduction-agent"):
                        self.assertRegex(p.out, r"--check +check the configuration and what it names, and exit")
                    short = self.attempt(c, program, "-h")
                    self.assertEqual((short.code, short.err, short.out), (0, "", p.out))
                    p = self.attempt(c, program, "--version")
                    self.assertEqual((p.code, p.err), (0, ""))
                    tls = "" if program == "reduction-bench" else r", OpenSSL \d+\.\d+\.\d+ .*"
                    self.assertRegex(p.out, rf"\A{program} \d+\.\d+\.\d+{tls}\n\Z")

    def test_help_and_version_of_benchmarks(self):
        programs = ["reduction-load", "reduction-bench-kernels", "reduction-bench-scrape", "tcp-loop", "delay-line"]
        programs += ["gloo-ring", "reduction-bench-reconfigure"]
        programs += [f"mpi-allreduce-{mpi}" for mpi in ("openmpi", "mpich")]
        found = [p for name in programs if (p := harness.BUILD / "bench" / name).exists()]
        self.assertGreaterEqual(len(found), 2 if harness.SAN else 4)  # those that are always built
        for binary in found:
            with self.subTest(binary.name):
                runs = [subprocess.run([binary, word], capture_output=True, text=True)
                        for word in ("--help", "-h", "--version")]
                self.assertEqual([(d.returncode, d.stderr) for d in runs], [(0, "")] * 3)
                self.assertTrue(runs[0].stdout.startswith("Usage: "), runs[0].stdout)
                self.assertEqual(runs[0].stdout, runs[1].stdout)
                self.assertRegex(runs[2].stdout, r"\A[a-z-]+ \d+\.\d+\.\d+\n\Z")

    def test_help_of_scripts(self):
        scripts = ["agent/examples/demo/demo.py", "tests/run.py", "tests/fresh/fresh.py", "bench/compare.py",
                   "bench/load.py", "bench/abuse.py", "bench/net/bench.py", "bench/step/step.py",
                   "tests/fault/fault.py", "tests/fault/soak.py"]
        commands = [[harness.PYTHON, harness.ROOT / s] for s in scripts]
        commands += [[harness.ROOT / "deploy" / s] for s in ("install-deps.sh", "make-certs.sh", "probe.sh")]
        for command in commands:
            with self.subTest(str(command[-1])):
                runs = [subprocess.run([*command, word], capture_output=True, text=True) for word in ("--help", "-h")]
                self.assertEqual([(d.returncode, d.stderr) for d in runs], [(0, "")] * 2)
                self.assertRegex(runs[0].stdout, "(?i)^usage: ")
                self.assertEqual(runs[0].stdout, runs[1].stdout)

    def test_wrong_usage(self):
        for program in PROGRAMS:
            self.check(program, [(["--nonsense"], 2, "(?s)--nonsense.*--help")])
        for program in ("reduction-server", "reduction-agent"):
            self.check(program, [
                (["--log-level", "loud"], 2, '--log-level: found "loud", expected error, warn, info, debug or trace'),
                (["--log-format", "xml"], 2, '--log-format: found "xml", expected text or json'),
                (["--config"], 2, "--config.*requires an argument"),
                (["more"], 2, 'found "more"'),
            ])  # fmt: skip
        self.check("reduction-server", [
            (["--lanes", "0"], 2, '--lanes: found "0", expected a number from 1 to 64'),
            (["--lanes", "65"], 2, '--lanes: found "65"'),
            (["--lanes", "2x"], 2, '--lanes: found "2x"'),
            (["--lanes", ""], 2, '--lanes: found ""'),
            (["--listen", "nowhere"], 2, '--listen: "nowhere" is not an address; host:port or'),
            (["--listen", "127.0.0.1:65536"], 2, "--listen: .*; host:port with a port of 0 to 65535 was expected"),
            (["--grpc", "127.0.0.1:7600x"], 2, "--grpc: .*; host:port with a port of 0 to 65535 was expected"),
            (["--http", "nowhere"], 2, '--http: "nowhere" is not an address'),
        ])  # fmt: skip
        self.check("reduction-bench", [
            (["-b"], 2, "requires an argument"),
            (["--ranks", "0"], 2, '--ranks: found "0", expected 1 to 1024'),
            (["--op", "median"], 2, '--op: found "median", expected sum, prod'),
            (["--datatype", "float8"], 2, '--datatype: found "float8"'),
            (["-b", "8K", "-e", "4K"], 2, "-b is larger than -e"),
            (["more"], 2, '"more"'),
        ])  # fmt: skip

    def test_server_that_cannot_start(self):
        busy = harness.Cluster()
        with busy:
            self.check("reduction-server", [
                (["--listen", "reducer.invalid:7600"], 1, "reducer.invalid:7600"),
                (["--listen", busy.address(0)], 1, f"cannot listen on {busy.address(0)}: [Aa]ddress already in use"),
                (["--cpu", "z80"], 1, 'no kernels "z80", expected one of auto, scalar'),
                (["--config", "/none/at/all.yaml"], 1, "/none/at/all.yaml: No such file"),
            ])  # fmt: skip

    def test_few_descriptors(self):
        with harness.Cluster(reducers=0) as c:
            limited = ["sh", "-c", 'ulimit -n 16; exec "$@"', "sh", harness.binary("reduction-server")]
            p = c.start("reduction-server", [*limited, "--listen", "127.0.0.1:0"])
            p.wait(20)
            self.assertEqual(p.code, 1, p.report())
            self.assertRegex(p.err, "[Tt]oo many open files")

    def test_public_address_requires_insecure(self):
        """Any address but loopback is refused without --insecure."""
        with harness.Cluster(reducers=0) as c:
            for address in ("0.0.0.0:0", "[::]:0", "*:0"):
                p = self.attempt(c, "reduction-server", "--listen", address)
                self.assertEqual(p.code, 1)
                self.assertIn("is not a loopback address and this reducer has no authentication", p.err)
                for way in ("server.secrets_dir", "security.tls: mutual", "--insecure"):
                    self.assertIn(way, p.err)
            for address in ("0.0.0.0:0", "127.0.0.1:0", "localhost:0"):
                p = c.start("reducer", [harness.binary("reduction-server"), "--listen", address, "--insecure"])
                p.wait_text("listening")
                self.assertEqual(p.stop(), 0)
                self.assertRegex(p.err, "(?m)stopped result=clean$")

    def test_bad_configuration(self):
        """Daemons and workers report the place in the file, the found value and the expected one."""
        with harness.Cluster(reducers=0) as c:
            for text, pattern in [
                ("server: {max_jobs: 0}\n",
                 r":1:20: server.max_jobs: found \"0\", expected a whole number from 1 to 4096"),
                ("job:\n  nme: x\n", r":2:3: .*nme.*did you mean name"),
                ("reducers:\n  - {id: a, address: h:1}\n  - {id: a, address: h:2}\n", r":3:\d+: .*a"),
                ("sharding: {map: {0-3: r0, 3-9: r0}}\n", r":1:\d+: .*3"),
                ("job: [\n", r":\d+:\d+: "),
            ]:
                path = c.dir / "bad.yaml"
                path.write_text(text)
                found = set()
                for program in ("reduction-server", "reduction-agent"):
                    with self.subTest(text=text, program=program):
                        p = self.attempt(c, program, "--config", str(path))
                        self.assertEqual((p.code, p.out), (1, ""))
                        self.assertRegex(p.err, rf"^{program}: {re.escape(str(path))}{pattern}")
                        found.add(p.err.split(": ", 1)[1])
                w = c.start_worker(0, 1, harness.python("""
                    import sys, reduction, worker
                    worker.say("end", **worker.attempt(reduction.Communicator, config=sys.argv[1]))
                    """, path))  # fmt: skip
                runs = w.said("end")
                self.assertEqual(runs["error"], "ConfigError")
                found.add(runs["message"] + "\n")
                self.assertEqual(len(found), 1, found)

    def test_json_logs(self):
        """Every line of a daemon's log is an object with a time, a level and an event."""
        args = ["--log-format", "json", "--log-level", "trace"]
        with harness.Cluster(server_args=args, config={"logging": {"format": "json", "level": "trace"}}, agents=1) as c:
            c.run(2, harness.python("""
                import numpy, reduction
                with reduction.Communicator(job="json") as comm:
                    comm.all_reduce(numpy.ones(10), name='a "quoted" name')
                """))  # fmt: skip
            with c.connect(0) as s:
                s.sendall(b'\xff"\\\x00 no frame' * 10)
                s.settimeout(10 * harness.SCALE)
                while s.recv(4096):
                    pass
            for daemon, events in (
                (
                    c.reducers[0],
                    {"listening", "job-opened", "job-started", "job-closed", "connection-refused", "stopped"},
                ),
                (c.agents[0], {"listening", "stopped"}),
            ):
                self.assertEqual(daemon.stop(), 0)
                lines = [json.loads(line) for line in daemon.err.splitlines()]
                for line in lines:
                    self.assertRegex(line["ts"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
                    self.assertIn(line["level"], ("error", "warn", "info", "debug", "trace"))
                self.assertLessEqual(events, {line["event"] for line in lines})

    def test_log_level(self):
        """With "warn" a normal run logs nothing, a bad peer one line."""
        with harness.Cluster(server_args=["--log-level", "warn"], start=False) as c:
            c.address(0)  # chosen here, since the reducer does not log where it listens
            c.start_reducer(0, wait=False)
            c.run(1, harness.python("import reduction; reduction.Communicator().close()"))
            self.assertEqual(c.reducers[0].err, "")
            with c.connect(0) as s:
                s.sendall(bytes(64))
                while s.recv(4096):
                    pass
            self.assertEqual(c.reducers[0].stop(), 0)
            self.assertRegex(c.reducers[0].err, r"\A\S+ warn  connection-refused .*\n\Z")

    def test_reload(self):
        """SIGHUP: applies what it can, reports what needs a restart, and keeps the old settings if the file is bad."""
        with harness.Cluster(server_config={"logging": {"level": "info"}}) as c:
            r = c.reducers[0]
            path = c.dir / "server.yaml"
            path.write_text("logging: {level: debug}\nserver: {max_workers: 1}\n")
            r.signal(signal.SIGHUP)
            r.wait_text('reload result="logging.level, limits, certificates, access and tokens taken over"')
            refused = c.start_worker(0, 2, harness.python("""
                import reduction, worker
                worker.say("end", **worker.attempt(reduction.Communicator))
                """))  # fmt: skip
            self.assertRegex(refused.said("end")["message"], "server.max_workers allows 1")
            c.run(1, harness.python("import reduction; reduction.Communicator().close()"))
            r.wait_text("debug worker-joined")
            path.write_text("logging: {level: debug}\nserver: {lanes: 7}\n")
            r.signal(signal.SIGHUP)
            r.wait_text("warn  reload result=.*need a restart")
            path.write_text("server: {max_jobs: many}\n")
            r.signal(signal.SIGHUP)
            r.wait_text(r"error reload result=\"kept the old configuration\" "
                        r"reason=.*server.yaml:1:20: server.max_jobs")
            c.run(1, harness.python("import reduction; reduction.Communicator().close()"))
        with harness.Cluster() as c:
            c.reducers[0].signal(signal.SIGHUP)
            c.reducers[0].wait_text("started without a configuration file")

    def test_bench(self):
        """A table of right sums, and the same as JSON."""
        args = ["--ranks", "2", "--local-reducers", "2", "-b", "1K", "-e", "16K", "-n", "2", "-w", "1"]
        with harness.Cluster(reducers=0) as c:
            p = self.attempt(c, "reduction-bench", *args, timeout=60)
            self.assertEqual(p.code, 0, p.report())
            self.assertRegex(p.out, r"(?m)^ *16384 +4096 +float32 +sum ")
            p = self.attempt(c, "reduction-bench", *args, "--json", "-d", "all", "-o", "all", timeout=60)
            self.assertEqual(p.code, 0, p.report())
            rows = [json.loads(line) for line in p.out.splitlines()]
            self.assertGreaterEqual(len(rows), 50)


if __name__ == "__main__":
    harness.main()
