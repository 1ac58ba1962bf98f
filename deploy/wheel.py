#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the Python wheel: the package, libreduction, and copies of the small libraries that it needs.

    wheel.py --library build/default/wheel/libreduction.so.0 --version 0.1.0 --out build/wheel

libreduction must have the run path $ORIGIN. OpenSSL and the C library are those of the system: security updates must
reach them. libreduction-grpc.so is left out, because gRPC has dozens of libraries.
"""

import argparse
import base64
import hashlib
import pathlib
import re
import subprocess
import sys
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "agent/python/reduction"
SYSTEM = re.compile(r"(ld-linux|libc|libm|libpthread|libdl|librt|libssl|libcrypto)[-.]")
SUMMARY = "All-reduce through reducers, for NumPy and PyTorch"
ENTRY_POINTS = b"""[torch.backends]
reduction = reduction.torch:register

[torch.distributed.backends]
reduction = reduction.torch:register
"""
TIME = (1980, 1, 1, 0, 0, 0)  # the same files make the same wheel


def libraries(library):
    """The libraries to carry, as paths of files by name; those of the system are left out."""
    listed = subprocess.run(["ldd", library], check=True, capture_output=True, text=True).stdout
    missing = re.findall(r"(\S+) => not found", listed)
    if missing:
        raise SystemExit(f"wheel: {library} needs {', '.join(missing)}, which is not installed")
    found = re.findall(r"^\s*(\S+) => (/\S+)", listed, re.M)
    return {name: pathlib.Path(path).resolve() for name, path in found if not SYSTEM.match(name)}


def copyright_of(path):
    """The licence of a library's Debian package: its name and text. Elsewhere there is none to be found."""
    for name in (path, pathlib.Path(str(path).removeprefix("/usr"))):
        owner = subprocess.run(["dpkg-query", "-S", name], capture_output=True, text=True)
        if owner.returncode == 0:
            package = owner.stdout.split(":")[0]
            return package, pathlib.Path(f"/usr/share/doc/{package}/copyright").read_bytes()
    raise SystemExit(f"wheel: the licence of {path} was not found: dpkg knows no package with it")


def tag(library):
    """The machine that the library is for, as wheels name it."""
    machines = {62: "x86_64", 183: "aarch64"}  # e_machine of ELF
    head = library.read_bytes()[:20]
    machine = machines.get(int.from_bytes(head[18:20], "little"))
    if head[:4] != b"\x7fELF" or not machine:
        raise SystemExit(f"wheel: {library}: found no library for x86_64 or aarch64")
    return f"py3-none-linux_{machine}"


def contents(library, version):
    """The files of the wheel, by name, without RECORD."""
    info = f"reduction-{version}.dist-info"
    files = {f"reduction/{p.name}": p.read_bytes() for p in [*PACKAGE.glob("*.py"), PACKAGE / "py.typed"]}
    files["reduction/libreduction.so.0"] = library.read_bytes()
    files[f"{info}/licenses/LICENSE"] = (ROOT / "LICENSE").read_bytes()
    for name, path in libraries(library).items():
        package, text = copyright_of(path)
        files[f"reduction/{name}"] = path.read_bytes()
        files[f"{info}/licenses/{package}.copyright"] = text
    files[f"{info}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: reduction\nVersion: {version}\nSummary: {SUMMARY}\nLicense: Apache-2.0\n"
        "Requires-Python: >=3.9\nProvides-Extra: numpy\nRequires-Dist: numpy; extra == 'numpy'\n"
    ).encode()
    # torch 2.5 and later calls this when it is imported
    files[f"{info}/entry_points.txt"] = ENTRY_POINTS
    files[f"{info}/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: reduction\nRoot-Is-Purelib: false\nTag: {tag(library)}\n"
    ).encode()
    return files


def write(path, files, record):
    rows = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, data in sorted(files.items()):
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            rows.append(f"{name},sha256={digest},{len(data)}\n")
            add(wheel, name, data)
        add(wheel, record, "".join([*rows, f"{record},,\n"]).encode())


def add(wheel, name, data):
    entry = zipfile.ZipInfo(name, TIME)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = (0o755 if ".so" in name else 0o644) << 16
    wheel.writestr(entry, data)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", type=pathlib.Path, required=True, help="libreduction.so.0, run path $ORIGIN")
    parser.add_argument("--version", required=True, help="version of the project")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="folder of the wheel")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    wheel = args.out / f"reduction-{args.version}-{tag(args.library)}.whl"
    write(wheel, contents(args.library, args.version), f"reduction-{args.version}.dist-info/RECORD")
    print(wheel)
    return 0


if __name__ == "__main__":
    sys.exit(main())
