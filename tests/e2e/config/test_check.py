#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan
"""The check before the start: reductionctl check and the daemons' --check find what the daemons and workers refuse.

Each row of a table is a file that is refused. It is given to the daemon (or a worker), to the daemon with --check, and
to reductionctl. All of them must come to the same verdict, with the same sentences.

Not under ThreadSanitizer: these programs end before they start a second thread, or after threads of gRPC.
"""

import datetime
import json
import os
import pathlib
import re
import socket
import subprocess
import tempfile
import unittest

import certs
import harness
import wire

SECRET = "an example of a secret\n"
OPENS = harness.python("""
    import reduction
    try:
        reduction.Communicator()
    except Exception as e:
        print(e, flush=True)
""")


def run(program, *args, text=None):
    env = {k: v for k, v in os.environ.items() if not k.startswith("REDUCTION_")}
    done = subprocess.run([harness.binary(program), *map(str, args)], input=text, capture_output=True, text=True,
                          timeout=60 * harness.SCALE, env={**env, **harness.sanitizer_env([program])})  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def sentences(program, err):
    """The problems in standard error, without the program's name."""
    return [re.sub(rf"^(<3>)?{program}: ", "", line) for line in err.splitlines()]


class Check(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="reduction-")
        cls.addClassCleanup(cls.folder.cleanup)
        cls.dir = pathlib.Path(cls.folder.name)
        cls.tls = certs.Folder(cls.dir / "tls", "reducer:r0.test,127.0.0.1", "reducer:other.test", "client:w")
        cls.strange = certs.Folder(cls.dir / "strange", "reducer:r0.test,127.0.0.1")
        (cls.dir / "secrets").mkdir(mode=0o700)
        cls.tls.expired("old")

    def write(self, text, name="a.yaml", mode=0o600):
        file = self.dir / name
        file.write_text(text)
        file.chmod(mode)
        return file

    def fill(self, text):
        """Replaces DIR by the folder of the test."""
        return text.replace("DIR", str(self.dir))


class Server(Check):
    # name, file, arguments of the server, expected sentences (DIR: the folder, FILE: the
    # file), whether the server refuses to start too
    ROWS = (
        ("not YAML", "server: [\n", [], ["FILE:2:1: not valid YAML: "], True),
        ("unknown section", "serve: {}\n", [], ['FILE:1:1: found unknown section "serve", did you mean s'], True),
        ("two wrong values", "server:\n  lanes: 65\n  listen: 7\njob: {name: a b}\n", [],
         ['FILE:2:10: server.lanes: found "65"', 'FILE:3:11: server.listen: found "7"', "FILE:4:13: job.name: "], True),
        ("wrong reducers", "reducers:\n  - {id: a}\n  - {id: b, address: x, weight: 0}\n", [],
         ['FILE:3:33: reducers[1].weight: found "0"'], True),
        ("no address", "reducers:\n  - {id: a}\n", [], ["FILE:2:5: reducers[0]: found no address"], True),
        ("two sections of one name", "job: {}\njob: {}\n", [], ["FILE:2:1: job: found a second time"], True),
        ("access without mutual TLS", "access: [{certificate: a, jobs: b}]\n", [],
         ["FILE:1:24: access: found rules for certificates, expected none"], True),
        ("reducers that are not there", "job: {min_reducers: 3}\n", [], ["FILE:1:21: job.min_reducers: found 3"], True),
        ("no file", None, [], ["cannot open FILE: No such file or directory"], True),
        ("kernels", "", ["--cpu", "z80"], ['server.cpu: there are no kernels "z80", expected one of auto'], True),
        ("public address", "server:\n  listen: 0.0.0.0:0\n", [],
         ["FILE:2:11: server.listen: 0.0.0.0:0 is not a loopback address and this reducer has no auth"], True),
        ("public by option", "", ["--listen", "[::]:0"], ["server.listen: [::]:0 is not a loopback address"], True),
        ("public gRPC", "server:\n  grpc: 0.0.0.0:0\n  listen: 127.0.0.1:0\n", [],
         ["FILE:2:9: server.grpc: 0.0.0.0:0 is not a loopback address"], True),
        ("unknown name", "server: {listen: reducer.invalid:0}\n", [],
         ["FILE:1:18: server.listen: cannot listen on reducer.invalid:0: "], True),
        ("link-local address without a card", "server: {listen: '[fe80::1]:7604', insecure: true}\n", [],
         ["FILE:1:18: server.listen: cannot listen on [fe80::1]:7604: it is link-local: add the network card of this "
          "machine, as in [fe80::1%eth0]:7604"], True),
        ("card that is not there", "server: {listen: '[fe80::1%none0]:0', insecure: true}\n", [],
         ["FILE:1:18: server.listen: cannot listen on [fe80::1%none0]:0: "
          "this machine has no network card of that name"],
         True),
        ("address of another machine", "server: {listen: 192.0.2.7:0, insecure: true}\n", [],
         ["FILE:1:18: server.listen: cannot listen on 192.0.2.7:0: Cannot assign requested address"], True),
        ("one port for both", "server: {listen: 127.0.0.1:7633, grpc: 127.0.0.1:7633}\n", [],
         ["FILE:1:40: server.grpc: found 127.0.0.1:7633, expected another port than that of server.listen"], True),
        ("folder of secrets", "server: {listen: 127.0.0.1:0, secrets_dir: DIR/none}\n", [],
         ["FILE:1:44: server.secrets_dir: DIR/none is not a directory that this reducer can read: No such file"], True),
        ("a secret that all can read", "server: {listen: 127.0.0.1:0, secrets_dir: DIR/open}\n", [],
         ["FILE:1:44: server.secrets_dir: DIR/open/a.secret has mode 0644, so everybody can read it",
          "FILE:1:44: server.secrets_dir: DIR/open/b.secret has 3 bytes; expected a secret of 16 to 1024"], False),
        ("tokens", "server: {listen: 127.0.0.1:0, grpc: 127.0.0.1:0}\nsecurity: {read_token: DIR/none, "
         "admin_token: DIR/short}\n", [],
         ["FILE:2:24: security.read_token: DIR/none cannot be opened: No such file",
          "security.admin_token: DIR/short has 3 bytes"], True),
        ("no certificate", "server: {listen: 127.0.0.1:0}\nsecurity: {tls: on}\n", [],
         ["FILE:2:17: security.tls needs security.certificate and security.key, and security.certificate is"], True),
        ("no authority", "server: {listen: 127.0.0.1:0}\nsecurity: {tls: mutual, certificate: DIR/tls/w.pem, "
         "key: DIR/tls/w.key}\n", [],
         ["FILE:2:17: security.tls: mutual needs security.authority",
          "FILE:2:17: warning: security.tls: mutual without a section access"], True),
        ("three bad TLS files", "server: {listen: 127.0.0.1:0}\nsecurity:\n  tls: on\n  certificate: DIR/none\n"
         "  key: DIR/open.key\n  authority: DIR/short\n", [],
         ["FILE:4:16: security.certificate DIR/none cannot be opened: No such file",
          "FILE:5:8: security.key DIR/open.key may be read or written by everybody (mode 0644)",
          "FILE:6:14: security.authority DIR/short holds no certificate in PEM form"], True),
        ("another key", "server: {listen: 127.0.0.1:0}\nsecurity: {tls: on, certificate: DIR/tls/r0.test.pem, "
         "key: DIR/tls/w.key}\n", [],
         ["security.key: the key in DIR/tls/w.key does not belong to the certificate in DIR/tls/r0.test.pem"], True),
        ("expired", "server: {listen: 127.0.0.1:0}\nsecurity: {tls: on, certificate: DIR/tls/old.pem, "
         "key: DIR/tls/old.key}\n", [],
         ["security.certificate: the certificate in DIR/tls/old.pem has expired on 2021-01-01"], True),
        ("all at once", "server: {listen: 0.0.0.0:0, grpc: 0.0.0.0:0}\nsecurity: {admin_token: DIR/short}\n", [],
         ["server.listen: 0.0.0.0:0 is not", "server.grpc: 0.0.0.0:0 is not", "security.admin_token: DIR/short"], True),
    )  # fmt: skip

    def prepare(self):
        open_dir = self.dir / "open"
        open_dir.mkdir(mode=0o700, exist_ok=True)
        for name, text, mode in (("a.secret", SECRET, 0o644), ("b.secret", "few", 0o600)):
            (open_dir / name).write_text(text)
            (open_dir / name).chmod(mode)
        self.write("few", "short")
        self.write("any", "open.key", 0o644)

    def test_the_same_verdict_as_the_server(self):
        self.prepare()
        for name, text, args, expected, refuses in self.ROWS:
            if "grpc: " in (text or "") and not harness.HAS_GRPC:
                continue
            with self.subTest(name):
                file = self.dir / "no.yaml" if text is None else self.write(self.fill(text))
                expected = [self.fill(line).replace("FILE", str(file)) for line in expected]
                status, out, err = run("reduction-server", "--check", "--config", file, *args)
                checked = sentences("reduction-server", err)
                self.assertEqual((status, len(checked)), (1, len(expected)), err)
                for want in expected:
                    self.assertTrue([line for line in checked if want in line], (want, err))
                if not args:
                    status, out, err = run("reductionctl", "check", "--role", "server", file)
                    self.assertEqual(status, 1)
                    self.assertEqual(sentences("reductionctl", err), checked)
                    self.assertEqual(run("reductionctl", "check", "--role", "server", file, "--json")[0], 1)
                if refuses:
                    status, out, err = run("reduction-server", "--config", file, *args)
                    errors = [line for line in checked if ": warning: " not in line]
                    self.assertEqual((status, out, sentences("reduction-server", err)), (1, "", errors))

    def test_good_files_and_a_running_server(self):
        """The check binds no port, so a running reducer neither disturbs it nor is disturbed."""
        with harness.Cluster(transport="tcp") as c:
            (self.dir / "secrets" / "a.secret").write_text(SECRET)
            (self.dir / "secrets" / "a.secret").chmod(0o600)
            listen = f"server: {{listen: {c.address(0)}, secrets_dir: DIR/secrets}}\n"
            file = self.write(self.fill(listen))
            for program, *args in (("reduction-server", "--check", "--config"), ("reductionctl", "check", "--role",
                                                                                 "server")):  # fmt: skip
                status, out, err = run(program, *args, file)
                self.assertEqual((status, err), (0, ""))
                self.assertIn(f"server.secrets_dir: {self.dir}/secrets: ok, 1 job has one\n", out)
                self.assertIn(f"{file}: ok: a reducer on {c.address(0)}, at most 4GiB for 64 jobs\n", out)
                self.assertIn(f"{file}: checked for server on this machine; ports were not bound", out)
            c.connect(0).close()

    def test_certificates_of_another_machine(self):
        """The examples name files that are where they will be used."""
        for name, role in (("tls-reducer", "server"), ("tls-worker", "worker")):
            file = harness.ROOT / "config" / "examples" / f"{name}.yaml"
            status, out, err = run("reductionctl", "check", str(file))
            self.assertEqual((status, err), (0, ""))
            for key in ("certificate", "key", "authority"):
                self.assertRegex(out, rf"security\.{key}: /etc/\S+ is not on this machine, not checked")
            status, out, err = run("reductionctl", "check", "--role", role, str(file))  # on that machine
            self.assertEqual(status, 1)
            self.assertIn("cannot be opened: No such file", err)

    def test_certificates(self):
        """What is good today may have a flaw: a warning, and exit status 0."""
        soon = certs.Folder(self.dir / "soon", "reducer:r0.test,127.0.0.1")
        today = datetime.datetime.now(datetime.timezone.utc)
        soon.valid("soon", *(f"{today + datetime.timedelta(days=days):%Y%m%d%H%M%SZ}" for days in (-300, 9)))
        for name, tls, reducers, expected in (
            ("good", self.tls.own("r0.test"), "127.0.0.1:7655", ()),
            ("soon", soon.own("soon"), "127.0.0.1:7655",
             (r"warning: security.certificate: the certificate in .* expires in [89] days, on 20\d\d-",)),
            ("signed by another", {**self.tls.own("r0.test"), "authority": self.strange.file("ca.pem")},
             "127.0.0.1:7655", ("peers with the authority .*strange/ca.pem would refuse the certificate in ",)),
            ("of a client", self.tls.own("w"), "127.0.0.1:7655",
             ("peers with the authority .*: un(suitable|supported) certificate purpose",
              r"is for w, workers expect 127.0.0.1 \(reducers\[0\], r0\)")),
            ("for another", self.tls.own("other.test"), "127.0.0.1:7655",
             (r"is for other.test, workers expect 127.0.0.1 \(reducers\[0\], r0\): they will refuse it",)),
            ("for none of them", self.tls.own("other.test"), "r0.test:7600",
             ("is for other.test, expected the host or tls_name of one of the 1 reducers",)),
        ):  # fmt: skip
            with self.subTest(name):
                tree = {"server": {"listen": "127.0.0.1:7655"}, "security": {"tls": "on", **tls},
                        "reducers": [{"id": "r0", "address": reducers}]}  # fmt: skip
                file = self.write(json.dumps(tree, indent=1))
                status, out, err = run("reductionctl", "check", "--role", "server", file)
                self.assertEqual((status, len(err.splitlines())), (0, len(expected)), err)
                for pattern in expected:
                    self.assertRegex(err, pattern)
                by_server, by_ctl = (
                    [re.sub(r"expires in [89] days", "expires in 9 days", line) for line in sentences(program, text)]
                    for program, text in (
                        ("reduction-server", run("reduction-server", "--check", "--config", file)[2]),
                        ("reductionctl", err),
                    )
                )
                self.assertEqual(by_server, by_ctl)


class Agent(Check):
    def test_the_same_verdict_as_the_agent(self):
        self.write("x", "file")
        for name, text, args, expected, refuses in (
            ("folder", "agent: {socket: DIR/none/a.sock}\n", [],
             ["agent.socket: cannot make DIR/none/a.sock.lock (create its directory first): No such file"], True),
            ("no socket", "agent: {socket: DIR/file}\n", [], ["agent.socket: DIR/file exists and is not a so"], True),
            ("folder is a file", "agent: {socket: DIR/file/a}\n", [],
             ["agent.socket: cannot make DIR/file/a.lock: Not a directory"], True),
            ("kernels", "agent: {socket: DIR/a}\n", ["--cpu", "z80"], ['agent.cpu: there are no kernels "z80"'], True),
            ("long path", "agent: {socket: /%s}\n" % ("x" * 120), [], ["agent.socket: found "], True),
            ("secret", "agent: {socket: DIR/a}\nsecurity: {secret: DIR/none}\n", [],
             ["security.secret: DIR/none cannot be opened: No such file"], False),
            ("no certificate", "agent: {socket: DIR/a}\nsecurity: {tls: mutual}\n", [],
             ["security.tls needs security.certificate and security.key, and security.certificate is"], True),
            ("certificate that is missing", "agent: {socket: DIR/a}\nsecurity: {tls: mutual, certificate: DIR/none, "
             "key: DIR/none}\n", [], ["security.certificate DIR/none cannot be opened", "security.key DIR/none can"],
             False),
            ("a name", "agent: {socket: DIR/a}\nreducers: [{id: r0, address: reducer.invalid}]\n", [],
             ["reducers[0].address: the name reducer.invalid cannot be resolved here: "], False),
        ):  # fmt: skip
            with self.subTest(name):
                file = self.write(self.fill(text))
                status, out, err = run("reduction-agent", "--check", "--config", file, *args)
                checked = sentences("reduction-agent", err)
                self.assertEqual((status, len(checked)), (1, len(expected)), err)
                for want, line in zip(expected, checked):
                    self.assertIn(self.fill(want), line)
                if not args:
                    status, out, err = run("reductionctl", "check", "--role", "agent", file)
                    self.assertEqual((status, sentences("reductionctl", err)), (1, checked))
                if refuses:
                    status, out, err = run("reduction-agent", "--config", file, *args)
                    self.assertEqual((status, out, sentences("reduction-agent", err)), (1, "", checked))

    def test_a_running_agent_is_not_disturbed(self):
        with harness.Cluster(agents=1, transport="tcp") as c:
            file = c.write_config("agent.yaml", {"agent": {"socket": c.socket_path(0)}})
            status, out, err = run("reduction-agent", "--check", "--config", file)
            self.assertEqual((status, err), (0, ""))
            self.assertIn(f"{file}: checked for agent on this machine\n", out)
            c.run(2, OPENS)


class Inline(Check):
    def test_a_secret_in_place_of_its_path_is_not_shown(self):
        """Neither by checks nor by a daemon's start, nor printed."""
        secret = "5ebe2294ecd0e0f08eab7690d2a6ee69aabbccdd00112233"
        pem = f'"-----BEGIN PRIVATE KEY-----\\n{secret}\\n-----END PRIVATE KEY-----"'
        for section, key, text in (("security", "secret", secret), ("server", "secret", secret),
                                   ("server", "secrets_dir", secret), ("security", "read_token", secret),
                                   ("security", "admin_token", secret), ("security", "key", secret),
                                   ("security", "key", pem), ("security", "secret", f"[{secret}]"),
                                   ("security", "password", secret)):  # fmt: skip
            with self.subTest(section=section, key=key):
                tls = '\n  tls: "on"\n  certificate: DIR/file' if key == "key" else ""
                server = "server: {grpc: '127.0.0.1:0'}\n" if section == "security" else ""
                file = self.write(self.fill(f"{server}{section}:\n  {key}: {text}{tls}\n"))
                said = [run("reductionctl", "check", "--role", role, file) for role in ("server", "worker", "agent")]
                said += [run("reduction-server", "--check", "--config", file), run("reductionctl", "print", file)]
                if (section, key) != ("security", "secret"):  # which a reducer does not read
                    self.assertNotEqual(said[0][0], 0)
                    said.append(run("reduction-server", "--listen", "127.0.0.1:0", "--config", file))
                for status, out, err in said:
                    self.assertNotIn(secret[:12], out + err)


class Worker(Check):
    def test_the_same_sentence_as_a_worker(self):
        self.write(SECRET, "open.secret", 0o644)
        with harness.Cluster(reducers=0, transport="tcp") as c:
            for name, security, expected in (
                ("secret", {"secret": self.dir / "none"}, "security.secret: DIR/none cannot be opened: No such file"),
                ("mode", {"secret": self.dir / "open.secret"}, "security.secret: DIR/open.secret has mode 0644, so "),
                ("authority", {"tls": "on", "authority": self.dir / "none"}, "security.authority DIR/none cannot be"),
                ("no certificate", {"tls": "mutual", "authority": self.tls.file("ca.pem")}, "security.tls needs secu"),
            ):
                with self.subTest(name):
                    tree = {"security": {k: str(v) for k, v in security.items()},
                            "reducers": [{"id": "r0", "address": "127.0.0.1:1"}]}  # fmt: skip
                    file = c.write_config("w.yaml", tree)
                    status, out, err = run("reductionctl", "check", "--role", "worker", file)
                    (said,) = sentences("reductionctl", err)
                    self.assertEqual(status, 1)
                    said = re.sub(r"^\S+:\d+:\d+: ", "", said)
                    self.assertIn(self.fill(expected), said)
                    (p,) = c.run(1, OPENS, config=tree)
                    self.assertIn(said, p.out)


class Roles(Check):
    def test_without_a_role(self):
        """What is the same on all machines is checked for the roles that the file is made for."""
        for text, status, roles in (
            ("", 0, ["worker"]),
            ("job: {name: a}\n", 0, ["worker"]),
            ("reducers: [{id: r0, address: reducer.invalid}]\nagent: {socket: /none/a}\n", 0, ["agent", "worker"]),
            ("server: {listen: 192.0.2.7:7600}\n", 1, ["server"]),
            ("server: {listen: 192.0.2.7:7600, insecure: true, memory: 16384GiB}\n", 0, ["server"]),
            ("server: {listen: reducer.invalid:7600}\n", 0, ["server"]),
            ("server: {secrets_dir: /none/secrets}\nreducers: [{id: r0, address: a}]\n", 0, ["server", "worker"]),
            ("job: {name: a b}\n", 1, []),
        ):
            with self.subTest(text):
                file = self.write(text)
                got, out, err = run("reductionctl", "check", file, "--json")
                tree = json.loads(out)
                self.assertEqual((got, err, tree["roles"], tree["role"]), (status, "", roles, None))
                self.assertEqual((tree["file"], tree["ok"], tree["reducers"]), (str(file), status == 0, []))
                got, out, err = run("reductionctl", "check", file)
                self.assertEqual((got, bool(err)), (status, status != 0))
                if not status:
                    self.assertIn("without what depends on the machine; there use --role", out)

    def test_json(self):
        file = self.write("server:\n  listen: 0.0.0.0:0\n  memory: 16384GiB\n")
        status, out, err = run("reductionctl", "check", "--role=server", "--json", file)
        self.assertEqual((status, err), (1, ""))
        tree = json.loads(out)
        self.assertEqual((tree["role"], tree["roles"], tree["ok"]), ("server", ["server"], False))
        got = [(p["severity"], p["key"], p["line"]) for p in tree["problems"]]
        self.assertEqual(got, [("error", "server.listen", 2), ("warning", "server.memory", 3)])
        self.assertTrue(tree["problems"][0]["message"].startswith("server.listen: 0.0.0.0:0 is not a loopback"))
        file = self.write("job: {name: a b}\njobs: 1\n")
        tree = json.loads(run("reductionctl", "check", "--json", file)[1])
        self.assertEqual([(p["key"], p["line"]) for p in tree["problems"]], [("job.name", 1), ("", 2)])

    def test_standard_input(self):
        status, out, err = run("reductionctl", "check", "-", text="job: {name: a b}\n")
        self.assertEqual((status, out), (1, ""))
        self.assertIn("reductionctl: <stdin>:1:13: job.name: ", err)
        status, out, err = run("reductionctl", "check", "-", text="job: {name: a}\n")
        self.assertEqual((status, err), (0, ""))
        self.assertIn("<stdin>: ok: 1 reducer with 1 lane", out)
        for command in "print", "map", "plan":
            self.assertIn("<stdin>:1:13: job.name: ", run("reductionctl", command, "-", text="job: {name: a b}\n")[2])
        self.assertIn("name: a\n", run("reductionctl", "print", "-", text="job: {name: a}\n")[1])

    def test_wrong_usage(self):
        for args, said in (
            (["--role", "boss"], '--role: found "boss", expected server, agent or worker'),
            (["--role", "server", "--connect"],
             "found --connect with --role server, expected agent or worker: a reducer connects to no reducer"),
            (["--timeout", "3"], "found --timeout without --connect, expected both"),
            (["--connect", "--timeout", "0"], '--timeout: found "0", expected seconds from 0.001 to 3600'),
        ):
            status, out, err = run("reductionctl", "check", self.write(""), *args)
            self.assertEqual((status, out, err.splitlines()[0]), (2, "", f"reductionctl: {said}"), err)


class Connect(Check):
    def check(self, c, config=None, *args):
        """Returns the exit status and the JSON object."""
        file = c.write_config("check.yaml", config)
        status, out, err = run("reductionctl", "check", "--connect", "--json", *args, file)
        self.assertEqual(err, "")
        return status, json.loads(out)

    def all_good(self, got, n=1, **expected):
        status, tree = got
        self.assertEqual((status, tree["ok"], len(tree["reducers"])), (0, True, n), tree)
        for r in tree["reducers"]:
            self.assertRegex(r["software"], r"^reduction \d+\.\d+\.\d+")
            self.assertGreater(r["round_trip_ms"], 0)
            self.assertEqual({k: r[k] for k in expected}, expected)

    def refused(self, got, pattern):
        status, tree = got
        self.assertEqual((status, tree["ok"]), (1, False), tree)
        self.assertRegex(tree["problems"][0]["message"], pattern)
        self.assertFalse(tree["reducers"][0]["ok"])

    def test_answers(self):
        for transport in ("tcp", "grpc") if harness.HAS_GRPC else ("tcp",):
            with self.subTest(transport), harness.Cluster(reducers=2, transport=transport) as c:
                self.all_good(self.check(c), 2, tls=False, proven=False)
                status, out, err = run("reductionctl", "check", "--role", "agent", "--connect",
                                       c.write_config("a.yaml", {"agent": {"socket": "@test"}}))  # fmt: skip
                self.assertEqual((status, err), (0, ""))
                self.assertRegex(out, r"reducer r1 \(127.0.0.1:\d+\): reduction \d\S+, answered in \d+\.\d+ ms\n")
                c.run(2, OPENS)  # nothing was joined
                for reducer in c.reducers:
                    self.assertNotRegex(reducer.err, "connection-refused|job=default")

    @unittest.skipIf(harness.SAN, "the library to preload has no sanitizer")
    def test_name_with_two_addresses(self):
        """The reducer listens on the second one only."""
        env = {**os.environ, "LD_PRELOAD": str(harness.BUILD / "tests" / "e2e" / "shim_addresses.so")}
        for transport in ("tcp", "grpc") if harness.HAS_GRPC else ("tcp",):
            with self.subTest(transport), harness.Cluster(reducers=1, transport=transport) as c:
                at = c.address(0).replace("127.0.0.1", "two.test")
                file = c.write_config("check.yaml", {"reducers": [{"id": "r0", "address": at, "grpc": at}]})
                argv = [harness.binary("reductionctl"), "check", "--connect", file]
                done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60)
                self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)

    def test_no_answer(self):
        with harness.Cluster(reducers=1, start=False, transport="tcp") as c, socket.socket() as silent:
            self.refused(self.check(c), r"reducer r0 \(127.0.0.1:\d+\): connection refused")
            silent.bind(("127.0.0.1", 0))
            silent.listen()
            address = "127.0.0.1:%d" % silent.getsockname()[1]
            got = self.check(c, {"reducers": [{"id": "r0", "address": address}]}, "--timeout", "0.3")
            self.refused(got, "it gave no answer within 0.3 s")
            # one that cannot be reached does not keep the others from being asked
            three = [{"id": f"r{i}", "address": a} for i, a in enumerate(("reducer.invalid", address, c.address(0)))]
            status, tree = self.check(c, {"reducers": three}, "--timeout", "0.3")
            messages = [r["message"].split("): ", 1)[1] for r in tree["reducers"]]
            self.assertRegex(messages[0], "^its name cannot be resolved: ")
            self.assertEqual(messages[1:], ["it gave no answer within 0.3 s", "connection refused"])
            self.assertEqual([p["key"] for p in tree["problems"]], [f"reducers[{i}].address" for i in range(3)])

    def test_secrets(self):
        good, bad = self.write(SECRET, "good"), self.write(SECRET.upper(), "bad")
        (self.dir / "secrets" / "test.secret").write_text(SECRET)
        (self.dir / "secrets" / "test.secret").chmod(0o600)
        guarded = {"server": {"secrets_dir": str(self.dir / "secrets")}}
        for transport in ("tcp", "grpc") if harness.HAS_GRPC else ("tcp",):
            with self.subTest(transport), harness.Cluster(server_config=guarded, transport=transport) as c:
                mine = {"security": {"secret": str(good)}}
                self.all_good(self.check(c, mine), proven=True)
                self.refused(self.check(c, {"security": {"secret": str(bad)}}), "it refuses: rank 0 .* has not proven")
                self.refused(self.check(c), "it refuses: this reducer asks for the secret of job test")
                self.refused(self.check(c, {**mine, "job": {"name": "x", "transport": transport}}), "no secret for job")
        with harness.Cluster(transport="tcp") as c:
            self.refused(self.check(c, mine), "has not proven that it has the secret of job test")

    def test_tls(self):
        server = self.tls.reducer("r0.test")
        for transport in ("tcp", "grpc") if harness.HAS_GRPC else ("tcp",):
            with self.subTest(transport), harness.Cluster(server_config=server, transport=transport) as c:
                self.all_good(self.check(c, self.tls.worker()), tls=True)
                self.refused(self.check(c, self.strange.worker()), "certificate|TLS|handshake|authority")
        with harness.Cluster(server_config=server, transport="tcp") as c:
            self.refused(self.check(c), "it refuses: this reducer speaks TLS only")
        with harness.Cluster(transport="tcp") as c:
            self.refused(self.check(c, self.tls.worker()), "it answered without TLS: the connection began with a TLS")
        mutual = {**self.tls.reducer("r0.test", mutual=True), "access": [{"certificate": "w", "jobs": "test"}]}
        with harness.Cluster(server_config=mutual, transport="tcp") as c:
            self.all_good(self.check(c, self.tls.worker("w")), tls=True)
            named = {**self.tls.worker("w"), "job": {"name": "other"}}
            self.refused(self.check(c, named), "it refuses: the certificate of w may not join job other here")

    def test_on_the_wire(self):
        """A HELLO for no world is answered and joins nothing."""
        with harness.Cluster(transport="tcp") as c, wire.Client(c.connect(0)) as client:
            client.send(wire.hello(world_size=0))
            self.assertRegex(wire.pb.Welcome.FromString(client.expect(wire.WELCOME)).software, r"^reduction \d")
            client.closed()


if __name__ == "__main__":
    harness.main()
