# SPDX-License-Identifier: Apache-2.0
"""Which ranks of a group of torch.distributed share a node: each rank publishes what it knows in the group's store."""

import contextlib
import datetime
import hashlib
import ipaddress
import json
import os
import pathlib
import socket
import sys
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch
import torch.distributed

from . import errors
from .torch_identity import draw

_PREFIX_STORE = torch._C._distributed_c10d.PrefixStore
_PATIENCE = datetime.timedelta(seconds=10)  # before a rank that is awaited is named on stderr

NAME = "reduction"


class Fact(NamedTuple):
    """What one rank publishes when it makes a group."""

    rank: int
    world_size: int
    node: str  # equal for processes that share an agent, or can reach each other through abstract sockets
    restarts: int  # of torchrun; -1 without it
    serial: int  # see reduction.torch_group
    start: str  # of rank 0: see reduction.torch_identity
    address: str  # of this rank's machine, from which it reaches the store; "" if that is not known


def _read(path: pathlib.Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _machine() -> str:
    """Returns a text that processes of one machine share, and those of another have not."""
    boot = _read(pathlib.Path("/proc/sys/kernel/random/boot_id"))
    if boot:
        return boot
    # systemd's ProcSubset=pid hides it: then the addresses of the network cards, which
    # clones of a machine do not share
    cards = sorted(_read(path) for path in pathlib.Path("/sys/class/net").glob("*/address"))
    return " ".join([_read(pathlib.Path("/etc/machine-id")), *cards])


def _node() -> str:
    boot = _machine()
    said = [os.environ.get(name, "") for name in ("REDUCTION_AGENT", "GROUP_RANK", "SLURM_NODEID")]
    return " ".join([socket.gethostname(), boot, os.readlink("/proc/self/ns/net"), *said])


def of_attempt(store: Any) -> Any:
    """Returns the part of a store that belongs to this start of the ranks.

    torchrun keeps its store when it starts the ranks of a node again, with what killed ranks have left in it. With
    several nodes the nodes may count differently, and then torchrun itself makes new stores.
    """
    count = os.environ.get("TORCHELASTIC_RESTART_COUNT")
    if not count or os.environ.get("GROUP_WORLD_SIZE") != "1":
        return store
    return _PREFIX_STORE(f"attempt {count}", store)


def _toward(host: str, port: int) -> str:
    """Returns the address of this machine from which packets go to a host, or "". Nothing is sent."""
    with contextlib.suppress(OSError, UnicodeError):
        for family, kind, protocol, _, target in socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM):
            with contextlib.suppress(OSError), socket.socket(family, kind, protocol) as probe:
                probe.connect(target)
                return probe.getsockname()[0]
    return ""


def _master(store: Any) -> Optional[Tuple[str, int]]:
    """Returns host and port of the process that keeps the store, or None: a file, or the memory of this process."""
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    host = getattr(store, "host", None) or os.environ.get("MASTER_ADDR")
    return (host, getattr(store, "port", 1)) if host else None


def _leaves(address: str) -> bool:
    """Returns True for an address that other machines may reach."""
    if not address:
        return False
    found = ipaddress.ip_address(address.partition("%")[0])
    return not (found.is_loopback or found.is_link_local or found.is_unspecified)


def address_of(facts: Sequence[Fact], rank: int) -> str:
    """Returns the address at which the group's other ranks reach this one, or "" if that is not known.

    The name of a machine may have the address 127.0.1.1 on it, also that of the machine that keeps the store. Such a
    rank takes the address from which it reaches a rank on another machine.
    """
    own = facts[rank]
    if all(fact.node == own.node for fact in facts):
        return "127.0.0.1"
    if _leaves(own.address):
        return own.address
    for fact in facts:
        found = _toward(fact.address, 1) if _leaves(fact.address) else ""
        if _leaves(found):
            return found
    return own.address


def _wait(store: Any, key: str, what: str, timeout: datetime.timedelta) -> None:
    """Waits for a key. After 10 s it says on stderr what is missing, once."""
    if timeout > _PATIENCE:
        try:
            store.wait([key], _PATIENCE)
            return
        except RuntimeError:
            text = f"{NAME}: waiting for {what} to make this process group with the backend {NAME}"
            replaced = "REDUCTION_REPLACE" in os.environ
            hint = " (REDUCTION_REPLACE is set here: it must be set on all ranks)" if replaced else ""
            print(text + hint, file=sys.stderr, flush=True)
            timeout -= _PATIENCE
    store.wait([key], timeout)


def _keeps_nothing(store: Any) -> errors.ReductionError:
    sentence = f"the {type(store).__name__} does not keep what ranks publish (FakeStore does not)"
    return errors.ReductionError(errors.EINVAL, sentence)


def exchange(store: Any, rank: int, world_size: int, serial: int, timeout: datetime.timedelta) -> List[Fact]:
    """Publishes this rank's fact and returns those of all ranks. Raises MismatchError if a rank differs."""
    restarts, master = int(os.environ.get("TORCHELASTIC_RESTART_COUNT") or -1), _master(store)
    own = Fact(rank, world_size, _node(), restarts, serial, draw(), _toward(*master) if master else "")
    try:
        store.set(f"{NAME}/{rank}", json.dumps(own))
    except RuntimeError as exc:
        if "Not implemented" not in str(exc):
            raise
        raise _keeps_nothing(store) from None
    facts = []
    for other in range(world_size):
        key = f"{NAME}/{other}"
        try:
            _wait(store, key, f"rank {other} of {world_size}", timeout)
        except Exception as exc:
            raise errors.ReductionTimeoutError(
                errors.ETIMEOUT,
                f"rank {other} of {world_size} has not made this process group with the backend {NAME} within "
                f"{timeout.total_seconds():g} s: it is missing, or was called with another backend or world size "
                f"({type(exc).__name__})",
            ) from None
        text = store.get(key)
        if not text:
            raise _keeps_nothing(store)
        fact = Fact(*json.loads(text))
        if fact.world_size != world_size:
            raise errors.MismatchError(
                errors.EMISMATCH,
                f"rank {fact.rank} has world size {fact.world_size}, but rank {rank} has {world_size}: all ranks must "
                "make the process group with the same world size",
            )
        facts.append(fact)
    return facts


def place(facts: Sequence[Fact], rank: int) -> Dict[str, Any]:
    """Returns the options that say which ranks of the group share a node.

    The library knows groups of equally many ranks on each node, node by node; in any other group each rank talks to the
    reducers itself.
    """
    nodes = [fact.node for fact in facts]
    own = [i for i, node in enumerate(nodes) if node == nodes[rank]]
    size = len(own)
    blocks = [set(nodes[i : i + size]) for i in range(0, len(nodes), size)]
    regular = len(nodes) % size == 0 and all(len(block) == 1 for block in blocks)
    if not regular or len(blocks) != len(set(nodes)):
        return {"mode": "direct"}
    return {"local_rank": own.index(rank), "local_world_size": size}


def gpus_shard(facts: Sequence[Fact], mode: str) -> bool:
    """Returns whether reduce-scatters and all-gathers of GPUs' tensors go through reducers, if they can.

    NCCL does them within a node. For several GPUs on each of several nodes it sends no more over the network than for
    one, and uses no host memory: so it has them, unless the mode is said.

    Args:
        mode: of the group; "auto" if it is not said.
    """
    nodes = {fact.node for fact in facts}
    if mode == "direct":
        return True
    return len(nodes) > 1 and (mode != "auto" or len(nodes) == len(facts))


def unplaced() -> bool:
    """Returns True if the launcher does not say which ranks share a node, as with mp.spawn and mpirun."""
    return not any(os.environ.get(name) for name in ("LOCAL_WORLD_SIZE", "REDUCTION_LOCAL_WORLD_SIZE"))


def digest(text: str) -> str:
    """Returns the name of a group's communicator: the digits behind the job's name."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]
