# SPDX-License-Identifier: Apache-2.0
"""Makes the Python wheel and installs it, for tests."""

import os
import pathlib
import shutil
import subprocess

import harness


def why_not():
    """Returns why there is no wheel here, or an empty text."""
    if harness.SAN:
        return "a sanitized build is not packed"
    for program in ("dpkg-query", "patchelf"):
        if not shutil.which(program):
            return f"a wheel is made with {program}, which is not installed: deploy/install-deps.sh test-all"
    if tuple(map(int, os.confstr("CS_GNU_LIBC_VERSION").split()[1].split("."))) > (2, 36):
        return "a wheel is made on Debian 12: with a newer C library its programs do not run on older systems"
    if subprocess.run([harness.PYTHON, "-c", "import ensurepip, numpy"], capture_output=True).returncode:
        return "Python has no ensurepip (Debian: python3-venv) or no NumPy"
    return ""


def make():
    """Returns the path of the wheel, after make wheel."""
    flags = [v for v in ("WERROR=1", "CCACHE=ccache") if os.environ.get(v.split("=")[0])]
    argv = ["make", "-s", "wheel", f"BUILD={harness.BUILD.parent}", *flags]
    made = subprocess.run(argv, cwd=harness.ROOT, capture_output=True, text=True)
    if made.returncode:
        raise AssertionError(made.stdout + made.stderr)
    return pathlib.Path(harness.ROOT, made.stdout.split()[-1])


def pip(environment, *arguments):
    """Runs an environment's pip, without PyPI."""
    argv = [environment / "bin/python", "-m", "pip", "-q", "--disable-pip-version-check", *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, cwd="/")
    if done.returncode:
        raise AssertionError(done.stdout + done.stderr)


def install(environment):
    """Makes a virtual environment of Debian's Python, with its NumPy, and installs the wheel there. Returns the
    wheel."""
    wheel = make()
    subprocess.run([harness.PYTHON, "-m", "venv", "--system-site-packages", environment], check=True)
    pip(environment, "install", "--no-index", wheel)
    return wheel
