# SPDX-License-Identifier: Apache-2.0
"""Finds libreduction.so.0, loads it and declares its functions.

It looks in this order and takes the first file that exists:
  1. the file that the environment variable REDUCTION_LIBRARY names (and then in no other place);
  2. the folder lib of this package (a wheel), and that of the prefix that the package is installed under;
  3. build/default/lib of the source tree that this package lies in;
  4. the system's loader (LD_LIBRARY_PATH, ldconfig).
"""

import ctypes
import os
import pathlib
import threading
from ctypes import POINTER, c_char, c_char_p, c_int, c_int64, c_size_t, c_uint64, c_void_p
from typing import List, Optional

from . import errors

SONAME = "libreduction.so.0"
VARIABLE = "REDUCTION_LIBRARY"


class LibraryError(ImportError):
    """libreduction was not found or cannot be used; the message lists where it was looked for."""


class Error(ctypes.Structure):
    """reduction_error"""

    _fields_ = [("code", c_int), ("message", c_char * 508)]


MODE_DEFAULT = -1
MODES = {"auto": 0, "agent": 1, "node": 2, "direct": 3}


class Options(ctypes.Structure):
    """reduction_options"""

    _fields_ = [
        ("struct_size", c_size_t),
        ("config", c_char_p),
        ("job", c_char_p),
        ("run", c_char_p),
        ("mode", c_int),
        ("agent_socket", c_char_p),
        ("rank", c_int),
        ("world_size", c_int),
        ("local_rank", c_int),
        ("local_world_size", c_int),
        ("generation", c_int64),
        ("connect_timeout_ms", c_int),
        ("group", c_char_p),
        ("wire", c_char_p),
    ]


PRIORITY_AUTO = -1
PRIORITY_MAX = 2**31 - 1  # of a C int
HOST = -1  # REDUCTION_HOST
WIRE_JOB = 0
WIRES = {"same": 1, "bf16": 2, "fp8": 3, "int8": 4, "fp16": 5, "int4": 6}


class Tensor(ctypes.Structure):
    """reduction_tensor"""

    _fields_ = [
        ("struct_size", c_size_t),
        ("send", c_void_p),
        ("recv", c_void_p),
        ("count", c_size_t),
        ("dtype", c_int),
        ("op", c_int),
        ("name", c_char_p),
        ("priority", c_int),
        ("device", c_int),
        ("stream", c_void_p),
        ("wire", c_int),
    ]


class StatsStruct(ctypes.Structure):
    """reduction_stats"""

    _fields_ = [
        ("struct_size", c_size_t),
        ("tx_bytes", c_uint64),
        ("rx_bytes", c_uint64),
        ("ops_done", c_uint64),
    ]


_FUNCTIONS = {
    "reduction_version": (c_char_p, []),
    "reduction_status_text": (c_char_p, [c_int]),
    "reduction_open": (c_int, [POINTER(c_void_p), POINTER(Options), POINTER(Error)]),
    "reduction_close": (c_int, [c_void_p, POINTER(Error)]),
    "reduction_abort": (c_int, [c_void_p, c_char_p, POINTER(Error)]),
    "reduction_reconfigure": (c_int, [c_void_p, c_int, c_int, c_int64, POINTER(Error)]),
    "reduction_rank": (c_int, [c_void_p]),
    "reduction_world_size": (c_int, [c_void_p]),
    "reduction_all_reduce_async": (
        c_int,
        [c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int, c_char_p, POINTER(c_void_p), POINTER(Error)],
    ),
    "reduction_priorities": (c_int, [c_void_p]),
    "reduction_all_reduce_tensor_async": (
        c_int,
        [c_void_p, POINTER(Tensor), POINTER(c_void_p), POINTER(Error)],
    ),
    "reduction_broadcast_tensor_async": (
        c_int,
        [c_void_p, POINTER(Tensor), c_int, POINTER(c_void_p), POINTER(Error)],
    ),
    "reduction_can_shard": (c_int, [c_void_p]),
    "reduction_reduce_scatter_tensor_async": (
        c_int,
        [c_void_p, POINTER(Tensor), POINTER(c_void_p), POINTER(Error)],
    ),
    "reduction_all_gather_tensor_async": (
        c_int,
        [c_void_p, POINTER(Tensor), POINTER(c_void_p), POINTER(Error)],
    ),
    "reduction_all_reduce_group_async": (
        c_int,
        [c_void_p, POINTER(Tensor), c_size_t, POINTER(c_void_p), POINTER(Error)],
    ),
    "reduction_wait": (c_int, [c_void_p, c_int, POINTER(Error)]),
    "reduction_test": (c_int, [c_void_p, POINTER(c_int), POINTER(Error)]),
    "reduction_buffer_alloc": (c_int, [c_void_p, c_size_t, POINTER(c_void_p), POINTER(Error)]),
    "reduction_buffer_free": (None, [c_void_p, c_void_p]),
    "reduction_buffer_unmap": (None, [c_void_p, c_size_t]),
    "reduction_get_stats": (c_int, [c_void_p, POINTER(StatsStruct), POINTER(Error)]),
}


def _candidates() -> List[pathlib.Path]:
    package = pathlib.Path(__file__).resolve().parent
    found = [package / "lib" / SONAME]
    found += [parent / SONAME for parent in package.parents if parent.name in ("lib", "lib64")]
    if package.parent.name == "python" and package.parent.parent.name == "agent":
        found.append(package.parents[2] / "build" / "default" / "lib" / SONAME)
    return found


def _open_library() -> ctypes.CDLL:
    named = os.environ.get(VARIABLE)
    if named:
        try:
            return ctypes.CDLL(named)
        except OSError as exc:
            raise LibraryError(f"{VARIABLE} names {named}, which cannot be loaded: {exc}") from None
    looked = []
    for path in _candidates():
        looked.append(str(path))
        if path.exists():
            try:
                return ctypes.CDLL(str(path))
            except OSError as exc:
                raise LibraryError(f"{path} cannot be loaded: {exc}") from None
    try:
        return ctypes.CDLL(SONAME)
    except OSError:
        raise LibraryError(
            f"{SONAME} was not found. Looked for: {', '.join(looked)}, and {SONAME} in the system's library path. "
            f"Build it with 'make', install it with 'make install', or set {VARIABLE} to its path."
        ) from None


def _declare(lib: ctypes.CDLL) -> ctypes.CDLL:
    for name, (result, arguments) in _FUNCTIONS.items():
        try:
            function = getattr(lib, name)
        except AttributeError:
            raise LibraryError(f"{lib._name} has no function {name}: it is not libreduction 0.1 or later") from None
        function.restype = result
        function.argtypes = arguments
    return lib


_lock = threading.Lock()
_loaded: List[ctypes.CDLL] = []


def load() -> ctypes.CDLL:
    """Returns the library, which is loaded at the first call. Raises LibraryError."""
    with _lock:
        if not _loaded:
            _loaded.append(_declare(_open_library()))
        return _loaded[0]


def library_version() -> str:
    """Returns the version of the loaded libreduction, for example "0.1.0". Raises LibraryError."""
    return load().reduction_version().decode()


def check(status: int, err: Error, context: Optional[str] = None) -> None:
    """Raises the exception for a status other than 0."""
    if status == errors.OK:
        return
    message = err.message.decode("utf-8", "replace") or load().reduction_status_text(status).decode()
    raise errors.make_error(status, f"{context}: {message}" if context else message)
