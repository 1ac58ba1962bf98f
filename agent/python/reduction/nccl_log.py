# SPDX-License-Identifier: Apache-2.0
"""Judges a log of NCCL: did all all-reduces go through the reducers?

    NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET,TUNING NCCL_DEBUG_FILE=/tmp/nccl.%h.%p torchrun ... train.py
    python3 -m reduction.nccl_log /tmp/nccl.*

The plugin writes from how many bytes on all-reduces go through the reducers; smaller ones are summed as NCCL chooses.
NCCL writes which algorithm it has chosen for an all-reduce on rank 0 only: from 2.24 on by name, 2.23 by number. NCCL
2.20 to 2.22 do not write which collective a choice is for, so there only the plugin is judged. The plugin writes on
every rank, when a communicator is closed, how many all-reduces went through the reducers.
"""

import os
import re
import socket
import sys
from typing import NamedTuple, Optional

_CHANNEL = re.compile(r"via COLLNET/(\w+)")
_CHOICE = re.compile(r"AllReduce: (\d+) Bytes -> Algo (\w+)")
_FROM = re.compile(r"NET/reduction: all-reduces of (\d+) bytes or more go through the reducers")
_CLOSED = re.compile(r"NET/reduction: communicator (\S+): rank \d+ is closed after (\d+) all-reduces")
_COLLNET_NUMBERS = ("2", "3")  # NCCL_ALGO_COLLNET_DIRECT and NCCL_ALGO_COLLNET_CHAIN, as NCCL 2.23 writes them
_NETWORK = re.compile(r"Using network (\w+)")


class Verdict(NamedTuple):
    """Whether the log proves that the reducers were used for all all-reduces, and a sentence that says why."""

    used: bool
    why: str


def _line(text: str, start: int) -> str:
    return text[text.rfind("\n", 0, start) + 1 :].split("\n", 1)[0]


def judge(text: str) -> Verdict:
    """Judges the log of one rank, which was written with NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,NET,TUNING."""
    if not text.strip():
        return Verdict(False, "the log is empty: set NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,NET,TUNING")
    failed = text.find("Cannot initialize CollNet")
    if failed >= 0:
        return Verdict(False, f"NCCL could not use CollNet: {_line(text, failed)}")
    plugins = set(_CHANNEL.findall(text))
    if "reduction" not in plugins:
        network = _NETWORK.search(text)
        if plugins:
            return Verdict(False, f"CollNet is that of another plugin: {', '.join(sorted(plugins))}")
        if network is not None and network.group(1) != "reduction":
            return Verdict(False, f"the plugin was not loaded: NCCL uses the network {network.group(1)}")
        return Verdict(False, 'no communicator uses CollNet: no line has "via COLLNET/reduction"')
    least = min(map(int, _FROM.findall(text)), default=0)  # smaller ones are summed as NCCL chooses
    for choice in _CHOICE.finditer(text):
        collnet = choice.group(2).startswith("COLLNET") or choice.group(2) in _COLLNET_NUMBERS
        if not collnet and int(choice.group(1)) >= least:
            return Verdict(False, f"not all all-reduces used CollNet: {_line(text, choice.start())}")
    counts = [int(count) for _, count in _CLOSED.findall(text) if count != "0"]
    if not counts and _CLOSED.search(text):
        return Verdict(False, "communicators joined the reducers and never reduced")
    if counts:
        return Verdict(True, f"{sum(counts)} all-reduces of {len(counts)} communicators went through the reducers")
    choice_found = _CHOICE.search(text)
    if choice_found is not None:
        return Verdict(True, f"all all-reduces used CollNet, such as: {_line(text, choice_found.start())}")
    return Verdict(False, "the log has no all-reduce: it ends too early, or TUNING is missing in NCCL_DEBUG_SUBSYS")


def own_log() -> Optional[str]:
    """Returns the path of the log of this process, or None if NCCL_DEBUG_FILE does not name one for each process."""
    path = os.environ.get("NCCL_DEBUG_FILE", "")
    if "%p" not in path:
        return None
    host = socket.gethostname().split(".", 1)[0]  # as NCCL writes it
    return path.replace("%h", host).replace("%p", str(os.getpid()))


def main() -> int:
    """Judges the files that the arguments name. Returns 0 if the reducers were used in all of them."""
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        print("usage: python3 -m reduction.nccl_log FILE...", file=sys.stdout if "--help" in sys.argv else sys.stderr)
        return 0 if "--help" in sys.argv else 2
    used = True
    for path in sys.argv[1:]:
        with open(path, encoding="utf-8", errors="replace") as file:
            verdict = judge(file.read())
        used &= verdict.used
        print(f"{path}: {'used' if verdict.used else 'NOT used'}: {verdict.why}")
    return 0 if used else 1


if __name__ == "__main__":
    sys.exit(main())
