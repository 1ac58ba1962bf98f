# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan
"""tests/run.py: the `run:` lines of sources, and which programs, builds and repetitions follow from them.

Not under ThreadSanitizer: it runs nothing that was built.
"""

import contextlib
import io
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

import harness

sys.path.insert(0, str(harness.ROOT / "tests"))
import run  # noqa: E402

LICENCE = "SPDX-License-Identifier: Apache-2.0"
E2E = "all-only, alone, beside-others, grpc, no-tsan"

# (source, the lines below the licence line, the words or the error)
LINES = (
    ("e2e/test_x.py", "# run: beside-others grpc no-tsan", {"beside-others", "grpc", "no-tsan"}),
    ("e2e/test_x.c", "/* run: beside-others no-tsan */", {"beside-others", "no-tsan"}),
    ("e2e/test_x.py", "# run: alone all-only", {"alone", "all-only"}),
    ("unit/test_x.c", "/* run: tsan */", {"tsan"}),
    ("fuzz/fuzz_x.c", "/* A comment. */", set()),
    # words
    ("e2e/test_x.py", "# run: beside-other", f"'beside-other' in the `run:` line; known are: {E2E}"),
    ("e2e/test_x.py", "# run: alone tsan", f"'tsan' in the `run:` line; known are: {E2E}"),
    ("e2e/test_x.py", "# run: alone grpc grpc", "'grpc' is twice in the `run:` line"),
    ("e2e/test_x.c", "/* run: alone grpc */", "'grpc' in the `run:` line is for Python tests"),
    # exactly one of
    ("e2e/test_x.py", "# run: alone beside-others", "must have exactly one of: alone, beside-others"),
    # the form, the place
    ("e2e/test_x.py", "/* run: alone */", "must have exactly one of: alone, beside-others"),
    ("e2e/test_x.py", "import os\n# run: alone", "one `run:` line is expected, below the licence line"),
)


class Tree(unittest.TestCase):
    """Each test has a tree of its own, with sources and builds in which nothing is built."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name).resolve()
        patch = mock.patch.object(run, "ROOT", self.root)
        patch.start()
        self.addCleanup(patch.stop)
        for build in ("default", "san"):
            (self.root / build / "lib").mkdir(parents=True)
            (self.root / build / "lib/libreduction-grpc.so").touch()

    def source(self, name, lines):
        path = self.root / "tests" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# {LICENCE}\n{lines}\n" if path.suffix == ".py" else f"/* {LICENCE} */\n{lines}\n")
        return path

    def chosen(self, folder, only=None, match="", part=None, turn=(0, 1)):
        """{label: program} of a build."""
        return {p.label: p for group in run.programs([folder], only, match, part, turn) for p in group}


class Lines(Tree):
    def test_table(self):
        for name, lines, expected in LINES:
            with self.subTest(source=name, lines=lines):
                path = self.source(name, lines)
                if isinstance(expected, set):
                    self.assertEqual(run.needs(path), expected)
                    continue
                with self.assertRaises(ValueError) as caught:
                    run.needs(path)
                self.assertIn(expected, str(caught.exception))
                self.assertIn(str(path), str(caught.exception))

    def test_parts(self):
        """Each program is in one of both parts, but for the simulator, which runs in both."""
        self.source("unit/test_a.c", "")
        self.source("sim/test_b.c", "/* run: idle */")
        self.source("fuzz/fuzz_c.c", "")
        self.source("e2e/test_d.py", "# run: alone")
        self.source("e2e/test_e.py", "# run: beside-others grpc")
        self.source("e2e/test_f.py", "# run: beside-others all-only")
        both = ["unit/test_a", "sim/test_b", "fuzz/fuzz_c", "e2e/test_d", "e2e/test_e"]
        for folder, expected in (
            ("default", both),
            ("san=address", both[:3]),
            ("san=thread", []),
        ):
            san = folder.partition("=")[2] or "default"
            test, rest, whole = (self.chosen(folder, part=p) for p in ("test", "rest", None))
            self.assertEqual(list(test), [f"{san} {name}" for name in expected])
            self.assertEqual(set(test) | set(rest), set(whole))
            self.assertLessEqual(set(test) & set(rest), {f"{san} sim/test_b"})
        seconds = [self.chosen(f, part=p)[f"{s} sim/test_b"].argv[-1]
                   for f, s in (("default", "default"), ("san=address", "address")) for p in ("test", "rest", None)]
        self.assertEqual(seconds, ["60", "240", "240", "20", "60", "60"])
        self.assertIn("default e2e/test_e over gRPC", self.chosen("default", part="rest"))

    def test_turns(self):
        """Each end-to-end program under a sanitizer has one turn; all others are in each."""
        for name in ("unit/test_a.c", "sim/test_b.c", "fuzz/fuzz_c.c"):
            self.source(name, "/* run: idle */" if name.startswith("sim") else "")
        for name in "defgh":
            self.source(f"e2e/test_{name}.py", "# run: alone")
        for folder in ("san=address", "san=thread", "default"):
            whole = list(self.chosen(folder))
            turns = [list(self.chosen(folder, turn=(i, 2))) for i in range(2)]
            e2e = [[label for label in turn if " e2e/" in label] for turn in turns]
            if folder == "default":
                self.assertEqual(turns, [whole, whole])
                continue
            self.assertEqual([len(turn) for turn in e2e], [3, 2])
            self.assertEqual(sorted(e2e[0] + e2e[1]), [label for label in whole if " e2e/" in label])
            for turn, own in zip(turns, e2e):
                self.assertEqual(set(turn) - set(own), {label for label in whole if " e2e/" not in label})

    def test_wrong_turns(self):
        self.assertEqual(run.turn_of("1/2"), (1, 2))
        for text in ("2/2", "1", "a/2", "0/0", "-1/2", ""):
            with self.subTest(text), self.assertRaisesRegex(run.argparse.ArgumentTypeError, "expected I/N"):
                run.turn_of(text)



class Choice(Tree):
    def setUp(self):
        super().setUp()
        self.source("unit/test_plain.c", "")
        self.source("unit/test_threads.c", "/* run: tsan */")
        self.source("sim/test_sim.c", "/* run: idle */")
        self.source("fuzz/fuzz_frame.c", "")
        self.source("e2e/test_alone.py", "# run: alone")
        self.source("e2e/test_beside.c", "/* run: beside-others */")
        self.source("e2e/test_both.py", "# run: beside-others grpc no-tsan")
        self.source("e2e/test_timed.py", "# run: alone grpc")

    def test_default_build(self):
        found = self.chosen("default")
        self.assertEqual(
            {label.removeprefix("default "): (p.parallel, p.idle) for label, p in found.items()},
            {
                "unit/test_plain": (True, False),
                "unit/test_threads": (True, False),
                "sim/test_sim": (True, True),
                "fuzz/fuzz_frame": (True, False),
                "e2e/test_alone": (False, False),
                "e2e/test_beside": (True, False),
                "e2e/test_both": (True, False),
                "e2e/test_both over gRPC": (True, False),
                "e2e/test_timed": (False, False),
                "e2e/test_timed over gRPC": (False, False),
            },
        )
        self.assertEqual(found["default e2e/test_both over gRPC"].env["REDUCTION_TRANSPORT"], "grpc")
        self.assertEqual(found["default e2e/test_both"].env, {"PYTHONPATH": str(self.root / "tests/e2e")})

    def test_thread_sanitizer_runs_what_has_threads(self):
        self.assertEqual(
            list(self.chosen("san=thread")),
            ["thread unit/test_threads", "thread e2e/test_alone", "thread e2e/test_beside", "thread e2e/test_timed"],
        )



class SecondRun(Tree):
    """With --again, an end-to-end program that fails gets a second run, but never after a crash."""

    # (folder, the program, --again, exit status, what the output has)
    TABLE = (
        ("e2e", "again or sys.exit(fail)", 1, 0,
         ("busy", "ok  ", "had a second run, alone; each is a test to repair: default e2e/test_x")),
        ("e2e", "again or sys.exit(fail)", 0, 1, ("FAIL",)),
        ("e2e", "sys.exit(fail)", 1, 1, ("busy", "FAIL", "default e2e/test_x")),
        ("e2e", "print('ERROR: AddressSanitizer: heap'); again or sys.exit(fail)", 1, 1, ("FAIL",)),
        ("e2e", "print('--- r0 (pid 5, exit status -6)'); again or sys.exit(fail)", 1, 1, ("FAIL",)),
        ("e2e", "print('--- r0 (pid 5, exit status -9)'); again or sys.exit(fail)", 1, 0, ("busy", "ok  ")),
        ("unit", "again or sys.exit(fail)", 1, 1, ("FAIL",)),
    )

    def test_table(self):
        for kind, text, again, status, expected in self.TABLE:
            with self.subTest(kind=kind, text=text, again=again):
                seen = self.root / "seen"
                seen.unlink(missing_ok=True)
                path = self.source(f"{kind}/test_x.py", "# run: beside-others" if kind == "e2e" else "")
                path.write_text(path.read_text() + (
                    f"import os, pathlib, sys\nseen = pathlib.Path({str(seen)!r})\n"
                    "again = seen.exists()\nseen.touch()\n"
                    "fail = 'FAILED (failures=1)'\nprint('Ran 1 test in 0.0s', flush=True)\n"
                    f"{text}\nprint('OK')\n"))
                argv = ["run.py", "--again", str(again), "default"]
                out = io.StringIO()
                with mock.patch.object(sys, "argv", argv), contextlib.redirect_stdout(out):
                    self.assertEqual(run.main(), status, out.getvalue())
                for words in expected:
                    self.assertIn(words, out.getvalue())
                self.assertEqual("busy" in out.getvalue(), "busy" in expected)
                path.unlink()


class Project(unittest.TestCase):
    """The sources of this project."""

    def test_units_with_threads_run_under_thread_sanitizer(self):
        for source in sorted(harness.ROOT.glob("tests/unit/**/test_*.c")):
            text = source.read_text()
            # gRPC is not built for it: what its threads hand over looks like races
            if "<pthread.h>" in text and "fake_rpc.h" not in text:
                self.assertIn("tsan", run.needs(source), source)


if __name__ == "__main__":
    harness.main()
