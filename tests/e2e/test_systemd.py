#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan
"""The units of deploy/systemd under a real systemd, which is process 1 of a machine that the test makes of namespaces
(machine.sh): boot, a job under the full sandbox with a secret, watchdog, drain, reload, the journal, a crash loop."""

import json
import os
import pathlib
import re
import secrets
import shutil
import subprocess
import tempfile
import time
import unittest

import harness

UNITS = harness.ROOT / "deploy" / "systemd"
SYSTEMD = "/lib/systemd/systemd"
TEST_LIB = "/usr/lib/reduction-test"
WATCHDOG_S = 6
DAEMONS = ("reduction-server", "reduction-server@b", "reduction-agent")

CONFIG = {
    "job": {"name": "test"},
    "reducers": [{"id": "a", "address": "127.0.0.1:7600"}, {"id": "b", "address": "127.0.0.1:7610"}],
    "server": {"listen": "0.0.0.0:7600", "lanes": 2, "secrets_dir": "/run/credentials/reduction-server.service"},
    "agent": {"single_node": "reducers"},
    "security": {
        "tls": "on",
        "authority": "/etc/reduction/ca.pem",
        "certificate": "/etc/reduction/reduction.pem",
        "key": "/run/credentials/reduction-server.service/reduction.key",
        "secret": "/run/credentials/reduction-agent.service/reduction.secret",
    },
}
CONFIG_B = {
    "server": {"listen": "127.0.0.1:7610", "lanes": 2, "secrets_dir": "/run/credentials/reduction-server@b.service"},
    "security": {**CONFIG["security"], "key": "/run/credentials/reduction-server@b.service/reduction.key"},
}

# Sums once for each line of its input.
SUMS = harness.python("""
    import numpy, reduction, worker
    with reduction.Communicator() as comm:
        worker.say("open")
        while (line := worker.listen()) != "end":
            x = numpy.arange(100000, dtype="float32") + comm.rank
            comm.all_reduce(x)
            worker.say(line, right=bool((x == 2 * numpy.arange(100000, dtype="float32") + 1).all()))
    """)


class Machine:
    """A running systemd. Raises SkipTest if this system cannot have one."""

    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="reduction-"))
        self.cgroup = f"reduction-test-{os.getpid()}"
        self.proc = self.init = None
        (self.folder / "machine").mkdir()
        self.files()

    def write(self, path, content):
        path = self.folder / "files" / path.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    def files(self):
        """Everything that the machine has beyond this system's files."""
        for name in ("reduction-server", "reduction-agent", "reductionctl"):
            path = self.write(f"/usr/bin/{name}", "")
            shutil.copy(harness.binary(name), path)
        lib = self.folder / "files" / TEST_LIB.lstrip("/")
        shutil.copytree(harness.ROOT / "agent" / "python" / "reduction", lib / "reduction")
        shutil.copy(harness.ROOT / "tests" / "e2e" / "worker.py", lib)
        shutil.copy(harness.BUILD / "lib" / "libreduction.so.0", lib)
        units = "/etc/systemd/system"
        for unit in UNITS.glob("*.service"):
            self.write(f"{units}/{unit.name}", unit.read_text())
        for unit in ("reduction-server", "reduction-server@"):
            self.write(f"{units}/{unit}.service.d/test.conf", f"[Service]\nWatchdogSec={WATCHDOG_S}\n"
                       "LoadCredential=test.secret\n")
        # a network that takes a while
        self.write(f"{units}/slow-network.service", "[Unit]\nBefore=network-online.target\n[Service]\nType=oneshot\n"
                   "ExecStart=/bin/sleep 1\nRemainAfterExit=yes\n")
        for target, source, unit in (
            ("network-online.target", "slow-network.service", "slow-network.service"),
            ("multi-user.target", "reduction-server.service", "reduction-server.service"),
            ("multi-user.target", "reduction-server@.service", "reduction-server@b.service"),
            ("multi-user.target", "reduction-agent.service", "reduction-agent.service"),
        ):
            link = self.folder / "files" / f"{units}/{target}.wants".lstrip("/") / unit
            link.parent.mkdir(exist_ok=True)
            link.symlink_to(f"../{source}")
        default = self.folder / "files" / f"{units}/default.target".lstrip("/")
        default.symlink_to("/lib/systemd/system/multi-user.target")
        self.write("/usr/lib/sysusers.d/reduction.conf", (UNITS / "reduction.sysusers").read_text())
        tls = self.folder / "tls"
        subprocess.run([harness.ROOT / "deploy" / "make-certs.sh", tls, "reducer:r,127.0.0.1"], check=True,
                       capture_output=True)
        secret = secrets.token_hex(32)
        self.write("/etc/credstore/reduction.secret", secret).chmod(0o600)  # of the agent
        self.write("/etc/credstore/test.secret", secret).chmod(0o600)  # of the reducers
        self.write("/etc/credstore/reduction.key", (tls / "r.key").read_text()).chmod(0o600)
        self.write("/etc/reduction/reduction.pem", (tls / "r.pem").read_text())
        self.write("/etc/reduction/ca.pem", (tls / "ca.pem").read_text())
        self.write("/etc/reduction/reduction.yaml", CONFIG)
        self.write("/etc/reduction/b.yaml", CONFIG_B)
        self.write("/etc/reduction/broken.yaml", "server: {listen: 127.0.0.1:7600}\n")  # the port of the first one

    def boot(self):
        argv = ["unshare", "--mount", "--pid", "--ipc", "--uts", "--net", "--fork", "--kill-child",
                str(harness.ROOT / "tests" / "e2e" / "machine.sh"), str(self.folder / "machine"), self.cgroup,
                str(self.folder / "files")]
        self.proc = harness.Proc("machine", argv)
        deadline = time.monotonic() + 30 * harness.SCALE
        while time.monotonic() < deadline and self.proc.running():
            self.init = self.find_init()
            if self.init and self.run("systemctl", "is-system-running", "--wait", check=False).stdout.strip() in (
                "running", "degraded",
            ):
                return
            self.proc.wait_more(0.1)
        report = self.proc.report()
        self.close()
        raise unittest.SkipTest(f"systemd cannot be process 1 of a namespace here:\n{report}")

    def find_init(self):
        """The process id of the machine's process 1 after machine.sh has ended."""
        children = pathlib.Path(f"/proc/{self.proc.pid}/task/{self.proc.pid}/children")
        try:
            child = int(children.read_text().split()[0])
            return child if pathlib.Path(f"/proc/{child}/comm").read_text() == "systemd\n" else None
        except (OSError, IndexError):
            return None

    def enter(self, *argv):
        return ["nsenter", "--target", str(self.init), "--all", "--wd=/", "--", *map(str, argv)]

    def run(self, *argv, check=True):
        done = subprocess.run(self.enter(*argv), capture_output=True, text=True, timeout=60 * harness.SCALE)
        if check and done.returncode:
            log = self.run("journalctl", "--no-pager", "-n", "30", check=False).stdout
            said = f"{done.stdout}{done.stderr}{log}"
            raise AssertionError(f"{' '.join(argv)}: exit status {done.returncode}\n{said}")
        return done

    def show(self, unit, name):
        return self.run("systemctl", "show", unit, "--property", name, "--value").stdout.strip()

    def until(self, unit, name, pattern, timeout=30):
        deadline = time.monotonic() + timeout * harness.SCALE
        while not re.fullmatch(pattern, value := self.show(unit, name)):
            if time.monotonic() > deadline:
                log = self.run("journalctl", "--no-pager", "-u", unit, "-n", "30").stdout
                raise AssertionError(f"{unit}: {name} is {value}, expected {pattern}\n{log}")
            time.sleep(0.1)
        return value

    def journal(self, *match):
        lines = self.run("journalctl", "--no-pager", "--output=json", *match).stdout.splitlines()
        return [json.loads(line) for line in lines]

    def close(self):
        if self.proc:
            self.proc.kill()  # with it process 1, and so all processes of the machine
        mounted = self.folder / "cgroup"
        mounted.mkdir()
        # the control groups are left, which the machine has made below its own
        script = ('mount -t cgroup2 cgroup2 "$1" && cd "$1" && [ ! -d "$2" ] || { '
                  'for _ in $(seq 100); do find "$2" -depth -type d -exec rmdir {} + 2>/dev/null; '
                  '[ -d "$2" ] || break; sleep 0.1; done; }')
        subprocess.run(["unshare", "--mount", "sh", "-c", script, "sh", str(mounted), self.cgroup], check=False)
        shutil.rmtree(self.folder)


def why_not():
    """Why this system cannot run the test; None: nothing is known yet."""
    if harness.SAN:
        return "a program with sanitizers does not run in the sandbox"
    if os.geteuid():
        return "only root can make the namespaces"
    for program in (SYSTEMD, "unshare", "nsenter", "systemctl", "journalctl"):
        if not shutil.which(program):
            return f"there is no {program}"
    return None


class Sandbox(unittest.TestCase):
    @unittest.skipUnless(shutil.which("systemd-analyze"), "there is no systemd-analyze")
    def test_exposure(self):
        for unit in sorted(UNITS.glob("*.service")):
            with self.subTest(unit.name):
                done = subprocess.run(["systemd-analyze", "security", "--offline=yes", "--no-pager", unit],
                                      capture_output=True, text=True)
                if "unrecognized option" in done.stderr:
                    self.skipTest("this systemd-analyze has no --offline")
                level = re.search(r"exposure level for \S+: ([\d.]+)", done.stdout + done.stderr)
                self.assertLessEqual(float(level[1]), 1.5)


class Units(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if why := why_not():
            raise unittest.SkipTest(why)
        cls.m = Machine()
        cls.addClassCleanup(lambda: cls.m.proc.killed or cls.m.close())
        cls.m.boot()
        cls.m.run("systemctl", "start", "--no-block", "reduction-server@broken")  # for test_crash_loop_ends

    def setUp(self):
        self.m.run("systemctl", "reset-failed", *DAEMONS, check=False)
        self.m.run("systemctl", "start", *DAEMONS)

    def start_ranks(self, group="reduction"):
        """Ranks of a user who may use the agent as a member of its group, and can read no secret."""
        user = ["setpriv", "--reuid=65534", "--regid=65534", f"--groups={group}", "--no-new-privs"]
        procs = []
        for rank in (0, 1):
            env = {
                "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2",
                "REDUCTION_RUN": secrets.token_hex(8) if not procs else procs[0].run,
                "REDUCTION_AGENT": "/run/reduction/agent.sock", "REDUCTION_CONFIG": "/etc/reduction/reduction.yaml",
                "REDUCTION_LIBRARY": f"{TEST_LIB}/libreduction.so.0", "PYTHONPATH": TEST_LIB, "PYTHONUNBUFFERED": "1",
                "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
            }
            p = harness.Proc(f"rank {rank}", self.m.enter(*user, *SUMS), env)
            p.run = env["REDUCTION_RUN"]
            self.addCleanup(p.kill)
            procs.append(p)
        if group == "reduction":
            for p in procs:
                p.said("open", 60)
        return procs

    def sum(self, ranks, name):
        for p in ranks:
            p.tell(name)
        for p in ranks:
            self.assertTrue(p.said(name, 60)["right"])

    def end(self, ranks):
        for p in ranks:
            p.tell("end")
        for p in ranks:
            self.assertEqual(p.wait(), 0, p.report())

    def test_boot_order(self):
        self.assertEqual(self.m.show("slow-network", "Result"), "success")
        times = [int(self.m.run("systemctl", "show", unit, "--property", name, "--value").stdout) for unit, name in (
            ("slow-network", "ActiveEnterTimestampMonotonic"),
            ("multi-user.target", "ActiveEnterTimestampMonotonic"))]
        self.assertLess(times[0], times[1])
        for unit in DAEMONS:
            listening = self.m.journal("-u", unit, "--grep=listening")[0]
            self.assertGreater(int(listening["__MONOTONIC_TIMESTAMP"]), times[0])
            self.assertEqual(self.m.show(unit, "NRestarts"), "0")
        first = [int(self.m.journal("-u", unit, "--grep=listening")[0]["__MONOTONIC_TIMESTAMP"])
                 for unit in ("reduction-server", "reduction-agent")]
        self.assertLess(*first)

    def test_job_with_a_secret(self):
        ranks = self.start_ranks()
        self.sum(ranks, "one")
        for unit, text in zip(DAEMONS, ("1 job, 1 rank", "1 job, 1 rank", "1 job, 2 local ranks")):
            self.m.until(unit, "StatusText", f"serving {text}")
            self.assertNotEqual(self.m.run("ps", "-o", "user=", "-p", self.m.show(unit, "MainPID")).stdout, "root\n")
        self.end(ranks)
        self.m.until("reduction-server", "StatusText", "serving 0 jobs, 0 ranks")

    def test_others_may_not_use_the_agent(self):
        for p in self.start_ranks(group="users"):
            self.assertNotEqual(p.wait(), 0)
            self.assertRegex(p.err, "agent.sock.*(not permitted|[Pp]ermission denied)")

    def test_check(self):
        """What root checks on a node and on a reducer's machine."""
        argv = ["reductionctl", "check", "--role", "worker", "--connect", "/etc/reduction/reduction.yaml"]
        good = self.m.run(*argv).stdout
        self.assertEqual(len(re.findall(r"127\.0\.0\.1:76[01]0", good)), 2, good)
        self.m.run("reductionctl", "check", "--role", "server", "/etc/reduction/b.yaml")

    def test_journal(self):
        """Lines have their priority, and their values as fields."""
        ranks = self.start_ranks()
        job = f"RUN={ranks[0].run}"
        self.sum(ranks, "one")
        for p in ranks:
            p.kill()
        self.m.until("reduction-agent", "StatusText", "serving 0 jobs, 0 local ranks")
        for unit in ("reduction-server.service", "reduction-server@b.service"):
            (started,) = self.m.journal(f"_SYSTEMD_UNIT={unit}", "EVENT=job-started", job)
            self.assertEqual([started[key] for key in ("JOB", "WORLD_SIZE", "PRIORITY", "SYSLOG_IDENTIFIER")],
                             ["test", "1", "6", "reduction-server"])
            self.assertRegex(started["MESSAGE"], "^info  job-started job=test ")
        failed = self.m.journal("_SYSTEMD_UNIT=reduction-agent.service", "EVENT=job-failed", "JOB=test")[-1]
        self.assertEqual(failed["PRIORITY"], "4")
        late = self.m.run("journalctl", "--no-pager", "-p", "warning", "-u", "reduction-agent", "JOB=test").stdout
        self.assertIn("warn  job-failed", late)
        self.assertNotIn("job-started", late)

    def test_watchdog(self):
        """A reducer that stands still is started again. Meanwhile the job continues with the other one."""
        ranks = self.start_ranks()
        self.sum(ranks, "before")
        restarts = int(self.m.show("reduction-server@b", "NRestarts"))
        self.m.run("systemctl", "kill", "--kill-whom=main", "--signal=STOP", "reduction-server@b")
        self.sum(ranks, "meanwhile")
        self.m.until("reduction-server@b", "NRestarts", str(restarts + 1), WATCHDOG_S + 30)
        self.m.until("reduction-server@b", "ActiveState", "active")
        self.assertTrue(self.m.journal("-u", "reduction-server@b", "--grep=Watchdog timeout"))
        self.sum(ranks, "after")
        self.m.until("reduction-server@b", "StatusText", "serving 1 job, 1 rank")  # it is back in the job
        self.end(ranks)

    def test_stop_drains(self):
        ranks = self.start_ranks()
        self.sum(ranks, "before")
        self.m.run("systemctl", "stop", "reduction-server@b")
        self.assertEqual(self.m.show("reduction-server@b", "Result"), "success")
        self.assertEqual(self.m.show("reduction-server@b", "ExecMainStatus"), "0")
        self.sum(ranks, "without b")
        # an agent waits for its ranks
        self.m.run("systemctl", "stop", "--no-block", "reduction-agent")
        self.m.until("reduction-agent", "StatusText", "draining: 1 job, 2 local ranks, at most [0-9]+ s more")
        self.sum(ranks, "draining")
        self.end(ranks)
        self.m.until("reduction-agent", "ActiveState", "inactive")
        self.assertEqual(self.m.show("reduction-agent", "Result"), "success")

    def test_reload(self):
        path = "/etc/reduction/reduction.yaml"
        good = self.m.run("cat", path).stdout
        for unit in ("reduction-server", "reduction-agent"):
            with self.subTest(unit):
                pid = self.m.show(unit, "MainPID")
                self.m.run("sh", "-c", f"echo 'server: {{lanes: many}}' >{path}")
                done = self.m.run("systemctl", "reload", unit, check=False)
                self.assertNotEqual(done.returncode, 0)
                self.assertTrue(self.m.journal("-u", unit, "--grep=server.lanes.*many"))
                self.m.run("sh", "-c", f"printf %s '{good}' >{path}")
                self.m.run("systemctl", "reload", unit)
                self.m.until(unit, "ActiveState", "active")
                self.assertEqual(self.m.show(unit, "MainPID"), pid)
                self.assertTrue(self.m.journal("-u", unit, "--grep=info +reload"))

    def test_crash_loop_ends(self):
        self.m.until("reduction-server@broken", "ActiveState", "failed", 60)
        self.assertEqual(self.m.show("reduction-server@broken", "NRestarts"), "5")
        tries = self.m.journal("-u", "reduction-server@broken", "--grep=address already in use|Address already in use")
        self.assertEqual(len(tries), 5)


if __name__ == "__main__":
    harness.main()
