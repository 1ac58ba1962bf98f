# SPDX-License-Identifier: Apache-2.0
"""Which start of a training a process belongs to.

Variables of a launcher cannot tell two trainings apart: a tutorial's rendezvous id, or nothing at all with `tcp://`. So
rank 0 draws a random text for each start, and the ranks read it from the store that only they share. It is the `run` of
the group's communicators. Reducers and agents let no rank of another run in, and a job without a name is named after
its run, so two trainings that start at the same time go on side by side.
"""

import os
import re
import secrets
import socket
from typing import Any, Dict, Mapping


def draw() -> str:
    """Returns the run of a new start, if this process is its rank 0: readable, and random at its end."""
    launched = os.environ.get("TORCHELASTIC_RUN_ID") or "none"
    name = "torch" if launched == "none" else f"torchrun:{launched[:40]}"
    readable = re.sub(r"[^!-~]", "?", f"{name}@{socket.gethostname()[:40]}")
    return f"{readable}+{secrets.token_hex(8)}"


def options(start: str, given: Mapping[str, Any]) -> Dict[str, Any]:
    """Returns the options of a communicator that belong to a start, without those that the user has given.

    Args:
        start: what rank 0 has drawn.
        given: the user's options.
    """
    return {} if given.get("run") or os.environ.get("REDUCTION_RUN") else {"run": start}
