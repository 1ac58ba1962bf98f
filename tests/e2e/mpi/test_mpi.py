#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan
"""Unmodified MPI programs with libreduction-mpi.so: every element of every result is checked (tests/mpi/table.c), with
Debian's Open MPI and MPICH where they are installed."""

import re
import shutil
import subprocess
import unittest

import harness
import mpi

REQUIRED = {"REDUCTION_MPI": "required"}
DIRECT = {**REQUIRED, "REDUCTION_MODE": "direct"}  # one machine: without it the node sums by itself
LATE = {"LD_PRELOAD": f"{mpi.SHIM}:{harness.BUILD / 'tests/e2e/shim_late.so'}"}


@unittest.skipIf(harness.SAN, "the sanitizers' library must be the first that is loaded")
class Programs(unittest.TestCase):
    def each(self):
        """The MPIs that are there. The test is skipped if there is none."""
        found = [m for m in mpi.LAUNCHERS if not m.missing()]
        if not found:
            self.skipTest("; ".join(m.missing() for m in mpi.LAUNCHERS))
        return found

    def cluster(self, **more):
        return harness.Cluster(**{"reducers": 2, "config": {"timeouts": {"connect": "30s"}}, **more})

    def end(self, p, status=0, timeout=120):
        if status == 0 and mpi.hangs_at_its_end(p, timeout):
            mpi.end(p)
        else:
            self.assertEqual(p.wait(timeout) == 0, status == 0, p.report())
        return p

    def taken(self, p):
        """The numbers of calls that went through reducers and that were passed on."""
        found = re.search(r"^reduction-mpi: (\d+) calls? \(.*?\) through reducers, (\d+) calls? ", p.err, re.M)
        self.assertTrue(found, p.report())
        return int(found[1]), int(found[2])

    def test_table(self):
        """All types, operations, sizes and communicators, blocking and not, in place and not."""
        for m in self.each():
            with self.subTest(m.name), self.cluster() as c:
                p = self.end(m.start(c, [(3, DIRECT)]))
                self.assertIn("ok 1413 checks", p.out)
                self.assertEqual(self.taken(p), (358, 1055), p.report())
                self.assertRegex(c.reducers[0].err, r"job-started job=test generation=0 run=mpi-\w+ world_size=3")
                self.assertRegex(c.reducers[0].err, r"job-started job=test@\w+ generation=0 run=mpi-\w+ world_size=2")

    def test_permitted(self):
        """Ranks store a matrix in another order, in types without gaps. A communicator is freed before the program
        waits for its operation."""
        for m in self.each():
            with self.subTest(m.name), self.cluster() as c:
                p = self.end(m.start(c, [(3, DIRECT)], "permitted"))
                self.assertIn("ok 10 checks", p.out)
                self.assertEqual(self.taken(p), (10, 0), p.report())

    def test_single_threaded(self):
        """Without MPI_THREAD_MULTIPLE non-blocking calls stay with MPI."""
        for m in self.each():
            with self.subTest(m.name), self.cluster() as c:
                p = self.end(m.start(c, [(3, DIRECT)], "single"))
                self.assertIn("ok 1413 checks", p.out)
                self.assertIn("172 non-blocking without MPI_THREAD_MULTIPLE", p.err)

    def test_threads(self):
        for m in self.each():
            with self.subTest(m.name), self.cluster() as c:
                p = self.end(m.start(c, [(3, DIRECT)], "threads"))
                self.assertIn("ok 120 checks", p.out)
                self.assertEqual(self.taken(p), (78, 42), p.report())

    def test_one_node(self):
        """By default one node stays with MPI; if reducers are required, the ranks share memory."""
        for m in self.each():
            with self.subTest(m.name), self.cluster() as c:
                p = self.end(m.start(c, 3))
                self.assertIn("358 on a communicator of one node", p.err)
                p = self.end(m.start(c, [(3, REQUIRED)]))
                self.assertEqual(self.taken(p), (358, 1055), p.report())
                self.assertRegex(p.err, "nodes=1 summed_by=node")

    def test_two_nodes(self):
        """Ranks 0 and 2 are on one node, 1 and 3 on another: each node sums first, and is one worker to the reducers.
        With a rank more the nodes have different sizes."""
        for m in self.each():
            for n in (4, 5):
                with self.subTest(m.name, ranks=n), self.cluster() as c:
                    p = self.end(m.start(c, [(n, {"TABLE_NODES": "2"})], "few"))
                    self.assertEqual(self.taken(p), (51, 102), p.report())
                    self.assertRegex(c.reducers[0].err, r"job-started job=test generation=0 run=mpi-\w+ world_size=2")

    def compile_fortran(self, m, c, way, *options):
        """Compiles table.F90. Returns the program."""
        program = c.dir / f"fortran{way}"
        subprocess.run([m.fortran, "-O1", f"-DWAY={way}", "-fallow-argument-mismatch", *options, "-o", program,
                        harness.ROOT / "tests/mpi/table.F90"], check=True, capture_output=True, cwd=c.dir)  # fmt: skip
        return program

    def test_fortran(self):
        """mpif.h, `use mpi` and `use mpi_f08`: each has other entry points."""
        found = [m for m in self.each() if shutil.which(m.fortran) and shutil.which("gfortran")]
        if not found:
            self.skipTest("gfortran is not installed")
        for m in found:
            with self.cluster() as c:
                for way, name in ((1, "mpif.h"), (2, "mpi"), (3, "mpi_f08")):
                    with self.subTest(m.name, way=name):
                        p = self.end(m.start(c, [(3, DIRECT)], program=[self.compile_fortran(m, c, way)]))
                        self.assertIn("ok 6 checks", p.out)
                        self.assertEqual(self.taken(p), (5, 1), p.report())

    def test_fortran_module(self):
        """A program that is not linked with MPI loads a library that is, as Python loads its modules."""
        found = [m for m in self.each() if shutil.which(m.fortran) and shutil.which("gfortran")]
        if not found:
            self.skipTest("gfortran is not installed")
        for m in found:
            with self.subTest(m.name), self.cluster() as c:
                module = self.compile_fortran(m, c, 1, "-shared", "-fPIC")
                load = f"import ctypes; ctypes.CDLL('{module}').main(0, None)"
                p = self.end(m.start(c, [(3, DIRECT)], program=["/usr/bin/python3", "-c", load]))
                self.assertIn("ok 6 checks", p.out)
                self.assertEqual(self.taken(p), (5, 1), p.report())

    def test_an_agent_alone(self):
        """A node's agent knows the reducers: the ranks need no file."""
        for m in self.each():
            with self.subTest(m.name), self.cluster(agents=1) as c:
                env = REQUIRED | {"REDUCTION_CONFIG": None, "REDUCTION_AGENT": c.socket_path(0)}
                p = self.end(m.start(c, [(2, env)], "errors"))
                self.assertEqual(self.taken(p), (1, 0), p.report())

    def test_too_many_communicators(self):
        """The reducers refuse one job more: after a short time MPI does the work of its communicator."""
        for m in self.each():
            with (
                self.subTest(m.name),
                self.cluster(config={"timeouts": {"connect": "10min"}}, server_config={"server": {"max_jobs": 2}}) as c,
            ):
                env = {"REDUCTION_MODE": "direct", "TABLE_NODES": "2"}
                p = self.end(m.start(c, [(2, env)], "many", 3))
                self.assertEqual(self.taken(p), (3, 1), p.report())
                self.assertRegex(p.err, "MPI itself does the work of a communicator: .*server.max_jobs")

    def test_off(self):
        for m in self.each():
            with self.subTest(m.name), self.cluster(start=False) as c:
                p = self.end(m.start(c, [(2, {"REDUCTION_MPI": "off"})], "errors"))
                self.assertEqual(p.out.count(": success"), 2)
                self.assertNotIn("reduction-mpi", p.err)

    def lose_a_reducer(self, m, c, *args, program=None):
        """Nobody notices: all sums are right, and the program ends well."""
        p = m.start(c, [(3, DIRECT)], *args, program=program)
        p.wait_text("round 20\n", 60, stream="out")
        c.reducers[1].kill()
        self.end(p)
        self.assertRegex(p.out, r"ok \d+ checks")
        self.assertIn("reducer-lost reducer=r1", p.err)
        self.assertGreater(self.taken(p)[0], 20)

    def test_a_reducer_is_killed(self):
        for m in self.each():
            with self.subTest(m.name), self.cluster() as c:
                self.lose_a_reducer(m, c, "loop", 4)

    def test_a_reducer_of_fortran_is_killed(self):
        found = [m for m in self.each() if shutil.which(m.fortran) and shutil.which("gfortran")]
        if not found:
            self.skipTest("gfortran is not installed")
        for m in found:
            with self.subTest(m.name), self.cluster() as c:
                self.lose_a_reducer(m, c, "loop", program=[self.compile_fortran(m, c, 2)])

    def test_a_reducer_of_mpi4py_is_killed(self):
        m = mpi.of_mpi4py()
        if m is None:
            self.skipTest("no mpi4py: set REDUCTION_TEST_PYTHON to a Python that has it, as make mpi-versions makes")
        with self.cluster() as c:
            self.lose_a_reducer(m, c, "loop", 4, program=[harness.PYTHON, m.program])

    def test_unreachable(self):
        """Only one rank does not reach the reducers: all ranks fall back, or all get an error."""
        for m in self.each():
            with self.subTest(m.name), self.cluster(config={"timeouts": {"connect": "2s"}}) as c:
                bad = {"REDUCTION_CONFIG": str(c.dir / "none.yaml")}
                for use, result, text in (
                    ("auto", "success", "MPI itself does the work of a communicator: "),
                    ("required", "error", "REDUCTION_MPI is required, and the reducers cannot be used: "),
                ):
                    env = {"REDUCTION_MODE": "direct", "REDUCTION_MPI": use, "TABLE_NODES": "2"}
                    p = self.end(m.start(c, [(2, env), (1, env | bad)], "errors"))
                    self.assertEqual(p.out.count(f": {result}\n"), 3, p.report())
                    self.assertRegex(p.err, rf"reduction-mpi: rank 2: {text}.*none\.yaml")

    def test_unequal_settings(self):
        for m in self.each():
            with self.subTest(m.name), self.cluster(start=False) as c:
                auto = {**DIRECT, "REDUCTION_MPI": "auto"}
                for env, result in ((auto, "success"), (DIRECT, "error")):
                    p = self.end(m.start(c, [(2, env), (1, auto | {"REDUCTION_DETERMINISTIC": "0"})], "errors"))
                    self.assertEqual(p.out.count(f": {result}\n"), 3, p.report())
                    self.assertIn("different values of REDUCTION_MPI", p.err)

    def test_required_ends_the_program(self):
        for m in self.each():
            with self.subTest(m.name), self.cluster(start=False, config={"timeouts": {"connect": "1s"}}) as c:
                p = self.end(m.start(c, [(1, DIRECT | LATE), (1, DIRECT)]), 1)
                self.assertRegex(p.err, r"reduction-mpi: rank 0: REDUCTION_MPI is required, and the reducers cannot be "
                                        r"used: .*127\.0\.0\.1")  # fmt: skip

    def test_without_configuration(self):
        for m in self.each():
            with self.subTest(m.name), self.cluster(start=False) as c:
                none = {"REDUCTION_CONFIG": None}
                p = self.end(m.start(c, [(2, none)], "errors"))
                self.assertIn("1 because REDUCTION_CONFIG is not set on all ranks", p.err)
                p = self.end(m.start(c, [(1, REQUIRED | none | LATE), (1, REQUIRED | none)]), 1)
                self.assertIn("REDUCTION_MPI is required, but REDUCTION_CONFIG is not set on all ranks", p.err)

    def test_wrong_settings(self):
        """The first rank that finds it ends the program, which may be any."""
        for m in self.each():
            with self.subTest(m.name), self.cluster(start=False) as c:
                for name, expected in (("REDUCTION_MPI", "off, auto or required"),
                                       ("REDUCTION_MPI_MIN_BYTES", "a number of bytes")):  # fmt: skip
                    p = self.end(m.start(c, [(2, {name: "1k"})], "errors"), 1)
                    self.assertRegex(p.err, fr'rank \d: {name} is "1k", {expected}')

    def test_a_rank_without_the_library(self):
        """It cannot take part; the others say what is wrong, and no wrong sum comes out."""
        for m in self.each():
            with self.subTest(m.name), self.cluster(start=False) as c:
                p = m.start(c, [(1, {}), (1, {"LD_PRELOAD": None})], "errors")
                p.wait_text("rank 0: waits for the other ranks of a communicator since 10 s. Do all ranks", 30)
                mpi.end(p)
                self.assertNotIn("success", p.out)


if __name__ == "__main__":
    harness.main()
