#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a folder with programs and libraries that carry the libraries which they need.

    portable.py --build build/default --out build/portable
    portable.py --check build/portable

Needs Debian's patchelf, and dpkg-query for versions and licences; --root is that of another machine. Of the system
remain the C and C++ libraries. All carried libraries get private names, of files and of symbols, so that they never
meet other copies in a process, and LD_LIBRARY_PATH does not replace them. --check prints what the folder needs of the
system, and fails if it is more.
"""

import argparse
import hashlib
import json
import pathlib
import re
import shutil
import subprocess
import sys

import elf

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROGRAMS = ("reduction-server", "reduction-agent", "reductionctl", "reduction-bench")
LIBRARY = "libreduction.so.0"
LIBRARIES = (
    LIBRARY, "libreduction-grpc.so", "libnccl-net-reduction.so", "libnccl-env.so", "libreduction-jax.so",
    "libreduction-mpi.so",
)  # fmt: skip
OPTIONAL = ("libreduction-grpc.so",)
SYSTEM = re.compile(r"(ld-linux-[\w-]+|libc|libm|libpthread|libdl|librt|libgcc_s|libstdc\+\+)\.so\.\d+$")
ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyz"
# what Ubuntu 22.04, RHEL 9 and Amazon Linux 2023 all have
NEWEST = {"GLIBC": (2, 34), "GLIBCXX": (3, 4, 29), "CXXABI": (1, 3, 13), "GCC": (7, 0, 0)}


def fail(text):
    raise SystemExit(f"portable: {text}")


def run(*argv):
    done = subprocess.run(argv, capture_output=True, text=True)
    if done.returncode:
        fail(f"{' '.join(map(str, argv))} failed: {done.stderr.strip()}")
    return done.stdout


def find(name, cc):
    """The file of a library, where the compiler looks."""
    path = pathlib.Path(run(*cc.split(), f"-print-file-name={name}").strip())
    if not path.is_absolute():
        fail(f"{name} was not found by {cc}")
    return path.resolve()


def closure(files, cc):
    """All libraries that the files need directly or indirectly, apart from those of the system and our own, by name;
    and the names of symbols of the system's."""
    carried, system, wanted = {}, set(), [name for file in files for name in file.needed()]
    while wanted:
        name = wanted.pop()
        if name in carried or name in LIBRARIES:
            continue
        if SYSTEM.match(name):
            system.add(name)
            continue
        carried[name] = elf.Elf(find(name, cc))
        if carried[name].search_path():
            fail(f"{carried[name].path} has a search path of its own: {carried[name].search_path()}")
        wanted += carried[name].needed()
    taken = set().union(*(elf.Elf(find(name, cc)).defined() for name in system))
    return carried, taken


def private_name(name, data):
    """lib becomes r and two characters that follow from the contents: two versions can meet in a process."""
    number = int.from_bytes(hashlib.sha256(data).digest()[:4], "big")
    return f"r{ALPHABET[number % 36]}{ALPHABET[number // 36 % 36]}{name[3:]}"


def own_files(build, out, strip):
    """Copies our programs and libraries, without what only debuggers need. Returns them."""
    files = []
    for folder, names, origin in (("bin", PROGRAMS, "$ORIGIN/../lib"), ("lib", LIBRARIES, "$ORIGIN")):
        (out / folder).mkdir(parents=True)
        for name in names:
            source = build / folder / name
            if not source.exists() and name in OPTIONAL:
                continue
            target = out / folder / name
            # the build ID follows from the debug information, and so from the folder of the build
            run(*strip.split(), "--strip-unneeded", "--remove-section=.note.gnu.build-id", "-o", target, source)
            # the older kind of search path also holds for the libraries of libraries, and goes before LD_LIBRARY_PATH
            run("patchelf", "--force-rpath", "--set-rpath", origin, target)
            target.chmod(0o755)
            files.append(elf.Elf(target))
    return files


def package_of(path, root):
    """The Debian package of a library: name, version, name and version of its source. Elsewhere there is none to be
    found."""
    query = ["dpkg-query", "--admindir", root / "var/lib/dpkg"]
    inside = pathlib.Path("/", path.relative_to(root))
    for name in (inside, pathlib.Path(str(inside).removeprefix("/usr"))):
        owner = subprocess.run([*query, "-S", name], capture_output=True, text=True)
        if owner.returncode == 0:
            package = owner.stdout.rsplit(": ", 1)[0]
            form = "${Package}\t${Version}\t${source:Package}\t${source:Version}\t${Architecture}"
            return run(*query, "-W", "-f", form, package).split("\t")
    return fail(f"the package of {path} was not found: dpkg knows no package with it")


def distribution(root):
    lines = (root / "etc/os-release").read_text().splitlines()
    return {key: value.strip('"') for key, _, value in (line.partition("=") for line in lines)}


def licence_names(text):
    """The short names of the licences in a copyright file, if machines can read it."""
    return sorted(set(re.findall(r"^License: *(\S.*)$", text, re.M))) or ["see the copyright file"]


def bill(version, carried, names, out, root):
    """Writes the licences, and the list of all that the folder carries (CycloneDX), without a time: the same files make
    the same list."""
    (out / "licenses").mkdir()
    shutil.copyfile(ROOT / "LICENSE", out / "licenses/LICENSE")
    release = distribution(root)
    packages = {}
    for name, file in sorted(carried.items()):
        packages.setdefault(tuple(package_of(file.path, root)), []).append(names[name])
    components = []
    for (package, number, source, source_version, machine), files in sorted(packages.items()):
        text = (root / f"usr/share/doc/{package}/copyright").read_text("utf-8", "replace")
        (out / f"licenses/{package}.copyright").write_text(text)
        where = f"arch={machine}&distro={release.get('ID')}-{release.get('VERSION_ID')}"
        components.append(
            {
                "type": "library",
                "name": package,
                "version": number,
                "purl": f"pkg:deb/{release.get('ID')}/{package}@{number}?{where}",
                "licenses": [{"license": {"name": licence}} for licence in licence_names(text)],
                "properties": [
                    {"name": "source", "value": f"{source} {source_version}"},
                    *({"name": "file", "value": f"lib/{file}"} for file in files),
                ],
            }
        )
    main = {"type": "application", "name": "reduction", "version": version}
    main["licenses"] = [{"license": {"id": "Apache-2.0"}}]
    document = {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "metadata": {"component": main}}
    document["components"] = components
    (out / "sbom.cdx.json").write_text(json.dumps(document, indent=1) + "\n")


def make(args):
    shutil.rmtree(args.out, ignore_errors=True)
    for program in ("patchelf", "dpkg-query"):
        if not shutil.which(program):
            fail(f"{program} was not found; a carrying build is made on Debian, with the package patchelf")
    own = own_files(args.build, args.out, args.strip)
    carried, taken = closure(own, args.cc)
    files = [*own, *carried.values()]
    symbols = elf.other_names(files, set().union(*(file.defined() for file in carried.values())) - taken)
    names = {name: private_name(name, file.data) for name, file in carried.items()}
    libraries = {name.encode(): new.encode() for name, new in names.items()}
    for file in files:
        file.rename(symbols, libraries)
    for file in own:
        file.path.write_bytes(file.data)
    for name, file in carried.items():
        target = args.out / "lib" / names[name]
        target.write_bytes(file.data)
        target.chmod(0o755)
    bill(args.version, carried, names, args.out, args.root.resolve())


def newest(folder):
    """The newest version of each of the system's interfaces that the files of the folder need."""
    found, inside = {}, {path.name for path in (folder / "lib").iterdir()}
    for path in sorted([*(folder / "bin").iterdir(), *(folder / "lib").iterdir()]):
        file = elf.Elf(path)
        for name in file.needed():
            if name not in inside and not SYSTEM.match(name):
                fail(f"{path} needs {name}, which is neither in the folder nor in every system")
        for name, versions in file.versions.items():
            for version in versions if SYSTEM.match(name) else ():
                if version.endswith("_PRIVATE"):
                    fail(f"{path} needs {version} of {name}: it contains a part of the C library")
                family, _, number = version.partition("_")
                number = tuple(map(int, re.findall(r"\d+", number)))
                if number > found.get(family, ((), ""))[0]:
                    found[family] = number, path.name
    return found


def check(folder):
    found = newest(folder)
    for family, (number, name) in sorted(found.items()):
        print(f"{family}_{'.'.join(map(str, number))}  {name}")
        if number > NEWEST.get(family, ()):
            fail(f"{name} needs {family}_{'.'.join(map(str, number))}, which not every supported system has")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, help="folder of the build, with bin and lib")
    parser.add_argument("--out", type=pathlib.Path, help="folder to make; what is there is removed")
    parser.add_argument("--version", default="0", help="version of the project, for the list of what is carried")
    parser.add_argument("--cc", default="cc", help="compiler, which knows where libraries are")
    parser.add_argument("--strip", default="strip", help="strip of the same machine")
    parser.add_argument("--root", type=pathlib.Path, default="/", help="root with the packages of the libraries")
    parser.add_argument("--check", type=pathlib.Path, metavar="FOLDER", help="print what FOLDER needs of the system")
    args = parser.parse_args()
    if args.check:
        check(args.check)
    elif args.build and args.out:
        make(args)
        check(args.out)
    else:
        parser.error("give --build and --out, or --check")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except elf.ElfError as e:
        fail(e)
