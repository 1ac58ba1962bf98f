#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Writes manual pages from Markdown, from what programs say with --help, and from the reference of all keys.

    pages.py --bin build/default/bin --version 0.1.0 --out build/default/man deploy/man/*.md

Each NAME.SECTION.md becomes the page NAME.SECTION. A line of these forms is replaced:

    <!-- synopsis PROGRAM -->    the usage line of PROGRAM --help
    <!-- options PROGRAM -->     the options and notes of PROGRAM --help
    <!-- commands PROGRAM -->    each command of PROGRAM with its options
    <!-- reference -->           what `reductionctl reference` prints, without its title

The Markdown that it knows: headings, paragraphs, lists, code, tables, `code`, **bold** and links. In a table the first
column is the term, the last one its meaning, those between stand in parentheses; a header "default" is named.
"""

import argparse
import pathlib
import re
import subprocess
import sys

OPTION = re.compile(r"^ {2,6}(?:(-\w), )?(--[a-z][a-z-]*)(?: +([A-Z][A-Z:]*|0\|1)(?=  |$))?(?: +(\S.*))?$")
COMMAND = re.compile(r"^  ([a-z-]+) +(\[?[A-Z]+\]?(?:\.\.\.)?)? +(\S.*)$")
LINK = re.compile(r"\[([^][]*)\]\(([^()\s]+)\)")
INLINE = re.compile(r"`([^`]+)`|\*\*([^*]+)\*\*|\b([a-z][\w.-]*)\(([1-9])\)")
DIRECTIVE = re.compile(r"^<!-- (\w+) ?(\S*) -->$")


def escape(text):
    """Text that troff prints as it is."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("^", "\\(ha").replace("~", "\\(ti")
    return text.replace("`", "\\(ga").replace("'", "\\(aq")


def line(text):
    """One line of output; a point at its start would be a request."""
    return ("\\&" if text.startswith(".") else "") + text


def inline(text):
    """A paragraph's text with its fonts. A link is its text, with the address if that is not of this tree."""
    text = LINK.sub(lambda m: f"{m[1]} ({m[2]})" if ":" in m[2] else m[1], text)
    parts, end = [], 0
    for match in INLINE.finditer(text):
        parts.append(escape(text[end : match.start()]))
        bold = match[1] or match[2] or match[3]
        parts.append(f"\\fB{escape(bold)}\\fR" + (f"({match[4]})" if match[3] else ""))
        end = match.end()
    return line("".join(parts) + escape(text[end:]))


def cells(row):
    """The cells of a row of a table, in which \\| is a bar of the text."""
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", row.strip())[1:-1]]


def table(rows):
    """A table as definitions."""
    head = cells(rows[0])
    for row in map(cells, rows[2:]):
        details = []
        for name, cell in zip(head[1:-1], row[1:-1]):
            if cell:
                details.append(f"default {cell}" if name == "default" and cell != "required" else cell)
        yield ".TP"
        yield inline(row[0] + (f" ({'; '.join(details)})" if details else ""))
        yield inline(row[-1])


def code(lines):
    yield from (".PP", ".RS 4", ".nf")
    yield from (line(escape(text)) for text in lines)
    yield from (".fi", ".RE")


def markdown(text):
    """The lines of a page for a Markdown text."""
    lines, i = text.split("\n"), 0

    def until(stop):
        nonlocal i
        start = i
        while i < len(lines) and not stop(lines[i]):
            i += 1
        return lines[start:i]

    while i < len(lines):
        now = lines[i]
        if not now.strip():
            i += 1
        elif now.startswith("#"):
            level, _, title = now.partition(" ")
            # a page's own title has no heading
            if len(level) > 1:
                yield f"{'.SH' if len(level) == 2 else '.SS'} {inline(title)}"
            i += 1
        elif now.startswith("```"):
            i += 1
            yield from code(until(lambda text: text.startswith("```")))
            i += 1
        elif now.startswith("    "):
            block = until(lambda text: text.strip() and not text.startswith("    "))
            yield from code(text[4:] for text in "\n".join(block).rstrip().split("\n"))
        elif now.startswith("|"):
            yield from table(until(lambda text: not text.startswith("|")))
        else:
            item = now.startswith("- ")
            i += 1
            more = until(lambda text: not text.strip() or re.match(r"- |#|\||```|    ", text))
            yield from ([".IP \\(bu 2"] if item else [".PP"])
            yield inline(" ".join(text.strip() for text in [now[2:] if item else now, *more]))


def usage(binaries, program, *command):
    """What a program says about its use, as lines."""
    done = subprocess.run([binaries / program, *command, "--help"], capture_output=True, text=True, check=True)
    return done.stdout.rstrip("\n").split("\n")


def synopsis(text):
    """The usage line: names are bold, the rest stays."""
    yield ".PP"
    yield re.sub(r"(?<![\[A-Z])\b([a-z][a-z-]+)", r"\\fB\1\\fR", text.removeprefix("Usage: ")).replace("-", "\\-")


def options(text, notes=None):
    """The options that --help lists, with its headings. The usage line and the purpose are left out. What follows the
    options gets a section of its own if `notes` is its name."""
    body, i, listed = text[2:], 0, False
    while i < len(body):
        match = OPTION.match(body[i])
        if match:
            short, name, arg, help_text = match.groups()
            i += 1
            words = [help_text] if help_text else []
            while i < len(body) and body[i].startswith(" " * 16) and not OPTION.match(body[i]):
                words.append(body[i].strip())
                i += 1
            listed = True
            yield ".TP"
            names = ", ".join(f"\\fB{escape(n)}\\fR" for n in (short, name) if n)
            yield names + (f" \\fI{escape(arg)}\\fR" if arg else "")
            yield inline(" ".join(words) or "-")
        elif body[i].endswith(":") and i + 1 < len(body) and OPTION.match(body[i + 1]):
            yield f".SS {inline(body[i][:-1])}"
            i += 1
        elif body[i].strip():
            if listed and notes:
                yield f".SH {notes}"
                notes = None
            yield ".PP"
            note = []
            while i < len(body) and body[i].strip():
                note.append(body[i].strip())
                i += 1
            yield inline(" ".join(note))
        else:
            i += 1


def commands(binaries, program):
    for row in usage(binaries, program):
        match = COMMAND.match(row)
        if match:
            own = usage(binaries, program, match[1])
            yield f".SS {escape(match[1])}{' ' + match[2] if match[2] else ''}"
            yield inline(own[1][0].upper() + own[1][1:] + ".")
            yield from options(own)


def page(source, binaries, version):
    """The text of a page."""
    name, section = source.name.removesuffix(".md").rsplit(".", 1)
    out = [
        f'.\\" made by deploy/man/pages.py from {source.name}; do not edit',
        f'.TH "{escape(name.upper())}" {section} "" "reduction {version}" "Reduction Server"',
        ".nh",
        ".ad l",
    ]
    text = []

    def flush():
        out.extend(markdown("\n".join(text)))
        text.clear()

    for row in source.read_text(encoding="utf-8").split("\n"):
        match = DIRECTIVE.match(row)
        if not match:
            text.append(row)
            continue
        flush()
        word, program = match.groups()
        if word == "synopsis":
            out.extend(synopsis(usage(binaries, program)[0]))
        elif word == "options":
            out.extend(options(usage(binaries, program), "NOTES"))
        elif word == "commands":
            out.extend(commands(binaries, program))
        elif word == "reference":
            argv = [binaries / "reductionctl", "reference"]
            reference = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
            text.append(re.sub(r"\nThis page is written by .*\n", "", reference))  # of another page
        else:
            raise ValueError(f'{source}: found "{row}", expected synopsis, options, commands or reference')
    flush()
    return "\n".join(out) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True, help="folder of the programs")
    parser.add_argument("--version", required=True, help="version of the project")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="folder of the pages")
    parser.add_argument("source", nargs="+", type=pathlib.Path)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for source in args.source:
        text = page(source, args.bin, args.version)
        (args.out / source.name.removesuffix(".md")).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
