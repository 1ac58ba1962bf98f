# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan
"""Manual pages and completion: they have the options and commands that the programs have, and the keys of the table."""

import os
import re
import shlex
import shutil
import subprocess
import unittest

import harness

PAGES = harness.BUILD / "man"
COMPLETION = harness.ROOT / "deploy/completion/reductionctl"
SECTION = {"reduction-server": 8, "reduction-agent": 8, "reduction-bench": 1, "reductionctl": 1}
LONG = re.compile(r"(?<![\w-])--[a-z][a-z-]*")


def said(program, *args):
    done = subprocess.run([harness.binary(program), *args], check=True, capture_output=True, text=True)
    return done.stdout


def listed(text):
    """The options that a help lists: they begin a line, before or behind a short one."""
    return set(re.findall(r"^ +(?:-\w, )?(--[a-z][a-z-]*)", text, re.M))


def commands():
    return re.findall(r"^  ([a-z-]+) .*$", said("reductionctl", "--help"), re.M)


def source(page):
    """The troff of a page, without fonts."""
    return re.sub(r"\\f[BIR]", "", (PAGES / page).read_text().replace("\\-", "-"))


def defined(text):
    """The options that a page defines."""
    return {o for term in re.findall(r"^\.TP\n(.*)", text, re.M) for o in LONG.findall(term)}


@unittest.skipIf(harness.SAN, "pages are made from the default build")
class Pages(unittest.TestCase):
    def test_each_program_has_one(self):
        installed = {p.name for p in (harness.BUILD / "bin").iterdir()}
        self.assertEqual(set(SECTION), installed)
        for program, section in SECTION.items():
            self.assertTrue((PAGES / f"{program}.{section}").exists())

    def test_options(self):
        for program, section in SECTION.items():
            with self.subTest(program):
                page, text = source(f"{program}.{section}"), said(program, "--help")
                if program == "reductionctl":
                    text = "".join(said(program, c, "--help") for c in commands())
                self.assertEqual(defined(page), listed(text))
                if program != "reductionctl":  # and no option is named that there is not; examples name some of others
                    self.assertEqual({o for o in LONG.findall(page.split(".SH EXAMPLES")[0])} - listed(text), set())

    def test_commands(self):
        found = re.findall(r"^\.SS ([a-z-]+)", source("reductionctl.1"), re.M)
        self.assertEqual(found, commands())
        self.assertGreater(len(found), 7)

    def test_keys(self):
        """reduction.yaml(5) has each key of `reductionctl reference`, in its section, with its meaning."""
        page = source("reduction.yaml.5")
        wanted = re.findall(r"^(?:## (\w+)|\| `(\w+)` .*)$", said("reductionctl", "reference"), re.M)
        found = re.findall(r"^(?:\.SH (\w+)$|\.TP\n(\w+) \()", page, re.M)
        sections = [s for s, _ in wanted if s]
        self.assertGreater(len(wanted), 60)
        self.assertEqual([f for f in found if f[1] or f[0] in sections], wanted)

    @unittest.skipUnless(shutil.which("man"), "man is not installed (Debian: man-db)")
    def test_no_warnings(self):
        env = dict(os.environ, LC_ALL="C.UTF-8", MANWIDTH="100", MANROFFSEQ="")
        for page in sorted(PAGES.glob("*.[0-9]")):
            with self.subTest(page.name):
                done = subprocess.run(["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", page], env=env,
                                      capture_output=True, text=True)  # fmt: skip
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                self.assertIn("SEE ALSO", re.sub("\x1b\\[[0-9]*m|.\b", "", done.stdout))

    def test_references_exist(self):
        names = {p.name for p in PAGES.glob("*.[0-9]")}
        for name in names:
            for page, section in re.findall(r"\b([a-z][\w.-]*)\((\d)\)", source(name)):
                self.assertIn(f"{page}.{section}", names)


@unittest.skipIf(harness.SAN, "the completion is that of every build")
class Completion(unittest.TestCase):
    def complete(self, *words):
        """What bash offers for the last word; `files` if it completes the names of files."""
        words = [str(harness.binary(words[0])), *words[1:]]
        code = (
            f"source {shlex.quote(str(COMPLETION))}\ncompopt() {{ echo files; }}\n"
            f"COMP_WORDS=({shlex.join(words)}) COMP_CWORD={len(words) - 1}\n"
            f'_reduction {shlex.join([words[0], words[-1], words[-2]])}\nprintf "%s\\n" "${{COMPREPLY[@]}}"\n'
        )
        done = subprocess.run(["bash", "-u", "-c", code], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return sorted(done.stdout.split())

    def test_options(self):
        for program in SECTION:
            with self.subTest(program):
                if program != "reductionctl":
                    self.assertEqual(set(self.complete(program, "--")), listed(said(program, "--help")))
        for command in commands():
            with self.subTest(command):
                wanted = listed(said("reductionctl", command, "--help")) | {"--help"}
                self.assertEqual(set(self.complete("reductionctl", command, "--")), wanted)

    def test_commands(self):
        self.assertEqual(self.complete("reductionctl", "st"), ["status"])
        self.assertEqual(self.complete("reductionctl", ""), sorted([*commands(), "--help", "--version"]))

    def test_values(self):
        self.assertEqual(self.complete("reduction-server", "--log-level", "d"), ["debug"])
        self.assertEqual(self.complete("reduction-server", "--lanes", ""), [])
        self.assertEqual(self.complete("reduction-server", "--config", ""), ["files"])
        self.assertEqual(self.complete("reductionctl", "check", ""), ["files"])
        self.assertEqual(self.complete("reductionctl", "plan", "--wire", "f"), ["fp8"])

    def test_offered_values_are_known(self):
        """Each word that the completion offers for an option stands in the help of that option."""
        helps = "".join(said(p, "--help") for p in SECTION)
        helps += "".join(said("reductionctl", c, "--help") for c in commands())
        table = re.findall(r"^\t(--[a-z-]+)\) echo (.*) ;;$", COMPLETION.read_text(), re.M)
        self.assertGreater(len(table), 8)
        for option, words in table:
            texts = re.findall(rf"^ +(?:-\w, )?{option} +[A-Z].*(?:\n {{20,}}.*)*", helps, re.M)
            self.assertTrue(texts, option)
            for word in words.split():
                for text in texts:
                    self.assertRegex(text, rf"\b{word}\b")


if __name__ == "__main__":
    harness.main()
