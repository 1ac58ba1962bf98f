# SPDX-License-Identifier: Apache-2.0
"""The commands of an installed wheel. Each becomes the program in the folder bin of this package: the process stays the
same, so signals and the exit status are the program's."""

import os
import pathlib
import signal
import sys


def _become(name: str) -> None:
    path = str(pathlib.Path(__file__).resolve().parent / "bin" / name)
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by Python, and the program would go on doing so
        signal.signal(ignored, signal.SIG_DFL)
    try:
        os.execv(path, [name, *sys.argv[1:]])
    except OSError as exc:
        sys.exit(f"{name}: {path} cannot be started: {exc.strerror}. Only wheels contain the programs")


def server() -> None:
    _become("reduction-server")


def agent() -> None:
    _become("reduction-agent")


def ctl() -> None:
    _become("reductionctl")


def bench() -> None:
    _become("reduction-bench")
