#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Installs NCCL from PyPI into a cache folder, one folder for each version:

    wheels.py FOLDER VERSION...

FOLDER/VERSION then has libnccl.so.2 and layout.txt. What is there is not installed again.
"""

import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import layout  # pylint: disable=wrong-import-position

PACKAGES = ("nvidia-nccl-cu13", "nvidia-nccl-cu12")


class Missing(Exception):
    """There is no library; the text says why."""


def _install(version, target):
    """Installs the first package that has this version. Returns its library."""
    said = ""
    for package in PACKAGES:
        argv = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:"]
        argv += ["--no-cache-dir", "--disable-pip-version-check", "--target", str(target), f"{package}=={version}"]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return next(pathlib.Path(target).rglob("libnccl.so.2"))
        said = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "pip failed"
    raise Missing(f"NCCL {version} cannot be installed from PyPI: {said}")


def library(folder, version):
    """Returns the folder of a version, which has libnccl.so.2 and layout.txt. Raises Missing."""
    home = pathlib.Path(folder, version)
    if platform.machine() != "x86_64":
        raise Missing(f"the emulated GPU is for x86_64 only, and this is {platform.machine()}")
    if not shutil.which("gdb"):
        raise Missing("gdb is not installed; it reads where NCCL's kernels find their arguments")
    if not (home / "libnccl.so.2").exists():
        home.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as target:
            _install(version, target).rename(home / "libnccl.so.2")
    text = home / "layout.txt"
    if not text.exists() or text.stat().st_mtime < pathlib.Path(layout.__file__).stat().st_mtime:
        text.write_text(layout.read(str(home / "libnccl.so.2")))
    return home


if __name__ == "__main__":
    for each in sys.argv[2:]:
        print(library(sys.argv[1], each))
