# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan
"""tests/layering.py: each rule of the architecture finds a small tree or object that violates it.

Only in the build without sanitizers: it compiles its own objects, always in the same way.
"""

import contextlib
import io
import pathlib
import subprocess
import sys
import tempfile
import unittest

import harness

sys.path.insert(0, str(harness.ROOT / "tests"))
import layering  # noqa: E402

# A core may use none of these.
IMPURE = "accept clock_gettime close getenv time pthread_create rand read uv_now yaml_parser_parse".split()
PURE = "malloc free memcpy strlen snprintf strtoull __isoc99_sscanf qsort sqrt __errno_location XXH3_64bits".split()


def calls(function, *names):
    """C code of a function that calls others, of which it declares those that it does not define."""
    return f"void {function}(void) {{ {' '.join(f'extern void {n}(void); {n}();' for n in names)} }}\n"


@unittest.skipIf(harness.SAN, "the same in each build")
class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def compile(self, name, text):
        """name: without suffix. Returns the object."""
        source = self.write(f"{name}.c", text)
        out = self.root / "build/objects" / f"{name}.o"
        out.parent.mkdir(parents=True, exist_ok=True)
        flags = ["-O0", "-fPIC", "-ffunction-sections", "-fdata-sections", "-fno-builtin", "-w"]
        subprocess.run(["cc", *flags, "-c", "-o", out, source], check=True)
        return out

    def archive(self, name, *objects):
        subprocess.run(["ar", "rc", self.root / f"{name}.a", *objects], check=True)
        return self.root / f"{name}.a"

    def check(self, *argv):
        """The violations."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = layering.main(["--root", str(self.root), *map(str, argv)])
        lines = err.getvalue().splitlines()
        self.assertEqual(status, 1 if lines else 0)
        self.assertEqual(out.getvalue().startswith("layering: ok"), not lines)
        return [line.removeprefix("layering: ") for line in lines]


class Cores(Case):
    def found(self, core, **libraries):
        """The violations of a core and libraries, each given as C code."""
        argv = ["--core", self.archive("core", self.compile("server/core/core", core))]
        for name, text in libraries.items():
            argv += ["--library", self.archive(name, self.compile(f"common/{name}", text))]
        return self.check(*argv)

    def test_every_impure_function(self):
        lines = self.found(calls("f", *IMPURE))
        self.assertEqual(
            sorted(lines),
            sorted(f"core.a: f (core.o) > {n}: a core may not use {n}, because it is not in PURE" for n in IMPURE),
        )

    def test_pure_functions(self):
        self.assertEqual(self.found(calls("f", *PURE)), [])

    def test_through_a_library(self):
        library = "static void inner(void) { extern long time(void *); time(0); }\nvoid outer(void) { inner(); }\n"
        self.assertEqual(
            self.found(calls("f", "outer"), library=library),
            ["core.a: f (core.o) > outer (library.o) > inner (library.o) > time: "
             "a core may not use time, because it is not in PURE"],
        )  # fmt: skip

    def test_through_a_table(self):
        table = "extern int poll();\nstatic int (*const table[2])() = {poll};\n"
        lines = self.found(calls("f", "first"), library=table + "int first(int i) { return table[i](); }\n")
        self.assertEqual(len(lines), 1)
        self.assertIn("f (core.o) > first (library.o) > table (library.o) > poll:", lines[0])

    def test_exceptions(self):
        log = calls("rs_log_write", "write") + calls("rs_log_open", "open")
        self.assertEqual(self.found(calls("f", "rs_log_write"), log=log), [])
        lines = self.found(calls("f", "rs_log_write", "rs_log_open"), log=log)
        self.assertEqual(len(lines), 1)
        self.assertIn("f (core.o) > rs_log_open (log.o) > open:", lines[0])

    def test_a_core_uses_cores_below_it_only(self):
        above = self.archive("above", self.compile("server/jobs/above", calls("above", "below")))
        below = self.archive("below", self.compile("server/core/below", "void below(void) {}\n"))
        self.assertEqual(self.check("--core", above, "--core", below), [])
        (line,) = self.check("--core", below, "--core", above)
        self.assertIn("above.a: above (above.o) > below: a core may not use below", line)

# (file, what it includes, the violation or None)
INCLUDES = (
    ("common/a.c", "common/b.h", None),
    ("common/a.c", "proto/b.h", "common may include: no other folder"),
    ("proto/a.c", "config/b.h", "proto may include: common"),
    ("config/a.c", "server/core/b.h", "config may include: common"),
    ("common/host/service/a.c", "common/host/http/b.h", "common/host/service may include: common, proto, proto/rpc"),
    ("server/jobs/a.c", "server/core/b.h", None),
    ("server/core/a.c", "server/jobs/b.h", "server/core may include: common, common/kernels, proto"),
    ("server/core/a.inc", "agent/lib/include/reduction.h", "server/core may include: common, common/kernels, proto"),
    ("agent/worker/core/a.c", "config/config.h", "agent/worker/core may include: common, common/kernels, proto,"),
    ("agent/worker/core/a.c", "config/exchange_params.h", None),
    ("agent/lib/include/reduction.h", "common/b.h", "agent/lib/include may include: no other folder"),
    ("server/core/a.c", "../agent/nccl/b.h", "which is not a path from the root"),
    ("client/a.c", "common/b.h", "client/a.c: FOLDERS does not say what files of this folder may include"),
)


class Includes(Case):
    def test_table(self):
        for file, included, violation in INCLUDES:
            with self.subTest(file=file, included=included):
                path = self.write(file, f'#include <stdio.h>\n#include "{included}"\n')
                lines = self.check()
                path.unlink()
                if violation is None:
                    self.assertEqual(lines, [])
                    continue
                self.assertEqual(len(lines), 1)
                self.assertTrue(lines[0].startswith(file), lines[0])
                self.assertIn(violation, lines[0])

    def test_headers(self):
        self.write("server/core/a.h", '#include "server/core/b.h"\n')
        self.write("server/core/b.h", '#include "server/core/c.h"\n')
        self.write("server/core/c.h", '#include "common/x.h"\n')
        self.assertEqual(self.check(), [])
        self.write("server/core/c.h", '#include "server/core/a.h"\n')
        circle = "server/core/a.h, server/core/b.h, server/core/c.h"
        self.assertEqual(self.check(), [f"headers include each other: {circle}"])


class Rooms(Case):
    def test_order(self):
        folders = {
            "common": ("", []),
            "config": ("", ["common/error.h", "config/check", "proto/frame.h"]),
            "config/check": ("", ["config"]),
        }
        self.assertEqual(
            list(layering.check_order(folders)),
            [
                "FOLDERS: config may include config/check, which is not above it in the table",
                "FOLDERS: config may include proto/frame.h, which is not above it in the table",
            ],
        )

    def test_unused_permissions(self):
        everything = {
            f"{room}/a.c": [(1, other if other.endswith(".h") else f"{other}/b.h") for other in included or ()]
            for room, (_, included) in layering.FOLDERS.items()
        }
        self.assertEqual(list(layering.check_unused(everything)), [])
        everything["server/jobs/a.c"].remove((1, "server/core/b.h"))
        self.assertEqual(
            list(layering.check_unused(everything)),
            ["FOLDERS: server/jobs may include server/core, and no file does"],
        )

    def test_map(self):
        rows = list(layering.table())
        path = self.write("CONTRIBUTING.md", "\n".join(["# Rooms", "", *rows, "", "The end."]))
        self.assertEqual(list(layering.check_map(path)), [])
        broken = "CONTRIBUTING.md: the table of rooms is not that of tests/layering.py --table: "
        for lines, what in (
            (rows[:-1], "a row is missing or in another place"),
            ([*rows[:2], *rows[3:], rows[2]], "a row is missing or in another place"),
            ([*rows, "| `new` | a new room |"], "| `new` | a new room |"),
            (["no table"], "a row is missing or in another place"),
        ):
            self.write("CONTRIBUTING.md", "\n".join(lines))
            self.assertEqual(list(layering.check_map(path)), [broken + what])


class Circles(Case):
    def found(self):
        return self.check("--objects", self.root / "build/objects")

    def setUp(self):
        super().setUp()
        self.compile("server/core/a", calls("a", "b"))
        self.compile("server/core/b", calls("b", "c", "d"))
        self.compile("server/jobs/c", calls("c", "a"))
        self.compile("server/core/d", calls("d", "memcpy"))
        self.compile("agent/nccl/a", calls("a", "d"))  # another program

    def test_none(self):
        self.compile("server/jobs/c", calls("c", "d"))
        self.assertEqual(self.found(), [])

    def test_three_files(self):
        self.assertEqual(self.found(), ["objects use each other: server/core/a, server/core/b, server/jobs/c"])



class Project(Case):
    """Of this project only the includes are checked here; `make layering` compiles the objects for all rules."""

    def test_includes(self):
        self.root = harness.ROOT
        self.assertEqual(self.check(), [])


if __name__ == "__main__":
    harness.main()
