# SPDX-License-Identifier: Apache-2.0
"""What the servers of a launch cost: processor time for the bytes that they get while operations run.

A job's start is left out: taking and zeroing its memory costs a reducer as much as some tens of megabytes of gradients
do, and a launch of half a second is short. So time and bytes are read for a second first time when so many bytes have
come that the job must be running. It is the same for a bare echo."""

import os
import time

from lab import cpu_seconds

LOOK_S = 0.01


def _received(pid):
    """Bytes that IP has received in a process's network namespace."""
    with open(f"/proc/{pid}/net/netstat", encoding="ascii") as f:
        names, values = (line.split() for line in f if line.startswith("IpExt:"))
    return int(values[names.index("InOctets")])


class ServerMeter:
    """Made when the servers are ready and idle."""

    def __init__(self, servers):
        self._pids = [p.pid for p in servers]
        self._hosts = list({os.readlink(f"/proc/{pid}/ns/net"): pid for pid in self._pids}.values())
        self._idle = self._running = self._read()

    def _read(self):
        return sum(cpu_seconds(pid) for pid in self._pids), sum(_received(pid) for pid in self._hosts)

    def await_running(self, size, rank, limit_s):
        """Returns when the servers have received `size` bytes, rank (a process) has ended, or limit_s is over."""
        deadline = time.monotonic() + limit_s
        while self._pids and rank.poll() is None and time.monotonic() < deadline:
            now = self._read()
            if now[1] - self._idle[1] >= size:
                self._running = now
                return
            time.sleep(LOOK_S)

    def end(self, contributed):
        """CPU seconds a byte, of `contributed` bytes in the whole launch, and of all of it; None without servers."""
        if not self._pids:
            return None, None
        cpu, received = self._read()
        share = (received - self._running[1]) / max(received - self._idle[1], 1)
        return (cpu - self._running[0]) / (share * contributed) if share else None, cpu - self._idle[0]
