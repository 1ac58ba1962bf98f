#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the Python wheel: the package, the programs as commands, and libraries, all from a folder of portable.py.

    wheel.py --tree build/portable --man build/default/man --version 0.1.0 --out build/wheel

The same folder gives the same bytes. The tag says the oldest C library that the files run with.
"""

import argparse
import base64
import hashlib
import os
import pathlib
import sys
import zipfile

import elf
import portable

ROOT = pathlib.Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "agent/python/reduction"
SUMMARY = "All-reduce through reducers: PyTorch, JAX, NumPy, NCCL; with the reducer, the agent and reductionctl"
ENTRY_POINTS = """[console_scripts]
reduction-agent = reduction._programs:agent
reduction-bench = reduction._programs:bench
reduction-server = reduction._programs:server
reductionctl = reduction._programs:ctl

[torch.backends]
reduction = reduction.torch:register

[torch.distributed.backends]
reduction = reduction.torch:register

[torchcomms.backends]
reducers = reduction.torchcomms
"""
METADATA = """Metadata-Version: 2.1
Name: reduction
Version: {version}
Summary: {summary}
License: Apache-2.0
License-File: LICENSE
Requires-Python: >=3.9
Provides-Extra: numpy
Requires-Dist: numpy; extra == 'numpy'
Provides-Extra: torchft
Requires-Dist: torchft>=0.2; extra == 'torchft'
Description-Content-Type: text/markdown

{description}"""
TIME = (1980, 1, 1, 0, 0, 0)  # of all files; pip does not keep it


def tag(tree):
    """The machine and the C library that the files are for, as wheels name them."""
    major, minor = portable.newest(tree)["GLIBC"][0][:2]
    machine = elf.Elf(tree / "lib" / portable.LIBRARY).machine
    return f"py3-none-manylinux_{major}_{minor}_{machine}"


def contents(tree, man, version, wheel_tag):
    """The files of the wheel, by name, without RECORD; and the names of those that can be run."""
    info = f"reduction-{version}.dist-info"
    files = {f"reduction/{path.name}": path for path in [*PACKAGE.glob("*.py"), PACKAGE / "py.typed"]}
    for folder in ("bin", "lib"):
        files |= {f"reduction/{folder}/{path.name}": path for path in (tree / folder).iterdir()}
    files |= {f"{info}/licenses/{path.name}": path for path in (tree / "licenses").iterdir()}
    files[f"{info}/sboms/sbom.cdx.json"] = tree / "sbom.cdx.json"
    share = "reduction/share"
    files |= {f"{share}/examples/{path.name}": path for path in (ROOT / "config/examples").glob("*.yaml")}
    files[f"{share}/bash-completion/completions/reductionctl"] = ROOT / "deploy/completion/reductionctl"
    files[f"{share}/make-certs.sh"] = ROOT / "deploy/make-certs.sh"
    files |= {f"{share}/man/man{path.suffix[1:]}/{path.name}": path for path in man.glob("*.[0-9]")}
    data = {name: path.read_bytes() for name, path in files.items()}
    description = (ROOT / "README.md").read_text()
    data[f"{info}/METADATA"] = METADATA.format(version=version, summary=SUMMARY, description=description).encode()
    data[f"{info}/entry_points.txt"] = ENTRY_POINTS.encode()
    wheel = f"Wheel-Version: 1.0\nGenerator: reduction\nRoot-Is-Purelib: false\nTag: {wheel_tag}\n"
    data[f"{info}/WHEEL"] = wheel.encode()
    return data, {name for name, path in files.items() if os.access(path, os.X_OK)}


def write(path, files, runnable, record):
    rows = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as wheel:
        for name, data in sorted(files.items()):
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            rows.append(f"{name},sha256={digest},{len(data)}\n")
            add(wheel, name, data, name in runnable)
        add(wheel, record, "".join([*rows, f"{record},,\n"]).encode(), False)


def add(wheel, name, data, runnable):
    entry = zipfile.ZipInfo(name, TIME)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = (0o100755 if runnable else 0o100644) << 16
    wheel.writestr(entry, data)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tree", type=pathlib.Path, required=True, help="folder made by portable.py")
    parser.add_argument("--man", type=pathlib.Path, required=True, help="folder of the manual pages")
    parser.add_argument("--version", required=True, help="version of the project")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="folder of the wheel")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    wheel_tag = tag(args.tree)
    files, runnable = contents(args.tree, args.man, args.version, wheel_tag)
    wheel = args.out / f"reduction-{args.version}-{wheel_tag}.whl"
    write(wheel, files, runnable, f"reduction-{args.version}.dist-info/RECORD")
    print(wheel)
    return 0


if __name__ == "__main__":
    sys.exit(main())
