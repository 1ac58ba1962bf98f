#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan all-only
"""The units of deploy/systemd under a real systemd, which is process 1 of a machine that the test makes of namespaces
(machine.py): boot, a job under the full sandbox with a secret, watchdog, drain, reload, the journal, a crash loop."""

import re
import secrets
import shutil
import subprocess
import sys
import time
import unittest

import harness
from machine import Machine, why_not
from test_http import HAS_HTTP

sys.path.insert(0, str(harness.ROOT / "tests" / "fresh"))
import readme  # noqa: E402

UNITS = harness.ROOT / "deploy" / "systemd"
TEST_LIB = "/usr/lib/reduction-test"
WATCHDOG_S = 6
# A metadata service of Azure. A line of its input is a notice, an empty one withdraws it.
METADATA = harness.python("""
    import metadata, worker
    with metadata.Service("azure", 80, "169.254.169.254") as service:
        worker.say("listening")
        service.wait_asked(lambda method, path, status: "events" in path)
        worker.say("asked")
        while True:
            service.notice(worker.listen() or None, 30)
    """)
DAEMONS = ("reduction-server", "reduction-server@b", "reduction-agent")


def http(port):
    return {"http": f"127.0.0.1:{port}"} if HAS_HTTP else {}


CONFIG = {
    "job": {"name": "test"},
    "reducers": [{"id": "a", "address": "127.0.0.1:7600"}, {"id": "b", "address": "127.0.0.1:7610"}],
    "server": {"listen": "0.0.0.0:7600", "lanes": 2, "memory": "256MiB", **http(7603),
               "secrets_dir": "/etc/reduction/keys"},
    "agent": {"single_node": "reducers"},
    "security": {
        "tls": "on",
        "authority": "/etc/reduction/ca.pem",
        "certificate": "/etc/reduction/reduction.pem",
        "key": "/etc/reduction/keys/reduction.key",
        "secret": "/etc/reduction/keys/test.secret",
    },
}
CONFIG_B = {
    "server": {"listen": "127.0.0.1:7610", "lanes": 2, **http(7613), "secrets_dir": "/etc/reduction/keys"},
    "security": CONFIG["security"],
}
CONFIG_AGENT = {  # of reduction-agent@sidecar
    **{key: CONFIG[key] for key in ("job", "reducers")},
    "agent": {"single_node": "reducers", "shm_bytes": "128MiB"},
    "security": CONFIG["security"],
}
GIB = 1 << 30
LATE = "10.77.0.1"  # an address that the machine has not yet when the reducer starts

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


def units_machine(**options):
    """A machine with the programs of this build, and their units."""
    m = Machine(**options)
    for name in ("reduction-server", "reduction-agent", "reductionctl"):
        path = m.write(f"/usr/bin/{name}", "")
        shutil.copy(harness.binary(name), path)
    lib = m.folder / "files" / TEST_LIB.lstrip("/")
    shutil.copytree(harness.ROOT / "agent" / "python" / "reduction", lib / "reduction")
    for name in ("worker.py", "metadata.py"):
        shutil.copy(harness.ROOT / "tests" / "e2e" / name, lib)
    shutil.copy(harness.BUILD / "lib" / "libreduction.so.0", lib)
    units = "/etc/systemd/system"
    for unit in UNITS.glob("*.service"):
        m.write(f"{units}/{unit.name}", unit.read_text())
    for unit in ("reduction-server", "reduction-server@"):
        m.write(f"{units}/{unit}.service.d/test.conf", f"[Service]\nWatchdogSec={WATCHDOG_S}\n")
    # a network that takes a while; before it the administrator has made the folder of keys
    m.write(f"{units}/slow-network.service", "[Unit]\nBefore=network-online.target\nAfter=systemd-sysusers.service\n"
               "[Service]\nType=oneshot\nExecStart=/bin/sleep 1\nRemainAfterExit=yes\n"
               "ExecStart=install -d -m 2750 -g reduction-keys /etc/reduction/keys\n"
               "ExecStart=sh -c 'install -m 640 -g reduction-keys /etc/reduction/new/* /etc/reduction/keys'\n")
    for target, source, unit in (
        ("network-online.target", "slow-network.service", "slow-network.service"),
        ("multi-user.target", "reduction-server.service", "reduction-server.service"),
        ("multi-user.target", "reduction-server@.service", "reduction-server@b.service"),
        ("multi-user.target", "reduction-agent.service", "reduction-agent.service"),
    ):
        m.link(f"{units}/{target}.wants/{unit}", f"../{source}")
    m.write("/usr/lib/sysusers.d/reduction.conf", (UNITS / "reduction.sysusers").read_text())
    tls = m.folder / "tls"
    subprocess.run([harness.ROOT / "deploy" / "make-certs.sh", tls, "reducer:r,127.0.0.1"], check=True,
                   capture_output=True)
    m.write("/etc/reduction/new/test.secret", secrets.token_hex(32)).chmod(0o600)
    m.write("/etc/reduction/new/reduction.key", (tls / "r.key").read_text()).chmod(0o600)
    m.write("/etc/reduction/reduction.pem", (tls / "r.pem").read_text())
    m.write("/etc/reduction/ca.pem", (tls / "ca.pem").read_text())
    m.write("/etc/reduction/reduction.yaml", CONFIG)
    m.write("/etc/reduction/b.yaml", CONFIG_B)
    m.write("/etc/reduction/sidecar.yaml", CONFIG_AGENT)
    m.write("/etc/reduction/broken.yaml", "server: {listen: 127.0.0.1:7600}\n")  # the port of the first one
    m.write(f"{units}/reduction-server@broken.service.d/test.conf", "[Service]\nRestartSec=50ms\n")
    m.write("/etc/reduction/late.yaml", {"server": {"listen": f"{LATE}:7620", "insecure": True, "memory": "64MiB"}})
    return m


class Ranks:
    """Mixed into a test with a machine `m`: a job of two ranks."""

    def start_ranks(self, group="reduction", socket="/run/reduction/agent.sock"):
        """Ranks of a user who may use the agent as a member of its group, and can read no secret."""
        user = ["setpriv", "--reuid=65534", "--regid=65534", f"--groups={group}", "--no-new-privs"]
        procs = []
        for rank in (0, 1):
            env = {
                "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2",
                "REDUCTION_RUN": secrets.token_hex(8) if not procs else procs[0].run,
                "REDUCTION_AGENT": socket, "REDUCTION_CONFIG": "/etc/reduction/reduction.yaml",
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


    def test_agents_open_no_device(self):
        """An agent needs no GPU library, so no drop-in for nodes with GPUs."""
        for unit in UNITS.glob("reduction-agent*.service"):
            self.assertIn("\nPrivateDevices=yes\n", unit.read_text())
        needed = subprocess.run(["ldd", harness.binary("reduction-agent")], capture_output=True, text=True, check=True)
        self.assertNotRegex(needed.stdout, "cuda|nvidia")


class Units(Ranks, unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if why := why_not():
            raise unittest.SkipTest(why)
        cls.m = units_machine()
        cls.addClassCleanup(lambda: cls.m.proc.killed or cls.m.close())
        cls.m.boot()
        cls.m.run("systemctl", "start", "--no-block", "reduction-server@broken")  # for test_crash_loop_ends

    def setUp(self):
        self.m.run("systemctl", "reset-failed", *DAEMONS, check=False)
        self.m.run("systemctl", "start", *DAEMONS)

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

    @unittest.skipUnless(HAS_HTTP and shutil.which("curl"), "this build has no HTTP, or there is no curl")
    def test_records_outlive_a_restart(self):
        """Each of two reducers on a machine has a folder of its own, which its dynamic user finds again."""
        self.m.until("reduction-server@broken", "ActiveState", "failed", 60)  # else it takes the port
        self.end(self.start_ranks())
        for unit, port in (("reduction-server", 7603), ("reduction-server@b", 7613)):
            read = ("curl", "-sS", f"http://127.0.0.1:{port}/jobs")
            self.m.until(unit, "StatusText", "serving 0 jobs, 0 ranks")
            before = self.m.run(*read).stdout
            self.assertIn('"finished"', before)
            self.m.run("systemctl", "restart", unit)
            self.assertEqual(self.m.run(*read).stdout, before)

    def test_job_with_a_secret(self):
        ranks = self.start_ranks()
        self.sum(ranks, "one")
        for unit, text in zip(DAEMONS, ("1 job, 1 rank", "1 job, 1 rank", "1 job, 2 local ranks")):
            self.m.until(unit, "StatusText", f"serving {text}")
            self.assertNotEqual(self.m.run("ps", "-o", "user=", "-p", self.m.show(unit, "MainPID")).stdout, "root\n")
        self.end(ranks)
        self.m.until("reduction-server", "StatusText", "serving 0 jobs, 0 ranks")

    def test_agent_of_one_job(self):
        """reduction-agent@sidecar, with a reducer that is an instance too."""
        unit = "reduction-agent@sidecar"
        self.m.run("systemctl", "start", unit)
        self.assertEqual(self.m.show(unit, "MemoryMax"), str((128 << 20) + 2 * GIB))
        ranks = self.start_ranks(socket="/run/reduction-sidecar/agent.sock")
        self.sum(ranks, "one")
        for name, text in ((unit, "1 job, 2 local ranks"), ("reduction-agent", "0 jobs, 0 local ranks"),
                           ("reduction-server@b", "1 job, 1 rank")):
            self.m.until(name, "StatusText", f"serving {text}")
        self.end(ranks)
        for name in (unit, "reduction-server@b"):
            self.m.run("systemctl", "stop", name)
            self.assertEqual((self.m.show(name, "Result"), self.m.show(name, "ExecMainStatus")), ("success", "0"))
        self.m.run("test", "!", "-e", "/run/reduction-sidecar")

    def test_memory_follows_the_file(self):
        self.assertEqual(self.m.show("reduction-server", "MemoryMax"), str((256 << 20) + GIB))
        self.assertEqual(self.m.show("reduction-server@b", "MemoryMax"), str(5 * GIB))
        self.assertEqual(self.m.show("reduction-agent", "MemoryMax"), str(10 * GIB))
        self.m.run("sed", "-i", "s/256MiB/6GiB/", "/etc/reduction/reduction.yaml")
        self.m.run("systemctl", "restart", "reduction-server")
        self.assertEqual(self.m.show("reduction-server", "MemoryMax"), str(7 * GIB))
        self.m.run("sed", "-i", "s/6GiB/256MiB/", "/etc/reduction/reduction.yaml")

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

    def test_notice(self):
        """The provider takes the machine away: both reducers drain, and stay down until the notice is withdrawn."""
        both = ("reduction-server", "reduction-server@b")
        self.m.run("ip", "address", "add", "169.254.169.254/32", "dev", "lo")
        service = harness.Proc("metadata service", self.m.enter(*METADATA), {"PYTHONPATH": TEST_LIB})
        self.addCleanup(service.kill)
        service.said("listening")
        self.m.run("mkdir", "-p", "/run/systemd/system/reduction-notice.service.d")
        start = "ExecStart=\nExecStart=/usr/bin/reductionctl notice --provider azure\n"
        self.m.run("sh", "-c", f"printf '[Service]\n{start}' "
                   ">/run/systemd/system/reduction-notice.service.d/test.conf && systemctl daemon-reload")
        self.m.run("systemctl", "start", "reduction-notice")
        service.said("asked")
        pid = self.m.show("reduction-notice", "MainPID")
        self.assertNotEqual(self.m.run("ps", "-o", "user=", "-p", pid).stdout, "root\n")
        service.tell("Preempt")
        for unit in both:
            self.m.until(unit, "ActiveState", "inactive")
            self.assertEqual((self.m.show(unit, "Result"), self.m.show(unit, "ExecMainStatus")), ("success", "0"))
            self.assertTrue(self.m.journal("-u", unit, "--grep=drained because=.a notice of azure at "))
            self.m.run("systemctl", "start", unit)
            self.assertEqual((self.m.show(unit, "ActiveState"), self.m.show(unit, "ConditionResult")),
                             ("inactive", "no"))
        service.tell("")
        self.m.run("timeout", 50, "sh", "-c", "while [ -e /run/reduction-notice/notice ]; do sleep 0.1; done")
        self.m.run("systemctl", "start", *both)
        for unit in both:
            self.m.until(unit, "StatusText", "serving 0 jobs, 0 ranks")
        self.m.run("systemctl", "stop", "reduction-notice")
        self.assertEqual(self.m.show("reduction-notice", "Result"), "success")

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

    def copy(self, source, path):
        with source.open("rb") as file:
            subprocess.run(self.m.enter("sh", "-c", f"cat >{path}"), stdin=file, check=True)

    def journal_has(self, unit, pattern):
        """Waits until the journal of a unit has such a line."""
        self.m.run("timeout", 50 * harness.SCALE, "sh", "-c",
                   f"until journalctl -u {unit} | grep -q '{pattern}'; do sleep 0.2; done")

    def test_renew(self):
        """The commands of the page, while a job runs: a new certificate with its key, and a tenant that is new."""
        page = (harness.ROOT / "deploy" / "renew.md").read_text(encoding="utf-8")
        first, second, third = readme.the_one(page, "sh", "reduction.pem").splitlines()
        pids = {unit: self.m.show(unit, "MainPID") for unit in DAEMONS}
        ranks = self.start_ranks()
        self.sum(ranks, "before")
        tls = self.m.folder / "tls"
        make = [harness.ROOT / "deploy" / "make-certs.sh", tls, "reducer:r,127.0.0.1"]
        subprocess.run(make, check=True, capture_output=True)
        for kind in ("pem", "key"):
            self.copy(tls / f"r.{kind}", f"/tmp/r0.{kind}")
        self.m.run("sh", "-c", f"cd /tmp && {first} && {second}")
        for unit, port in zip(DAEMONS, (7600, 7610, None)):
            self.journal_has(unit, "renew result=.*read again")
            self.assertEqual(self.m.show(unit, "MainPID"), pids[unit])
            if not port:
                continue
            shown = self.m.run("sh", "-c", f"openssl s_client -connect 127.0.0.1:{port} -alpn reduction/1 </dev/null "
                               "2>/dev/null | openssl x509").stdout
            self.assertEqual(shown, (tls / "r.pem").read_text()[:len(shown)])
        self.assertIn("renew", self.m.run("sh", "-c", third).stdout)
        self.m.run("sh", "-c", readme.the_one(page, "sh", "bert.secret"))
        self.m.run("sh", "-c", "sed 's/\"test\"/\"bert\"/; s/test.secret/bert.secret/' /etc/reduction/reduction.yaml "
                   ">/tmp/bert.yaml")
        said = self.m.run("reductionctl", "check", "--role", "worker", "--connect", "/tmp/bert.yaml").stdout
        self.assertEqual(len(re.findall("has the job's secret", said)), 2, said)
        self.sum(ranks, "after")
        for p in ranks:
            self.assertNotIn("reducer-lost", p.err)
        self.end(ranks)

    def test_upgrade(self):
        """What packages do after an upgrade: a daemon that serves a job goes on, and says that it needs a restart."""
        self.copy(UNITS / "restart-idle", "/tmp/restart-idle")
        # images for containers have one that forbids packages to start and stop services
        self.m.run("sh", "-c", "printf '#!/bin/sh\nexit 0\n' >/tmp/policy && install /tmp/policy /usr/sbin/policy-rc.d")
        units = ("reduction-server@b", "reduction-agent")
        names = [f"{unit}.service" for unit in units]

        def restart():
            return self.m.run("sh", "/tmp/restart-idle", "reduction-server@b*", "reduction-agent.service").stdout

        ranks = self.start_ranks()
        self.sum(ranks, "before")
        for unit in units:
            self.m.until(unit, "StatusText", "serving 1 job, .*")
        pids = [self.m.show(unit, "MainPID") for unit in units]
        for program in ("reduction-server", "reduction-agent"):
            self.m.run("sh", "-c", f"cd /usr/bin && cp {program} new && mv new {program}")
        said = restart()
        for name in names:
            self.assertRegex(said, rf"{name} needs a restart: it is serving 1 job, .*old version")
            self.assertIn(f"systemctl restart {name}\n", said)
        for unit in units:
            self.m.until(unit, "StatusText", "serving 1 job, .*; restart needed: there is a new version")
        self.sum(ranks, "after the upgrade")
        self.assertEqual([self.m.show(unit, "MainPID") for unit in units], pids)
        self.end(ranks)
        for unit in units:
            self.m.until(unit, "StatusText", "serving 0 jobs, .*; restart needed: .*")
        self.assertEqual(restart(), "")
        for unit, pid in zip(units, pids):
            self.assertNotEqual(self.m.show(unit, "MainPID"), pid)
            self.m.until(unit, "StatusText", "serving 0 jobs, 0 (local )?ranks")

    def test_late_network(self):
        unit = "reduction-server@late"
        self.m.run("systemctl", "start", "--no-block", unit)
        self.m.until(unit, "NRestarts", "[1-9].*")
        self.assertTrue(self.m.journal("-u", unit, f"--grep=cannot listen on {LATE}:7620"))
        self.m.run("ip", "address", "add", f"{LATE}/32", "dev", "lo")
        self.m.until(unit, "ActiveState", "active")
        self.m.run("systemctl", "stop", unit)

    def test_crash_loop_ends(self):
        self.m.until("reduction-server@broken", "ActiveState", "failed", 60)
        self.assertEqual(self.m.show("reduction-server@broken", "NRestarts"), "45")
        lines = ("-u", "reduction-server@broken", "--grep=address already in use|Address already in use")
        deadline = time.monotonic() + 10 * harness.SCALE
        while len(tries := self.m.journal(*lines)) < 45 and time.monotonic() < deadline:
            time.sleep(0.2)  # the journal may get the last line after the end
        self.assertEqual(len(tries), 45)


class Memory(Ranks, unittest.TestCase):
    """The kernel enforces MemoryMax=: it ends a reducer that takes more, and the job continues with the other one."""

    def setUp(self):
        if why := why_not():
            self.skipTest(why)
        self.m = units_machine(name="memory", memory=True)
        self.addCleanup(self.m.close)
        limit = "[Service]\nExecStartPre=\nMemoryMax=64M\nRestart=no\n"
        self.m.write("/etc/systemd/system/reduction-server@b.service.d/limit.conf", limit)
        # a job for which a reducer takes 32 chunks of 4 MiB for each priority and lane
        config = {**CONFIG, "job": {"name": "test", "min_reducers": 1}, "sharding": {"chunk_bytes": "4MiB"},
                  "server": {**CONFIG["server"], "memory": "4GiB"}}
        self.m.write("/etc/reduction/reduction.yaml", config)
        self.m.boot()

    def limit_of(self, unit):
        """The limit that the kernel has for a unit; None: it has none."""
        group = self.m.show(unit, "ControlGroup")
        done = self.m.run("sh", "-c", f"cat '/sys/fs/cgroup{group}/memory.max' || "
                          f"cat '/sys/fs/cgroup/memory{group}/memory.limit_in_bytes'", check=False)
        return int(done.stdout) if done.returncode == 0 else None

    def test_limit(self):
        b = "reduction-server@b"
        self.m.run("systemctl", "start", *DAEMONS)
        if self.limit_of(b) is None:
            self.skipTest("this system has no memory controller for the machine, in no version of control groups")
        self.assertEqual(self.limit_of("reduction-server"), 5 * GIB)
        self.assertEqual(self.limit_of(b), 64 << 20)
        ranks = self.start_ranks()
        self.sum(ranks, "with a limit")
        self.m.until(b, "ActiveState", "failed")
        self.assertRegex(self.m.show(b, "Result"), "oom-kill|signal")  # systemd reads the reason in version 2 alone
        self.assertEqual(self.m.show(b, "ExecMainStatus"), "9")
        self.sum(ranks, "after it")
        self.assertEqual(self.m.show("reduction-server", "NRestarts"), "0")
        self.end(ranks)


if __name__ == "__main__":
    harness.main()
