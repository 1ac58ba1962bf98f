# SPDX-License-Identifier: Apache-2.0
"""The servers' processor time for each byte they receive while operations run.

The start of a job is left out: allocating and zeroing its memory costs a reducer as much time as some tens of megabytes
of gradients, and a short launch takes half a second. So time and bytes are first read after so many bytes have arrived
that the job must be running. The same holds for a bare echo."""

import os
import time

from lab import cpu_seconds

LOOK_S = 0.01


def _received(pid):
    """Returns the bytes that IP has received in a process's network namespace."""
    with open(f"/proc/{pid}/net/netstat", encoding="ascii") as f:
        names, values = (line.split() for line in f if line.startswith("IpExt:"))
    return int(values[names.index("InOctets")])


class ServerMeter:
    """Measures the servers' processor time. Make it when the servers are ready and idle."""

    def __init__(self, servers):
        self._pids = [p.pid for p in servers]
        self._hosts = list({os.readlink(f"/proc/{pid}/ns/net"): pid for pid in self._pids}.values())
        self._idle = self._running = self._read()

    def _read(self):
        return sum(cpu_seconds(pid) for pid in self._pids), sum(_received(pid) for pid in self._hosts)

    def await_running(self, size, rank, limit_s):
        """Returns after the servers have received `size` bytes, the process `rank` has ended, or limit_s has passed."""
        deadline = time.monotonic() + limit_s
        while self._pids and rank.poll() is None and time.monotonic() < deadline:
            now = self._read()
            if now[1] - self._idle[1] >= size:
                self._running = now
                return
            time.sleep(LOOK_S)

    def end(self, contributed):
        """Returns CPU seconds for a byte of `contributed` bytes, and CPU seconds of the whole launch; None without
        servers."""
        if not self._pids:
            return None, None
        cpu, received = self._read()
        share = (received - self._running[1]) / max(received - self._idle[1], 1)
        return (cpu - self._running[0]) / (share * contributed) if share else None, cpu - self._idle[0]
