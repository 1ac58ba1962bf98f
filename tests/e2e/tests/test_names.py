# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan
"""tests/names.py: which names in comments and documents it misses in the code."""

import pathlib
import sys
import tempfile
import unittest

import harness

sys.path.insert(0, str(harness.ROOT / "tests"))
import names  # noqa: E402

CODE = "enum { LANE_SEND };\nint slot_add(int n);\n"

# (file, its text, the names that are reported)
ROWS = (
    ("a.c", "/* Calls slot_add() and slot_sub(). */\n", ["slot_sub"]),
    ("a.c", "/* slot_add, slot_sub; SLOT_MAX */\n", ["slot_sub", "SLOT_MAX"]),
    ("a.c", 'int f(void) { return g("/* slot_sub */"); }\n', []),
    ("a.c", "/* SEND, TELL */\n", ["TELL"]),
    ("a.c", "/* fake_*.c, %s_name, a.slot_sub, tests/sim */\n", []),
    ("a.md", "`slot_sub` and slot_mul, `slot_add()`\n", ["slot_sub"]),
    ("a.md", "```\n`slot_sub`\n```\n", []),
    ("a.md", "`server/core/slot.c` and `server/core/gone.c`\n", ["server/core/gone.c"]),
    ("a.py", "# slot_sub\nx = 'slot_mul'\n", ["slot_sub"]),
    ("a.md", "`pthread_no_such_call()` `cuNoSuchCall()`\n", ["pthread_no_such_call", "cuNoSuchCall"]),
    ("a.md", "`ncclRedOp_t`\n", []),
    ("deploy/a.md", "`ddp_backend` `reduction_frobnicate`\n", ["reduction_frobnicate"]),
)


@unittest.skipIf(harness.SAN, "it runs nothing that was built")
class Names(unittest.TestCase):
    def test_table(self):
        for file, text, expected in ROWS:
            with self.subTest(file=file, text=text), tempfile.TemporaryDirectory() as folder:
                root = pathlib.Path(folder)
                (root / "server/core").mkdir(parents=True)
                (root / "server/core/slot.c").write_text(CODE)
                (root / "deploy").mkdir()
                (root / file).write_text(text)
                found = [line.split(": ")[1] for line in names.check(root)]
                self.assertEqual([w.removeprefix("there is no file ").split(" ")[0] for w in found], expected)



if __name__ == "__main__":
    harness.main()
