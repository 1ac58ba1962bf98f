# SPDX-License-Identifier: Apache-2.0
"""Which ranks of a group of torch.distributed share a node: each rank publishes what it knows in the group's store."""

import datetime
import hashlib
import json
import os
import pathlib
import socket
from typing import Any, Dict, List, NamedTuple, Sequence

from . import errors

NAME = "reduction"


class Fact(NamedTuple):
    """What one rank publishes when it makes a group."""

    rank: int
    world_size: int
    node: str  # equal for processes that share an agent, or can reach each other through abstract sockets
    restarts: int  # of torchrun; -1 without it
    serial: int  # see reduction.torch_group


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
    # systemd's ProcSubset=pid hides it: then the addresses of the network cards, which clones of a machine do not share
    cards = sorted(_read(path) for path in pathlib.Path("/sys/class/net").glob("*/address"))
    return " ".join([_read(pathlib.Path("/etc/machine-id")), *cards])


def _node() -> str:
    boot = _machine()
    said = [os.environ.get(name, "") for name in ("REDUCTION_AGENT", "GROUP_RANK", "SLURM_NODEID")]
    return " ".join([socket.gethostname(), boot, os.readlink("/proc/self/ns/net"), *said])


def exchange(store: Any, rank: int, world_size: int, serial: int, timeout: datetime.timedelta) -> List[Fact]:
    """Publishes this rank's fact and returns those of all ranks. Raises MismatchError if a rank differs."""
    own = Fact(rank, world_size, _node(), int(os.environ.get("TORCHELASTIC_RESTART_COUNT") or -1), serial)
    store.set(f"{NAME}/{rank}", json.dumps(own))
    facts = []
    for other in range(world_size):
        key = f"{NAME}/{other}"
        try:
            store.wait([key], timeout)
        except Exception as exc:
            raise errors.ReductionTimeoutError(
                errors.ETIMEOUT,
                f"rank {other} of {world_size} has not made this process group with the backend {NAME} within "
                f"{timeout.total_seconds():g} s: it is missing, or was called with another backend or world size "
                f"({type(exc).__name__})",
            ) from None
        fact = Fact(*json.loads(store.get(key)))
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


def digest(text: str) -> str:
    """Returns the name of a group's communicator: the digits behind the job's name."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]
