#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan all-only
"""The Debian packages on machines with a real systemd (machine.py): the guide of deploy/README.md, word for word, and
an upgrade. `make deb` builds them before. REDUCTION_DEB is another folder than build/deb."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import harness
import machine

sys.path.insert(0, str(harness.ROOT / "tests" / "fresh"))
import readme  # noqa: E402

DEB = pathlib.Path(os.environ.get("REDUCTION_DEB", harness.BUILD.parent / "deb"))
GUIDE = (harness.ROOT / "deploy" / "README.md").read_text(encoding="utf-8").split("\n## As services\n")[1]
LIB = "/usr/lib/reduction-test"
# what sshd gives to a command; the machine's name comes first
SSH = """#!/bin/sh
host=${1#root@}
shift
exec nsenter --target "$(cat "$MACHINES/$host")" --all -- env -i HOME=/root \\
	PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive \\
	sh -c 'cd; eval "$1"' sh "$*"
"""
SCP = """#!/bin/bash
set -eu
to=${!#}
path=${to#*:}
for file in "${@:1:$#-1}"; do
	ssh "${to%%:*}" "umask 077; to='${path:-/root}'; [ ! -d \\"\\$to\\" ] || to=\\$to/${file##*/}
		cat >\\"\\$to\\"; chmod $(stat -c %a "$file") \\"\\$to\\"" <"$file"
done
"""
# Sums once for each line of its input.
SUMS = """
import numpy, reduction, worker
with reduction.Communicator() as comm:
    worker.say("open")
    while (line := worker.listen()) != "end":
        x = numpy.arange(100000, dtype="float32") + comm.rank
        comm.all_reduce(x)
        worker.say(line, right=bool((x == 2 * numpy.arange(100000, dtype="float32") + 1).all()))
"""


def version(folder):
    """The version of the packages in a folder; an empty one without packages."""
    found = {file.name.split("_")[1] for file in folder.glob("reduction*.deb")}
    return found.pop() if len(found) == 1 else ""


def make_next(folder):
    """Makes packages of the next version into a folder, from those of this one: only the number is another one, in the
    programs too. Returns that number, which is as long as the old one."""
    old = version(DEB)
    digits = old.replace(".", "")
    following = iter(f"{int(digits) + 1:0{len(digits)}}")
    new = "".join(c if c == "." else next(following) for c in old)
    number = re.escape(old)
    for name in ("reductionctl", "reduction-server", "reduction-agent"):
        tree = folder / name
        (package,) = DEB.glob(f"{name}_*.deb")
        subprocess.run(["dpkg-deb", "--raw-extract", package, tree], check=True)
        control = tree / "DEBIAN" / "control"
        control.write_text(re.sub(rf"^(Version: |.*\(= ){number}\b", rf"\g<1>{new}", control.read_text(), flags=re.M))
        program = tree / "usr" / "bin" / name
        text, found = re.subn(rb"(?<![\d.])%s(?![\d.])" % number.encode(), new.encode(), program.read_bytes())
        assert found, f"{name} does not contain its version {old}"
        program.write_bytes(text)
        subprocess.run(["dpkg-deb", "--root-owner-group", "-Znone", "--build", tree, folder / f"{name}_{new}.deb"],
                       check=True, stdout=subprocess.DEVNULL)
    return new


def why_not():
    if not version(DEB):
        return f"there are no packages in {DEB}: run make deb"
    for program in ("ip", "openssl", "usermod", "dpkg-deb"):
        if not shutil.which(program):
            return f"there is no {program}"
    return machine.why_not()


def package_machine(name):
    m = machine.Machine(name)
    # images for containers have one that forbids packages to start and stop services
    m.write("/usr/sbin/policy-rc.d", "#!/bin/sh\nexit 0\n").chmod(0o755)
    return m


class Network:
    """Machines by name on one network, where each knows the others' names."""

    def __init__(self, *names):
        self.machines = {name: package_machine(name) for name in names}
        self.switch = harness.Proc("switch", ["unshare", "--net", "--kill-child", "--fork", "sleep", "infinity"])
        hosts = "".join(f"10.99.0.{i} {name}\n" for i, name in enumerate(names, 1))
        for m in self.machines.values():
            m.write("/etc/hosts", f"127.0.0.1 localhost\n{hosts}")

    def boot(self):
        while os.readlink(f"/proc/{self.switch.pid}/ns/net") == os.readlink("/proc/self/ns/net"):
            self.switch.wait_more(0.05)
        self.ip("link", "add", "br0", "type", "bridge", "forward_delay", "0")
        self.ip("link", "set", "br0", "up")
        for i, (name, m) in enumerate(self.machines.items(), 1):
            m.boot()
            self.ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", str(m.init))
            self.ip("link", "set", name, "up", "master", "br0")
            m.run("ip", "addr", "add", f"10.99.0.{i}/24", "dev", "eth0")
            m.run("ip", "link", "set", "eth0", "up")

    def ip(self, *argv):
        subprocess.run(["nsenter", "--target", str(self.switch.pid), "--net", "ip", *argv], check=True)

    def close(self):
        for m in self.machines.values():
            m.close()
        self.switch.kill()


def copy_into(m, files, folder="/root"):
    for file in files:
        with file.open("rb") as source:
            subprocess.run(m.enter("sh", "-c", f"cat >{folder}/{file.name}"), stdin=source, check=True)


@unittest.skipIf(why_not(), why_not())
class Guide(unittest.TestCase):
    """From nothing to a running job, with the commands of the page."""

    def setUp(self):
        self.net = Network("r0", "r1", "n0", "n1")
        self.addCleanup(self.net.close)
        self.net.boot()
        folder = tempfile.TemporaryDirectory(prefix="reduction-")
        self.addCleanup(folder.cleanup)
        self.dir = pathlib.Path(folder.name)
        for name, text in (("ssh", SSH), ("scp", SCP)):
            (self.dir / "bin").mkdir(exist_ok=True)
            (self.dir / "bin" / name).write_text(text)
            (self.dir / "bin" / name).chmod(0o755)
        (self.dir / "machines").mkdir()
        for name, m in self.net.machines.items():
            (self.dir / "machines" / name).write_text(str(m.init))
        clone = self.dir / "clone"
        (clone / "build").mkdir(parents=True)
        (clone / "deploy").symlink_to(harness.ROOT / "deploy")
        (clone / "build" / "deb").symlink_to(DEB)

    def run_guide(self):
        """All commands but the first, which builds the packages."""
        clone = self.dir / "clone"
        (clone / "reduction.yaml").write_text(readme.the_one(GUIDE, "yaml", "secrets_dir"))
        first, _, commands = readme.the_one(GUIDE, "sh", "make-certs").partition("\n")
        self.assertIn("make deb", first)
        numbers = [int(n) for n in re.findall(r"# (\d+)\.", first + commands)]
        self.assertEqual(numbers, list(range(1, len(numbers) + 1)))
        self.assertLessEqual(len(numbers), 15)
        env = {**os.environ, "PATH": f"{self.dir}/bin:{os.environ['PATH']}", "MACHINES": f"{self.dir}/machines",
               "USER": "trainer"}
        done = subprocess.run(["bash", "-eu", "-c", commands], cwd=clone, env=env, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600)
        if done.returncode:
            journals = [m.run("journalctl", "--no-pager", "-n", "20").stdout for m in self.net.machines.values()]
            self.fail("\n".join([done.stdout, *journals]))
        return done.stdout

    def test_guide(self):
        nodes = [self.net.machines[name] for name in ("n0", "n1")]
        for m in nodes:
            m.run("useradd", "trainer")  # who trains has an account there
        output = self.run_guide()
        for reducer in ("r0", "r1"):
            self.assertRegex(output, rf"reducer {reducer} \({reducer}:7600\): .* has the job's secret, TLS")
        program = readme.python_program((harness.ROOT / "README.md").read_text(encoding="utf-8"))
        program = program.replace('"job.yaml"', '"/etc/reduction/reduction.yaml"')
        procs = []
        for rank in range(4):
            env = {"RANK": str(rank), "WORLD_SIZE": "4", "LOCAL_RANK": str(rank % 2), "LOCAL_WORLD_SIZE": "2",
                   "OMP_NUM_THREADS": "1"}
            user = ["setpriv", "--reuid=trainer", "--regid=trainer", "--init-groups", "--no-new-privs"]
            p = harness.Proc(f"rank {rank}", nodes[rank // 2].enter(*user, harness.PYTHON, "-c", program), env)
            self.addCleanup(p.kill)
            procs.append(p)
        for p in procs:
            self.assertEqual(p.wait(120), 0, p.report())
            self.assertEqual(p.out, "4.0 4.0\n")
        for m in nodes:
            self.assertEqual(len(m.journal("-u", "reduction-agent", "EVENT=job-started")), 1)
        for name in ("r0", "r1"):
            (started,) = self.net.machines[name].journal("-u", "reduction-server", "EVENT=job-started")
            self.assertEqual((started["JOB"], started["WORLD_SIZE"]), ("resnet", "2"))


@unittest.skipIf(why_not(), why_not())
class Upgrade(unittest.TestCase):
    """From one version of the packages to the next, while a job runs."""

    CONFIG = {
        "job": {"name": "test"},
        "reducers": [{"id": "a", "address": "127.0.0.1:7600"}, {"id": "b", "address": "127.0.0.1:7610"}],
        "server": {"listen": "127.0.0.1:7600", "memory": "256MiB"},
    }

    def setUp(self):
        self.m = package_machine("upgrade")
        self.addCleanup(self.m.close)
        self.m.write("/etc/reduction/reduction.yaml", self.CONFIG)
        self.m.write("/etc/reduction/b.yaml", {"server": {"listen": "127.0.0.1:7610"}})
        self.m.write(f"{LIB}/worker.py", (harness.ROOT / "tests" / "e2e" / "worker.py").read_text())
        folder = tempfile.TemporaryDirectory(prefix="reduction-")
        self.addCleanup(folder.cleanup)
        self.next = pathlib.Path(folder.name)
        self.new = make_next(self.next)
        self.m.boot()

    def install(self, folder, *names):
        """Installs packages as apt would on a machine without a network. Returns what it says."""
        files = [next(folder.glob(f"{name}_*.deb")) for name in names]
        copy_into(self.m, files)
        return self.m.run("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "-y", "--reinstall",
                          *(f"/root/{file.name}" for file in files)).stdout

    def start_ranks(self):
        procs = []
        for rank in (0, 1):
            env = {"RANK": str(rank), "WORLD_SIZE": "2", "REDUCTION_RUN": "packages",
                   "REDUCTION_MODE": "direct", "PYTHONPATH": LIB,
                   "REDUCTION_CONFIG": "/etc/reduction/reduction.yaml", "OMP_NUM_THREADS": "1"}
            p = harness.Proc(f"rank {rank}", self.m.enter(harness.PYTHON, "-c", SUMS), env)
            self.addCleanup(p.kill)
            procs.append(p)
        for p in procs:
            p.said("open", 60)
        return procs

    def sum(self, ranks, name):
        for p in ranks:
            p.tell(name)
        for p in ranks:
            self.assertTrue(p.said(name, 60)["right"])

    def software(self):
        """The versions that the reducers themselves report."""
        argv = ["reductionctl", "check", "--role", "worker", "--connect", "/etc/reduction/reduction.yaml"]
        return dict(re.findall(r"reducer (\w+) \(.*?\): .*?(\d+\.\d+\.\d+)", self.m.run(*argv).stdout))

    def test_upgrade(self):
        old, new = version(DEB), self.new
        self.install(DEB, "reductionctl", "reduction-server", "reduction-agent", "libreduction0", "python3-reduction")
        for unit in ("reduction-server", "reduction-agent"):
            self.assertEqual(self.m.show(unit, "ActiveState"), "inactive")
        units = ("reduction-server", "reduction-server@b", "reduction-agent")
        folder = "/etc/systemd/system/reduction-server.service.d"
        self.m.run("sh", "-c", f"mkdir -p {folder} && printf '[Service]\\nNice=3\\n' >{folder}/own.conf && "
                   "systemctl daemon-reload")
        self.m.run("systemctl", "start", *units)
        self.assertEqual(self.software(), {"a": old, "b": old})
        kept = f"cat /etc/reduction/*.yaml {folder}/own.conf"
        before = self.m.run("sh", "-c", kept).stdout
        pids = {unit: self.m.show(unit, "MainPID") for unit in units}
        ranks = self.start_ranks()
        self.sum(ranks, "before")

        said = self.install(self.next, "reductionctl", "reduction-server", "reduction-agent")
        # who serves a job goes on, and is restarted by the administrator, one after the other
        for unit in units[:2]:
            self.assertIn(f"{unit}.service needs a restart: it is serving 1 job, 2 ranks", said)
            self.assertEqual(self.m.show(unit, "MainPID"), pids[unit])
        self.assertNotIn("reduction-agent.service needs", said)  # it has no job
        self.m.until("reduction-agent", "ActiveState", "active")
        self.assertNotEqual(self.m.show("reduction-agent", "MainPID"), pids["reduction-agent"])
        self.sum(ranks, "with old reducers")
        for unit, software in zip(units, ({"a": new, "b": old}, {"a": new, "b": new})):
            self.m.until(unit, "StatusText", "serving 1 job, 2 ranks; restart needed: there is a new version")
            self.m.run("systemctl", "restart", unit)
            self.assertEqual(self.software(), software)
            self.sum(ranks, "with a new one")
            self.m.until(unit, "StatusText", "serving 1 job, 2 ranks", 60)  # it is back in the job
        self.sum(ranks, "with two new ones")
        for p in ranks:
            p.tell("end")
        for p in ranks:
            self.assertEqual(p.wait(), 0, p.report())

        self.assertIn(f" {new},", self.m.run("reduction-agent", "--version").stdout)
        self.assertEqual(self.m.run("sh", "-c", kept).stdout, before)
        self.assertEqual(self.m.show("reduction-server", "Nice"), "3")
        for unit in units:
            self.assertEqual((self.m.show(unit, "ActiveState"), self.m.show(unit, "NRestarts")), ("active", "0"))

        self.m.run("systemctl", "stop", "reduction-agent")
        self.install(self.next, "reduction-agent")  # as --reinstall
        self.assertEqual(self.m.show("reduction-agent", "ActiveState"), "inactive")
        self.m.run("apt-get", "remove", "-y", "reduction-server")
        for unit in units[:2]:
            self.assertEqual(self.m.show(unit, "ActiveState"), "inactive")


if __name__ == "__main__":
    harness.main()
