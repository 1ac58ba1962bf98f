# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan all-only
"""The entry point of the container image starts what the environment and the arguments say. The image itself, if `make
image` has built it, runs under crun: as an ordinary user without capabilities, on a root that it cannot write. So does
that for another processor, under QEMU, if the archive has one."""

import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

import harness

sys.path[:0] = [str(harness.ROOT / "deploy/container"), str(harness.ROOT / "deploy")]
import elf  # noqa: E402
import layers  # noqa: E402

ENTRY = harness.ROOT / "deploy/container/entry.sh"
ARCHIVE = harness.BUILD.parent / "image/reduction.tar"
MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
NATIVE = {machine: name for name, machine in MACHINES.items()}.get(os.uname().machine, os.uname().machine)
PROGRAMS = ("reductionctl", "reduction-server", "reduction-agent", "reduction-bench")
CRUN = ["crun", "--cgroup-manager=disabled"]
# A network of its own, so that the usual ports are free; and the version 2 of control
# groups alone.
ALONE = ["unshare", "--mount", "--net", "sh", "-c",
         'ip link set lo up; umount -R /sys/fs/cgroup; mount -t cgroup2 cgroup2 /sys/fs/cgroup; exec "$@"', "sh"]


@unittest.skipIf(harness.SAN, "the script is that of every build")
class Entry(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="reduction-")
        self.addCleanup(folder.cleanup)
        self.dir = pathlib.Path(folder.name)
        for program in "reduction-server", "reduction-agent", "reductionctl":
            path = self.dir / program
            path.write_text('#!/bin/sh\necho "${0##*/}" "$@"\n')
            path.chmod(0o755)

    def run_entry(self, *args, **env):
        env = {"PATH": f"{self.dir}:{os.environ['PATH']}", **env}
        return subprocess.run([ENTRY, *args], env=env, capture_output=True, text=True)

    def started(self, *args, **env):
        done = self.run_entry(*args, **env)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout.rstrip("\n")

    @unittest.skipIf(os.path.exists("/etc/reduction/reduction.yaml"), "this machine has a configuration")
    def test_roles(self):
        self.assertEqual(self.started(REDUCTION_ROLE="server"), "reduction-server")
        self.assertEqual(self.started("--lanes", "2", REDUCTION_ROLE="server"), "reduction-server --lanes 2")
        self.assertEqual(
            self.started("--check", REDUCTION_ROLE="agent", REDUCTION_CONFIG="/job.yaml"),
            "reduction-agent --config /job.yaml --check",
        )

    @unittest.skipIf(os.path.exists("/etc/reduction/reduction.yaml"), "this machine has a configuration")
    def test_notice(self):
        """A watcher beside a reducer; an agent has none."""
        out = self.started("--lanes", "2", REDUCTION_ROLE="server", REDUCTION_NOTICE="gcp").split("\n")
        self.assertEqual(sorted(out), ["reduction-server --notice /run/reduction/notice --lanes 2",
                                       "reductionctl notice --provider gcp --file /run/reduction/notice"])
        self.assertEqual(self.started(REDUCTION_ROLE="agent", REDUCTION_NOTICE="gcp"), "reduction-agent")

    def test_commands(self):
        self.assertEqual(self.started("reductionctl", "status", "a:1"), "reductionctl status a:1")
        self.assertEqual(self.started("reduction-server", "--help", REDUCTION_ROLE="agent"), "reduction-server --help")

    def test_no_role(self):
        for env in {}, {"REDUCTION_ROLE": "worker"}:
            done = self.run_entry(**env)
            self.assertEqual(done.returncode, 2)
            self.assertIn(f'found "{env.get("REDUCTION_ROLE", "")}", expected server or agent', done.stderr)


def no_archive():
    if harness.SAN:
        return "the image is that of every build"
    return "" if ARCHIVE.exists() else "the image is not built: run make image"


def why_not():
    if os.geteuid() or not shutil.which("crun"):
        return no_archive() or "this needs root and crun"
    return no_archive()


def no_foreign():
    if not why_not() and "arm64" not in layers.Image(ARCHIVE).architectures:
        return "the image is for one processor: run make image ARGS='... --platforms linux/amd64,linux/arm64'"
    if not pathlib.Path("/proc/sys/fs/binfmt_misc/qemu-aarch64").exists():
        return why_not() or "QEMU does not start programs of arm64 here"
    return why_not()


@unittest.skipIf(no_archive(), no_archive())
class Archive(unittest.TestCase):
    """What an OCI registry gets, without running it."""

    def test_blobs(self):
        """Each is named by its contents. The index leads to all of them."""
        with tarfile.open(ARCHIVE) as archive:
            found = {m.name: archive.extractfile(m).read() for m in archive if m.name.startswith("blobs/sha256/")}
            queue = json.load(archive.extractfile("index.json"))["manifests"]
        led = set()
        while queue:
            descriptor = queue.pop()
            name = layers.Image.name(descriptor)
            self.assertEqual(len(found[name]), descriptor["size"], name)
            self.assertEqual(f"blobs/sha256/{hashlib.sha256(found[name]).hexdigest()}", name)
            led.add(name)
            if re.search(r"\.(index|manifest)\.v1\+json$", descriptor["mediaType"]):
                own = json.loads(found[name])
                queue += own.get("manifests") or [own["config"], *own["layers"]]
        self.assertEqual(led, set(found))

    def test_processors(self):
        """All that is in an image is for its processor, and each starts a reducer as the same ordinary user."""
        for architecture in layers.Image(ARCHIVE).architectures or [NATIVE]:
            with self.subTest(architecture=architecture), tempfile.TemporaryDirectory(prefix="reduction-") as name:
                image, root = layers.Image(ARCHIVE, architecture), pathlib.Path(name)
                self.assertEqual(image.platform, ("linux", architecture))
                self.assertEqual(image.config["Entrypoint"], ["/usr/bin/reduction-entry"])
                self.assertEqual(image.config["User"], "65532:65532")
                self.assertIn("REDUCTION_ROLE=server", image.config["Env"])
                image.unpack(root)
                for path in [*(root / "usr/bin" / p for p in (*PROGRAMS, "dash")), *(root / "usr/lib").rglob("*.so*")]:
                    self.assertEqual(elf.Elf(path).machine, MACHINES[architecture], path)
                for path in (root / "var/lib/dpkg/status.d").iterdir():
                    self.assertRegex(path.read_text(), rf"\nArchitecture: ({architecture}|all)\n")
                folder = (root / "run/reduction").stat()
                if not os.geteuid():  # others cannot give files away
                    self.assertEqual((folder.st_uid, folder.st_gid, folder.st_mode & 0o7777), (65532, 0, 0o770))


@unittest.skipIf(why_not(), why_not())
class Image(unittest.TestCase):
    architecture = NATIVE

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="reduction-")
        cls.addClassCleanup(folder.cleanup)
        cls.dir = pathlib.Path(folder.name)
        cls.image = layers.Image(ARCHIVE, cls.architecture)
        cls.image.unpack(cls.dir / "rootfs")
        subprocess.run(["crun", "spec"], cwd=cls.dir, check=True)
        cls.spec = json.loads((cls.dir / "config.json").read_text())

    def start(self, name, *args, user=None, **env):
        """Starts a container with the arguments of `podman run IMAGE ARG...`. The volume is as the image's folder."""
        folder = (self.dir / "rootfs/run/reduction").stat()
        user, _, group = (user or self.image.config["User"]).partition(":")
        variables = [*self.image.config["Env"], *(f"{key}={value}" for key, value in env.items())]
        process = {**self.spec["process"], "terminal": False, "user": {"uid": int(user), "gid": int(group)},
                   "env": variables, "args": [*self.image.config["Entrypoint"], *args], "capabilities": {},
                   "noNewPrivileges": True}
        volume = {"destination": "/run/reduction", "type": "tmpfs", "source": "tmpfs",
                  "options": [f"uid={folder.st_uid}", f"gid={folder.st_gid}", f"mode={folder.st_mode & 0o7777:o}"]}
        spaces = [space for space in self.spec["linux"]["namespaces"] if space["type"] != "network"]
        spec = {**self.spec, "process": process, "root": {"path": str(self.dir / "rootfs"), "readonly": True},
                "mounts": [*self.spec["mounts"], volume], "linux": {**self.spec["linux"], "namespaces": spaces}}
        bundle = self.dir / name
        bundle.mkdir()
        (bundle / "config.json").write_text(json.dumps(spec))
        p = harness.Proc(name, [*ALONE, *CRUN, "--root", str(self.dir / "state"), "run", "--bundle", str(bundle), name])
        self.addCleanup(p.kill)
        return p

    def check_role(self, role, *options, ready=r"\blistening\b", ask=None, user="65532:65532"):
        name = f"{role}-{user.partition(':')[0]}"
        roles = {} if role == "server" else {"REDUCTION_ROLE": role}  # a reducer by default
        p = self.start(name, *options, user=user, **roles)
        p.wait_text(ready, timeout=30)
        state = json.loads(subprocess.run([*CRUN, "--root", self.dir / "state", "state", name], check=True,
                                          capture_output=True).stdout)
        status = pathlib.Path(f"/proc/{state['pid']}/status").read_text()
        uid = user.partition(":")[0]
        self.assertIn(f"\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n", status)
        self.assertIn("\nCapEff:\t0000000000000000\n", status)
        if ask:
            argv = [*CRUN, "--root", self.dir / "state", "exec", name, *ask]
            done = subprocess.run(argv, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("jobs 0", done.stdout)
        os.kill(state["pid"], 15)
        self.assertEqual(p.wait(), 0, p.report())

    def test_server(self):
        if (self.dir / "rootfs/usr/lib/libreduction-grpc.so").exists():
            self.check_role("server", "--grpc", "127.0.0.1:7601", ready=r"\bgrpc-ready\b",
                            ask=["reductionctl", "status", "127.0.0.1:7601"])
        else:
            self.check_role("server")

    def test_agent(self):
        self.check_role("agent")

    def test_any_user(self):
        """OpenShift gives each project users of its own, in group 0."""
        for role in "server", "agent":
            self.check_role(role, user="1000670000:0")

    def test_command(self):
        for program in PROGRAMS:
            p = self.start(program, program, "--version")
            self.assertEqual(p.wait(30), 0, p.report())
            self.assertRegex(p.out, r"\d+\.\d+\.\d+")

    def test_root_is_read_only(self):
        p = self.start("write", "sh", "-c", "echo x >/etc/x")
        self.assertNotEqual(p.wait(30), 0)
        self.assertIn("Read-only file system", p.err)

    def test_small(self):
        self.assertLess(sum(self.image.sizes), 40e6)  # bytes, compressed

    def test_packages_are_named(self):
        """Programs that look for known faults in images read this."""
        root = self.dir / "rootfs"
        packages = {path.name: path.read_text() for path in (root / "var/lib/dpkg/status.d").iterdir()}
        self.assertLessEqual({"libc6", "libssl3", "libuv1", "libmicrohttpd12", "dash"}, set(packages))
        for name, status in packages.items():
            self.assertRegex(status, rf"(?s)^Package: {re.escape(name)}\n.*\nVersion: \d")
            self.assertTrue((root / "usr/share/doc" / name / "copyright").is_file(), name)


@unittest.skipIf(no_foreign(), no_foreign())
class Foreign(Image):
    architecture = "arm64"


if __name__ == "__main__":
    harness.main()
