#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that names in comments and documents exist: `make lint` calls

    tests/names.py [--root FOLDER]

A name is a word with an underscore, as `slot_add` or SLOT_MAX, or a word before `()`. In documents only names in
backticks count, and in those of deploy/, which speak of programs of others, only names that begin as ours do. Each must
occur in the code of some source: outside of comments, in any language of the tree. FOREIGN has names of others
(libraries, the kernel, PyTorch) that no source uses. Words in capitals at the begin of a comment of C that say for
which constants a member is set, as `ABORT, LOST`, must end the name of a constant. Names of files with a folder, as
`server/core/slot.c`, must be files. Each violation is a line on standard error, and then the exit status is 1.
"""

import argparse
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
CODE = ".c .h .cc .inc .py .sh .mk .proto .yaml .yml .json .in .html .service .toml".split()
WORD = r"[A-Za-z_][A-Za-z0-9_]*"
# what a name looks like: with an underscore inside, or before an empty pair of
# parentheses
NAME = re.compile(
    rf"(?<![\w./$%{{-])({WORD})(?=\(\))"
    r"|(?<![\w./$%{-])([A-Za-z][A-Za-z0-9]*(?:_[A-Za-z0-9]+)+)(?![\w{*]|-\w|\.\w)"
)
FOLDERS = "agent|bench|common|config|deploy|proto|server|tests"
OURS = re.compile(r"(?i)(reduction|rs)_")
FILE = re.compile(rf"(?<![\w./-])((?:{FOLDERS})/[\w./-]*\.(?:c|h|py|sh|md|mk|yaml|proto))\b")
C_COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|/\*.*?\*/|//[^\n]*', re.S)

TAGS = re.compile(r"/\* ([A-Z]{3,}(?:, [A-Z]{3,})*)(?=;| \*/)")

# Names of others that documents and comments use and the code does not, as regular
# expressions for whole names; and those that only stand for some name.
FOREIGN = (
    "SO_RCVLOWAT|TCP_NOTSENT_LOWAT|SCHED_BATCH|PIPE_BUF|strerror_r|uv_poll",
    "AVX512_BF16|BDP_PROBE|GRPC_ARG_RESOURCE_QUOTA|MHD_TLS_init",
    "nccl\\w+_t|cudaStream_t|emit_nvtx|bf16_compress_hook|HOROVOD_\\w+|coll_net",
    "RUN_ID|Tier_1|TORCH_DIST_NAN_CHECK|MPI_\\w+|mpi_f08",
    "x_(init|close|new|free)",
)


def sources(root):
    """Paths of all files of the tree that are not built."""
    for path in sorted(root.rglob("*")):
        parts = path.relative_to(root).parts
        if path.is_file() and not {"build", ".git", "__pycache__", "corpus"} & set(parts):
            yield path


def split_c(text):
    """(code, [(line, comment), ...]) of C, where code keeps its strings."""
    comments = []

    def take(match):
        if match[0].startswith('"'):
            return match[0]
        comments.append((text.count("\n", 0, match.start()) + 1, match[0]))
        return "\n" * match[0].count("\n")

    return C_COMMENT.sub(take, text), comments


def split_hash(text):
    """The same for languages whose comments begin with # and take the rest of a line of their own."""
    code, comments = [], []
    for n, line in enumerate(text.splitlines(), 1):
        if re.match(r"\s*#(?!!)", line):
            comments.append((n, line))
        else:
            code.append(line)
    return "\n".join(code), comments


def backticks(text):
    """[(line, text in backticks), ...] of a document, without its blocks of code."""
    found, block = [], False
    for n, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            block = not block
        elif not block and not line.startswith("    "):
            found += [(n, part) for part in re.findall(r"`([^`]+)`", line)]
    return found


def at(line, text, match):
    """The line of a match in a text that begins in that line."""
    return line + text.count("\n", 0, match.start())


def check(root):
    """Yields a sentence for each name that does not exist."""
    known, places = set(), []
    for path in sources(root):
        name = str(path.relative_to(root))
        if path.suffix == ".md":
            places += [(name, n, part) for n, part in backticks(path.read_text())]
            continue
        if path.suffix not in CODE and path.name not in ("Makefile", "rules", "run", "reductionctl", "Containerfile"):
            continue
        text = path.read_text("utf-8", "replace")
        code, comments = (split_c if path.suffix in (".c", ".h", ".cc", ".inc", ".proto") else split_hash)(text)
        known.update(re.findall(WORD, code))
        known |= {path.stem, path.stem.removeprefix("test_")}  # MATCH=torch_suite
        places += [(name, n, part) for n, part in comments]
    endings = {word.rsplit("_", 1)[-1] for word in known}
    foreign = re.compile("|".join(FOREIGN))
    for name, line, part in places:
        for match in NAME.finditer(part):
            word = match[1] or match[2]
            if name.startswith("deploy/") and name.endswith(".md") and not OURS.match(word):
                continue
            # the exporter of metrics adds _total to counters
            if not {word, word.removesuffix("_total")} & known and not foreign.fullmatch(word):
                yield f"{name}:{at(line, part, match)}: {word} is no name in the code of the tree"
        for match in FILE.finditer(part):
            if not (root / match[1]).exists():
                yield f"{name}:{at(line, part, match)}: there is no file {match[1]}"
        for match in TAGS.finditer(part):
            for word in match[1].split(", "):
                if word not in endings:
                    yield f"{name}:{at(line, part, match)}: {word} ends no name in the code of the tree"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, default=ROOT, metavar="FOLDER")
    found = list(check(parser.parse_args().root))
    for line in found:
        print(f"names: {line}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
