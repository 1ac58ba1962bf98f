# SPDX-License-Identifier: Apache-2.0
"""Starts MPI programs with libreduction-mpi.so, on one machine."""

import pathlib
import shutil
import signal
import subprocess
import time

import harness

SHIM = harness.BUILD / "lib/libreduction-mpi.so"
BEGIN_S = 25  # a few percent of all launches of Open MPI and MPICH hang before the program begins
ATTEMPTS = 4
END_S = 20


def end(p):
    """Ends a launcher with its ranks: one that is killed leaves them running."""
    p.signal(signal.SIGTERM)
    for _ in range(50):
        if not p.running():
            break
        p.wait_more(0.1)
    p.kill()


def hangs_at_its_end(p, timeout):
    """Waits until the program ends. Returns True if it does not, though all is done: a few percent of MPICH's programs
    hang in MPI_Finalize, after the line that the library writes there."""
    until, done = time.monotonic() + timeout * harness.SCALE, None
    while p.running() and time.monotonic() < until:
        p.wait_more(0.1)
        if not done and p.name == "MPICH" and "\nok " in p.out and "through reducers" in p.err:
            done = time.monotonic()
        if done and time.monotonic() - done > END_S * harness.SCALE:
            return True
    return False


class Launcher:
    """An MPI: how it starts programs. `program` is tests/mpi/table for it, `fortran` its compiler."""

    def __init__(self, name, command, program, fortran):
        self.name, self.command, self.program, self.fortran = name, command, program, fortran

    def missing(self):
        """What is not there; empty: nothing."""
        for needed in (self.command[0], self.program):
            if not shutil.which(needed):
                return f"{self.name}: {needed} is not there"
        return ""

    def _ranks(self, n, env):
        """The part of the command line for n ranks with these variables."""
        raise NotImplementedError

    def argv(self, ranks, args, program=None):
        """ranks: pairs of a number and its variables."""
        command = [str(word) for word in program] if program else [self.program]
        parts = [[*self._ranks(n, env), *command, *args] for n, env in ranks]
        return [*self.command, *[word for part in parts for word in [":", *part]][1:]]

    def start(self, cluster, ranks, *args, program=None):
        """Starts a program. ranks: their number, or pairs of a number and its variables. Returns when it has begun."""
        ranks = [(ranks, {})] if isinstance(ranks, int) else ranks
        base = {"LD_PRELOAD": SHIM, "REDUCTION_CONFIG": cluster.write_config("mpi.yaml")}
        full = [(n, {k: str(v) for k, v in {**base, **env}.items() if v is not None}) for n, env in ranks]
        for _ in range(ATTEMPTS):
            env = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "TMPDIR": str(cluster.dir)}
            p = cluster.start(self.name, self.argv(full, [str(a) for a in args], program), env)
            for _ in range(BEGIN_S * 10):
                if "begun" in p.out or not p.running():
                    return p
                p.wait_more(0.1)
            end(p)
        raise AssertionError(f"{self.name}: {ATTEMPTS} launches hung\n{p.report()}")


class OpenMPI(Launcher):
    def _ranks(self, n, env):
        return ["-n", str(n), *[word for k, v in env.items() for word in ("-x", f"{k}={v}")]]


class Mpich(Launcher):
    def _ranks(self, n, env):
        return ["-n", str(n), *[word for k, v in env.items() for word in ("-env", k, v)]]


# MPI's ranks poll: with more ranks than processors they must give way
OPEN_MPI = ["--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1",
            "--mca", "btl_vader_single_copy_mechanism", "none"]  # fmt: skip


def table(name):
    return str(pathlib.Path(harness.BUILD, "tests/mpi", name))


LAUNCHERS = [
    OpenMPI("Open MPI", ["mpirun.openmpi", *OPEN_MPI], table("table-openmpi"), "mpif90.openmpi"),
    Mpich("MPICH", ["mpiexec.hydra"], table("table-mpich"), "mpif90.mpich"),
]


def of_mpi4py():
    """Returns the launcher of the MPI that mpi4py of harness.PYTHON loads: that of PyPI, which lies beside that Python,
    or Debian's. None: there is no mpi4py, or no launcher."""
    find = "from mpi4py import MPI; print(MPI.Get_library_version())"
    try:
        found = subprocess.run([harness.PYTHON, "-c", find], capture_output=True, text=True, timeout=60 * harness.SCALE)
    except subprocess.TimeoutExpired:
        return None
    if found.returncode:
        return None
    ompi = "Open MPI" in found.stdout
    beside = pathlib.Path(harness.PYTHON).with_name("mpiexec")
    command = str(beside) if beside.exists() else "mpirun.openmpi" if ompi else "mpiexec.hydra"
    if not shutil.which(command):
        return None
    program = str(harness.ROOT / "tests/mpi/program.py")
    if ompi:
        return OpenMPI("mpi4py", [command, "--oversubscribe", "--bind-to", "none"], program, "")
    return Mpich("mpi4py", [command], program, "")
