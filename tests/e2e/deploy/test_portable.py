# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan all-only
"""What `make portable` and `make rpm` have built: the archive is used in a folder of its own; the package is looked
at, and installed into an empty root."""

import os
import pathlib
import re
import shutil
import subprocess
import tarfile
import tempfile
import unittest

import harness

BUILD = harness.BUILD.parent
ARCHIVES, PACKAGES = (sorted(BUILD.glob(p)) for p in ("portable-archive/*.tar.gz", "rpm/*.rpm"))
QEMU = "qemu-x86_64-static"
PROGRAMS = ("reduction-agent", "reduction-bench", "reduction-server", "reductionctl")


@unittest.skipIf(harness.SAN or not ARCHIVES, "there is no archive: run make portable")
class Archive(unittest.TestCase):
    def test_members(self):
        """Nothing of the machine that made it is in it, so the same commit makes the same bytes."""
        with tarfile.open(ARCHIVES[0]) as archive:
            members = archive.getmembers()
        top = ARCHIVES[0].name.removesuffix(".tar.gz")
        self.assertEqual([m.name for m in members], sorted(m.name for m in members))
        self.assertEqual({(m.uid, m.gid, m.uname, m.gname, m.mtime) for m in members},
                         {(0, 0, "", "", members[0].mtime)})
        self.assertEqual({m.name.split("/")[0] for m in members}, {top})
        names = {m.name.removeprefix(f"{top}/") for m in members}
        self.assertLessEqual({"sbom.cdx.json", "licenses/LICENSE", "include/reduction.h", "lib/libreduction.so.0",
                              "lib/libnccl-net-reduction.so", "lib/libreduction-jax.so",
                              "lib/systemd/system/reduction-server.service",
                              "share/man/man8/reduction-server.8", "share/doc/reduction/examples/loopback.yaml",
                              *(f"bin/{p}" for p in PROGRAMS)}, names)
        self.assertFalse([n for n in names if n.endswith(".py") and n.startswith("lib/")])

    def test_in_any_folder(self):
        """Reducer in one line, sums, status, doctor; the folder may be moved."""
        with harness.Cluster(start=False) as c:
            with tarfile.open(ARCHIVES[0]) as archive:
                archive.extractall(c.dir)
            home = (c.dir / ARCHIVES[0].name.removesuffix(".tar.gz")).rename(c.dir / "moved")
            argv = [home / "bin/reduction-server", "--listen", "127.0.0.1:0", "--grpc", "127.0.0.1:0"]
            reducer = c.start("reducer", argv)
            grpc = reducer.wait_text(r"grpc-ready address=(\S+)").group(1)
            where = {"REDUCTION_REDUCERS": reducer.wait_text(r"\blistening address=(\S+)").group(1)}
            for argv, said in (
                (["reduction-bench", "--ranks", "2", "-b", "1M", "-e", "1M"], "wrong elements: 0"),
                (["reductionctl", "check", "--connect"], "reducer r0 "),
                (["reductionctl", "status", grpc], "jobs 0"),
                (["reductionctl", "doctor", grpc], "There is no job."),
            ):
                p = c.start(argv[0], [home / "bin" / argv[0], *argv[1:]], where)
                self.assertEqual(p.wait(), 0, p.report())
                self.assertIn(said, p.out)
            maps = pathlib.Path(f"/proc/{reducer.pid}/maps").read_text()
            foreign = {line.split(maxsplit=5)[5] for line in maps.splitlines() if ".so" in line} - {""}
            others = [f for f in foreign if not f.startswith(str(home))]
            of_system = r"/(ld-linux|lib(c|m|stdc\+\+|gcc_s|nss_\w+))[-.]"
            self.assertFalse([f for f in others if not re.search(of_system, f)])
            self.assertEqual(reducer.stop(), 0, reducer.report())

    @unittest.skipIf(os.uname().machine != "x86_64" or not shutil.which(QEMU), f"there is no {QEMU}")
    def test_old_processor(self):
        """One of 2008, without AVX: the carried libraries too choose their code when they run."""
        with harness.Cluster(start=False) as c:
            with tarfile.open(ARCHIVES[0]) as archive:
                archive.extractall(c.dir)
            (home,) = c.dir.glob("reduction-*/bin")
            old = [QEMU, "-cpu", "Nehalem"]
            argv = [*old, home / "reduction-server", "--listen", "127.0.0.1:0", "--grpc", "127.0.0.1:0"]
            reducer = c.start("reducer", argv)
            grpc = reducer.wait_text(r"grpc-ready address=(\S+)", 60).group(1)
            where = {"REDUCTION_REDUCERS": reducer.wait_text(r"\blistening address=(\S+) .*cpu=scalar").group(1),
                     "WORLD_SIZE": "2", "REDUCTION_MODE": "direct", "REDUCTION_RUN": "old"}
            bench = [*old, home / "reduction-bench", "-b", "64K", "-e", "64K", "-n", "1", "-w", "0"]
            ranks = [c.start(f"rank {rank}", bench, {**where, "RANK": str(rank)}) for rank in range(2)]
            for p in (*ranks, c.start("status", [*old, home / "reductionctl", "status", grpc])):
                self.assertEqual(p.wait(120), 0, p.report())
            self.assertIn("wrong elements: 0", ranks[0].out)
            reducer.kill()  # QEMU 7.2 misplaces the stack of a signal's handler


# says how it was called; as systemctl it has two units, of which the agent has a job
STUB = """#!/bin/sh
echo "${0##*/} $*" >>/calls
case "${0##*/} $*" in
"getent "*) exit 2 ;;
*list-units*) printf 'reduction-server.service loaded\\nreduction-agent.service loaded\\n' ;;
*show*server*) echo 'serving 0 jobs' ;;
*show*agent*) echo 'serving 1 job' ;;
esac
"""


def copy_program(program, root):
    """Copies a program of this machine and its libraries into a root."""
    needed = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout
    for path in [program, *re.findall(r"(/\S+) \(", needed)]:
        to = root / path[1:]
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, to)


@unittest.skipIf(harness.SAN or not PACKAGES or not shutil.which("rpm"), "there is no package: run make rpm")
class Package(unittest.TestCase):
    def query(self, *args):
        return subprocess.run(["rpm", "-qp", *args, PACKAGES[0]], check=True, capture_output=True, text=True).stdout

    def test_contents(self):
        files = self.query("--list").split()
        self.assertLessEqual({*(f"/usr/bin/{p}" for p in PROGRAMS), "/usr/lib/sysusers.d/reduction.conf",
                              "/usr/lib/systemd/system/reduction-agent@.service", "/usr/include/reduction.h",
                              "/usr/share/man/man1/reductionctl.1",
                              "/usr/share/licenses/reduction/LICENSE"}, set(files))

    def test_requirements(self):
        """RHEL 9 has glibc 2.34 and the libstdc++ of gcc 11."""
        for line in self.query("--requires").splitlines():
            self.assertRegex(line, r"^(/bin/sh|shadow-utils|config\(|rpmlib\(|ld-linux|lib(c|m|gcc_s|stdc\+\+)\.so)")
            if found := re.search(r"\((GLIBC|GLIBCXX)_(\d+)\.(\d+)(?:\.(\d+))?\)", line):
                version = tuple(int(n or 0) for n in found.groups()[1:])
                self.assertLessEqual(version, (2, 34, 0) if found[1] == "GLIBC" else (3, 4, 29), line)

    @unittest.skipIf(os.geteuid(), "this needs root")
    def test_into_a_root(self):
        with tempfile.TemporaryDirectory(prefix="reduction-") as root:
            rpm = ["rpm", "--root", root]
            subprocess.run([*rpm, "--initdb"], check=True)
            subprocess.run([*rpm, "--nodeps", "--noscripts", "-i", PACKAGES[0]], check=True, capture_output=True)
            program = os.path.realpath(f"{root}/usr/bin/reduction-server")
            done = subprocess.run([program, "--version"], capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            unit = pathlib.Path(f"{root}/usr/lib/systemd/system/reduction-server.service").read_text()
            self.assertIn("ExecStart=/usr/bin/reduction-server ", unit)
            self.assertNotIn("/opt/", unit)
            subprocess.run([*rpm, "--nodeps", "--noscripts", "-e", "reduction"], check=True, capture_output=True)
            self.assertFalse([p for p in pathlib.Path(root).rglob("*reduction*")])

    @unittest.skipIf(os.geteuid(), "this needs root")
    def test_scripts(self):
        """In a root with a shell and commands that only say how they were called: an upgrade restarts the unit that
        serves no job and names the other; only the removal stops units."""
        with tempfile.TemporaryDirectory(prefix="reduction-") as folder:
            root = pathlib.Path(folder)
            copy_program("/bin/sh", root)
            copy_program("/usr/bin/cut", root)
            for name in ("usr/bin/getent", "usr/sbin/groupadd", "sbin/ldconfig", "usr/bin/systemctl"):
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(STUB)
                (root / name).chmod(0o755)
            (root / "run/systemd/system").mkdir(parents=True)
            rpm = ["rpm", "--root", root]
            subprocess.run([*rpm, "--initdb"], check=True)

            def calls(*args):
                """Runs rpm; returns what it printed, and which commands it called that change something."""
                (root / "calls").write_text("")
                done = subprocess.run([*rpm, "--nodeps", *args], check=True, capture_output=True, text=True)
                lines = (root / "calls").read_text().splitlines()
                return done.stdout + done.stderr, [c for c in lines if not re.match("systemctl (list|show)|getent", c)]

            restart = "systemctl restart reduction-server.service"
            again = "systemctl daemon-reload"
            _, called = calls("-i", PACKAGES[0])
            groups = ["groupadd -r reduction", "groupadd -r reduction-keys"]
            self.assertEqual(called, [*groups, "ldconfig ", again, restart])
            said, called = calls("-U", "--force", PACKAGES[0])
            self.assertEqual(set(called) - set(groups), {"ldconfig ", again, restart})
            self.assertIn("reduction-agent.service needs a restart: it is serving 1 job, and still runs", said)
            _, called = calls("-e", "reduction")
            self.assertEqual(called[0], "systemctl --no-reload disable --now reduction-notice.service "
                             "reduction-server.service reduction-agent.service")  # fmt: skip
            self.assertIn("systemctl stop reduction-server@*.service reduction-agent@*.service", called)


if __name__ == "__main__":
    harness.main()
