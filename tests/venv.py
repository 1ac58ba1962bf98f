#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Virtual environments with packages of PyPI, for tests that need more than Debian has.

    tests/venv.py NAME PACKAGE ...     makes the environment NAME, unless it has been made with these packages
    tests/venv.py 3.9 PACKAGE ...      the same with that Python, if uv finds it

They are in the folder VENVS, by default build/venvs. Exit status 77: PyPI cannot be reached, and why is printed. uv
makes them if it is there, else python3's own venv and pip.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
FOLDER = pathlib.Path(os.environ.get("VENVS") or ROOT / "build/venvs")
SKIPPED = 77


def python(name):
    """Returns the path of the environment's Python, or None if the environment has not been made."""
    return FOLDER / name / "bin/python" if (FOLDER / name / "complete").exists() else None


def site_packages(name):
    """Returns the folder of the environment's packages."""
    return next((FOLDER / name / "lib").glob("python3*/site-packages"))


def make(name, packages):
    """Makes an environment. Returns False if that is not possible."""
    folder, mark, text = FOLDER / name, FOLDER / name / "complete", " ".join(packages)
    if mark.exists() and mark.read_text() == text:
        return True
    shutil.rmtree(folder, ignore_errors=True)
    uv = shutil.which("uv")
    base = name if re.fullmatch(r"3\.\d+", name) else "/usr/bin/python3"
    if base == name and not uv:
        return False
    steps = (
        [[uv, "venv", "-q", "--python", base, folder],
         [uv, "pip", "install", "-q", "--python", folder / "bin/python", *packages]]
        if uv
        else [["/usr/bin/python3", "-m", "venv", folder], [folder / "bin/pip", "install", "-q", *packages]]
    )  # fmt: skip
    for step in steps:
        if subprocess.run(list(map(str, step))).returncode != 0:
            shutil.rmtree(folder, ignore_errors=True)
            return False
    mark.write_text(text)
    return True


if __name__ == "__main__":
    if not make(sys.argv[1], sys.argv[2:]):
        print(f"skipped: the environment {' '.join(sys.argv[1:])} cannot be made from PyPI")
        sys.exit(SKIPPED)
