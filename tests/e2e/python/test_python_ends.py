# SPDX-License-Identifier: Apache-2.0
# run: beside-others
"""The Python package: errors, modes, aborts, and how a communicator ends."""

import importlib
import pathlib
import signal
import subprocess
import sys
import unittest
import unittest.mock

import harness
from test_python_api import program


class Errors(unittest.TestCase):
    def test_mismatch(self):
        with harness.Cluster() as c:
            c.run(2, program("""
                exc = raises(reduction.MismatchError, "all-reduce", comm.all_reduce, np.zeros(3 + rank, "float32"))
                assert exc.code == -5 and "rank 0" in str(exc) and "rank 1" in str(exc), exc
                raises(reduction.MismatchError, str(exc), comm.barrier)    # and ever after
                import pickle
                again = pickle.loads(pickle.dumps(exc))
                assert (type(again), again.code, str(again)) == (type(exc), exc.code, str(exc))
            """, end=""))

    def test_names_are_compared(self):
        with harness.Cluster() as c:
            c.run(2, program("""
                raises(reduction.MismatchError, "", comm.all_reduce, np.zeros(3), name=f"tensor {rank}")
            """, end=""))

    def test_priorities_of_broadcasts_are_compared(self):
        with harness.Cluster() as c:
            c.run(2, program("""
                raises(reduction.MismatchError, "gave it priority", comm.broadcast, np.zeros(3), priority=rank)
            """, end=""))

    def test_with_block_keeps_the_first_error(self):
        with harness.Cluster() as c:
            c.run(2, program("""
                def body():
                    with comm:
                        comm.all_reduce(np.zeros(3 + rank))
                raises(reduction.MismatchError, "", body)
                assert comm.closed
            """, end=""))

    def test_opening(self):
        code = """
            import reduction
            for options, kind, text in (
                (dict(config="/nowhere.yaml"), reduction.ReductionError, "/nowhere.yaml"),
                (dict(agent="/nowhere.sock", connect_timeout=0.3), reduction.ReductionError, "/nowhere.sock"),
                (dict(rank=5, world_size=2), reduction.ReductionError, "5"),
                (dict(rank=0, world_size=2, connect_timeout=0.3), reduction.ReductionTimeoutError, "test"),
            ):
                try:
                    reduction.Communicator(**options)
                    raise AssertionError(f"no error for {options}")
                except kind as exc:
                    assert text in str(exc), exc
        """
        with harness.Cluster() as c:
            c.run(1, harness.python(code))
            c.run(1, harness.python("""
                import reduction
                try:
                    reduction.Communicator()
                    raise AssertionError("no error")
                except reduction.ConfigError as exc:
                    assert exc.code == -10 and "RANK" in str(exc) and "three" in str(exc), exc
            """), env={"RANK": "three"})

    def test_after_fork(self):
        with harness.Cluster() as c:
            c.run(2, program("""
                pid = os.fork()
                if pid == 0:
                    try:
                        raises(reduction.ReductionError, "before a fork", comm.all_reduce, np.zeros(3))
                        os._exit(7)
                    finally:
                        os._exit(1)
                assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
                same(comm.all_reduce(np.ones(2)), [2, 2])
            """))

    @unittest.skipIf(harness.SAN, "a library of another name is not what the sanitizer is about")
    def test_library(self):
        def attempt(env):
            code = "import reduction\ntry: reduction.library_version()\nexcept reduction.LibraryError as e: print(e)"
            full = {"PYTHONPATH": str(harness.ROOT / "agent" / "python"), **env}
            done = subprocess.run([harness.PYTHON, "-c", code], env=full, capture_output=True, text=True, check=True)
            return done.stdout

        found = attempt({"REDUCTION_LIBRARY": "/nowhere.so"})
        self.assertIn("REDUCTION_LIBRARY names /nowhere.so, which cannot be loaded", found)
        self.assertIn("has no function reduction_", attempt({"REDUCTION_LIBRARY": "libc.so.6"}))


class Modes(unittest.TestCase):
    def test_modes(self):
        """Two ranks of one node; the way that they take shows in who sums."""
        with harness.Cluster(agents=1) as c:
            socket = c.socket_path(0)
            for env, options, summed_by in (
                (harness.reach(""), dict(mode="direct"), "reducers"),
                (harness.reach(socket), dict(mode="direct"), "reducers"),
                (harness.reach("direct"), dict(mode="node"), "node"),
                (harness.reach("direct"), dict(agent=socket), "node"),
                (harness.reach(socket), dict(mode="agent"), "node"),
                (harness.reach("node"), {}, "node"),
                (harness.reach("direct"), dict(mode="auto", agent=socket), "node"),
            ):
                with self.subTest(env=env, options=options):
                    procs = c.run(2, harness.python(f"""
                        import numpy, reduction
                        with reduction.Communicator(**{options!r}) as comm:
                            assert comm.all_reduce(numpy.ones(3))[0] == 2
                    """), env=env)
                    self.assertIn(f"summed_by={summed_by}", procs[0].err)

    def test_mistakes(self):
        with harness.Cluster() as c:
            c.run(1, harness.python("""
                import reduction
                for options, kind, text in (
                    (dict(mode="Direct"), ValueError, "mode 'Direct' is unknown; known are auto, agent, node, direct"),
                    (dict(agent="direct"), reduction.ReductionError, "to choose a mode, set mode"),
                    (dict(agent="/x", mode="node"), reduction.ReductionError, "leave one of them out"),
                ):
                    try:
                        reduction.Communicator(**options)
                        raise AssertionError(f"no error for {options}")
                    except kind as exc:
                        assert text in str(exc), exc
            """))


class Abort(unittest.TestCase):
    """comm.abort(), through reducers that are far, stopped, or not needed. See test_abort.c."""

    def test_while_others_wait(self):
        code = """
            import time
            def body():
                exc = raises(reduction.AbortedError, "", comm.all_reduce, np.zeros(1 << 20))
                said.append(str(exc))
            said = []
            comm.barrier()
            if rank == 1:
                thread = threading.Thread(target=body)
                thread.start()
                comm.abort("the loss is NaN")
                comm.abort("another reason")                # no effect
                thread.join()
            else:
                body()
            exc = raises(reduction.AbortedError, " aborted the job: the loss is NaN", comm.barrier)
            assert exc.code == -15 and str(exc).startswith("rank 1 (pid "), exc
            assert said == [str(exc)], said
            comm.close()
            comm.abort("too late")
            print("closed", flush=True)
        """
        for way in ("direct", "node", "agent"):
            with self.subTest(way), harness.Cluster(reducers=2, agents=int(way == "agent")) as c:
                env = harness.reach(c.socket_path(0) if c.agents else way)
                c.run(3, program(code, end=""), env=env)

    def test_a_thread_that_waits_to_start(self):
        """It holds the lock of the order of operations."""
        with harness.Cluster(config={"job": {"max_ops": 4}}) as c:
            c.run(2, program("""
                if rank == 0:
                    os.mkfifo("fifo")
                comm.barrier()
                if rank == 0:
                    def body():
                        raises(reduction.AbortedError, "enough", lambda: [
                            comm.all_reduce(np.zeros(3), async_op=True) for _ in range(9)])
                    thread = threading.Thread(target=body)
                    thread.start()
                    while len(comm._pending) < 4:
                        time.sleep(0.001)
                    comm.abort("enough")
                    thread.join()
                    open("fifo", "w").close()
                else:
                    open("fifo").close()                    # until rank 0 has aborted
                comm.close()
            """, end=""))

    def test_the_reducer_stands_still(self):
        """The operation ends at once all the same, and close() does not wait for long."""
        with harness.Cluster() as c:
            code = """
                comm.barrier()
                print("here", flush=True)
                sys.stdin.readline()
                request = comm.all_reduce(np.zeros(1 << 24, "float32"), async_op=True)
                raises(reduction.ReductionTimeoutError, "", request.wait, 0.2)
                started = time.monotonic()
                comm.abort()
                raises(reduction.AbortedError, "rank 0 (pid ", request.wait, 60)
                comm.close()
                assert time.monotonic() - started < 20
            """
            worker = c.start_worker(0, 1, program(code, end=""))
            worker.wait_text("here", stream="out")
            c.reducers[0].signal(signal.SIGSTOP)
            worker.tell()
            self.assertEqual(worker.wait(60), 0, worker.report())
            c.reducers[0].signal(signal.SIGCONT)

    def test_the_agent_stands_still(self):
        """Its socket is full of messages: the rank does not wait for it, and the others learn of it later."""
        with harness.Cluster(agents=1, config={"job": {"max_ops": 2000}, "timeouts": {"detect": "120s"}}) as c:
            code = """
                comm.barrier()
                if rank == 1:
                    raises(reduction.AbortedError, "rank 0 (pid ", lambda: [
                        comm.all_reduce(np.zeros(0)) for _ in range(10000)])
                else:
                    print("here", flush=True)
                    sys.stdin.readline()
                    buffer = np.zeros(0)                    # needs no shared memory, for which it would wait
                    def body():
                        raises(reduction.AbortedError, "full", lambda: [
                            comm.all_reduce(buffer, async_op=True) for _ in range(3000)])
                    thread = threading.Thread(target=body)
                    thread.start()
                    before = -1
                    while len(comm._pending) > before:      # until a send waits
                        before = len(comm._pending)
                        time.sleep(0.5)
                    started = time.monotonic()
                    comm.abort("full")
                    thread.join()
                    comm.close()
                    assert time.monotonic() - started < 20
                    print("closed", before, flush=True)
            """
            workers = c.start_workers(2, program(code, end=""))
            workers[0].wait_text("here", stream="out")
            c.agents[0].signal(signal.SIGSTOP)
            workers[0].tell()
            workers[0].wait_text("closed", stream="out")
            c.agents[0].signal(signal.SIGCONT)
            for w in workers:
                self.assertEqual(w.wait(60), 0, w.report())


class Ends(unittest.TestCase):
    """How a program ends must not look like a loss to others, nor leave it hanging."""

    def test_left_open(self):
        # rank 1 ends without close(); rank 0 must be able to end as well, and nothing
        # hangs
        with harness.Cluster() as c:
            for p in c.run(2, program("same(comm.all_reduce(np.ones(2)), [2, 2])", end="")):
                self.assertNotIn("lost", p.err)
            self.assertNotIn("lost", c.reducers[0].err)

    def test_collected(self):
        with harness.Cluster() as c:
            c.run(2, program("""
                import warnings
                comm.all_reduce(np.ones(2))
                with warnings.catch_warnings(record=True) as found:
                    warnings.simplefilter("always")
                    del comm
                    gc.collect()
                assert [w.category for w in found] == [ResourceWarning], found
            """, end=""))

    def test_interrupt(self):
        # Ctrl-C while waiting for another rank to come, and while waiting for its
        # operation
        opening = """
            import reduction
            try:
                print("waiting", flush=True)
                reduction.Communicator()
            except KeyboardInterrupt:
                print("interrupted")
        """
        operation = """
            import threading, numpy, reduction
            comm = reduction.Communicator()
            if comm.rank == 1:
                threading.Event().wait()
            try:
                print("waiting", flush=True)
                comm.all_reduce(numpy.ones(3))
            except KeyboardInterrupt:
                print("interrupted")
        """
        for name, code, others in (("opening", opening, 0), ("operation", operation, 1)):
            with self.subTest(name), harness.Cluster() as c:
                procs = [c.start_worker(rank, 2, harness.python(code)) for rank in range(1 + others)]
                procs[0].wait_text("waiting", stream="out")
                procs[0].signal(signal.SIGINT)
                self.assertEqual(procs[0].wait(20), 0, procs[0].report())
                self.assertIn("interrupted", procs[0].out)


class Place(unittest.TestCase):
    def test_a_machine_without_boot_id(self):
        """systemd's ProcSubset=pid hides it; the network cards and the machine's id are not hidden."""
        sys.path.insert(0, str(harness.ROOT / "agent/python"))
        place = importlib.import_module("reduction.torch_place")  # it does not import torch
        said, read = place._node(), pathlib.Path.read_text

        def without(path, **how):
            if path.name == "boot_id":
                raise FileNotFoundError(path)
            return read(path, **how)

        with unittest.mock.patch.object(pathlib.Path, "read_text", without):
            self.assertEqual(place._node(), place._node())
            self.assertNotEqual(place._node(), said)


class Forked(unittest.TestCase):
    def test_ranks_that_just_return(self):
        """multiprocessing ends forked processes without atexit: they leave all the same, and are not lost."""
        code = """
            import multiprocessing, numpy
            import reduction
            def work():
                comm = reduction.Communicator()
                comm.all_reduce(numpy.ones(3))
            child = multiprocessing.get_context("fork").Process(target=work)
            child.start()
            child.join()
            assert child.exitcode == 0
        """
        with harness.Cluster() as c:
            c.run(2, harness.python(code))
            c.reducers[0].wait_text("job-closed")
            self.assertNotIn("rank-lost", c.reducers[0].err)


if __name__ == "__main__":
    harness.main()
