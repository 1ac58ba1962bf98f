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

PROBE = harness.ROOT / "deploy" / "probe.sh"


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


class ProbeScript(Build):
    """deploy/probe.sh by itself."""

    def probe(self, *args):
        done = subprocess.run([PROBE, *args], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout.strip()

    def test_yes_and_no(self):
        (self.dir / "ours.h").write_text("int ours;\n")
        failing = script(self.dir / "cc", "exit 1\n")
        cc = f"cc -I{self.dir}"
        for name, code in (("plain", "int f(void) { return 1; }"), ("data", "extern int v; int f(void) { return v; }")):
            (self.dir / f"{name}.c").write_text(code)
            subprocess.run(["cc", "-fPIE", "-O", "-c", "-o", f"{name}.o", f"{name}.c"], cwd=self.dir, check=True)
            subprocess.run(["ar", "rcs", f"{name}.a", f"{name}.o"], cwd=self.dir, check=True)
        rows = [
            ("yes", "shared", "cc", str(self.dir / "plain.a"), "unused"),
            ("yes", "shared", "cc", str(self.dir / "data.a"), "v"),
            ("", "shared", "cc", str(self.dir / "data.a"), "unused"),
            ("yes", "program", "sh"),
            ("", "program", "no-such-program"),
            ("", "package", "pkg-config", "libuv", "no-such-package"),
            ("", "package", "no-such-pkg-config", "libuv"),
            ("yes", "option", "cc", "-fstack-protector-strong"),
            ("", "option", "cc", "-fno-such-option"),
            ("yes", "macro", "cc", "__STDC__"),
            ("yes", "macro", "cc -DOURS=3", "OURS"),
            ("", "macro", "cc", "OURS"),
            ("yes", "header", "c", "cc", "stdio.h", "-lm"),
            ("yes", "header", "c", cc, "ours.h"),
            ("", "header", "c", "cc", "ours.h"),
            ("", "header", "c", "cc", "stdio.h", "-lno-such-library"),
            ("", "header", "c++", "no-such-compiler", "stdio.h"),
        ]
        for expected, *args in rows:
            with self.subTest(args=args):
                self.assertEqual(self.probe(*args), expected)



class Detection(Build):
    """deploy/detect.mk through make."""

    def package_finder(self, *missing):
        """A pkg-config that does not know some packages."""
        return script(
            self.dir / "pkg-config-less",
            f"""for a in "$@"; do case $a in {'|'.join(missing)}) exit 1 ;; esac; done
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
                self.assertIn(f"{name} was not found: install Debian's package {package}", said)
        said = self.refused("all", "PKG_CONFIG=/no/such/pkg-config")
        self.assertIn("/no/such/pkg-config was not found: install Debian's package pkg-config", said)
        self.assertIn("/no/such/cc was not found", self.refused("all", "CC=/no/such/cc"))
        self.assertIn("check was not found", self.refused("unit", f"PKG_CONFIG={self.package_finder('check')}"))

    def tools(self, *without):
        """A folder with links to the programs of this machine, but not those whose name matches."""
        folder = self.dir / f"bin-{len(list(self.dir.iterdir()))}"
        folder.mkdir()
        for place in ("/usr/bin", "/bin", "/usr/local/bin"):
            for program in pathlib.Path(place).iterdir() if pathlib.Path(place).is_dir() else ():
                if (
                    not any(re.fullmatch(p, program.name) for p in without)
                    and not (folder / program.name).is_symlink()
                ):
                    (folder / program.name).symlink_to(program)
        return folder

    def test_programs_that_are_not_on_the_path(self):
        compilers = r"(.*-)?(gcc|g\+\+|c\+\+|cc|c89|c99|cpp)(-.*)?"
        for without, expected in (
            (r"protoc", "protoc was not found: install Debian's package protobuf-compiler"),
            (r"protoc-gen-c", "protoc-gen-c was not found: install Debian's package protobuf-c-compiler"),
            (r"(.*-)?pkg-?conf(ig)?", "pkg-config was not found: install Debian's package pkg-config"),
            (compilers + r"|clang.*", "cc was not found: install Debian's package gcc"),
        ):
            with self.subTest(without):
                self.assertIn(expected, self.refused("all", path=self.tools(without)))

    def test_gloo(self):
        """A compiler that finds header and library, one that finds the header alone, neither, no compiler."""
        include = self.dir / "include" / "gloo"
        include.mkdir(parents=True)
        compiler = shutil.which("c++")
        bare = script(
            self.dir / "c++",
            f"""for a in "$@"; do [ "$a" != -lgloo ] || exit 1; done
exec {compiler} -I{self.dir}/include "$@"
""",
        )
        self.assertNotIn("gloo", self.announced("CXX=/no/such/c++")[0])
        if not compiler:
            return
        self.assertNotIn("gloo", self.announced(f"CXX={script(self.dir / 'fails', 'exit 1')}")[0])
        hide = script(self.dir / "hides", f'exec {compiler} -nostdinc "$@"\n')
        self.assertNotIn("gloo", self.announced(f"CXX={hide}")[0])
        (include / "allreduce.h").write_text("")
        line, plan = self.announced(f"CXX={bare}")
        self.assertNotIn("gloo", line)
        self.assert_plan(plan, "gloo_ring.cc", False)
        subprocess.run(["ar", "rcs", self.dir / "libgloo.a"], check=True)
        line, plan = self.announced(f"CXX={compiler} -I{self.dir}/include -L{self.dir}")
        self.assertIn("gloo", line)
        self.assert_plan(plan, "gloo_ring.cc", True)

    def test_mpi(self):
        """mpicc of an MPI without its headers, as Debian's mpich without libmpich-dev; a broken one; a whole one."""
        tools = self.tools(r"mpicc\..*")
        self.assertNotRegex(self.announced(path=tools)[0], "mpich|openmpi")
        compiler = f"{shutil.which('cc')} -I{self.dir}"
        script(tools / "mpicc.mpich", f'exec {compiler} "$@"\n')
        script(tools / "mpicc.openmpi", "exit 1\n")
        line, plan = self.announced(path=tools)
        self.assertNotRegex(line, "mpich|openmpi")
        self.assert_plan(plan, "mpicc.", False)
        (self.dir / "mpi.h").write_text("")
        line, plan = self.announced(path=tools)
        self.assertIn("mpich", line)
        self.assertNotIn("openmpi", line)
        self.assert_plan(plan, "mpi-allreduce-mpich", True)
        self.assert_plan(plan, "mpi-allreduce-openmpi", False)

    def test_optional_library(self):
        line, plan = self.announced(f"PKG_CONFIG={self.package_finder('grpc')}")
        self.assertIn("gRPC off", line)
        self.assert_plan(plan, "libreduction-grpc.so", False)
        self.assertIn("gRPC off", self.announced("GRPC=off")[0])
        there = subprocess.run(["pkg-config", "--exists", "grpc"]).returncode == 0
        line, plan = self.announced()
        self.assertEqual(("gRPC on" in line, "libreduction-grpc.so" in plan), (there, there))

    def test_http(self):
        line, plan = self.announced(f"PKG_CONFIG={self.package_finder('libmicrohttpd')}")
        self.assertIn("HTTP off", line)
        self.assert_plan(plan, "common/host/http/port_none.c", True)
        self.assert_plan(plan, "common/host/http/port_mhd.c", False)
        self.assertIn("HTTP off", self.announced("HTTP=off")[0])
        there = subprocess.run(["pkg-config", "--exists", "libmicrohttpd"]).returncode == 0
        line, plan = self.announced()
        self.assertEqual(("HTTP on" in line, "common/host/http/port_mhd.c" in plan), (there, there))

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

    def test_shared_libuv(self):
        line, plan = self.announced("UV_STATIC=off")
        self.assertIn("libuv shared in libraries", line)
        self.assert_plan(plan, "uv_static", False)
        self.assert_plan(plan, "libuv_a.a", False)
        rules = (harness.ROOT / "deploy" / "debian" / "rules").read_text()
        self.assertIn(" UV_STATIC=off ", rules)

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

    def test_compiler_options_and_target(self):
        def compiler(name, text):
            return script(self.dir / name, text + f'exec {shutil.which("cc")} "$@"\n')

        refuses = compiler("refuses", 'for a in "$@"; do [ "$a" != -fcf-protection ] || exit 1; done\n')
        self.assert_plan(self.announced(f"CC={refuses}")[1], "-fcf-protection", False)
        accepts = compiler(
            "accepts", 'for a in "$@"; do case $a in -fcf-protection|-fstack-clash-protection) exit 0 ;; esac; done\n'
        )
        plan = self.announced(f"CC={accepts}")[1]
        self.assert_plan(plan, "-fcf-protection", True)
        self.assert_plan(plan, "-fstack-clash-protection", True)
        for target, expected in (("aarch64-linux-gnu", False), ("x86_64-linux-gnu", True)):
            cc = compiler(target, f'[ "$1" != -dumpmachine ] || {{ echo {target}; exit; }}\n')
            self.assertEqual("-mavx2" in self.announced(f"CC={cc}")[1], expected)
        self.assertIn("skipped", self.make("compile-neon", "NEON_CC=/no/such/cc").stdout)

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
