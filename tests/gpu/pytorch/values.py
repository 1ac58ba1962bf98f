# SPDX-License-Identifier: Apache-2.0
"""The programs of tests/torch_cuda on a GPU that the ranks share: values, streams, memory that is reused, graphs, the
end of the process group, and sums within a node by NCCL."""

import json
import pathlib
import sys
import textwrap
import time

import programs
import world

# name, program, number of ranks
CHECKS = (
    ("operations", programs.OPERATIONS, 2),
    ("reused memory", programs.REUSE, 2),
    ("training", programs.TRAINING, 2),
    ("graphs", programs.GRAPHS, 2),
    ("shutdown", "WAY = 'shutdown'\n" + programs.END, 2),
    ("abort", "WAY = 'abort'\n" + programs.END, 2),
    ("local", "HOW = 'nccl'\n" + programs.LOCAL, 4),
)


def run(args, name, program, n, environment):
    """Runs a program on all ranks. Returns ("ok" or "fail", a note)."""
    serial = f"{args.folder}/values.{name.replace(' ', '-')}"
    with world.Reducers(args.root, args.folder, 2, []) as reducers, world.Processes() as ranks:
        for rank in range(n):
            argv = [sys.executable, str(args.here / "cuda_rank.py"), textwrap.dedent(program)]
            env = {**environment("group", rank, n, reducers.config), "STORE": f"{serial}.store"}
            ranks.start(argv, env, f"{serial}.{rank}", None)
        why = ranks.wait(min(args.until, time.monotonic() + args.limit))
        if why:
            return "fail", why
        text = [pathlib.Path(f"{serial}.{rank}").read_text(errors="replace") for rank in range(n)]
    wrong = [json.loads(line)["wrong"] for said in text for line in said.splitlines() if line.startswith('{"torch"')]
    if len(wrong) != n:
        return "fail", f"{len(wrong)} of {n} ranks have come to their end: {text[0]}"
    if name in ("shutdown", "abort") and any("destroy_process_group() was not called" in said for said in text):
        return "fail", "torch warns that destroy_process_group() was not called"
    found = sum(wrong, [])
    return ("fail", f"{len(found)} values are wrong: {'; '.join(found)}") if found else ("ok", f"{n} processes")


def check(args, row, environment):
    """Runs all programs. `row` and `environment` are those of part.py."""
    for name, program, n in CHECKS:
        began = time.monotonic()
        if began > args.until - 5:
            row(f"values, {name}", "skip", "no time is left")
            continue
        result, note = run(args, name, program, n, environment)
        row(f"values, {name}", result, note, time.monotonic() - began, "s")
