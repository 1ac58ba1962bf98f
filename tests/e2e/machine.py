# SPDX-License-Identifier: Apache-2.0
"""Machines of namespaces (machine.sh) whose process 1 is a real systemd."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time
import unittest

import harness

SYSTEMD = "/lib/systemd/systemd"
# Mounts the hierarchy of control groups that $1 names, on the folder $2, and removes from
# it the group $3 with all that the machine has made below it.
REMOVE_GROUPS = """mount -t $1 cgroup "$2" && cd "$2" && [ ! -d "$3" ] || {
	for _ in $(seq 100); do
		find "$3" -depth -type d -exec rmdir {} + 2>/dev/null
		[ -d "$3" ] || break
		sleep 0.1
	done
}"""


def memory_v1():
    """The path of this process in version 1 of the memory controller; an empty one if the system does not use it."""
    found = re.search(r"^\d+:memory:(.*)$", pathlib.Path("/proc/self/cgroup").read_text(), re.M)
    return found[1] if found else ""


class Machine:
    """A machine with a systemd of its own. write() and link() come before boot(), which raises SkipTest if this system
    cannot have such a machine. With memory=True it limits the memory of its units, if this system can do that in either
    version of control groups."""

    def __init__(self, name="machine", memory=False):
        self.name = name
        self.v1 = memory_v1() if memory else ""
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="reduction-"))
        self.cgroup = f"reduction-test-{os.getpid()}-{name}"
        self.proc = self.init = None
        (self.folder / "machine").mkdir()
        self.write("/etc/hostname", name + "\n")
        # it has no other units than these and those of systemd
        self.link("/etc/systemd/system/default.target", "/lib/systemd/system/multi-user.target")

    def write(self, path, content):
        path = self.folder / "files" / path.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    def link(self, path, target):
        path = self.folder / "files" / path.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target)

    def boot(self):
        argv = ["unshare", "--mount", "--pid", "--ipc", "--uts", "--net", "--fork", "--kill-child",
                str(harness.ROOT / "tests" / "e2e" / "machine.sh"), str(self.folder / "machine"), self.cgroup,
                str(self.folder / "files"), self.v1]
        self.proc = harness.Proc(self.name, argv)
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
        return ["nsenter", "--target", str(self.init), "--all", "--", *map(str, argv)]

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
        """Ends the machine. Does nothing the second time."""
        if not self.folder.exists():
            return
        if self.proc:
            self.proc.kill()  # with it process 1, and so all processes of the machine
        mounted = self.folder / "cgroup"
        mounted.mkdir()
        groups = [("cgroup2", self.cgroup)]
        if self.v1:
            groups.append(("cgroup -o memory", f"{self.v1.lstrip('/')}/{self.cgroup}".lstrip("/")))
        for kind, path in groups:
            argv = ["unshare", "--mount", "sh", "-c", REMOVE_GROUPS, "sh", kind, str(mounted), path]
            subprocess.run(argv, check=False)
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


