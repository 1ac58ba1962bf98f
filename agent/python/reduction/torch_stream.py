# SPDX-License-Identifier: Apache-2.0
"""Results of operations on torch's CUDA tensors, without a host that waits.

The happy path: an operation makes a side stream of its GPU wait for it, what has to follow is queued there, and an
event or a future takes its place behind that. Other streams then wait for the event. Failure modes: the driver cannot
make streams wait, or too many wait: the host waits instead. A stream that waits for an operation that fails goes on, so
somebody on the host has to ask the request for its error.
"""

import contextlib
from typing import Any, Dict, Iterator, Sequence

import torch

from . import _buffers, errors
from .comm import Request


def future_for(tensors: Sequence[torch.Tensor]) -> torch.futures.Future:
    """Returns a future for tensors, whose users wait on the GPU for what set_result() finds on the current stream."""
    devices = sorted({str(x.device) for x in tensors if x.device.type == "cuda"})
    return torch.futures.Future(devices=devices) if devices else torch.futures.Future()


class Arrivals:
    """The side stream of one GPU. It waits for operations in the order of the calls of follow()."""

    def __init__(self, device: torch.device):
        self.device = device
        self.stream = torch.cuda.Stream(device=device)
        self._departures: Any = None

    def current(self) -> Any:
        """Returns a context in which torch queues work on the side stream."""
        return torch.cuda.stream(self.stream)

    @contextlib.contextmanager
    def departing(self, after: Any) -> Iterator[None]:
        """A context in which torch queues work on another side stream, behind what is queued on the stream `after`."""
        if self._departures is None:
            self._departures = torch.cuda.Stream(device=self.device)
        self._departures.wait_stream(after)
        with torch.cuda.stream(self._departures):
            yield

    def follow(self, requests: Sequence[Request]) -> bool:
        """Makes the side stream wait for operations. Returns False if it cannot: then the host has to."""
        try:
            for request in requests:
                request.stream_wait(self.device.index, self.stream.cuda_stream)
        except errors.ReductionError:
            return False
        return True

    def event(self) -> Any:
        """Returns an event behind what is queued on the side stream."""
        event = torch.cuda.Event()
        event.record(self.stream)
        return event


class Places:
    """The side streams of the GPUs that a State or a process group uses."""

    def __init__(self) -> None:
        self._arrivals: Dict[torch.device, Arrivals] = {}

    def of(self, tensors: Sequence[torch.Tensor]) -> Any:
        """Returns the Arrivals of the GPU of the tensors, or None if they are in the host's memory."""
        if not tensors or not _buffers.torch_on_gpu(tensors[0]):
            return None
        device = tensors[0].device
        if device not in self._arrivals:
            self._arrivals[device] = Arrivals(device)
        return self._arrivals[device]
