# SPDX-License-Identifier: Apache-2.0
"""Torch's CUDA tensors, streams, events and futures on the fake GPUs of tests/cuda, for a torch without CUDA. Import it
before the first operation. Kernels are functions that the fake driver calls in the order of their stream."""

import contextlib
import ctypes
import threading

import fake_gpu
import numpy
import torch

import reduction.torch  # noqa: F401  its annotations are those of the real torch

_gpus = {}
_thread = threading.local()
_kept = []  # callbacks of ctypes and pinned memory, which the driver uses
_PlainFuture = torch.futures.Future
_plain_empty = torch.empty


def _gpu(index):
    if index not in _gpus:
        _gpus[index] = fake_gpu.Gpu(index)
    fake_gpu.call("cuCtxSetCurrent", _gpus[index].context)
    return _gpus[index]


class Event:
    def __init__(self):
        self.made = ctypes.c_void_p()
        fake_gpu.call("cuEventCreate", ctypes.byref(self.made), 0)

    def record(self, stream=None):
        stream = stream or current_stream()
        _gpu(stream.device.index)
        fake_gpu.call("cuEventRecord", self.made, ctypes.c_void_p(stream.cuda_stream))

    def query(self):
        status = fake_gpu.driver.cuEventQuery(self.made)
        assert status in (0, 600), status
        return status == 0


class Stream:
    def __init__(self, device=None, made=None):
        self.device = torch.device(device or "cuda:0")
        self.cuda_stream = _gpu(self.device.index).stream() if made is None else made

    def wait_event(self, event):
        _gpu(self.device.index)
        fake_gpu.call("cuStreamWaitEvent", ctypes.c_void_p(self.cuda_stream), event.made, 0)

    def wait_stream(self, other):
        event = Event()
        event.record(other)
        self.wait_event(event)

    def synchronize(self):
        _gpu(self.device.index)
        fake_gpu.call("cuStreamSynchronize", ctypes.c_void_p(self.cuda_stream))

    def idle(self):
        """Returns True if everything that was queued is done."""
        event = Event()
        event.record(self)
        return event.query()


def current_stream(device=None):
    device = torch.device(device or "cuda:0")
    for stream in reversed(getattr(_thread, "streams", [])):
        if stream.device == device:
            return stream
    return Stream(device, 0)


@contextlib.contextmanager
def use_stream(stream):
    _thread.streams = [*getattr(_thread, "streams", []), stream]
    try:
        yield
    finally:
        _thread.streams.pop()


def _pinned(bytes_n):
    """Returns host memory that copies may use, and keeps it."""
    memory = numpy.zeros(max(bytes_n, 1), "uint8")
    fake_gpu.call("cuMemHostRegister_v2", ctypes.c_void_p(memory.ctypes.data), ctypes.c_size_t(memory.nbytes), 0)
    _kept.append(memory)
    return memory


def launch(kernel, stream, reads, writes=None):
    """Queues a function. It gets the elements of tensors on the host, and returns those to write to a tensor."""
    _gpu(stream.device.index)
    queue = ctypes.c_void_p(stream.cuda_stream)
    inputs = []
    for x in reads:
        memory = _pinned(x.nbytes)
        fake_gpu.call("cuMemcpyDtoHAsync_v2", ctypes.c_void_p(memory.ctypes.data), ctypes.c_uint64(x.data_ptr()),
                      ctypes.c_size_t(x.nbytes), queue)
        inputs.append(torch.from_numpy(memory)[: x.nbytes].view(x.dtype))
    output = None if writes is None else _pinned(writes.nbytes)

    def body(_):
        result = kernel(*inputs)
        if output is not None:
            torch.from_numpy(output)[: writes.nbytes].view(writes.dtype).copy_(result)

    callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(body)
    _kept.append(callback)
    fake_gpu.call("cuLaunchHostFunc", queue, callback, None)
    if output is not None:
        fake_gpu.call("cuMemcpyHtoDAsync_v2", ctypes.c_uint64(writes.data_ptr()), ctypes.c_void_p(output.ctypes.data),
                      ctypes.c_size_t(writes.nbytes), queue)


class Tensor(torch.Tensor):
    """A tensor of one dimension. `values()` reads it; copy_() and div_() are kernels."""

    @staticmethod
    def __new__(cls, n, dtype, device, memory=None, offset=0):
        self = torch.Tensor._make_wrapper_subclass(cls, (n,), dtype=dtype, device=device)
        self.memory, self.offset = memory, offset
        if memory is None:
            self.memory = ctypes.c_uint64()
            _gpu(self.device.index)
            fake_gpu.call("cuMemAlloc_v2", ctypes.byref(self.memory), ctypes.c_size_t(max(self.nbytes, 1)))
        self.dense = True
        return self

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        raise NotImplementedError(str(function))

    def data_ptr(self):
        return self.memory.value + self.offset

    def is_contiguous(self, *_, **__):
        return self.dense

    def detach(self):
        return self

    def reshape(self, _):
        return self

    def record_stream(self, stream):
        assert stream.device == self.device

    def __getitem__(self, part):
        start, stop, step = part.indices(self.numel())
        assert step == 1
        return Tensor(stop - start, self.dtype, self.device, self.memory, self.offset + start * self.element_size())

    @property
    def nbytes(self):
        return self.numel() * self.element_size()

    def run(self, kernel, *reads):
        launch(kernel, current_stream(self.device), reads, self)
        return self

    def values(self, stream=None):
        """Returns the elements after the work that is queued on the stream, by default the current one."""
        found = []
        stream = stream or current_stream(self.device)
        launch(lambda x: found.append(x.clone()), stream, [self])
        stream.synchronize()
        return found[0]

    def copy_(self, other):
        return self.run(lambda x: x, other) if other.is_cuda else self.fill(other)

    def div_(self, by):
        return self.run(lambda x: x / by, self)

    def zero_(self):
        return self.fill(torch.zeros(self.numel(), dtype=self.dtype))

    def clone(self):
        return Tensor(self.numel(), self.dtype, self.device).copy_(self)

    def fill(self, x):
        """Writes the elements of a tensor of the host."""
        x = x.clone()
        return self.run(lambda: x)


def cuda(x, device="cuda:0"):
    """Returns a copy of a tensor on a fake GPU, made on the current stream."""
    return Tensor(x.numel(), x.dtype, torch.device(device)).fill(x)


class Future:
    """Whoever waits for a future with devices lets the current stream wait."""

    def __class_getitem__(cls, item):  # torch's annotations
        return cls

    def __init__(self, *, devices=None, before=None, plain=None):
        self.on_gpu = bool(devices)
        self.before = before or self
        self.plain = plain or _PlainFuture()
        self.event = None

    def set_result(self, value):
        if self.on_gpu and not isinstance(value, Exception):
            self.event = Event()
            self.event.record(next(iter(reversed(getattr(_thread, "streams", []))), None))
        self.plain.set_result(value)

    def value(self):
        return self.plain.value()

    def done(self):
        return self.plain.done()

    def then(self, callback):
        return Future(before=self, plain=self.plain.then(callback))

    def wait(self):
        value = self.plain.wait()
        if self.before.event is not None:
            first = value[0] if isinstance(value, list) else value
            current_stream(first.device).wait_event(self.before.event)
        return value


def _empty(*size, device=None, **kwargs):
    if device is not None and torch.device(device).type == "cuda":
        (shape,) = size
        return Tensor(shape if isinstance(shape, int) else shape[0], kwargs["dtype"], torch.device(device))
    return _plain_empty(*size, device=device, **kwargs)


torch.version.cuda = "fake"
torch.cuda.Stream, torch.cuda.Event, torch.cuda.stream = Stream, Event, use_stream
torch.cuda.current_stream = current_stream
torch.futures.Future = Future
torch.empty = _empty
