# SPDX-License-Identifier: Apache-2.0
"""Memory of numpy arrays, torch tensors, arrays of GPUs and those with `__dlpack__` for the C library.

An operation uses the array's own memory, also that of a GPU, if it is one dense block in this machine's byte order.
Otherwise it uses a dense copy in the host's memory, which is copied back when the operation is done. A `Block` is
either; it keeps the memory alive.
"""

import ctypes
import numbers
import os
import sys
from typing import Any, Callable, NamedTuple, Optional, Tuple

from . import _cuda, _dlpack, _lib

try:
    from numpy import ndarray
except ImportError:  # PyTorch works without NumPy, and so do operations on its tensors

    class ndarray:  # type: ignore[no-redef]
        """No array is one of these."""


# names as in numpy and torch; numbers as in reduction.h
DTYPES = {
    "int8": 0,
    "uint8": 1,
    "int32": 2,
    "uint32": 3,
    "int64": 4,
    "uint64": 5,
    "float16": 6,
    "float32": 7,
    "float64": 8,
    "bfloat16": 9,
}
OPS = {"sum": 0, "prod": 1, "max": 2, "min": 3, "avg": 4}


class Block(NamedTuple):
    """Dense memory of `count` elements at `pointer`, alive as long as `owner` is.

    On GPU `device`, used on `stream`; or in the host's memory.
    """

    owner: Any
    pointer: int
    count: int
    is_copy: bool
    device: int = _lib.HOST
    stream: int = 0


class Kind(NamedTuple):
    """How to handle one kind of array."""

    dtype_name: Callable[[Any], str]
    itemsize: Callable[[Any], int]
    is_dense: Callable[[Any], bool]
    is_writable: Callable[[Any], bool]
    pointer: Callable[[Any], int]
    count: Callable[[Any], int]
    dense_copy: Callable[[Any], Any]
    assign: Callable[[Any, Any], Any]
    form: Callable[[Any], Tuple[Any, Any]]  # shape and dtype
    device: Callable[[Any], int] = lambda x: _lib.HOST
    stream: Callable[[Any], int] = lambda x: 0


def _numpy_dense(x: ndarray) -> bool:
    return x.flags.c_contiguous and x.flags.aligned and x.dtype.isnative


def _numpy_copy(x: ndarray) -> ndarray:
    return sys.modules["numpy"].array(x, dtype=x.dtype.newbyteorder("="), order="C", copy=True)


NUMPY = Kind(
    dtype_name=lambda x: x.dtype.name,
    itemsize=lambda x: x.dtype.itemsize,
    is_dense=_numpy_dense,
    is_writable=lambda x: x.flags.writeable,
    pointer=lambda x: x.ctypes.data,
    count=lambda x: x.size,
    dense_copy=_numpy_copy,
    assign=lambda destination, source: sys.modules["numpy"].copyto(destination, source),
    form=lambda x: (x.shape, x.dtype),
)


def torch_on_gpu(x: Any) -> bool:
    """Returns True if the library can use a tensor in the memory of its GPU."""
    return x.device.type == "cuda" and sys.modules["torch"].version.cuda is not None


def _torch_dense(x: Any) -> bool:
    return (x.device.type == "cpu" or torch_on_gpu(x)) and x.is_contiguous() and not x.is_neg()


def _torch_stream(x: Any) -> int:
    return sys.modules["torch"].cuda.current_stream(x.device).cuda_stream if torch_on_gpu(x) else 0


def _torch_copy(x: Any) -> Any:
    torch = sys.modules["torch"]
    return torch.empty(x.shape, dtype=x.dtype).copy_(x.detach())


TORCH = Kind(
    dtype_name=lambda x: str(x.dtype).rpartition(".")[2],
    itemsize=lambda x: x.element_size(),
    is_dense=_torch_dense,
    is_writable=lambda x: True,
    pointer=lambda x: x.data_ptr(),
    count=lambda x: x.numel(),
    dense_copy=_torch_copy,
    assign=lambda destination, source: destination.detach().copy_(source),
    form=lambda x: (tuple(x.shape), x.dtype),
    device=lambda x: x.device.index if torch_on_gpu(x) else _lib.HOST,
    stream=_torch_stream,
)


def _cuda_copy(x: Any) -> Any:
    raise ValueError("an array of a GPU must be dense, in this machine's byte order, and not overlap `out`")


_CUDA = Kind(
    dtype_name=lambda x: _cuda.dtype(x).name,
    itemsize=lambda x: _cuda.dtype(x).itemsize,
    is_dense=_cuda.is_dense,
    is_writable=_cuda.is_writable,
    pointer=_cuda.pointer,
    count=_cuda.count,
    dense_copy=_cuda_copy,
    assign=_cuda_copy,
    form=lambda x: (_cuda.shape(x), _cuda.dtype(x)),
    device=_cuda.device,
    stream=_cuda.stream,
)


_DLPACK = Kind(
    dtype_name=lambda x: x.dtype_name,
    itemsize=lambda x: x.itemsize,
    is_dense=lambda x: x.is_dense,
    is_writable=lambda x: not x.read_only,
    pointer=lambda x: x.pointer,
    count=lambda x: x.count,
    dense_copy=_cuda_copy,
    assign=_cuda_copy,
    form=lambda x: (x.shape, x.dtype_name),
    device=lambda x: x.device if x.on_gpu else _lib.HOST,
)


def _known(x: Any) -> bool:
    torch = sys.modules.get("torch")
    return isinstance(x, ndarray) or (torch is not None and isinstance(x, torch.Tensor)) or _cuda.is_array(x)


def view(x: Any) -> Any:
    """Returns x, or a view of it if its memory is only known by `__dlpack__`."""
    return _dlpack.view(x) if not _known(x) and _dlpack.is_array(x) else x


def kind_of(x: Any) -> Kind:
    """Returns how to handle x. Raises TypeError unless it is a numpy array, a dense torch tensor, a GPU's array or a
    view of one with `__dlpack__`."""
    if isinstance(x, ndarray):
        return NUMPY
    torch = sys.modules.get("torch")  # a tensor exists only if torch is imported
    if torch is not None and isinstance(x, torch.Tensor):
        if x.layout != torch.strided:
            raise TypeError(f"expected a dense tensor, got one of layout {x.layout}")
        return TORCH
    if _cuda.is_array(x):
        return _CUDA
    if isinstance(x, _dlpack.Array):
        return _DLPACK
    raise TypeError(f"expected a numpy array or a torch tensor, got {type(x).__name__}")


def dtype_code(x: Any, override: Optional[str]) -> int:
    """Returns the dtype number for x. `override` names the type whose bits 16-bit integers of x hold, or x's own."""
    kind = kind_of(x)
    own = kind.dtype_name(x)
    if override is None or str(override).rpartition(".")[2] == own:
        if own not in DTYPES:
            raise TypeError(f"dtype {own} is not supported; supported are {', '.join(DTYPES)}")
        return DTYPES[own]
    wanted = str(override).rpartition(".")[2]
    if wanted not in DTYPES:
        raise TypeError(f"dtype {wanted} is not supported; supported are {', '.join(DTYPES)}")
    if own not in ("uint16", "int16") or wanted not in ("float16", "bfloat16"):
        raise TypeError(f"an array of {own} cannot be used as {wanted}; only uint16 and int16 can, as the bits of "
                        "float16 or bfloat16")
    return DTYPES[wanted]


def op_code(op: str) -> int:
    """Returns the number of an operation's name. Raises ValueError."""
    if op not in OPS:
        raise ValueError(f"op {op!r} is unknown; known are {', '.join(OPS)}")
    return OPS[op]


def writable(x: Any) -> None:
    """Raises ValueError when the result cannot be stored in x."""
    if not kind_of(x).is_writable(x):
        raise ValueError("the array that receives the result is read-only")


def block(x: Any) -> Block:
    """Returns memory of x that the library may read and, unless it is a copy, write."""
    kind = kind_of(x)
    if not kind.is_dense(x):
        return host_copy(x)
    return Block(x, kind.pointer(x), kind.count(x), False, kind.device(x), kind.stream(x))


def same_form(x: Any, out: Any) -> None:
    """Raises when a result for x cannot be stored in out."""
    if kind_of(x) is not kind_of(out):
        raise TypeError(f"out is a {type(out).__name__} but the array is a {type(x).__name__}")
    (shape, dtype), (out_shape, out_dtype) = kind_of(x).form(x), kind_of(out).form(out)
    if shape != out_shape:
        raise ValueError(f"out has shape {out_shape} but the array has {shape}")
    if dtype != out_dtype:
        raise TypeError(f"out has dtype {out_dtype} but the array has {dtype}")


def overlap(a: Block, b: Block, itemsize: int) -> bool:
    """Returns True if two blocks share bytes and are not the same block."""
    if a.pointer == b.pointer or not a.count:
        return False
    return abs(a.pointer - b.pointer) < a.count * itemsize


def prepare(x: Any, out: Optional[Any]) -> Tuple[Block, Block]:
    """Returns the memory to send from and to receive into, for a result in `out` or, if out is None, in x."""
    target = x if out is None else out
    writable(target)
    receive = block(target)
    if out is None or out is x:
        return receive, receive
    same_form(x, out)
    send = block(x)
    kind = kind_of(x)
    if overlap(send, receive, kind.itemsize(x)):
        send = host_copy(x)
    if (send.device, send.stream) != (receive.device, receive.stream):
        if kind in (_CUDA, _DLPACK):
            same_place(send, receive)
        send, receive = host_copy(x), host_copy(target)
    return send, receive


def same_place(send: Block, receive: Block) -> None:
    """Raises ValueError unless both are in the host's memory, or on the same GPU and stream."""
    if (send.device, send.stream) != (receive.device, receive.stream):
        raise ValueError(f"the array is on {_place(send)} but out is on {_place(receive)}; expected the same")


def host_copy(x: Any) -> Block:
    """Returns a dense copy in the host's memory."""
    kind = kind_of(x)
    copy = kind.dense_copy(x)
    return Block(copy, kind.pointer(copy), kind.count(copy), True)


def _place(b: Block) -> str:
    return "the host" if b.device == _lib.HOST else f"GPU {b.device}, stream {b.stream:#x}"


def finish(target: Any, received: Block) -> None:
    """Copies a result back to target if it was received into a copy."""
    if received.is_copy:
        target = view(target)
        kind_of(target).assign(target, received.owner)


def buffer_form(shape: Any, dtype: Any) -> Tuple[Tuple[int, ...], Any, int]:
    """Returns shape, numpy dtype (uint16 for bfloat16) and bytes of a buffer to be allocated."""
    import numpy

    shape = (int(shape),) if isinstance(shape, numbers.Integral) else tuple(int(n) for n in shape)
    if any(n < 0 for n in shape):
        raise ValueError(f"shape {shape} has a negative length")
    name = str(dtype).rpartition(".")[2] if not isinstance(dtype, type) else numpy.dtype(dtype).name
    if name not in DTYPES:
        raise TypeError(f"dtype {name} is not supported; supported are {', '.join(DTYPES)}")
    form = numpy.dtype("uint16" if name == "bfloat16" else name)
    count = 1
    for n in shape:
        count *= n
    return shape, form, count * form.itemsize


def wire_code(wire: Optional[str]) -> int:
    """Returns the number of an encoding; None: that of the job."""
    if wire is None:
        return _lib.WIRE_JOB
    if wire not in _lib.WIRES:
        raise ValueError(f"wire {wire!r} is unknown; known are {', '.join(_lib.WIRES)}")
    return _lib.WIRES[wire]


def tensor(
    x: Any,
    op: str,
    out: Any,
    dtype: Optional[str],
    name: Optional[str],
    priority: Optional[int],
    wire: Optional[str] = None,
) -> Tuple[_lib.Tensor, Block, Block]:
    """Describes an all-reduce of x for the library. Also returns its memory, which the caller keeps."""
    x, out = view(x), view(out)
    code, number = dtype_code(x, dtype), op_code(op)
    send, receive = prepare(x, out)
    return described(send, receive, receive.count, code, number, name, priority, wire), send, receive


def described(
    send: Block,
    receive: Block,
    count: int,
    code: int,
    number: int,
    name: Optional[str],
    priority: Optional[int],
    wire: Optional[str],
) -> _lib.Tensor:
    """Describes an operation for the library. code and number are those of dtype and op."""
    if priority is not None and priority < 0:
        raise ValueError(f"priority is {priority}; 0 (least urgent) or more was expected, or None")
    label = None if name is None else os.fsencode(name)
    urgency = _lib.PRIORITY_AUTO if priority is None else min(int(priority), _lib.PRIORITY_MAX)
    return _lib.Tensor(
        ctypes.sizeof(_lib.Tensor), send.pointer, receive.pointer, count, code, number, label, urgency,
        receive.device, receive.stream, wire_code(wire),
    )  # fmt: skip
