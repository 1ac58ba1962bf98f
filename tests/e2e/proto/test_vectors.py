#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan
"""The test vectors of proto/vectors and the reader in proto/python: all are right, one changed byte is found, and the
reader and the reference client use no other code of this project."""

import ast
import itertools
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
FOLDER, READER = ROOT / "proto/vectors", ROOT / "proto/python"
OUTPUTS = {"hex", "digest", "reducers_digest", "hash", "worker_mac", "reducer_mac", "places", "owner", "job",
           "encoded", "decoded", "chunk_elems", "bytes"}  # fmt: skip
THEIRS = {"xxhash", "google", "grpc", "numpy"}  # packages of Debian


class Vectors(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        sys.path.insert(0, str(READER))
        try:
            import vectors
        except ModuleNotFoundError as exc:
            raise unittest.SkipTest(f"{exc}: run deploy/install-deps.sh test") from None
        cls.vectors = vectors

    def test_all_are_right(self):
        p = subprocess.run([sys.executable, READER / "vectors.py"], text=True, capture_output=True, timeout=60)
        self.assertEqual(p.returncode, 0, p.stderr)
        self.assertEqual(len(p.stdout.splitlines()), len(self.vectors.FILES))

    def test_one_changed_byte(self):
        with tempfile.TemporaryDirectory(prefix="reduction-") as folder:
            copy = pathlib.Path(shutil.copytree(FOLDER, pathlib.Path(folder) / "vectors"))
            for name in self.vectors.FILES:
                path = copy / f"{name}.json"
                text = path.read_bytes()
                for at in range(0, len(text), max(1, len(text) // 50)):
                    changed = bytearray(text)
                    changed[at] ^= 1
                    path.write_bytes(changed)
                    with self.subTest(name, at=at), self.assertRaises(self.vectors.Wrong):
                        self.vectors.check_file(path)
                path.write_bytes(text)
                self.vectors.check_file(path)

    def test_values_are_checked(self):
        """Without the checksums of the files: a wrong expected value in any entry is found."""
        import json

        for name in self.vectors.FILES:
            tree = json.loads((FOLDER / f"{name}.json").read_text())
            for section, entries in tree.items():
                for entry in entries if section in self.vectors.CHECKS else []:
                    for key in OUTPUTS & set(entry):
                        value = entry[key]
                        if (section, key) in (("bad", "hex"), ("placements", "owner"), ("slots", "owner"),
                                              ("relays", "owner"), ("codes", "encoded"),
                                              ("sharded", "chunk_elems")):  # fmt: skip
                            continue  # another input may have the same output
                        if isinstance(value, list):
                            changed = value[:-1] + [[255, 0] if isinstance(value[-1], list) else value[-1] + 1]
                        elif isinstance(value, int):
                            changed = value ^ 1
                        else:
                            changed = value[:-1] + ("0" if value[-1] != "0" else "1")
                        with self.subTest(entry.get("meaning"), key=key), self.assertRaises(Exception):
                            self.vectors.CHECKS[section]({**entry, key: changed})

    def test_the_trace_is_checked(self):
        """A frame that is right in itself but not in its place is found."""
        import json

        kinds, moves = ("DATA", "HAVE", "FETCH", "VIEW"), ("HELLO", "CHALLENGE", "PROOF", "ABORT", "DATA")
        for name, kind in [*itertools.product(("failover", "encoded_failover", "shares"), kinds),
                           ("failover", "RESUME"), *(("reconfigure", kind) for kind in moves)]:  # fmt: skip
            tree = json.loads((FOLDER / f"{name}.json").read_text())
            types = [entry["type"] for entry in tree["trace"]]
            at = types.index(kind)
            before, entry, after = tree["trace"][:at], tree["trace"][at], tree["trace"][at + 1 :]
            elsewhere = {**entry, "reducer": 1 - entry["reducer"]}
            for without in (before + after, [*before, elsewhere, *after]):
                with self.subTest(name, kind=kind), self.assertRaises(self.vectors.Wrong):
                    self.vectors.check_trace({**tree, "trace": without})

    def test_the_specification_quotes_it(self):
        code = "".join(path.read_text() for path in sorted(READER.glob("*.py")))
        blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / "proto/ALGORITHMS.md").read_text(), re.M | re.S)
        self.assertGreaterEqual(len(blocks), 6)
        for block in blocks:
            for part in re.split(r"\n(?=    def )", block):  # methods need not be neighbors
                self.assertIn(part.rstrip(), code)

    def test_uses_no_other_code(self):
        own = {path.stem for path in READER.glob("*.py")}
        for path in READER.glob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                names += [node.module] if isinstance(node, ast.ImportFrom) else []
                for name in names:
                    top = name.split(".")[0]
                    self.assertTrue(top in own | THEIRS or top in sys.stdlib_module_names, f"{path.name}: {name}")


if __name__ == "__main__":
    unittest.main()
