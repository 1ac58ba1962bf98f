# SPDX-License-Identifier: Apache-2.0
"""Members: which sites take part in outer steps, agreed through a store. `reduction.torch.Members` is this class.

The happy path: each site counts a beat in the store every second. A site that needs a communicator puts its name on the
list of the next generation, and so do the members of the current one when they learn of it. When all of them that are
alive are on the list, whichever sees it first closes it; its order gives the ranks. Failure modes: a member whose beat
stands still is not waited for. A site that comes when the list is closed, or whose list fails because another one was
lost meanwhile, goes to the next list. Sites change only between operations, never within one.
"""

import json
import sys
import threading
import time
from typing import Any, Dict, List, Optional

from . import errors
from .comm import Communicator

_BEAT_S = 1.0
_POLL_S = 0.1
_ATTEMPTS = 10  # failures to open a communicator, one after the other, until join() gives up
_SETTLE_S = 1.0  # after the last arrival: sites that come at the same time share a list


class Members:
    """The sites that are alive. A site's leader makes one, and Outer uses it.

    Args:
        store: a torch.distributed.TCPStore on a machine that outlives the sites, such as a reducer's. Used by one
            thread at a time. Two Members must not share one connection.
        name: of this site, different for each site. A site that comes back has the name that it had.
        sites: number of sites that the first generation waits for.
        patience: seconds without a beat after which a site counts as lost.
        options: of Communicator, but not rank, world_size and generation. connect_timeout is 60 s unless given.
    """

    def __init__(self, store: Any, name: str, sites: int, *, patience: float = 10.0, **options: Any):
        if sites < 1:
            raise ValueError(f"sites is {sites}; 1 or more was expected")
        if patience < 2 * _BEAT_S:
            raise ValueError(f"patience is {patience} s; {2 * _BEAT_S} s or more were expected")
        for word in ("rank", "world_size", "generation"):
            if word in options:
                raise ValueError(f"{word} follows from the sites that are alive; it cannot be given")
        self._store = store
        self._name = name
        self._sites = sites
        self._patience = patience
        self._options = {"connect_timeout": 60.0, "mode": "direct", **options}
        self._lock = threading.Lock()  # for the store and what follows
        self._generation = 0  # that of the last closed list which this site knows
        self._seen: Dict[str, Any] = {}  # name -> (last count of beats, when it changed)
        self._failed: Optional[Exception] = None
        self._closed = threading.Event()
        self._asked = 0  # a list on which this site has seen a name
        self._thread = threading.Thread(target=self._beat, name="reduction-members", daemon=True)
        self._thread.start()

    def _key(self, *words: Any) -> str:
        return "/".join(["reduction-members", *map(str, words)])

    def _peek(self, key: str) -> str:
        """Returns a value of the store, or "" if there is none. Does not wait, as get() would."""
        with self._lock:
            value = self._store.compare_set(key, "", "")
        return value.decode() if isinstance(value, bytes) else str(value)

    def _count(self, key: str, more: int = 0) -> int:
        with self._lock:
            return self._store.add(key, more)

    def _beat(self) -> None:
        try:
            while not self._closed.is_set():
                self._count(self._key("beat", self._name), 1)
                number = self._generation + 1
                if self._count(self._key("list", number, "count")) > 0:
                    self._asked = number
                self._closed.wait(_BEAT_S)
        except RuntimeError as exc:  # the store is gone: members go on, and cannot change
            self._failed = exc

    @property
    def wanted(self) -> bool:
        """True if a site waits for the next generation."""
        return self._asked > self._generation

    def _check(self) -> None:
        if self._closed.is_set():
            raise errors.ClosedError(errors.ECLOSED, f"Members of site {self._name} is closed")
        if self._failed is not None:
            raise errors.ReductionError(errors.EIO, f"the store of the sites cannot be used: {self._failed}")

    def join(self) -> Communicator:
        """Returns a communicator of the sites that are alive. Waits for them.

        Raises:
            ReductionError: the store cannot be used, the configuration is wrong, or the sites have met several times
                and could not open a communicator.
            ClosedError: close() was called meanwhile.
        """
        failures = 0
        while True:
            try:
                names = self._agree()
            except RuntimeError as exc:
                self._check()
                raise errors.ReductionError(errors.EIO, f"the store of the sites cannot be used: {exc}") from exc
            if self._name not in names:
                continue  # too late for this list; its members see that somebody waits for the next one
            try:
                comm = Communicator(
                    rank=names.index(self._name),
                    world_size=len(names),
                    generation=self._generation,
                    **self._options,
                )
            except (errors.ConfigError, errors.MismatchError):
                raise
            except errors.ReductionError as exc:
                failures += 1
                if failures == _ATTEMPTS:
                    raise
                print(f"reduction: sites meet again: generation {self._generation}: {exc}", file=sys.stderr, flush=True)
                continue
            return comm

    def _agree(self) -> List[str]:
        """Puts this site on the list of the next generation, and returns that list once it is closed."""
        self._catch_up()
        before = self._list(self._generation)
        number = self._generation + 1
        entry = self._count(self._key("list", number, "count"), 1) - 1
        with self._lock:
            self._store.set(self._key("list", number, entry), self._name)
        arrived, last = 0, time.monotonic()
        while True:
            self._check()
            closed = self._list(number)
            if closed:
                self._generation = number
                return closed
            names = self._waiting(number)
            now = time.monotonic()
            if len(names) != arrived:
                arrived, last = len(names), now
            enough = all(name in names or not self._is_alive(name) for name in before)
            if enough and now - last >= _SETTLE_S and (before or len(names) >= self._sites):
                with self._lock:
                    self._store.compare_set(self._key("list", number), "", json.dumps(names))
            self._closed.wait(_POLL_S)

    def _catch_up(self) -> None:
        """Finds the last closed list."""
        number = max(self._generation, int(self._peek(self._key("latest")) or 0))
        while self._list(number + 1):
            number += 1
        self._generation = number
        with self._lock:
            self._store.set(self._key("latest"), str(number))  # at most the last one: a start for such searches

    def _list(self, number: int) -> List[str]:
        text = self._peek(self._key("list", number)) if number else ""
        return json.loads(text) if text else []

    def _waiting(self, number: int) -> List[str]:
        """Returns the names on a list that is still open, in order."""
        count = self._count(self._key("list", number, "count"))
        names = {self._peek(self._key("list", number, entry)) for entry in range(count)}
        return sorted(names - {""})

    def _is_alive(self, name: str) -> bool:
        beats, now = self._count(self._key("beat", name)), time.monotonic()
        seen = self._seen.get(name)
        if seen is None or seen[0] != beats:
            seen = self._seen[name] = (beats, now)
        return now - seen[1] < self._patience

    def close(self) -> None:
        """Stops the beat; join() in another thread raises ClosedError. May be called again."""
        self._closed.set()
