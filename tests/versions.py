#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the backend of torch.distributed with several versions of torch from PyPI, and prints a table of them.

    tests/versions.py                    # all versions: about 5 GB each while they are tested, an hour or more
    tests/versions.py 2.15.0 1.13.1      # these ones
    tests/versions.py --own ...          # only the tests of this project, without torch's own suite
    tests/versions.py --short ...        # only some of these, a minute for each version

It makes virtual environments with uv, which also finds or downloads the Pythons, in --cache (default build/versions).
It deletes each one that it has made after its tests, unless --keep is given. Without uv or PyPI it says so and ends
with status 0. torch's own suite is torch.testing._internal.distributed, on three ranks; a test that fails there is
tried with gloo too.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
E2E = ROOT / "tests/e2e"
PYTHONS = {
    "1.13.1": "3.10", "2.0.1": "3.10", "2.3.1": "3.11", "2.6.0": "3.12", "2.9.1": "3.12", "2.11.0": "3.13",
    "2.13.0": "3.13", "2.14.1": "3.12", "2.15.0": "3.13",
}  # fmt: skip
OTHERWISE = "3.11"  # that of Debian 12, for which each of these has a wheel
OWN = (
    "test_torch_group", "test_torch_features", "test_torch_replace", "test_torch_errors", "test_torch_train",
    "test_torch_mesh", "test_torch_state", "test_torch_sharded", "test_torchft",
)  # fmt: skip
SHORT = ("test_torch_group", "test_torch_features", "test_torch_replace", "test_torch_state")
TORCHFT = "torchft==0.2.0"  # needs torch 2.7
DOWNLOAD = 600  # seconds


def fail_or_skip(text):
    print(f"versions: skipped: {text}")
    raise SystemExit(0)


def install(folder, version):
    """Makes a virtual environment with this torch. Returns whether it was made now."""
    python = folder / "bin/python"
    check = "import torch; print(torch.__version__)"
    if python.exists():
        found = subprocess.run([python, "-c", check], capture_output=True, text=True, cwd="/")
        if found.stdout.startswith(version):
            return False
    for wanted in (PYTHONS[version], OTHERWISE):
        argv = ["uv", "venv", "-q", "--clear", "--python", wanted, folder]
        if not subprocess.run(argv, capture_output=True).returncode:
            break
    else:
        fail_or_skip(f"Pythons {PYTHONS[version]} and {OTHERWISE} are not installed and cannot be downloaded")
    numpy = "numpy<2" if version.startswith(("1.", "2.0.")) else "numpy"
    more = [TORCHFT] if tuple(map(int, version.split("."))) >= (2, 7) else []
    argv = ["uv", "pip", "install", "-q", "--python", python, f"torch=={version}", numpy, "setuptools", *more]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=DOWNLOAD)
    except subprocess.TimeoutExpired:
        fail_or_skip(f"PyPI is slow: torch {version} was not there after {DOWNLOAD} s")
    if done.returncode:
        if re.search(r"dns error|Failed to fetch|connect", done.stderr):
            fail_or_skip("PyPI cannot be reached")
        raise SystemExit(f"versions: torch {version} cannot be installed:\n{done.stderr}")
    return True


def run(python, argv, limit):
    """Runs a test program with this Python. Returns its output and exit status."""
    env = {
        **os.environ,
        "PYTHONPATH": f"{E2E}:{E2E / 'python'}",
        "REDUCTION_TEST_PYTHON": str(python),
    }
    try:
        done = subprocess.run([python, *argv], env=env, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired as exc:
        return f"not done within {limit} s\n{(exc.stderr or b'').decode(errors='replace')}", 1
    return done.stdout + done.stderr, done.returncode


def own_tests(python, logs, names):
    """Returns how many of our tests passed and failed."""
    passed = failed = 0
    for name in names:
        text, status = run(python, [E2E / "python" / f"{name}.py"], 1800)
        (logs / f"{name}.log").write_text(text)
        ran = sum(int(x) for x in re.findall(r"^Ran (\d+) test", text, re.M))
        bad = sum(int(x) for x in re.findall(r"(?:failures|errors)=(\d+)", text)) or (1 if status else 0)
        passed, failed = passed + max(0, ran - bad), failed + bad
    return passed, failed


def suite(python, logs, backend, names):
    """Returns torch's own tests by result: a dict of sets of names."""
    code = "import json, sys, test_torch_suite as t; print(json.dumps(t.results(*sys.argv[1:])))"
    text, status = run(python, ["-c", code, backend, *names], 3600)
    (logs / f"suite-{backend}.log").write_text(text)
    lines = [line for line in text.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines and not status else {"passed": [], "failed": ["the suite itself"]}


def row(version, args):
    """Tests one version. Returns the row of the table."""
    began = time.monotonic()
    folder, logs = args.cache / version, args.cache / "logs" / version
    logs.mkdir(parents=True, exist_ok=True)
    made = install(folder, version)
    python = folder / "bin/python"
    found_python = subprocess.run([python, "-c", "import platform; print(platform.python_version())"],
                                  capture_output=True, text=True, check=True).stdout.strip()  # fmt: skip
    passed, failed = own_tests(python, logs, SHORT if args.short else OWN)
    theirs, only = "not run", []
    if not args.own and not args.short:
        found = suite(python, logs, "reduction", ["test_*"])
        with_gloo = suite(python, logs, "gloo", found["failed"]) if found["failed"] else {"failed": []}
        too = sorted(set(found["failed"]) & set(with_gloo["failed"]))
        only = sorted(set(found["failed"]) - set(too))
        names = f"{len(only)} fail: {' '.join(only)}"
        theirs = f"{len(found['passed'])} passed, {len(too)} fail with gloo too, {names}"
    if made and not args.keep:
        shutil.rmtree(folder)
    seconds = time.monotonic() - began
    own = f"{passed} passed, {failed} failed"
    print(f"| {version} | {found_python} | {own} | {theirs} | {seconds:.0f} |", flush=True)
    return failed == 0 and not (args.strict and only)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("versions", nargs="*", default=list(PYTHONS), help=" ".join(PYTHONS))
    parser.add_argument("--cache", type=pathlib.Path, default=ROOT / "build/versions", help="folder for environments")
    parser.add_argument("--keep", action="store_true", help="keep the environments for the next call")
    parser.add_argument("--own", action="store_true", help="only the tests of this project")
    parser.add_argument("--short", action="store_true", help="only some of the tests of this project")
    parser.add_argument("--strict", action="store_true", help="fail if a test of torch fails that passes with gloo")
    args = parser.parse_args()
    unknown = [v for v in args.versions if v not in PYTHONS]
    if unknown:
        parser.error(f"unknown version {unknown[0]}; known are {', '.join(PYTHONS)}")
    if not shutil.which("uv"):
        fail_or_skip("uv is not installed, which makes the environments (pip install uv)")
    args.cache = args.cache.resolve()
    with tempfile.TemporaryDirectory(prefix="reduction-") as probe:
        asked = subprocess.run(["uv", "pip", "install", "-q", "--dry-run", "--refresh-package", "packaging", "--target",
                                probe, "packaging"], capture_output=True)  # fmt: skip
    if asked.returncode:
        fail_or_skip("PyPI cannot be reached")
    print("| torch | Python | our tests | torch's own tests, three ranks | seconds |")
    print("|---|---|---|---|---|", flush=True)
    results = [row(version, args) for version in args.versions]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
