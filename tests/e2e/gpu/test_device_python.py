# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan
"""Arrays of GPUs in Python, on the fake driver of tests/cuda: directly, and through the agents of two nodes.

Not under ThreadSanitizer: test_device.c has the same threads.
"""

import os
import pathlib
import re
import subprocess
import tempfile
import unittest

import harness
from test_python_api import program

WORKER = harness.ROOT / "tests/e2e/worker_sharded.py"

ROOT = pathlib.Path(__file__).resolve().parents[3]
START = """
import fake_gpu
gpu = fake_gpu.Gpu()
"""


class Device(unittest.TestCase):
    def check(self, code, agents=(0, 2), env=None, world_size=2, **cluster):
        env = {"REDUCTION_BUILD": str(harness.BUILD), **(env or {})}
        for n in agents:
            with self.subTest(agents=n), harness.Cluster(reducers=2, agents=n, **cluster) as c:
                procs = c.run(world_size, program(harness.python(START)[-1] + "\n" + harness.python(code)[-1]), env=env)
        return procs

    def test_arrays(self):
        """In place and separate, all types, groups, broadcasts; 20 MB are several rings."""
        self.check("""
            for n in (1, 1000, 5_000_000):
                x = np.arange(n, dtype="float32") % 1000
                a = gpu.array(x)
                assert comm.all_reduce(a) is a
                same(a.get(), 2 * x)
                out = gpu.array(np.zeros_like(x))
                comm.all_reduce(a, "avg", out=out)
                same(out.get(), 2 * x)
            for name in "int8 uint8 int32 uint32 int64 uint64 float16 float32 float64".split():
                x = np.arange(20).astype(name)
                a = gpu.array(x)
                comm.all_reduce(a)
                same(a.get(), (2 * x).astype(name))
            a = gpu.array(np.full(10, 0x3f80, "uint16"))
            comm.all_reduce(a, dtype="bfloat16")
            same(a.get(), np.full(10, 0x4000, "uint16"))
            arrays = [gpu.array(np.full((i, 3), rank, "float32")) for i in range(50)] + [np.full(7, rank, "float32")]
            comm.all_reduce_coalesced(arrays)
            for a in arrays:
                same(a if isinstance(a, np.ndarray) else a.get(), np.full_like(getattr(a, "like", a), 1))
            a = gpu.array(np.full(300_000, rank, "float32"))
            comm.broadcast(a, root=1)
            same(a.get(), np.ones(300_000, "float32"))
        """)

    def test_streams_and_devices(self):
        self.check("""
            other = fake_gpu.Gpu(1)
            stream = other.stream()
            a = other.array(np.zeros(100_000, "float32"), stream=stream)
            fake_gpu.call("cuMemsetD32Async", a.pointer, 0x3f800000, fake_gpu.ctypes.c_size_t(100_000),
                          fake_gpu.ctypes.c_void_p(stream))
            b = gpu.array(np.ones(5, "float32"))
            requests = [comm.all_reduce(a, async_op=True), comm.all_reduce(b, async_op=True)]
            for r in requests:
                r.wait()
            same(a.get(), np.full(100_000, 2, "float32"))
            same(b.get(), np.full(5, 2, "float32"))
            raises(ValueError, "the array is on GPU 1, stream 0x", comm.all_reduce, a, out=other.array(a.like))
        """)

    def test_dlpack(self):
        """Arrays that only have __dlpack__, on a GPU and in host memory; numpy's own capsules."""
        self.check("""
            x = np.arange(100_000, dtype="float32").reshape(100, -1)
            for device in (None, 0, 1):
                a = fake_gpu.Exported(x.copy(), device)
                assert comm.all_reduce(a) is a
                same(a.get(), 2 * x)
                assert set(a.streams) == {None if device is None else 1}, a.streams
                out = fake_gpu.Exported(np.zeros_like(x), device)
                comm.all_reduce(a, "avg", out=out)
                same(out.get(), 2 * x)
                comm.all_reduce_coalesced([a, out])
                same(out.get(), 4 * x)
                b = fake_gpu.Exported(np.full(10, 0x3f80, "uint16"), device)
                b.kind = 4  # bfloat16
                comm.all_reduce(b)
                same(b.get(), np.full(10, 0x4000, "uint16"))
            out = np.empty_like(x)
            comm.all_reduce(fake_gpu.Exported(x), out=out)  # into an array of another library
            same(out, 2 * x)
            turned = fake_gpu.Exported(x.copy().T)
            comm.all_reduce(turned)
            same(turned.get(), 2 * x.T)
            class Wrapped:  # what numpy exports
                def __init__(self, x):
                    self.__dlpack__, self.__dlpack_device__ = x.__dlpack__, x.__dlpack_device__
            y = x.copy()
            comm.all_reduce(Wrapped(y))
            same(y, 2 * x)
            a.strides = [1, 100]
            raises(ValueError, "must be dense", comm.all_reduce, a)
            class Tpu(fake_gpu.Exported):
                def __dlpack_device__(self):
                    return 12, 0
            raises(ValueError, "of type 12; expected the host (1) or an NVIDIA GPU (2)", comm.all_reduce, Tpu(x))
        """)

    def test_sharded(self):
        """Both kinds, in place and separate, beside all-reduces; 20 MB are several rings."""
        self.check("""
            same(comm.can_shard, True)
            for n in (1, 1000, 2_500_000):
                x = np.arange(2 * n, dtype="float32") % 1000
                part = slice(rank * n, rank * n + n)
                a, b = gpu.array(x), gpu.array(x)
                out = gpu.array(np.zeros(n, "float32"))
                summed, averaged = comm.reduce_scatter(a, out=out, async_op=True), gpu.array(np.ones(n, "float32"))
                whole = gpu.array(np.zeros(2 * n, "float32"))
                gathered = comm.all_gather(gpu.array(x[:n] + rank), whole, async_op=True)
                comm.all_reduce(averaged, "avg")
                same(averaged.get(), np.ones(n, "float32"))
                assert summed.wait() is out and gathered.wait() is whole
                same(out.get(), 2 * x[part])
                same(a.get(), x)
                same(whole.get(), np.concatenate([x[:n], x[:n] + 1]))
                inner = (b.pointer.value + 4 * n * rank, False)
                view = fake_gpu.View((n,), "<f4", inner)
                comm.reduce_scatter(b, "max", out=view)
                same(b.get(), x)
                comm.all_gather(view, b)
                same(b.get(), x)
            half = gpu.array(np.full(2 * 10, 0x3f80, "uint16"))
            out = gpu.array(np.zeros(10, "uint16"))
            comm.reduce_scatter(half, out=out, dtype="bfloat16")
            same(out.get(), np.full(10, 0x4000, "uint16"))
            raises(reduction.ReductionError, "must be part", comm.reduce_scatter, b,
                   out=fake_gpu.View((2_500_000,), "<f4", (b.pointer.value + 4, False)))
            short = gpu.array(np.zeros(10, "uint16"))
            raises(reduction.ReductionError, "has 40 bytes, but GPU 0 has only 20", comm.all_gather, out,
                   fake_gpu.View((20,), "<u2", (short.pointer.value, False)), dtype="bfloat16")
            raises(TypeError, "needs `out`", comm.reduce_scatter, half, dtype="bfloat16")
        """)

    def test_sharded_reducer_killed(self):
        """A reducer dies while pieces are on their way: the bits of an undisturbed run."""
        rows = (("failover", 3, "half way", 0), ("failover", 3, "half way", 3), ("streaming", 2, "flows", 0),
                ("streaming", 2, "flows", 2))  # fmt: skip
        for function, n, said, agents in rows:
            with self.subTest(function, agents=agents), harness.Cluster(reducers=3, agents=agents) as c:
                env = {"REDUCTION_BUILD": str(harness.BUILD), "FAKE_CUDA_JITTER_US": "300"}
                procs = c.start_workers(n, [harness.PYTHON, WORKER, function, "gpu"], env=env)
                for p in procs if function == "failover" else procs[:1]:
                    p.said(said, 60)
                c.reducers[1].kill()
                for p in procs if function == "failover" else []:
                    p.tell()
                for p in procs:
                    p.said("right", 60)
                c.wait_all(procs)

    def test_refused(self):
        self.check("""
            x = np.ones((4, 6), "float32")
            raises(ValueError, "must be dense", comm.all_reduce, gpu.array(x, strides=(4, 16)))
            raises(ValueError, "read-only", comm.all_reduce, gpu.array(x, data=(4096, True)))
            raises(ValueError, "not in the memory of a GPU", comm.all_reduce, gpu.array(x, data=(x.ctypes.data, False)))
            raises(reduction.ReductionError, "has 96 bytes, but GPU 0 has only", comm.all_reduce,
                   gpu.array(x[:2], shape=(4, 6)))
            raises(TypeError, "out is a ndarray but the array is a Array", comm.all_reduce, gpu.array(x), out=x)
            raises(ValueError, "out has shape (24,)", comm.all_reduce, gpu.array(x), out=gpu.array(x.ravel()))
            empty = gpu.array(np.zeros(0, "float32"))
            comm.all_reduce(empty)
            same(comm.all_reduce(gpu.array(x, strides=(24, 4))).get(), 2 * x)
        """, agents=(0,))

    def test_no_driver(self):
        """Without libcuda.so.1 there is a sentence."""
        with harness.Cluster(reducers=1) as c:
            c.run(1, program("""
                import ctypes
                from reduction import _lib
                t = _lib.Tensor(ctypes.sizeof(_lib.Tensor), 4096, 4096, 1, 7, 0, None, 0, 0, 0)
                err, request = _lib.Error(), ctypes.c_void_p()
                status = _lib.load().reduction_all_reduce_tensor_async(comm._handle, ctypes.byref(t),
                                                                      ctypes.byref(request), ctypes.byref(err))
                assert status == -11, status
                assert b"a buffer of a GPU needs NVIDIA's driver library: libcuda.so.1" in err.message, err.message
            """))

    def test_pins_a_ring_and_keeps_it(self):
        """Operations of 64 MB, one after the other, pin one ring; nothing is copied twice."""
        for agents in (0, 2):
            with tempfile.TemporaryDirectory() as folder:
                report = os.path.join(folder, "report")
                self.check("""
                    a = gpu.array(np.ones(16_000_000, "float32"))
                    for i in range(3):
                        comm.all_reduce(a, "avg")
                    same(a.get()[:10], np.ones(10, "float32"))
                """, agents=(agents,), env={"FAKE_CUDA_REPORT": report})
                for line in pathlib.Path(report).read_text().splitlines():
                    pinned, _, copied = (int(n) for n in re.findall(r"=(\d+)", line))
                    self.assertLess(pinned, 32_000_000)
                    self.assertEqual(copied, 3 * 2 * 64_000_000)


class Abi(unittest.TestCase):
    def test_prototypes_are_those_of_cuda(self):
        folders = map(pathlib.Path, ("/usr/local/cuda/include", "/usr/include"))
        headers = [p for p in folders if (p / "cuda.h").exists()]
        if not headers:
            self.skipTest("there is no cuda.h here")
        source = """
            #include <cuda.h>
            #define RS_CUDA_H
            #include "agent/gpu/cuda/abi.h"
            #define CHECK(name, arguments) \\
                _Static_assert(__builtin_types_compatible_p(__typeof__(name), CUresult arguments), #name);
            CUDA_FUNCTIONS(CHECK)
            _Static_assert(CUDA_RESULT_NOT_READY == CUDA_ERROR_NOT_READY, "");
            _Static_assert(CUDA_STREAM_NON_BLOCKING == CU_STREAM_NON_BLOCKING, "");
            _Static_assert(CUDA_EVENT_DISABLE_TIMING == CU_EVENT_DISABLE_TIMING, "");
            _Static_assert(CUDA_REGISTER_PORTABLE == CU_MEMHOSTREGISTER_PORTABLE, "");
            _Static_assert(CUDA_ATTRIBUTE_MEMORY_TYPE == CU_POINTER_ATTRIBUTE_MEMORY_TYPE, "");
            _Static_assert(CUDA_ATTRIBUTE_DEVICE_ORDINAL == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, "");
            _Static_assert(CUDA_ATTRIBUTE_RANGE_START == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, "");
            _Static_assert(CUDA_ATTRIBUTE_RANGE_SIZE == CU_POINTER_ATTRIBUTE_RANGE_SIZE, "");
            _Static_assert(CUDA_MEMORY_DEVICE == CU_MEMORYTYPE_DEVICE, "");
        """
        gcc = ["gcc", "-std=gnu11", "-fsyntax-only", f"-I{headers[0]}", f"-I{ROOT}", "-x", "c", "-"]
        done = subprocess.run(gcc, input=source, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    harness.main()
