# SPDX-License-Identifier: Apache-2.0
"""Small messages from rank to rank, through the store of their group: `send`, `recv` and `monitored_barrier` of
torch.distributed.

The happy path: the sender puts the bytes under a key of the sender, the receiver, the tag and a number, and goes on.
The receiver takes them from there. So two ranks need no connection to each other, and a send waits for nobody. Failure
modes: no message comes within the timeout. The store does not say whether the sender still lives.
"""

import collections
import contextlib
import ctypes
import datetime
import threading
import time
from typing import Any, Counter, List, Optional, Sequence

import torch

from . import errors
from .torch_work import Channel

_c10d = torch._C._distributed_c10d
# One wait for the store. Other threads cannot use a TCPStore meanwhile.
_SLICE = datetime.timedelta(milliseconds=20)
_PATIENCE = 5.0  # seconds that rank 0 has for the end of a barrier
_SLICE_OF_ANY = datetime.timedelta(milliseconds=1)  # for each rank


def bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the bytes of a dense tensor in the host's memory as uint8, without a copy."""
    return tensor.detach().reshape(-1).view(torch.uint8)


def _content(whole: torch.Tensor) -> bytes:
    return ctypes.string_at(whole.data_ptr(), whole.numel())


class Mailbox:
    """The messages of one group.

    Args:
        store: the group's.
        channel: of the group, whose timeout and end are those of the messages.
    """

    def __init__(self, store: Any, rank: int, size: int, channel: Channel):
        self._store = _c10d.PrefixStore("mail", store)
        self._rank, self._size = rank, size
        self.channel = channel
        self._lock = threading.Lock()
        self._sent: Counter[Sequence[int]] = collections.Counter()
        self._awaited: Counter[Sequence[int]] = collections.Counter()
        self._barriers = 0

    def send(self, dense: torch.Tensor, to: int, tag: int) -> Any:
        """Sends a dense tensor, which the caller may change when this returns. Returns a Work that is done."""
        with self._lock:
            number = self._sent[to, tag]
            self._sent[to, tag] += 1
        self._store.set(f"{self._rank} {to} {tag} {number}", _content(bytes_of(dense)))
        done: torch.futures.Future = torch.futures.Future()
        done.set_result([dense])
        return _c10d._create_work_from_future(done)

    def receive(self, tensors: List[torch.Tensor], source: Optional[int], tag: int) -> "Letter":
        """Returns the Work that fills the tensor. The order of these calls says which message it gets."""
        return Letter(self, tensors, source, tag, None if source is None else self._take_number(source, tag))

    def _take_number(self, source: int, tag: int) -> int:
        with self._lock:
            self._awaited[source, tag] += 1
            return self._awaited[source, tag] - 1

    def _key(self, source: int, tag: int, number: int) -> str:
        return f"{source} {self._rank} {tag} {number}"

    def wait(self, key: str, patience: datetime.timedelta) -> bool:
        """Returns True as soon as the key is there, or False."""
        try:
            self._store.wait([key], patience)
        except RuntimeError:
            return False
        return True

    def find(self, source: int, tag: int, number: int) -> Optional[bytes]:
        """Returns the message if it comes soon."""
        key = self._key(source, tag, number)
        if not self.wait(key, _SLICE):
            return None
        data = self._store.get(key)
        with contextlib.suppress(RuntimeError):  # not all stores can
            self._store.delete_key(key)
        return data

    def find_any(self, tag: int) -> Optional[int]:
        """Returns a rank whose next message has come. That message is then the caller's."""
        for source in range(self._size):
            with self._lock:
                number = self._awaited[source, tag]
                if self.wait(self._key(source, tag, number), _SLICE_OF_ANY):
                    self._awaited[source, tag] += 1
                    return source
        return None

    def _comes(self, key: str, until: float) -> bool:
        while not self.wait(key, _SLICE):
            if time.monotonic() > until:
                return False
        return True

    def barrier(self, seconds: float, all_missing: bool) -> None:
        """Waits for all ranks. Raises ReductionTimeoutError, with gloo's words, if some do not come: rank 0 names the
        first one of them, or all, and the others hear of it."""
        self._barriers += 1
        key, limit = f"barrier {self._barriers}", f"in {seconds * 1000:.0f} ms"
        until, text = time.monotonic() + seconds, "passed"
        if self._rank:
            self._store.set(f"{key} {self._rank}", "")
            if not self._comes(f"{key} ended", until + _PATIENCE):
                text = f"Rank {self._rank} timed out in monitoredBarrier: rank 0 has not called it {limit}"
            elif self._store.get(f"{key} ended") != b"passed":
                found = self._store.get(f"{key} ended").decode()
                text = f"Rank {self._rank} successfully reached monitoredBarrier, but rank 0 says: {found}"
        else:
            missing = [str(i) for i in range(1, self._size) if not self._comes(f"{key} {i}", until)]
            if missing:
                ranks = f"Ranks {', '.join(missing)}" if all_missing else f"Rank {missing[0]}"
                text = f"{ranks} failed to pass monitoredBarrier {limit}"
            self._store.set(f"{key} ended", text)
        if text != "passed":
            raise errors.ReductionTimeoutError(errors.ETIMEOUT, text)

    def number_of_last(self, source: int, tag: int) -> int:
        """Returns the number of the message that find_any() has found."""
        return self._awaited[source, tag] - 1


class Letter(_c10d.Work):
    """A message that is awaited. It is taken from the store by the thread that waits."""

    def __init__(
        self, box: Mailbox, tensors: List[torch.Tensor], source: Optional[int], tag: int, number: Optional[int]
    ):
        super().__init__()
        self._box = box
        self._tensors = tensors
        self._source, self._tag, self._number = source, tag, number
        self._lock = threading.Lock()
        self._done = False
        self._future: Optional[torch.futures.Future] = None

    def _take(self) -> bool:
        """Takes the message if it comes soon."""
        with self._lock:
            if self._done:
                return True
            if self._source is None:
                self._source = self._box.find_any(self._tag)
                if self._source is None:
                    return False
                self._number = self._box.number_of_last(self._source, self._tag)
            assert self._number is not None
            data = self._box.find(self._source, self._tag, self._number)
            if data is None:
                return False
            target = self._tensors[0].detach()
            if len(data) != target.numel() * target.element_size():
                raise errors.MismatchError(
                    errors.EMISMATCH,
                    f"rank {self._source} has sent {len(data)} bytes, {target.numel() * target.element_size()} were "
                    "expected",
                )
            if data:
                found = torch.frombuffer(bytearray(data), dtype=torch.uint8)
                target.copy_(found.view(target.dtype).reshape(target.shape))
            self._done = True
            return True

    def wait(self, timeout: Any = None) -> bool:
        """Waits until the message is in the tensor. Raises ReductionTimeoutError after `timeout` (a timedelta), or
        after the timeout of the group."""
        given = timeout.total_seconds() if timeout is not None else 0
        limit = given if given > 0 else self._box.channel.timeout
        until = time.monotonic() + limit
        while not self._take():
            self._box.channel.check_usable()
            if time.monotonic() > until:
                sender = "any rank" if self._source is None else f"rank {self._source}"
                raise errors.ReductionTimeoutError(
                    errors.ETIMEOUT,
                    f"recv timed out: no message with tag {self._tag} has come from {sender} within {limit:g} s",
                )
        return True

    def synchronize(self) -> None:
        """As wait()."""
        self.wait()

    def is_completed(self) -> bool:
        """Returns True if the message has come."""
        return self._take()

    def source_rank(self) -> int:
        """Returns the rank of the group that has sent the message."""
        return -1 if self._source is None else self._source

    _source_rank = source_rank

    def get_future(self) -> torch.futures.Future:
        """Returns a future whose value is the list of the tensors. A thread waits for the message."""
        if self._future is None:
            self._future = torch.futures.Future()
            threading.Thread(target=self._settle, args=(self._future,), name="reduction-mail", daemon=True).start()
        return self._future

    def _settle(self, future: torch.futures.Future) -> None:
        try:
            self.wait()
        except Exception as exc:
            future.set_exception(exc)
        else:
            future.set_result(self._tensors)
