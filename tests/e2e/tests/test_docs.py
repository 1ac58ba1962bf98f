# SPDX-License-Identifier: Apache-2.0
# run: alone
"""All relative links of the documents have a target, in the tree and in what `make install` installs.

A link leads somewhere if the file exists and, for Markdown, has a heading for the part behind '#'.

It runs alone, because `make install` without WERROR links the library anew.
"""

import ast
import pathlib
import re
import shutil
import subprocess
import tempfile
import textwrap
import unittest

import harness

README_LINES = 160
COLUMNS = 132  # outside of tables and code; links do not count

LINK = re.compile(r"\[[^][]*\]\(([^()\s]+)\)")  # an image within a link is found as the image alone
FENCE = re.compile(r"^ *```")


def prose(text):
    """Returns the lines outside of code, each with its number from 1 on."""
    fenced = False
    for number, line in enumerate(text.split("\n"), 1):
        if FENCE.match(line):
            fenced = not fenced
        elif not fenced:
            yield number, line


def slug(heading):
    """Returns the anchor that GitHub gives to a heading."""
    heading = re.sub(r"\[([^][]*)\]\([^()]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def anchors(path):
    found = {}
    for _, line in prose(path.read_text(encoding="utf-8")):
        if line.startswith("#"):
            name = slug(line.lstrip("#"))
            found[name] = found.get(name, -1) + 1
            yield name if not found[name] else f"{name}-{found[name]}"


def broken(root, documents):
    """Returns links without a target, or out of root: 'FILE:LINE: LINK: reason'."""
    for document in documents:
        for number, line in prose(document.read_text(encoding="utf-8")):
            for link in LINK.findall(re.sub(r"`[^`]*`", "", line)):
                if re.match(r"^[a-z]+:", link):
                    continue  # of another place
                name, _, anchor = link.partition("#")
                target = (document.parent / name).resolve() if name else document
                why = None
                if not target.exists() or not target.is_relative_to(root):
                    why = "there is no such file"
                elif anchor and (target.suffix != ".md" or anchor not in anchors(target)):
                    why = "there is no such heading"
                if why:
                    yield f"{document.relative_to(root)}:{number}: {link}: {why}"


def documents_of(root):
    """Returns all Markdown files below root except those of builds and of tools."""
    for path in sorted(root.rglob("*.md")):
        first = path.relative_to(root).parts[0]
        if first != "build" and first != ".git" and harness.BUILD.parent not in path.parents:
            yield path


@unittest.skipIf(harness.SAN, "documents are those of every build")
class Links(unittest.TestCase):
    def check(self, root):
        documents = list(documents_of(root))
        self.assertIn(root / "README.md", documents)
        self.assertEqual(list(broken(root, documents)), [])

    def test_tree(self):
        self.check(harness.ROOT)

    def test_installed(self):
        with tempfile.TemporaryDirectory(prefix="reduction-") as name:
            argv = ["make", "-s", "install", f"BUILD={harness.BUILD.parent}", f"DESTDIR={name}", "PREFIX=/opt/rs"]
            done = subprocess.run(argv, cwd=harness.ROOT, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.check(pathlib.Path(name).resolve() / "opt/rs/share/doc/reduction")

    def test_broken_links_are_found(self):
        with tempfile.TemporaryDirectory(prefix="reduction-") as name:
            root = pathlib.Path(name).resolve()
            (root / "a.md").write_text(
                "# A `b`, c\n[1](b.md) [2](a.md#a-b-c) [3](#a-b-c-1) ![4](x.svg) [5](https://example.org/no)\n"
                "```\n[6](no.md)\n```\n`[7](no.md)` [8](..) [9](a.md#no)\n# A b c\n"
            )
            self.assertEqual(
                [line.split(": ")[0:2] for line in broken(root, documents_of(root))],
                [["a.md:2", "b.md"], ["a.md:2", "x.svg"], ["a.md:6", ".."], ["a.md:6", "a.md#no"]],
            )
            shutil.copy(root / "a.md", root / "b.md")
            self.assertNotIn("a.md:2: b.md: there is no such file", list(broken(root, [root / "a.md"])))


@unittest.skipIf(harness.SAN, "documents are those of every build")
class Form(unittest.TestCase):
    def test_events(self):
        """The table of events in deploy/README.md has exactly those that the programs log."""
        section = (harness.ROOT / "deploy" / "README.md").read_text(encoding="utf-8").split("\n## The log\n")[1]
        rows = [line.split("|")[1] for line in section.split("\n## ")[0].splitlines() if line.startswith("| `")]
        logged = set()
        for folder in ("agent", "server", "common", "config", "deploy"):
            for path in (harness.ROOT / folder).rglob("*.c"):
                text = path.read_text(encoding="utf-8")
                logged.update(re.findall(r'RS_LOG_[A-Z]+,\s*"([a-z-]+)"', text))
                logged.update(re.findall(r'log_job\(s, "([a-z-]+)"', text))
                logged.update(re.findall(r'\[(?:EXCHANGE|BALANCE)_[A-Z_]+\] = "([a-z-]+)"', text))
                for pair in re.findall(r'continues \? "([a-z-]+)" : "([a-z-]+)"', text):
                    logged.update(pair)
        self.assertEqual({name for row in rows for name in re.findall(r"`([a-z-]+)`", row)}, logged | {"suppressed"})

    def test_the_readme_is_short(self):
        lines = (harness.ROOT / "README.md").read_text(encoding="utf-8").count("\n")
        self.assertLessEqual(lines, README_LINES)

    def test_lines_are_not_wide(self):
        wide = []
        for document in documents_of(harness.ROOT):
            if document == harness.ROOT / "config/README.md":
                continue  # made from texts of any length
            for number, line in prose(document.read_text(encoding="utf-8")):
                if len(LINK.sub("", line)) > COLUMNS and not line.startswith(("|", "    ")):
                    wide.append(f"{document.relative_to(harness.ROOT)}:{number}")
        self.assertEqual(wide, [])

    def test_python_code_compiles(self):
        """A block of Python that somebody wrapped as prose does not compile."""
        blocks = 0
        for document in documents_of(harness.ROOT):
            text = document.read_text(encoding="utf-8")
            for block in re.finditer(r"^( *)```python\n(.*?)^\1```", text, re.DOTALL | re.MULTILINE):
                line = text.count("\n", 0, block.start(2))
                code = textwrap.dedent(block[2])
                compile("\n" * line + code, document.relative_to(harness.ROOT), "exec", flags=ast.PyCF_ONLY_AST)
                blocks += 1
        self.assertGreater(blocks, 5)


if __name__ == "__main__":
    harness.main()
