# SPDX-License-Identifier: Apache-2.0
"""What follows operations on torch's CUDA tensors, on a side stream of their GPU.

The host waits for an operation, and then queues what follows it, with an event or a future behind that. No stream ever
waits for an operation: a call of CUDA may hold the driver's lock until the GPU has done its work (the first launch of a
kernel does), and the thread that copies the result to the GPU would wait for that lock. CUDA's documentation of
cuStreamWaitValue32 warns of this.
"""

import contextlib
from typing import Any, Dict, Iterator, Sequence

import torch

from . import _buffers


def future_for(tensors: Sequence[torch.Tensor]) -> torch.futures.Future:
    """Returns a future for tensors, whose users wait on the GPU for what set_result() finds on the current stream."""
    devices = sorted({str(x.device) for x in tensors if x.device.type == "cuda"})
    return torch.futures.Future(devices=devices) if devices else torch.futures.Future()


class Arrivals:
    """The side streams of one GPU."""

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
