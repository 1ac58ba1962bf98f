# SPDX-License-Identifier: Apache-2.0
"""Output of workers to the test program, and their input from it."""

import json
import sys
import time

import reduction


def say(what, **values):
    """Writes one line for Proc.said() and Proc.objects()."""
    print(json.dumps({"what": what, **values}), flush=True)


def listen():
    """Waits for the next Proc.tell() and returns the line."""
    line = sys.stdin.readline()
    if not line:
        sys.exit("the test program has ended")
    return line.rstrip("\n")


def attempt(call, *args, **kwargs):
    """Calls; returns what say() can pass on: {"error": name of the exception's class or None, "code", "message",
    "seconds"}."""
    started = time.monotonic()
    found = {"error": None, "code": 0, "message": ""}
    try:
        call(*args, **kwargs)
    except reduction.ReductionError as exc:
        found = {"error": type(exc).__name__, "code": exc.code, "message": str(exc)}
    found["seconds"] = time.monotonic() - started
    return found
