#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Runs MPI programs with libreduction-mpi.so on several MPI libraries from PyPI, and prints a table of them.

    tests/mpi/versions.py --build build/default      # all: 400 MB of virtual environments, some minutes
    tests/mpi/versions.py --build build/default impi-rt

mpi4py runs program.py of this folder, C runs table.c, also on the standard ABI of MPI 5 (libmpi_abi.so): every element
of every result is checked, and most of them must have gone through reducers. mpi4py also runs while one of the two
reducers is killed. Fortran runs table.F90, with the packages that have its library. The environments are made with uv
in --cache, and stay there. Without uv or PyPI it says so and ends with status 0.
"""

import argparse
import contextlib
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

FOLDER = pathlib.Path(__file__).resolve().parent
RANKS = 3
LIMIT_S = 180
MPICH5 = "mpich==5.0.*"
PACKAGES = {"mpich4": "mpich==4.3.*", "mpich5": MPICH5, "openmpi": "openmpi==5.*", "impi-rt": "impi-rt"}
HEADERS = {"mpich4": "mpich4", "mpich5": "mpich5", "openmpi": "openmpi", "impi-rt": "mpich4"}  # Intel's are MPICH's
KILLED = "mpi4py, reducer killed"
FORTRAN = ("impi-rt",)  # has Fortran's library
ABI = ("mpich5", "impi-rt")  # have libmpi_abi.so.1
LINE = re.compile(r"^reduction-mpi: (\d+) calls? \(.*?\) through reducers", re.M)


def skip(text):
    print(f"mpi-versions: skipped: {text}")
    raise SystemExit(0)


def install(cache, name):
    """Makes a virtual environment with this MPI and mpi4py. Returns its folder."""
    folder = cache / name
    if (folder / "ready").exists():
        return folder
    commands = (["uv", "venv", "-q", "--clear", "--python", "/usr/bin/python3", folder],
                ["uv", "pip", "install", "-q", "--python", folder / "bin/python", PACKAGES[name], "mpi4py", "numpy"])
    for argv in commands:  # fmt: skip
        done = subprocess.run(argv, capture_output=True, text=True, timeout=600)
        if done.returncode:
            skip(f"{PACKAGES[name]} cannot be installed: {done.stderr.strip()[-300:]}")
    (folder / "ready").touch()
    return folder


def compile_table(cache, name, abi):
    """Compiles table.c for an MPI, with the headers of a package that has some. Returns the program."""
    headers, libraries = cache / HEADERS["mpich5" if abi else name], cache / name / "lib"
    include = headers / "include"
    if abi:  # its header has another name
        include = cache / "abi"
        include.mkdir(exist_ok=True)
        shutil.copyfile(headers / "include/mpi_abi.h", include / "mpi.h")
    library = next(libraries.glob("libmpi_abi.so.?" if abi else "libmpi.so.??"))
    program = cache / f"table-{name}{'-abi' if abi else ''}"
    subprocess.run(["cc", "-O1", "-rdynamic", f"-I{include}", "-o", program, FOLDER / "table.c", library, "-pthread",
                    f"-Wl,-rpath,{libraries}", "-Wl,--allow-shlib-undefined"], check=True)  # fmt: skip
    return program


def compile_fortran(cache, name):
    """Compiles table.F90 with the mpif.h of Debian's MPICH, whose ABI Intel's library has. Returns the program; None:
    no compiler."""
    if not shutil.which("mpif90.mpich") or not shutil.which("gfortran"):
        return None
    shown = subprocess.run(["mpif90.mpich", "-show"], check=True, capture_output=True, text=True).stdout.split()
    libraries, program = cache / name / "lib", cache / f"table-{name}-fortran"
    subprocess.run(["gfortran", "-cpp", "-O1", "-w", "-DWAY=1", "-fallow-argument-mismatch",
                    *[word for word in shown if word.startswith("-I")], "-o", program, FOLDER / "table.F90",
                    "-Wl,--no-as-needed", libraries / "libmpifort.so.12", libraries / "libmpi.so.12",
                    f"-Wl,-rpath,{libraries}", "-Wl,--allow-shlib-undefined"], check=True)  # fmt: skip
    return program


def kill_at(text, reducer, out, program):
    """Kills a reducer when the program has written the text to the file `out`."""
    until = time.monotonic() + LIMIT_S
    while text not in out.read_text() and program.poll() is None and time.monotonic() < until:
        time.sleep(0.05)
    reducer.kill()


def launch(folder, name, shim, config, program, least, kill=None):
    """Runs a program, of which at least so many calls go through reducers, and kills the reducer `kill` in its 20th
    round. Returns what is wrong; empty: nothing."""
    env = {"LD_PRELOAD": shim, "REDUCTION_CONFIG": config, "REDUCTION_MPI": "required", "REDUCTION_MODE": "direct"}
    if name == "openmpi":
        argv = ["--oversubscribe", "--bind-to", "none", "-n", str(RANKS)]
        argv += [word for k, v in env.items() for word in ("-x", f"{k}={v}")]
    else:
        argv = ["-n", str(RANKS), *[word for k, v in env.items() for word in ("-genv", k, str(v))]]
    more = {"PATH": f"{folder}/bin:/usr/bin:/bin", "HOME": str(folder), "I_MPI_FABRICS": "shm", "PYTHONUNBUFFERED": "1",
            "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}  # fmt: skip
    out, err = config.with_name("out"), config.with_name("err")
    with out.open("w") as to, err.open("w") as errors:
        p = subprocess.Popen([folder / "bin/mpiexec", *argv, *program], stdout=to, stderr=errors, env=more)
        if kill:
            kill_at("round 20\n", kill, out, p)
        try:
            p.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            p.terminate()
            p.wait()
            return f"not done after {LIMIT_S} s"
    said, errors = out.read_text(), err.read_text()
    taken = LINE.search(errors)
    if p.returncode or not re.search(r"^ok \d+ checks", said, re.M):
        return f"status {p.returncode}: {(said + errors).strip()[-600:]}"
    if kill and "reducer-lost reducer=r1" not in errors:
        return "the reducer was not lost in the middle of the program"
    return "" if taken and int(taken[1]) >= least else f"too few calls went through reducers: {errors.strip()[-300:]}"


@contextlib.contextmanager
def reducers(build):
    """Two reducers: their processes and the file for the ranks."""
    processes, entries = [], []
    folder = pathlib.Path(tempfile.mkdtemp(prefix="reduction-"))
    try:
        start_reducers(build, folder, processes, entries)
        config = folder / "job.yaml"
        config.write_text(f"job: {{name: versions}}\nreducers: [{', '.join(entries)}]\n")
        yield processes, config
    finally:
        for p in processes:
            p.terminate()
            p.wait()
        shutil.rmtree(folder)


def start_reducers(build, folder, processes, entries):
    for i in range(2):
        log = folder / f"r{i}.log"
        processes.append(subprocess.Popen([build / "bin/reduction-server", "--listen", "127.0.0.1:0"],
                                          stderr=log.open("w")))  # fmt: skip
        while not (found := re.search(r"listening address=(\S+)", log.read_text())):
            if processes[-1].poll() is not None:
                raise SystemExit(f"mpi-versions: a reducer ended: {log.read_text()}")
            time.sleep(0.05)
        entries.append(f'{{id: r{i}, address: "{found[1]}"}}')


def ways_of(cache, name):
    """Returns the programs of an MPI: {how it is used: (the command, how many calls at least go through reducers)}. No
    command: there is none."""
    mpi4py = [cache / name / "bin/python", FOLDER / "program.py"]
    ways = {"mpi4py": (mpi4py, 200), KILLED: ([*mpi4py, "loop", "4"], 20)}
    ways["C"] = [compile_table(cache, name, False)], 200
    if name in ABI:
        ways["C, standard ABI"] = [compile_table(cache, name, True)], 200
    fortran = compile_fortran(cache, name) if name in FORTRAN else None
    ways["Fortran"] = [fortran] if fortran else None, 5
    return ways


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True, help="folder of the build")
    parser.add_argument("--cache", type=pathlib.Path, default="build/mpi-versions", help="virtual environments")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(PACKAGES)} (all)")
    args = parser.parse_args()
    if not shutil.which("uv"):
        skip("uv is not installed")
    if unknown := set(args.names) - set(PACKAGES):
        parser.error(f"{', '.join(unknown)}: known are {', '.join(PACKAGES)}")
    cache, build = args.cache.resolve(), args.build.resolve()
    cache.mkdir(parents=True, exist_ok=True)
    shim, failed = build / "lib/libreduction-mpi.so", False
    names = args.names or list(PACKAGES)
    for name in dict.fromkeys([*names, *(HEADERS[n] for n in names), "mpich5"]):
        install(cache, name)
    for name in names:
        for way, (program, least) in ways_of(cache, name).items():
            if not program:
                missing = "no compiler of Debian's MPICH" if name in FORTRAN else "the package has no Fortran library"
                print(f"{PACKAGES[name]:14} {way:24} skipped: {missing}", flush=True)
                continue
            with reducers(build) as (processes, config):
                kill = processes[1] if way == KILLED else None
                wrong = launch(cache / name, name, shim, config, program, least, kill)
            failed |= bool(wrong)
            print(f"{PACKAGES[name]:14} {way:24} {'FAIL ' + wrong if wrong else 'ok'}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
