# SPDX-License-Identifier: Apache-2.0
# run: beside-others all-only
"""What make finds and makes again: every probe says yes where the thing is there and no where it is missing."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import harness

def script(path, text):
    """An executable shell script."""
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return path


@unittest.skipIf(harness.SAN, "the build is looked at once")
class Build(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="reduction-")
        self.addCleanup(folder.cleanup)
        self.dir = pathlib.Path(folder.name)

    def make(self, *args, tree=harness.ROOT, path=None):
        env = {
            k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "WERROR", "CCACHE")
        }
        if path is not None:
            env["PATH"] = str(path)
        make = shutil.which("make")
        return subprocess.run(
            [make, f"BUILD={self.dir / 'build'}", *args], cwd=tree, env=env, capture_output=True, text=True
        )

    def announced(self, *args, **options):
        """What `make` says it has found, without making anything."""
        done = self.make("-n", "all", *args, **options)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.splitlines()[0], done.stdout

    def assert_plan(self, plan, word, there):
        """Whether the commands of make name something; a failure does not print them all."""
        self.assertEqual(word in plan, there, f"{word} in the commands of make")

    def refused(self, *args, **options):
        done = self.make("-n", *args, **options)
        self.assertNotEqual(done.returncode, 0, done.stdout[:500])
        return done.stderr


class Detection(Build):
    """deploy/detect.mk through make."""

    def package_finder(self, *missing):
        """A pkg-config that does not know some packages."""
        return script(
            self.dir / "pkg-config-less",
            f"""for a in "$@"; do case $a in {'|'.join(f'{p}|"{p} "*' for p in missing)}) exit 1 ;; esac; done
exec pkg-config "$@"
""",
        )

    def test_missing_programs_and_packages(self):
        for name, package in (
            ("libuv", "libuv1-dev"),
            ("libprotobuf-c", "libprotobuf-c-dev"),
            ("yaml-0.1", "libyaml-dev"),
            ("libxxhash", "libxxhash-dev"),
            ("libssl", "libssl-dev"),
            ("libcrypto", "libssl-dev"),
        ):
            with self.subTest(name):
                said = self.refused("all", f"PKG_CONFIG={self.package_finder(name)}")
                self.assertIn(f"{name} was not found: install the package {package}", said)
        said = self.refused("all", "PKG_CONFIG=/no/such/pkg-config")
        self.assertIn("/no/such/pkg-config was not found: install the package pkg-config", said)
        self.assertIn("/no/such/cc was not found", self.refused("all", "CC=/no/such/cc"))
        self.assertIn("check was not found", self.refused("unit", f"PKG_CONFIG={self.package_finder('check')}"))

    def test_old_packages(self):
        (self.dir / "pc").mkdir()
        for name, version, least in (("libuv", "1.39.0", "1.40"), ("libssl", "1.1.1w", "3.0")):
            with self.subTest(name):
                (self.dir / "pc" / f"{name}.pc").write_text(f"Name: {name}\nDescription: old\nVersion: {version}\n")
                said = self.refused("all", f"PKG_CONFIG=env PKG_CONFIG_PATH={self.dir / 'pc'} pkg-config")
                self.assertIn(f"{name} {version} was found, expected {least} or newer", said)
                (self.dir / "pc" / f"{name}.pc").unlink()

    def test_old_grpc(self):
        """gRPC before 1.45 has no grpc_channel_create."""
        cc = script(self.dir / "cc", f'case "$*" in *" -lgrpc "*) exit 1 ;; esac\nexec {shutil.which("cc")} "$@"\n')
        line, plan = self.announced(f"CC={cc}")
        self.assertIn("gRPC off (found one before 1.45)", line)
        self.assert_plan(plan, "libreduction-grpc.so", False)

    def test_optional_library(self):
        line, plan = self.announced(f"PKG_CONFIG={self.package_finder('grpc')}")
        self.assertIn("gRPC off", line)
        self.assert_plan(plan, "libreduction-grpc.so", False)
        self.assertIn("gRPC off", self.announced("GRPC=off")[0])
        there = subprocess.run(["pkg-config", "--exists", "grpc"]).returncode == 0
        line, plan = self.announced()
        self.assertEqual(("gRPC on" in line, "libreduction-grpc.so" in plan), (there, there))

    def test_zlib(self):
        line, plan = self.announced(f"PKG_CONFIG={self.package_finder('zlib')}")
        self.assertIn("zlib off", line)
        self.assert_plan(plan, "deploy/ctl/gzip_stored.c", True)
        self.assert_plan(plan, "deploy/ctl/gzip_zlib.c", False)
        self.assertIn("zlib off", self.announced("ZLIB=off")[0])
        self.assert_plan(self.announced("ZLIB=off")[1], "-lz", False)
        there = subprocess.run(["pkg-config", "--exists", "zlib"]).returncode == 0
        line, plan = self.announced()
        self.assertEqual(("zlib on" in line, "deploy/ctl/gzip_zlib.c" in plan), (there, there))

    def compiled(self, source, *args):
        """The command that compiles a source."""
        plan = self.announced(*args)[1]
        return next(line for line in plan.splitlines() if line.endswith(f" {source}") and " -c " in line)

    def test_flags_of_the_user(self):
        bare = script(self.dir / "bare", f'exec {shutil.which("cc")} "$@" -U_FORTIFY_SOURCE\n')
        own = "-D_FORTIFY_SOURCE=2"
        self.assertIn(own, self.compiled("common/error.c", f"CC={bare}"))
        self.assertNotIn("FORTIFY", self.compiled("common/error.c", f"CC={bare}", "CFLAGS=-O0"))
        for variable in ("CPPFLAGS=-DOURS=1 -D_FORTIFY_SOURCE=3", "CFLAGS=-O2 -DOURS=1 -D_FORTIFY_SOURCE=3"):
            command = self.compiled("common/error.c", variable)
            self.assertIn("-DOURS=1", command)
            self.assertEqual(re.findall(r"-[DU]_FORTIFY_SOURCE\S*", command), ["-D_FORTIFY_SOURCE=3"])
        adds = script(self.dir / "adds", f'exec {shutil.which("cc")} -D_FORTIFY_SOURCE=3 "$@"\n')
        self.assertNotIn("FORTIFY", self.compiled("common/error.c", f"CC={adds}"))

    def test_each_probe_once_and_none_for_help(self):
        log = self.dir / "log"
        watched = []
        for variable, program in (("CC", "cc"), ("PKG_CONFIG", "pkg-config"), ("PYTHON", "python3")):
            text = f'echo {variable} "$@" >>{log}\nexec {shutil.which(program)} "$@"\n'
            watched.append(f"{variable}={script(self.dir / program, text)}")
        for goal in ("help", "clean"):
            self.assertEqual(self.make(goal, *watched).returncode, 0)
            self.assertFalse(log.exists(), goal)
        self.announced(*watched)
        calls = log.read_text().splitlines()
        self.assertIn("PKG_CONFIG --exists grpc", calls)
        self.assertEqual(sorted(set(calls)), sorted(calls))


class Again(Build):
    """What is made again after a change, in a copy of the tree."""

    def setUp(self):
        super().setUp()
        self.tree = self.dir / "tree"
        wanted = shutil.ignore_patterns("build", "__pycache__", ".git", "corpus")
        shutil.copytree(harness.ROOT, self.tree, ignore=wanted)
        self.archive = self.dir / "build" / "default" / "common" / "libcommon.a"

    def build(self, *goals, also=()):
        done = self.make(f"-j{os.cpu_count()}", *also, *goals, tree=self.tree)
        self.assertEqual(done.returncode, 0, done.stderr)
        return sorted(re.findall(r"^\s*CC\s+(\S+)", done.stdout, re.M))

    def members(self):
        done = subprocess.run(["ar", "t", self.archive], check=True, capture_output=True, text=True)
        return done.stdout.split()

    def test_a_deleted_source_leaves_no_object_in_its_archive(self):
        more = self.tree / "common" / "more.c"
        more.write_text("int rs_more(void);\nint rs_more(void) { return 1; }\n")
        self.build(self.archive)
        self.assertIn("more.o", self.members())
        before = set(self.members())
        more.unlink()
        self.assertEqual(self.build(self.archive), [])
        self.assertEqual(set(self.members()), before - {"more.o"})

    def test_a_new_source_makes_only_its_archive_again(self):
        proto = self.dir / "build" / "default" / "proto" / "libproto.a"
        self.build(self.archive, proto)
        before = proto.stat().st_mtime_ns
        (self.tree / "common" / "more.c").write_text("int rs_more(void);\nint rs_more(void) { return 1; }\n")
        self.assertEqual(self.build(self.archive, proto), ["common/more.c"])
        self.assertIn("more.o", self.members())
        self.assertEqual(proto.stat().st_mtime_ns, before)

    def test_a_changed_proto_rebuilds_what_includes_it_and_nothing_else(self):
        proto = self.dir / "build" / "default" / "proto" / "libproto.a"
        compiled = self.build(self.archive, proto)
        self.assertIn("common/error.c", compiled)
        self.assertEqual(self.build(self.archive, proto), [])
        path = self.tree / "proto" / "reduction.proto"
        path.write_text(path.read_text() + "\nmessage AnotherOne { uint32 number = 1; }\n")
        again = self.build(self.archive, proto)
        self.assertTrue(any(name.endswith("reduction.pb-c.c") for name in again), again)
        for name in again:
            if not name.endswith("reduction.pb-c.c"):
                deps = next((self.dir / "build").rglob(pathlib.Path(name).stem + ".d")).read_text()
                self.assertIn("reduction.pb-c.h", deps, name)
        self.assertNotIn("common/error.c", again)


if __name__ == "__main__":
    harness.main()
