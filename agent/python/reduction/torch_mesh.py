# SPDX-License-Identifier: Apache-2.0
"""The connections of gloo between the ranks of a group, made when an operation first needs them.

The happy path: the first operation that neither reducers nor the store can do makes a mesh, in which each rank connects
to each other one. All ranks call that operation, so all of them come. Sends and receives are calls of two ranks only.
If torch's gloo can connect ranks one by one they have connections of their own, else they use the mesh. gloo uses the
network card that reaches the other ranks (torch_place.address_of). Failure modes: a rank does not come, or cannot be
connected. Then an error says so within the group's timeout, and all later operations that need gloo raise it again.
"""

import datetime
import os
import threading
import time
from typing import Any, Callable, List, Optional, Set

import torch

from . import errors

_c10d = torch._C._distributed_c10d
# some builds of torch have no gloo, which is then an error of the operation that needs it
_GLOO: Any = getattr(_c10d, "ProcessGroupGloo", None)
_ONE_BY_ONE = "lazy_init" in (getattr(_GLOO, "create_device", None).__doc__ or "")
_CARD = "GLOO_SOCKET_IFNAME"


def _within(seconds: float, call: Callable[[], Any]) -> Any:
    """Returns what the call returns, or raises its exception. gloo's own limits are several times its timeout: after
    `seconds` the call is left to a thread that ends with it."""
    found: List[Any] = []

    def run() -> None:
        try:
            found.append(call())
        except Exception as exc:
            found.append(exc)

    thread = threading.Thread(target=run, name="reduction-gloo", daemon=True)
    thread.start()
    thread.join(min(seconds, threading.TIMEOUT_MAX))
    if not found:
        raise RuntimeError(f"not done within {seconds:.3g} s")
    if isinstance(found[0], Exception):
        raise found[0]
    return found[0]


class Mesh:
    """gloo for one group. Its ranks make one each, which connects nothing yet.

    Args:
        store: the group's.
        address: the one that the other ranks reach; "" if it is not known.
    """

    def __init__(self, store: Any, rank: int, size: int, timeout: datetime.timedelta, address: str):
        self._store = _c10d.PrefixStore("gloo", store)
        self._rank, self._size = rank, size
        self._address = address
        self.timeout = timeout
        self._lock = threading.Lock()
        self._whole: Any = None
        self._pairs: Any = None
        self._error: Optional[str] = None
        self._met: Set[int] = set()  # ranks to which _pairs is connected

    def made(self) -> List[Any]:
        """Returns the groups of gloo that have been made."""
        return [group for group in (self._whole, self._pairs) if group is not None]

    def whole(self) -> Any:
        """Returns the group in which all ranks are connected. All ranks call this. Raises PeerLostError."""
        with self._lock:
            if self._whole is None:
                self._raise_again()
                until = time.monotonic() + self.timeout.total_seconds()
                self._wait_for_all(until)
                try:
                    self._whole = _within(until - time.monotonic(), lambda: self._make("mesh", False))
                except Exception as exc:
                    self._fail("the others", exc)
            return self._whole

    def call(self, method: str, tensors: List[torch.Tensor], *args: int) -> Any:
        """Calls send, recv or recv_anysource of gloo. Raises PeerLostError if the other rank cannot be connected.

        Args:
            args: of the method. The first one is the other rank, but for recv_anysource.
        """
        if not self.can_connect_one_by_one():
            return getattr(self.whole(), method)(tensors, *args)
        start = getattr(self._one_by_one(), method)
        other = None if method == "recv_anysource" else args[0]
        if other is None or other in self._met:
            return start(tensors, *args)
        try:
            work = _within(self.timeout.total_seconds(), lambda: start(tensors, *args))
        except Exception as exc:
            raise self._lost(f"rank {other}, which may not have called its part of {method}", exc) from None
        self._met.add(other)
        return work

    @staticmethod
    def can_connect_one_by_one() -> bool:
        """Returns True if gloo connects two ranks when they need it."""
        return _ONE_BY_ONE and "GLOO_DEVICE_TRANSPORT" not in os.environ  # TLS connects all ranks only

    def _one_by_one(self) -> Any:
        with self._lock:
            self._raise_again()
            if self._pairs is None:
                try:
                    self._pairs = self._make("pairs", True)
                except Exception as exc:
                    self._fail("the others", exc)
            return self._pairs

    def unconnected(self) -> Any:
        """Returns a group of gloo that connects two ranks when they first need it, or None if there is none."""
        if not self.can_connect_one_by_one():
            return None
        try:
            return self._one_by_one()
        except errors.PeerLostError:
            return None

    def _make(self, name: str, one_by_one: bool) -> Any:
        if _GLOO is None:
            raise RuntimeError("this torch has no gloo")
        how = {"lazy_init": True} if one_by_one else {}
        cards = os.environ.get(_CARD)
        if cards:
            devices = [_GLOO.create_device(interface=card, **how) for card in cards.split(",")]
        elif self._address:
            devices = [_GLOO.create_device(hostname=self._address, **how)]
        else:
            devices = [_GLOO.create_default_device(**how)]
        options = _GLOO._Options()
        options._devices = devices
        options._threads = 2 * len(devices)
        options._timeout = self.timeout
        return _GLOO(_c10d.PrefixStore(name, self._store), self._rank, self._size, options)

    def _wait_for_all(self, until: float) -> None:
        """Waits until all ranks need gloo: the network is not at fault if one does not."""
        self._store.set(f"comes {self._rank}", "")
        for other in range(self._size):
            left = max(until - time.monotonic(), 0.001)
            try:
                self._store.wait([f"comes {other}"], datetime.timedelta(seconds=left))
            except RuntimeError:
                self._error = (
                    f"an operation that the reducers cannot do needs connections between all ranks of the group, and "
                    f"rank {other} has not called one within {self.timeout.total_seconds():g} s"
                )
                raise errors.ReductionTimeoutError(errors.ETIMEOUT, self._error) from None

    def _raise_again(self) -> None:
        if self._error is not None:
            raise errors.PeerLostError(errors.EPEER, self._error)

    def _lost(self, others: str, exc: Exception) -> errors.ReductionError:
        cards = os.environ.get(_CARD)
        if cards:
            way = f"over {_CARD}={cards}"
        else:
            way = f"at its address {self._address}" if self._address else "at the address of its machine's name"
        sentence = (
            f"gloo, which does what the reducers cannot do, does not connect rank {self._rank} {way} to {others} "
            f"within {self.timeout.total_seconds():g} s: set {_CARD} to a network card that reaches them, such as "
            f"eth0, and let workers connect to each other on all ports (firewall, NetworkPolicy, service mesh) ({exc})"
        )
        return errors.PeerLostError(errors.EPEER, sentence)

    def _fail(self, others: str, exc: Exception) -> None:
        error = self._lost(others, exc)
        self._error = str(error)
        raise error from None

    def set_timeout(self, timeout: datetime.timedelta) -> None:
        """Sets the timeout of operations and of connecting from now on."""
        self.timeout = timeout
        for group in self.made():
            if hasattr(group, "_set_default_timeout"):
                group._set_default_timeout(timeout)
