# SPDX-License-Identifier: Apache-2.0
# run: beside-others
"""The Python package on numpy arrays: every form an array can have, requests and buffers."""

import unittest

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
        # the memory of an operation that the program forgot must live until the operation
        # is done
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
        # Ctrl-C, which Python notices when a call of the library has returned: what the
        # call did is not lost
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
        # the garbage collector frees a buffer in any thread, also in one that is to abort
        # what the other waits for
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


if __name__ == "__main__":
    harness.main()
