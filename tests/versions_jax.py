#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Tests JAX on CPUs with several versions of jax from PyPI, and prints a table of them.

    tests/versions_jax.py                # all versions: a few minutes and 0.5 GB each
    tests/versions_jax.py 0.12.0.1       # this one

It makes virtual environments with uv in --cache (default build/versions) and deletes them after the tests, unless
--keep is given. Without uv, a Python or PyPI it says so and ends with status 0.
"""

import argparse
import pathlib
import shutil
import subprocess
import sys
import time

import versions

KNOWN = ("0.8.1", "0.12.0.1")
PYTHON = "3.12"
TESTS = ("test_jax",)


def install(folder, version):
    """Makes a virtual environment with this jax. Returns whether it was made now."""
    python = folder / "bin/python"
    if python.exists():
        return False
    if subprocess.run(["uv", "venv", "-q", "--python", PYTHON, folder], capture_output=True).returncode:
        versions.fail_or_skip(f"Python {PYTHON} is not installed and cannot be downloaded")
    argv = ["uv", "pip", "install", "-q", "--python", python, f"jax=={version}", "numpy"]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=versions.DOWNLOAD)
    except subprocess.TimeoutExpired:
        versions.fail_or_skip(f"PyPI is slow: jax {version} was not there after {versions.DOWNLOAD} s")
    if done.returncode:
        versions.fail_or_skip(f"jax {version} cannot be installed: {done.stderr.strip()[-300:]}")
    return True


def row(version, args):
    """Tests one version, and prints its row of the table. Returns whether all tests passed."""
    began = time.monotonic()
    folder, logs = args.cache / f"jax-{version}", args.cache / "logs" / f"jax-{version}"
    logs.mkdir(parents=True, exist_ok=True)
    made = install(folder, version)
    passed, failed = versions.own_tests(folder / "bin/python", logs, TESTS)
    if made and not args.keep:
        shutil.rmtree(folder)
    print(f"| {version} | {passed} passed, {failed} failed | {time.monotonic() - began:.0f} |", flush=True)
    return failed == 0 and passed > 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("versions", nargs="*", default=KNOWN, help=f"of jax (default {' '.join(KNOWN)})")
    parser.add_argument("--cache", type=pathlib.Path, default=versions.ROOT / "build/versions")
    parser.add_argument("--keep", action="store_true", help="keep the environments for the next call")
    args = parser.parse_args()
    if not shutil.which("uv"):
        versions.fail_or_skip("uv is not installed, which makes the environments (pip install uv)")
    args.cache = args.cache.resolve()
    print("| jax | our tests | seconds |\n|---|---|---|", flush=True)
    results = [row(version, args) for version in args.versions]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
