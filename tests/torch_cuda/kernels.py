# SPDX-License-Identifier: Apache-2.0
"""Kernels of torch's CUDA tensors on the fake CUDA: each is a function of the host, in the order of its stream.

    import kernels
    kernels.install()     # before the first operation on a CUDA tensor

The happy path: an operation of `aten` that has a CUDA kernel gets a function here. It makes the results' memory at
once, as a launch does, and queues a call on the current stream. The call runs the CPU's kernel on tensors that alias
the memory of the CUDA tensors. As a kernel of a GPU, it does not keep memory alive: memory that is freed and used
again too early gives wrong values. Failure modes: an error in a queued call is printed, and check() raises it; a
kernel without a function here is an error of the operation.
"""

import ctypes
import itertools
import sys
import traceback
import warnings

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

PLAIN = "cpu"  # where values are computed that those on CUDA tensors must be equal to, bit by bit
_CALL = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_runtime = ctypes.CDLL("libcudart.so.13")
_queued, _numbers = {}, itertools.count(1)
_errors = []
_libraries = []

# what makes, views or pins memory needs no kernel
_OWN = ("empty", "as_strided", "view", "set_", "resize_", "record_stream", "is_pinned", "_pin_memory", "is_set_to",
        "_nested", "_sparse", "unfold", "_reshape_alias", "_cudnn", "cudnn", "_efficientzero", "rename", "_copy_from")


@_CALL
def _run(number):
    try:
        with torch.no_grad():
            _queued.pop(number)()
    except BaseException as exc:  # on a thread of the fake CUDA, which knows no exceptions
        _errors.append(exc)
        traceback.print_exc(file=sys.stderr)


def queue(call):
    """Appends a call to the current stream of the current device."""
    number = next(_numbers)
    _queued[number] = call
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    if _runtime.cudaLaunchHostFunc(stream, _run, ctypes.c_void_p(number)) != 0:
        raise RuntimeError("a call could not be queued")


def delay():
    """Delays the current stream. Here all streams are delayed anyway."""


def check():
    """Waits for all devices. Raises the first error of a queued call."""
    for i in range(torch.cuda.device_count()):
        torch.cuda.synchronize(i)
    if _errors:
        raise _errors[0]


def _on_gpu(x):
    return isinstance(x, torch.Tensor) and x.device.type == "cuda"


def alias(tensor):
    """Returns a CPU tensor with the same memory, which it does not keep alive."""
    storage = tensor.untyped_storage()
    if storage.nbytes() == 0:
        return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype)
    memory = (ctypes.c_char * storage.nbytes()).from_address(storage.data_ptr())
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = torch.empty(0, dtype=tensor.dtype).set_(
            torch.frombuffer(memory, dtype=torch.uint8).untyped_storage(), tensor.storage_offset(), tensor.size(),
            tensor.stride(),
        )
    if tensor.is_conj():
        return found.conj()
    return torch._neg_view(found) if tensor.is_neg() else found


def _for_cpu(x):
    if isinstance(x, torch.device):
        return torch.device("cpu")
    if not isinstance(x, torch.Tensor):
        return x
    return alias(x) if _on_gpu(x) else x.clone()


def _for_shapes(x):
    if isinstance(x, torch.device):
        return torch.device("meta")
    if not isinstance(x, torch.Tensor) or not (_on_gpu(x) or x.dim()):
        return x
    return torch.empty_strided(x.size(), x.stride(), dtype=x.dtype, device="meta")


def _call(op, values, spec):
    args, kwargs = tree_unflatten(values, spec)
    return op(*args, **kwargs)


def _device(values):
    return next((x.device for x in values if _on_gpu(x)), torch.device("cuda", torch.cuda.current_device()))


def _functional(op):
    def kernel(*args, **kwargs):
        values, spec = tree_flatten((args, kwargs))
        device = _device(values)
        try:
            shapes, out_spec = tree_flatten(_call(op, [_for_shapes(x) for x in values], spec))
        except NotImplementedError:  # the shape depends on the values
            inputs = [_for_cpu(x) for x in values]
            torch.cuda.current_stream().synchronize()
            results, out_spec = tree_flatten(_call(op, inputs, spec))
            return tree_unflatten([x.to(device) if isinstance(x, torch.Tensor) else x for x in results], out_spec)
        made = [
            torch.empty_strided(x.size(), x.stride(), dtype=x.dtype, device=device)
            if isinstance(x, torch.Tensor) else x for x in shapes
        ]  # fmt: skip
        inputs, outputs = [_for_cpu(x) for x in values], [alias(x) if _on_gpu(x) else None for x in made]

        def call():
            for to, value in zip(outputs, tree_flatten(_call(op, inputs, spec))[0]):
                if to is not None:
                    to.copy_(value)

        queue(call)
        return tree_unflatten(made, out_spec)

    return kernel


def _in_place(op, writes):
    outs = [a.name for a in op._schema.arguments if a.is_out]

    def kernel(*args, **kwargs):
        values, spec = tree_flatten((args, kwargs))
        if outs:
            shapes = tree_flatten(_call(op, [_for_shapes(x) for x in values], spec))[0]
            for name, shape in zip(outs, shapes):
                if isinstance(kwargs[name], torch.Tensor) and kwargs[name].size() != shape.size():
                    kwargs[name].resize_(shape.size())
            values, spec = tree_flatten((args, kwargs))
        inputs = [_for_cpu(x) for x in values]
        queue(lambda: _call(op, inputs, spec))
        if not op._schema.returns:
            return None
        results = [kwargs[name] for name in outs] or [x for x, written in zip(args, writes) if written]
        return results[0] if len(results) == 1 else tuple(results)

    return kernel


def _item(tensor):
    value = alias(tensor)
    torch.cuda.current_stream(tensor.device).synchronize()
    return value.item()


def _copy(to, source, non_blocking=False):
    """copy_: on the stream of the source's GPU, as torch does; between GPUs both streams wait for each other."""
    if _on_gpu(to) and _on_gpu(source) and to.device != source.device:
        here, there = torch.cuda.current_stream(source.device), torch.cuda.current_stream(to.device)
        here.wait_stream(there)
        target, origin = alias(to), alias(source)
        with torch.cuda.device(source.device):
            queue(lambda: target.copy_(origin))
        there.wait_stream(here)
        return to
    target = alias(to) if _on_gpu(to) else to
    origin = alias(source) if _on_gpu(source) else source if source.is_pinned() and non_blocking else source.clone()
    with torch.cuda.device(to.device if _on_gpu(to) else source.device):
        queue(lambda: target.copy_(origin))
        if not _on_gpu(to) and not (non_blocking and to.is_pinned()):
            torch.cuda.current_stream().synchronize()
    return to


def _kernel(op):
    if op._schema.name == "aten::copy_":
        return _copy
    if op._schema.name == "aten::_local_scalar_dense":
        return _item
    writes = [a.alias_info is not None and a.alias_info.is_write for a in op._schema.arguments]
    return _in_place(op, writes) if any(writes) else _functional(op)


def install():
    """Replaces the CUDA kernels of this process. Returns how many."""
    library = torch.library.Library("aten", "IMPL")
    _libraries.append(library)  # the kernels live as long as it
    count = 0
    names = torch._C._dispatch_get_registrations_for_dispatch_key("CUDA")
    for name in ["aten::copy_", *(n for n in names if n.startswith("aten::") and n != "aten::copy_")]:
        base, _, overload = name.partition("::")[2].partition(".")
        if base.startswith(_OWN):
            continue
        op = getattr(getattr(torch.ops.aten, base, None), overload or "default", None)
        if op is None or any(r.alias_info is not None and not r.alias_info.is_write for r in op._schema.returns):
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a kernel is replaced
            try:
                library.impl(name.partition("::")[2], _kernel(op), "CUDA", allow_override=True)
            except TypeError:  # older torch
                library.impl(name.partition("::")[2], _kernel(op), "CUDA")
        count += 1
    return count
