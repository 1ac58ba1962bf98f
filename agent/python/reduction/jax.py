# SPDX-License-Identifier: Apache-2.0
"""The collectives of JAX on CPUs through reducers.

    import reduction.jax                        # before jax
    import jax

    jax.distributed.initialize()                # or with coordinator_address, num_processes, process_id

Everything else stays as it is: `jax.jit` over a mesh of all processes, `shard_map`, `psum`. jaxlib opens the library
that the variable MPITRAMPOLINE_LIB names; this module names libreduction-jax.so, which lies beside libreduction.so. The
job is opened in `jax.distributed.initialize`: with rank and world size of jax, and a `run` that process 0 draws and the
coordinator's store carries. Each process has one CPU device.
"""

import atexit
import ctypes
import functools
import os
import pathlib
import re
import secrets
import socket
import sys
from typing import Any, Callable, Dict, Mapping, Optional

from . import _lib, errors

_FILE = "libreduction-jax.so"
_LIBRARY = "MPITRAMPOLINE_LIB"
_CHOICE = "JAX_CPU_COLLECTIVES_IMPLEMENTATION"
_RUN = "reduction/run"
_FAILED_BYTES = 508


def _find() -> str:
    """Returns the path of the library, or its name if the system's loader knows it. Raises LibraryError."""
    main = pathlib.Path(_lib.load()._name)
    path = str(main.with_name(_FILE)) if main.is_absolute() else _FILE
    try:
        ctypes.CDLL(path)
    except OSError as exc:
        raise _lib.LibraryError(f"{path} cannot be loaded, which is installed beside {main}: {exc}") from None
    return path


def _load_jax() -> Any:
    """Sets the variables that jaxlib reads, and imports jax. Raises ImportError."""
    path = _find()
    chosen = os.environ.get(_CHOICE)
    if chosen not in (None, "", "mpi"):
        raise ImportError(f"{_CHOICE}={chosen} is set, but reduction.jax needs `mpi`: unset it")
    if "jaxlib" in sys.modules and (os.environ.get(_LIBRARY) != path or not chosen):
        raise ImportError(
            "jax was imported before reduction.jax and has chosen its collectives: import reduction.jax first"
        )
    os.environ[_LIBRARY] = path
    os.environ[_CHOICE] = "mpi"
    library = _declare(ctypes.CDLL(path))
    atexit.register(library.reduction_jax_close)  # before jax's functions, so after them at the end
    library.reduction_jax_loading(1)
    try:
        import jax
        import jax.distributed
    finally:
        library.reduction_jax_loading(0)
    return library


def _declare(library: ctypes.CDLL) -> ctypes.CDLL:
    library.reduction_jax_open.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(_lib.Error)]
    library.reduction_jax_open.restype = ctypes.c_int
    library.reduction_jax_failed.argtypes = [ctypes.c_char_p]
    library.reduction_jax_failed.restype = ctypes.c_int
    library.reduction_jax_close.argtypes = []
    library.reduction_jax_close.restype = None
    library.reduction_jax_loading.argtypes = [ctypes.c_int]
    library.reduction_jax_loading.restype = None
    return library


def _launched(env: Mapping[str, str]) -> Dict[str, Any]:
    """Returns the arguments of jax.distributed.initialize that torchrun's variables give; {} without them.

    torchrun's own store has the port MASTER_PORT, so the coordinator of jax gets the next one.
    """
    if not all(env.get(name) for name in ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE")):
        return {}
    port = int(env["MASTER_PORT"]) + (env.get("TORCHELASTIC_USE_AGENT_STORE") == "True")
    host = env["MASTER_ADDR"]
    return {
        "coordinator_address": f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
        "num_processes": int(env["WORLD_SIZE"]),
        "process_id": int(env["RANK"]),
    }


def _draw() -> str:
    """Returns the run of a new start: readable, and random at its end."""
    return re.sub(r"[^!-~]", "?", f"jax@{socket.gethostname()[:40]}+{secrets.token_hex(8)}")


def _agree(state: Any, timeout_s: float) -> Optional[str]:
    """Returns the run that process 0 has drawn, from the coordinator's store; None: REDUCTION_RUN has it."""
    if os.environ.get("REDUCTION_RUN"):
        return None
    if state.process_id == 0:
        run = _draw()
        state.client.key_value_set(_RUN, run)
        return run
    return state.client.blocking_key_value_get(_RUN, int(timeout_s * 1000))


def _open(library: ctypes.CDLL, state: Any, timeout_s: float) -> None:
    run = _agree(state, timeout_s)
    error = _lib.Error()
    status = library.reduction_jax_open(state.process_id, state.num_processes, run and run.encode(), error)
    _lib.check(status, error, "jax.distributed.initialize")


def _wrap_initialize(library: ctypes.CDLL, state: Any, original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def initialize(*args: Any, **kwargs: Any) -> None:
        given = {**({} if args or kwargs.get("coordinator_address") else _launched(os.environ)), **kwargs}
        original(*args, **given)
        _open(library, state, given.get("initialization_timeout", 300))

    return initialize


def _check_devices(devices: Any, state: Any) -> None:
    """Raises an exception for devices whose collectives would not be right, or would wait for ever."""
    flat = list(devices.flat)
    if state.client is None or len(flat) < 2 or flat[0].platform != "cpu":
        return
    processes = sorted({device.process_index for device in flat})
    if len(processes) < len(flat):
        raise errors.ReductionError(
            errors.EUNSUPPORTED,
            f"reduction.jax: this computation uses {len(flat)} CPU devices of {len(processes)} processes; reducers "
            "need one device in each process (jax_num_cpu_devices=1, no --xla_force_host_platform_device_count)",
        )
    if len(processes) < state.num_processes:
        absent = sorted(set(range(state.num_processes)) - set(processes))
        raise errors.ReductionError(
            errors.EUNSUPPORTED,
            f"reduction.jax: this computation leaves out process {', '.join(map(str, absent))} of "
            f"{state.num_processes}; its mesh must have a device of each process, and may reduce over some of its axes",
        )


def _wrap_compile(state: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def compile_or_get_cached(backend: Any, computation: Any, devices: Any, *args: Any, **kwargs: Any) -> Any:
        _check_devices(devices, state)
        return original(backend, computation, devices, *args, **kwargs)

    return compile_or_get_cached


def _end(library: ctypes.CDLL, state: Any) -> None:
    """After an error jax must not wait at its end for processes that may be lost, as the destructors do too."""
    text = ctypes.create_string_buffer(_FAILED_BYTES)
    if library.reduction_jax_failed(text) or getattr(sys, "last_value", None) is not None:
        for kept in (state.preemption_sync_manager, state.client, state.service):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))
        state.client = state.service = state.preemption_sync_manager = None


def _install() -> None:
    library = _load_jax()
    import jax
    from jax._src import compiler, distributed
    from jax._src.lib import _jax

    needed = {"make_mpi_collectives": _jax, "compile_or_get_cached": compiler, "global_state": distributed}
    missing = [name for name, place in needed.items() if not hasattr(place, name)]
    if missing:
        raise ImportError(f"reduction.jax does not know jax {jax.__version__}: it has no {', '.join(missing)}")
    state = distributed.global_state
    jax.distributed.initialize = _wrap_initialize(library, state, jax.distributed.initialize)
    compiler.compile_or_get_cached = _wrap_compile(state, compiler.compile_or_get_cached)
    atexit.register(_end, library, state)


_install()
