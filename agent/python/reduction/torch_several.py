# SPDX-License-Identifier: Apache-2.0
"""Works that are waited for as one: those between start_coalescing() and end_coalescing()."""

from typing import Any, Sequence

import torch
import torch.distributed


class Several(torch._C._distributed_c10d.Work):
    """Works that are waited for as one."""

    def __init__(self, works: Sequence[Any]):
        super().__init__()
        self._works = works

    def wait(self, timeout: Any = None) -> bool:
        """Waits for all of them. Raises the first error."""
        for work in self._works:
            work.wait() if timeout is None else work.wait(timeout)
        return True

    def synchronize(self) -> None:
        """As wait()."""
        self.wait()

    def is_completed(self) -> bool:
        """Returns True if all of them have ended."""
        return all(work.is_completed() for work in self._works)

    def get_future(self) -> torch.futures.Future:
        """Returns a future whose value is the list of the values of their futures."""
        return torch.futures.collect_all([work.get_future() for work in self._works]).then(
            lambda all_of_them: [future.value() for future in all_of_them.value()]
        )
