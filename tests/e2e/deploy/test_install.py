# SPDX-License-Identifier: Apache-2.0
# run: alone all-only
"""What `make install` installs is complete: a program outside the tree is compiled with pkg-config and runs.

Runs alone: `make install` without WERROR links the library anew, which other tests would notice.
"""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import harness

PROGRAM = """
#include <reduction.h>
#include <stdio.h>

int main(void)
{
	reduction_options opt = REDUCTION_OPTIONS_INIT;
	reduction_error err;
	reduction_comm *comm;

	opt.rank = 3; /* there is no rank 3 in a world of 2 */
	opt.world_size = 2;
	if (reduction_open(&comm, &opt, &err) == 0)
		return 1;
	printf("%s|%s\\n", reduction_version(), err.message);
	return 0;
}
"""


@unittest.skipIf(harness.SAN, "a sanitized library is not installed")
class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.root = pathlib.Path(tempfile.mkdtemp(prefix="reduction-"))
        cls.addClassCleanup(shutil.rmtree, cls.root)
        cls.make("install", cls.root)

    @staticmethod
    def make(goal, root, prefix="/opt/rs", *more):
        build = harness.BUILD.parent  # of build/default
        argv = ["make", "-s", goal, f"BUILD={build}", f"DESTDIR={root}", f"PREFIX={prefix}", *more]
        done = subprocess.run(argv, cwd=harness.ROOT, capture_output=True, text=True)
        if done.returncode != 0:
            raise AssertionError(f"make {goal}:\n{done.stdout}{done.stderr}")

    @staticmethod
    def files(root):
        return sorted(str(p.relative_to(root)) for p in root.rglob("*") if not p.is_dir())

    def test_files(self):
        files = self.files(self.root)
        for name in (
            "bin/reduction-server",
            "bin/reduction-agent",
            "bin/reduction-bench",
            "bin/reductionctl",
            "include/reduction.h",
            "lib/libreduction.so",
            "lib/libreduction.so.0",
            "lib/libreduction-grpc.so",
            "lib/libnccl-env.so",
            "lib/libnccl-net-reduction.so",
            "lib/libreduction-jax.so",
            "lib/libreduction-mpi.so",
            "lib/pkgconfig/reduction.pc",
            "lib/python3/dist-packages/reduction/__init__.py",
            "lib/systemd/system/reduction-agent.service",
            "lib/systemd/system/reduction-agent@.service",
            "lib/systemd/system/reduction-notice.service",
            "lib/systemd/system/reduction-server.service",
            "lib/systemd/system/reduction-server@.service",
            "lib/sysusers.d/reduction.conf",
            "share/bash-completion/completions/reduction-server",
            "share/doc/reduction/LICENSE",
            "share/man/man1/reductionctl.1",
            "share/man/man5/reduction.yaml.5",
            "share/man/man7/reduction.7",
            "share/man/man8/reduction-server.8",
        ):
            self.assertIn("opt/rs/" + name, files)
        self.assertTrue(any(name.startswith("opt/rs/share/doc/reduction/examples/") for name in files))
        versioned = (self.root / "opt/rs/lib/libreduction.so").resolve().name
        self.assertRegex(versioned, r"^libreduction\.so\.\d+\.\d+\.\d+$")

    def test_programs_start(self):
        for name in ("reduction-server", "reduction-agent", "reduction-bench", "reductionctl"):
            done = subprocess.run([self.root / "opt/rs/bin" / name, "--version"], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, f"{name}: {done.stderr}")
            self.assertIn("0.1.0", done.stdout)

    def test_units_name_installed_files(self):
        for unit in (self.root / "opt/rs/lib/systemd/system").iterdir():
            text = unit.read_text()
            for line in text.splitlines():
                if line.startswith(("ExecStart=", "ExecReload=")):
                    self.assertRegex(line, r"(=|--mount )(/opt/rs/bin/reduction(-server|-agent|ctl) |/bin/kill )")
            program, section = re.search(r"^Documentation=man:(reduction[a-z-]+)\((\d)\)$", text, re.M).groups()
            self.assertIn(f"/{program} {'notice' if program == 'reductionctl' else '--config'}", text)
            self.assertTrue((self.root / f"opt/rs/share/man/man{section}/{program}.{section}").is_file())

    def test_compile_and_run(self):
        source = self.root / "program.c"
        source.write_text(PROGRAM)
        prefix = f"{self.root}/opt/rs"
        find = dict(os.environ, PKG_CONFIG_PATH=f"{prefix}/lib/pkgconfig", PKG_CONFIG_SYSROOT_DIR=str(self.root))
        load = dict(os.environ, LD_LIBRARY_PATH=f"{prefix}/lib")
        flags = subprocess.run(
            ["pkg-config", "--cflags", "--libs", "reduction"], env=find, check=True, capture_output=True, text=True
        ).stdout.split()
        for language in ["c", "c++"] if shutil.which("c++") else ["c"]:
            binary = self.root / "program"
            command = ["cc", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-o", binary, "-x", language, source]
            subprocess.run(command + ["-x", "none"] + flags, check=True)
            done = subprocess.run([binary], env=load, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            version, message = done.stdout.strip().split("|")
            self.assertEqual(version, "0.1.0")
            self.assertIn("3", message)

    def test_example(self):
        prefix = f"{self.root}/opt/rs"
        find = dict(os.environ, PKG_CONFIG_PATH=f"{prefix}/lib/pkgconfig", PKG_CONFIG_SYSROOT_DIR=str(self.root))
        flags = subprocess.run(
            ["pkg-config", "--cflags", "--libs", "reduction"], env=find, check=True, capture_output=True, text=True
        ).stdout.split()
        binary, source = self.root / "all_reduce", f"{prefix}/share/doc/reduction/examples/all_reduce.c"
        subprocess.run(["cc", "-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-o", binary, source] + flags,
                       check=True)
        with harness.Cluster(reducers=2, agents=2) as c:
            for p in c.run(4, [binary], env={"LD_LIBRARY_PATH": f"{prefix}/lib"}):
                self.assertIn("the sum is right", p.out)

    def test_only_the_interface_is_exported(self):
        done = subprocess.run(
            ["nm", "-D", "--defined-only", "--format=posix", self.root / "opt/rs/lib/libreduction.so"],
            check=True, capture_output=True, text=True,
        )
        names = [line.split()[0] for line in done.stdout.splitlines()]
        self.assertIn("reduction_open", names)
        self.assertEqual([name for name in names if not name.startswith("reduction_")], [])

    def test_python_finds_the_library(self):
        done = subprocess.run(
            [harness.PYTHON, "-c", "import reduction; print(reduction.library_version())"],
            env={"PYTHONPATH": f"{self.root}/opt/rs/lib/python3/dist-packages"}, capture_output=True, text=True,
        )
        self.assertEqual((done.stdout, done.returncode), ("0.1.0\n", 0), done.stderr)

    def test_python_finds_the_package(self):
        """Below the usual prefixes without configuration."""
        said = subprocess.run([harness.PYTHON, "-c", "import sys; print('\\n'.join(sys.path))"], check=True,
                              capture_output=True, text=True).stdout.split("\n")
        for prefix in ("/usr/local", "/usr"):
            if not any(p.startswith(f"{prefix}/lib/") and p.endswith("-packages") for p in said):
                continue  # this Python does not look there
            with self.subTest(prefix), tempfile.TemporaryDirectory(prefix="reduction-") as name:
                self.make("install", name, prefix)
                (package,) = pathlib.Path(name).glob("**/reduction/__init__.py")
                self.assertIn("/" + str(package.parent.parent.relative_to(name)), said)

    def test_uninstall_leaves_nothing(self):
        with tempfile.TemporaryDirectory(prefix="reduction-") as name:
            root = pathlib.Path(name)
            self.make("install", root, "/opt/rs", "NCCL_NET_LINK=1")
            self.assertGreater(len(self.files(root)), 10)
            self.assertEqual(os.readlink(root / "opt/rs/lib/libnccl-net.so"), "libnccl-net-reduction.so")
            self.assertFalse((self.root / "opt/rs/lib/libnccl-net.so").is_symlink())
            self.make("uninstall", root)
            self.assertEqual(self.files(root), [])

    def test_uninstall_leaves_no_folder_of_ours(self):
        """Folders that the installation made go with it; folders that were there before, or that hold more, stay."""
        with tempfile.TemporaryDirectory(prefix="reduction-") as name:
            root = pathlib.Path(name)
            (root / "bin").mkdir()
            for _ in range(2):  # the second installation finds the folders of the first
                self.make("install", "", prefix=root)
            self.assertTrue((root / "lib" / "pkgconfig").is_dir())
            (root / "include" / "other.h").write_text("")
            self.make("uninstall", "", prefix=root)
            left = sorted(str(p.relative_to(root)) for p in root.rglob("*"))
            self.assertEqual(left, ["bin", "include", "include/other.h"])


if __name__ == "__main__":
    harness.main()
