# SPDX-License-Identifier: Apache-2.0
# run: beside-others
"""The Python package on numpy arrays: every form an array can have, requests, buffers, errors, and its ends.
"""

import importlib
import pathlib
import signal
import subprocess
import sys
import unittest
import unittest.mock

import harness

# what each worker program starts with
START = """
import os, sys, gc, threading, time
import numpy as np
import reduction
comm = reduction.Communicator()
rank, n = comm.rank, comm.world_size
def same(found, expected):
    assert np.array_equal(found, expected), f"found {found!r}, expected {expected!r}"
def raises(kind, text, call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except kind as exc:
        assert text in str(exc), f"{exc} has no {text!r}"
        return exc
    raise AssertionError(f"no {kind.__name__}")
"""


def program(code, end="comm.close()"):
    """A worker's command: START, the code, the end."""
    head, body, tail = harness.python(START), harness.python(code), harness.python(end)
    return head[:-1] + ["\n".join([head[-1], body[-1], tail[-1]])]


class Arrays(unittest.TestCase):
    def check(self, code, world_size=2, agents=0, **cluster):
        with harness.Cluster(reducers=2, agents=agents, **cluster) as c:
            return c.run(world_size, program(code))

    def test_dtypes(self):
        self.check("""
            for name in "int8 uint8 int32 uint32 int64 uint64 float16 float32 float64".split():
                x = np.arange(20).astype(name)
                assert comm.all_reduce(x) is x
                same(x, (2 * np.arange(20)).astype(name))
            raises(TypeError, "complex128 is not supported; supported are int8", comm.all_reduce, np.zeros(2, complex))
            raises(TypeError, "expected a numpy array or a torch tensor, got list", comm.all_reduce, [1, 2])
        """)

    def test_bits_of_bfloat16(self):
        self.check("""
            x = np.full(10, 0x3f80, "uint16")               # 1.0
            comm.all_reduce(x, dtype="bfloat16")
            same(x, np.full(10, 0x4000, "uint16"))          # 2.0
            y = np.full(10, 0x3c00, "int16")                # 1.0 as float16
            comm.all_reduce(y, dtype="float16")
            same(y, np.full(10, 0x4000, "int16"))
            raises(TypeError, "uint16 is not supported", comm.all_reduce, x)
            raises(TypeError, "float32 cannot be used as bfloat16", comm.all_reduce, np.zeros(2, "f4"),
                   dtype="bfloat16")
        """)

    def test_ops(self):
        self.check(
            """
            x = np.array([rank + 1, -rank, 5], "float64")
            results = dict(sum=[6, -3, 15], prod=[6, 0, 125], max=[3, 0, 5], min=[1, -2, 5], avg=[2, -1, 5])
            for op, expected in results.items():
                same(comm.all_reduce(x.copy(), op), np.array(expected, "float64"))
            raises(ValueError, "op 'mean' is unknown; known are sum, prod, max, min, avg", comm.all_reduce, x, "mean")
            """,
            world_size=3,
        )

    def test_layouts(self):
        self.check("""
            base = np.arange(24, dtype="float32").reshape(4, 6)
            for view in (lambda a: a, lambda a: a.T, lambda a: a[::2], lambda a: a[:, ::-1], lambda a: a[1:3, 2:5]):
                a = base.copy()
                assert np.shares_memory(comm.all_reduce(view(a)), a)
                expected = base.copy()
                view(expected)[...] *= 2
                same(a, expected)                           # and nothing beside the view changed
            foreign = base.astype(">f4")
            comm.all_reduce(foreign)
            assert foreign.dtype.byteorder == ">"
            same(foreign, 2 * base)
            scalar = np.array(3.0)
            same(comm.all_reduce(scalar), np.array(6.0))
            for shape in (0, (3, 0)):
                assert comm.all_reduce(np.zeros(shape)).shape == np.zeros(shape).shape
        """)

    def test_out(self):
        self.check("""
            x = np.arange(6, dtype="int32").reshape(2, 3)
            out = np.empty_like(x)
            assert comm.all_reduce(x, out=out) is out
            same(out, 2 * np.arange(6).reshape(2, 3))
            same(x, np.arange(6).reshape(2, 3))
            wide = np.zeros((2, 6), "int32")
            comm.all_reduce(x, out=wide[:, ::2])
            same(wide[:, ::2], 2 * x)
            assert not wide[:, 1::2].any()
            line = np.arange(10, dtype="int32")             # overlapping, but not the same
            comm.all_reduce(line[:8], out=line[2:])
            same(line, [0, 1] + [2 * i for i in range(8)])
            raises(ValueError, "shape (3, 2)", comm.all_reduce, x, out=np.zeros((3, 2), "int32"))
            raises(TypeError, "out has dtype int64 but the array has int32", comm.all_reduce, x, out=x.astype("int64"))
            x.flags.writeable = False
            same(comm.all_reduce(x, out=out), 2 * x)
            raises(ValueError, "read-only", comm.all_reduce, x)
        """)

    def test_broadcast_and_barrier(self):
        self.check(
            """
            for root in range(n):
                x = np.full((4, 5), rank, "int64")
                comm.broadcast(x.T, root)
                same(x, np.full((4, 5), root))
            raises(reduction.ReductionError, "3", comm.broadcast, x, 3)
            x = np.full(3, rank, "uint16")
            comm.broadcast(x, 1, dtype="bfloat16")
            same(x, [1, 1, 1])
            x = np.full(3, rank)
            same(comm.broadcast(x, 2, name="weights", priority=1), [2, 2, 2])
            same(comm.broadcast(x, 0, priority=0, async_op=True).wait(), [2, 2, 2])
            raises(ValueError, "priority is -1", comm.broadcast, x, priority=-1)
            comm.barrier()
            """,
            world_size=3,
        )

    def test_through_agents(self):
        self.check(
            """
            x = comm.empty_buffer((100, 3), "float32")
            same(x, np.zeros((100, 3)))
            x[:] = rank
            comm.all_reduce(x)
            same(x, np.full((100, 3), 6))
            y = np.full((3, 100), rank, "float64").T
            comm.all_reduce(y, "max")
            same(y, np.full((100, 3), 3))
            comm.broadcast(y, 2)
            stats = comm.stats()
            assert stats.tx_bytes > 600 and stats.rx_bytes > 600 and stats.ops_done >= 2, stats
            """,
            world_size=4,
            agents=2,
        )


class Requests(unittest.TestCase):
    def check(self, code, world_size=2, agents=0, **more):
        with harness.Cluster(agents=agents) as c:
            return c.run(world_size, program(code, **more))

    def test_many_in_flight(self):
        for agents in (0, 1):
            with self.subTest(agents=agents):
                self.check(
                    """
                    xs = [np.full(1000 + i, i, "float32") for i in range(50)]
                    requests = [comm.all_reduce(x, async_op=True, name=f"tensor {i}") for i, x in enumerate(xs)]
                    for i, r in reversed(list(enumerate(requests))):
                        assert r.wait() is xs[i] and r.done()
                        same(xs[i], np.full(1000 + i, 2 * i))
                        assert r.wait() is xs[i]            # again: the same
                    """,
                    agents=agents,
                )

    def test_timeout(self):
        self.check("""
            x = np.ones(4)
            if rank == 0:
                os.mkfifo("fifo")
            comm.barrier()
            if rank == 0:
                r = comm.all_reduce(x, async_op=True)
                assert not r.done()
                exc = raises(reduction.ReductionTimeoutError, "not done within 0.05 s", r.wait, 0.05)
                assert exc.code == -7 and isinstance(exc, TimeoutError)
                raises(reduction.ReductionTimeoutError, "", r.wait, 0)
                raises(reduction.ReductionTimeoutError, "", comm.barrier, 0.05)
                open("fifo", "w").close()
            else:
                open("fifo").close()                        # waits for rank 0
                r = comm.all_reduce(x, async_op=True)
                comm.barrier()
            same(r.wait(), [2, 2, 2, 2])
            comm.barrier()                                  # rank 0's first one is done as well then
        """)

    def test_starting_polls_only_the_oldest_request(self):
        self.check("""
            if rank == 0:
                os.mkfifo("fifo")
            comm.barrier()
            asked = []
            done = reduction.Request.done
            reduction.Request.done = lambda self: asked.append(self) or done(self)
            if rank == 1:
                open("fifo").close()                        # until rank 0 has 100 under way
            requests = [comm.all_reduce(np.ones(4), async_op=True) for _ in range(100)]
            if rank == 0:
                looks = len(asked)
                open("fifo", "w").close()
                assert looks <= 101, looks                  # the barrier is one that has ended
            for request in requests:
                same(request.wait(), [2, 2, 2, 2])
        """)

    def test_forgotten_requests(self):
        # the memory of an operation that the program forgot must live until the operation is done
        self.check("""
            for i in range(200):
                comm.all_reduce(np.full(5000, i, "float32"), async_op=True)
                if i % 20 == 0:
                    gc.collect()
            x = np.ones(3)
            same(comm.all_reduce(x), [2, 2, 2])
            assert len(comm._pending) < 200
        """)

    def test_interrupted(self):
        # Ctrl-C, which Python notices when a call of the library has returned: what the call did is not lost
        for function in ("reduction_all_reduce_tensor_async", "reduction_all_reduce_group_async"):
            self.interrupt(function)

    def interrupt(self, function):
        self.check("""
            import weakref
            class Interrupted:                              # its first call that has an effect
                def __init__(self, name):
                    self.lib, self.name = comm._lib, name
                def __getattr__(self, name):
                    return self.interrupted if name == self.name else getattr(self.lib, name)
                def interrupted(self, *args):
                    status = getattr(self.lib, self.name)(*args)
                    if status == 0:
                        comm._lib = self.lib
                        raise KeyboardInterrupt
                    return status
            waited = comm.all_reduce(np.ones(4), async_op=True)
            comm._lib = Interrupted("reduction_wait")
            raises(KeyboardInterrupt, "", waited.wait)
            first, second = (comm.all_reduce(np.ones(4), async_op=True) for _ in range(2))
            assert first._handle != second._handle, "the library got a request back twice"
            for request in (waited, first, second):
                same(request.wait(), [2, 2, 2, 2])
            def interrupted_copy(target, received):
                comm_buffers.finish = finish
                raise KeyboardInterrupt
            from reduction import _buffers as comm_buffers
            finish, comm_buffers.finish = comm_buffers.finish, interrupted_copy
            strided = np.ones((4, 2))[:, 0]
            request = comm.all_reduce(strided, async_op=True)
            raises(KeyboardInterrupt, "", request.wait)
            same(request.wait(), [2, 2, 2, 2])
            x = np.ones(100000)
            memory = weakref.ref(x)
            if rank == 0:
                comm._lib = Interrupted(FUNCTION)
                raises(KeyboardInterrupt, "", comm.all_reduce if "tensor" in FUNCTION else
                       lambda x: comm.all_reduce_coalesced([x]), x)
            def until_aborted():                            # rank 1 may find rank 0's operation first
                while True:
                    comm.all_reduce(x)
            raises(reduction.AbortedError, "interrupted a call that had started an operation", until_aborted)
            del x
            comm.close()
            gc.collect()                                    # an error and its traceback refer to each other
            assert memory() is None, "its memory was never freed"
        """.replace("FUNCTION", f'"{function}"'), end="")

    def test_memory_of_buffers(self):
        """An array of empty_buffer() that lives longer than its communicator gives its memory back."""
        for agents in (0, 1):
            with self.subTest(agents=agents):
                self.check("""
                    def resident():
                        return int(open("/proc/self/statm").read().split()[1]) * 4096
                    comm.barrier()
                    for i in range(20):
                        comm.close()
                        comm = reduction.Communicator(generation=i + 1)
                        buffer = comm.empty_buffer(1 << 20)
                        buffer[:] = 1
                        same(comm.all_reduce(buffer)[-2:], [2, 2])
                        if i == 4:
                            before = resident()
                    comm.close()
                    same(buffer[:2], [2, 2])
                    assert resident() < before + (24 << 20), (before, resident())
                """, agents=agents)

    def test_result_that_cannot_be_stored(self):
        self.check("""
            x = np.ones(8)
            view = x[::2]
            request = comm.all_reduce(view, async_op=True)
            view.flags.writeable = False
            for _ in range(2):
                raises(ValueError, "read-only", request.wait)
            assert request.done()
            same(x, np.ones(8))
        """)

    def test_threads(self):
        self.check("""
            # threads agree on an order: turns
            turn = threading.Condition()
            order = []
            def body(me):
                for i in range(20):
                    with turn:
                        turn.wait_for(lambda: len(order) == 3 * i + me)
                        request = comm.all_reduce(np.full(100, me + i, "int64"), async_op=True)
                        order.append(me)
                        turn.notify_all()
                    same(request.wait(), np.full(100, 2 * (me + i)))
            threads = [threading.Thread(target=body, args=(me,)) for me in range(3)]
            [t.start() for t in threads]
            [t.join() for t in threads]
            assert len(order) == 60, "a thread failed"
        """)

    def test_close_ends_pending(self):
        self.check(
            """
            try:
                comm.barrier()
            except reduction.ClosedError:
                assert rank == 1, "it was done for nobody"  # rank 0 has gone on, and left
            if rank == 0:
                r = comm.all_reduce(np.ones(4), async_op=True)
                comm.close()
                raises(reduction.ClosedError, "closed", r.wait)
                raises(reduction.ClosedError, "the communicator is closed", comm.all_reduce, np.ones(4))
                raises(reduction.ClosedError, "the communicator is closed", comm.stats)
                comm.close()
                assert comm.closed and "rank 0 of 2, closed" in repr(comm)
            else:
                comm.close()
            """,
            end="",
        )


class Buffers(unittest.TestCase):
    def check(self, code, agents=0, **more):
        with harness.Cluster(agents=agents) as c:
            return c.run(2, program(code, **more))

    def test_forms(self):
        self.check("""
            for dtype, form in dict(float32="float32", bfloat16="uint16", int8="int8").items() | {
                (np.int8, "int8"), (np.dtype("f8"), "float64")
            }:
                b = comm.empty_buffer((3, 4), dtype)
                assert b.shape == (3, 4) and b.dtype == form and not b.any(), (dtype, b)
                assert b.ctypes.data % 64 == 0
            for shape, found in {7: (7,), (): (), 0: (0,), (2, 0): (2, 0)}.items():
                assert comm.empty_buffer(shape).shape == found
            raises(TypeError, "bool is not supported", comm.empty_buffer, 3, "bool")
            raises(ValueError, "negative", comm.empty_buffer, -3)
        """)

    def test_buffers_are_freed(self):
        # more than the agent's shared memory could hold at the same time
        self.check(
            """
            for i in range(40):
                b = comm.empty_buffer(1 << 23, "uint8")
                b[::4096] = 1
                view = b[10:20]
                del b
                gc.collect()
                view[:] = 2                                 # the view keeps the memory
            """,
            agents=1,
        )

    def test_freed_while_another_thread_starts(self):
        # the garbage collector frees a buffer in any thread, also in one that is to abort what the other waits for
        self.check("""
            held, go = threading.Event(), threading.Event()
            def start():
                with comm._lock:                            # as all_reduce(), which may wait
                    held.set()
                    go.wait()
            buffers = [comm.empty_buffer(1000)]
            starter = threading.Thread(target=start)
            starter.start()
            held.wait()
            dropper = threading.Thread(target=buffers.clear)
            dropper.start()
            dropper.join(20)
            waited = dropper.is_alive()
            go.set()
            starter.join()
            assert not waited, "it was freed when the other thread had ended"
            comm.empty_buffer(10)
            assert not comm._unused
        """)

    def test_outlive_the_communicator(self):
        for agents in (0, 1):
            with self.subTest(agents=agents):
                self.check(
                    """
                    b = comm.empty_buffer(100000)
                    b[:] = 1
                    comm.all_reduce(b)
                    comm.close()
                    same(b, np.full(100000, 2, "float32"))
                    b[:] = 3
                    del b
                    gc.collect()
                    """,
                    agents=agents,
                    end="",
                )


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
        # rank 1 ends without close(); rank 0 must be able to end as well, and nothing hangs
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
        # Ctrl-C while waiting for another rank to come, and while waiting for its operation
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
