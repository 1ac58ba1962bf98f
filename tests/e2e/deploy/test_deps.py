# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan
"""deploy/install-deps.sh on systems that this machine is not: os-release and the package managers are fakes. The fakes
know which packages are installed and which can be had, and write down each installation."""

import os
import pathlib
import subprocess
import tempfile
import unittest

import harness

SCRIPT = harness.ROOT / "deploy" / "install-deps.sh"
SYSTEMS = {
    "debian": 'ID=debian\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n',
    "ubuntu": 'ID=ubuntu\nID_LIKE=debian\nVERSION_ID="22.04"\nPRETTY_NAME="Ubuntu 22.04.5 LTS"\n',
    "mint": 'ID=linuxmint\nID_LIKE="ubuntu debian"\nPRETTY_NAME="Linux Mint 22"\n',
    "rhel": 'ID="rhel"\nID_LIKE="fedora"\nPRETTY_NAME="Red Hat Enterprise Linux 9.4 (Plow)"\n',
    "rocky": 'ID="rocky"\nID_LIKE="rhel centos fedora"\nPRETTY_NAME="Rocky Linux 9.4 (Blue Onyx)"\n',
    "amazon": 'ID="amzn"\nID_LIKE="fedora"\nPRETTY_NAME="Amazon Linux 2023"\n',
    "fedora": 'ID=fedora\nPRETTY_NAME="Fedora Linux 40"\n',
    "suse": 'ID="sles"\nID_LIKE="suse"\nPRETTY_NAME="SUSE Linux Enterprise Server 15 SP6"\n',
    "none": "",
}
INSTALLED = 'grep -qx -- "{0}" "$FAKES/installed"'
UNKNOWN = """for p in "$@"; do
	case $p in -* | *=* | install) ;; *) grep -qx -- "$p" "$FAKES/unknown" && exit 1 ;; esac
done
exit 0
"""
FAKES = {
    "dpkg-query": f'for p in "$@"; do :; done\n{INSTALLED.format("$p")} && echo "installed "\n',
    "apt-get": 'echo "apt-get $*" >>"$FAKES/calls"\ncase " $* " in *" update "*) exit 0 ;; esac\n' + UNKNOWN,
    "rpm": INSTALLED.format("$3") + "\n",
    "dnf": 'case "$2" in repoquery) grep -qx -- "$4" "$FAKES/unknown" || echo "$4"; exit 0 ;; esac\n'
           'echo "dnf $*" >>"$FAKES/calls"\n' + UNKNOWN,
    "id": 'echo "$USER_ID"\n',
    "sudo": "exit 1\n",
}


@unittest.skipIf(harness.SAN, "the script is that of every build")
class Deps(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="reduction-")
        self.addCleanup(folder.cleanup)
        self.dir = pathlib.Path(folder.name)
        for name, text in FAKES.items():
            path = self.dir / name
            path.write_text(f"#!/bin/sh\n{text}")
            path.chmod(0o755)

    def deps(self, system, *args, installed=(), unknown=(), user=0):
        """Runs the script. Returns its exit status, its output and the installations it asked for."""
        for name, lines in (("os-release", SYSTEMS[system]), ("installed", "\n".join(installed) + "\n"),
                            ("unknown", "\n".join(unknown) + "\n"), ("calls", "")):
            (self.dir / name).write_text(lines)
        env = {**os.environ, "PATH": f"{self.dir}:{os.environ['PATH']}", "OS_RELEASE": str(self.dir / "os-release"),
               "FAKES": str(self.dir), "USER_ID": str(user)}
        done = subprocess.run([SCRIPT, *args], env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        calls = (self.dir / "calls").read_text().splitlines()
        return done.returncode, done.stdout + done.stderr, [c for c in calls if " -s " not in c]

    def names(self, system, *groups):
        """The packages of groups."""
        status, said, calls = self.deps(system, "--print", *groups)
        self.assertEqual((status, calls), (0, []), said)
        return said.split(" install -y ")[1].split()[1:]

    def test_each_system_has_its_manager_and_names(self):
        for system, manager, name in (
            ("debian", "apt-get", "libuv1-dev"),
            ("ubuntu", "apt-get", "libuv1-dev"),
            ("mint", "apt-get", "libuv1-dev"),
            ("rhel", "dnf", "libuv-devel"),
            ("rocky", "dnf", "libuv-devel"),
            ("amazon", "dnf", "libuv-devel"),
            ("fedora", "dnf", "libuv-devel"),
        ):
            with self.subTest(system):
                status, said, calls = self.deps(system, "--print", "build")
                self.assertEqual((status, calls), (0, []))
                self.assertIn(f"{manager} install -y", said)
                self.assertIn(f" {name} ", said)
                self.assertNotIn("?", said)

    def test_every_group_has_packages_for_both(self):
        for group in ("build", "test", "test-all", "demo", "bench", "lint", "fresh", "deb", "rpm", "wheel"):
            for system in ("debian", "rocky"):
                self.assertGreater(len(self.names(system, group)), 0, group)

    def test_other_systems_are_told_both_names(self):
        for system, name in (("suse", "SUSE Linux Enterprise Server 15 SP6"), ("none", "this system")):
            status, said, calls = self.deps(system, "build")
            self.assertEqual((status, calls), (1, []))
            self.assertRegex(said, rf"{name} has neither apt nor dnf(?s:.)* libuv1-dev (?s:.)* libuv-devel ")

    def test_only_what_is_missing(self):
        for system, missing, line in (
            ("ubuntu", "libyaml-dev", "apt-get .*install -y --no-install-recommends libyaml-dev"),
            ("rocky", "libyaml-devel", "dnf install -y --setopt=install_weak_deps=False libyaml-devel"),
        ):
            everything = self.names(system, "build")
            status, said, calls = self.deps(system, "build", installed=everything)
            self.assertEqual((status, said, calls), (0, "", []))
            status, said, calls = self.deps(system, "build", installed=set(everything) - {missing})
            self.assertEqual((status, len(calls)), (0, 1), said)
            self.assertRegex(calls[0], line + "$")

    def test_a_user_is_told_the_line(self):
        for system, line in (("ubuntu", "^apt-get update && apt-get install -y --no-install-recommends gcc "),
                             ("rocky", "^dnf install -y --setopt=install_weak_deps=False gcc ")):
            status, said, calls = self.deps(system, "build", user=1000)
            self.assertEqual((status, calls), (1, []))
            self.assertRegex(said, f"(?m){line}")

    def test_what_a_system_lacks(self):
        """The build works without some packages, and not without others."""
        for system, optional, needed in (
            ("ubuntu", "libgrpc-dev", "libuv1-dev"),
            ("rocky", "grpc-devel", "libuv-devel"),
        ):
            status, said, calls = self.deps(system, "build", unknown=[optional])
            self.assertEqual(status, 0, said)
            self.assertIn(f"has no {optional}; the build works without", said)
            self.assertNotIn(optional, calls[-1])
            self.assertIn(needed, calls[-1])
            status, said, calls = self.deps(system, "build", unknown=[needed])
            self.assertEqual(status, 1, said)
            self.assertIn(f"has no package {needed}", said)
            self.assertIn(optional, calls[-1])  # the others are there now
            # the next call has nothing to do
            have = set(self.names(system, "build")) - {optional}
            for user in (0, 1000):
                self.assertEqual(self.deps(system, "build", installed=have, unknown=[optional], user=user), (0, "", []))

    def test_where_they_may_be(self):
        for system, there in (("rhel", "codeready-builder-for-rhel-9"), ("rocky", "config-manager --set-enabled crb")):
            self.assertIn(there, self.deps(system, "build", unknown=["libuv-devel"])[1])
        for system in ("amazon", "fedora"):
            self.assertNotIn("EPEL", self.deps(system, "build", unknown=["libuv-devel"])[1])
        self.assertIn("pip install torch", self.deps("ubuntu", "demo", unknown=["python3-torch"])[1])

    def test_wrong_usage(self):
        status, said, _ = self.deps("debian", "everything")
        self.assertEqual(status, 2)
        self.assertIn("found everything, expected build, test,", said)


if __name__ == "__main__":
    harness.main()
