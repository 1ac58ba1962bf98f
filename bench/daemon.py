# SPDX-License-Identifier: Apache-2.0
"""Reducers and agents that the benchmarks start on this machine."""

import pathlib
import re
import subprocess
import sys
import time

READY_S, END_S = 20, 3


class Daemon:
    """A reducer or an agent on this machine, which ends with the `with` block. log: path of its log. address: where it
    listens."""

    def __init__(self, command, log):
        self.command, self.log = command, pathlib.Path(log)

    def __enter__(self):
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(self.command, stderr=log)
        deadline = time.monotonic() + READY_S
        while not (found := re.search(r"\blistening (?:address|socket)=(\S+)", self.log.read_text())):
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.__exit__()
                sys.exit(f"{self.command[0]} does not listen: {self.log.read_text()}")
            time.sleep(0.01)
        self.address = found.group(1)
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def memory(self):
        """Returns the resident memory in bytes: now, and its peak."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return [int(re.search(rf"^{name}:\s+(\d+) kB", status, re.M).group(1)) << 10 for name in ("VmRSS", "VmHWM")]

    def lines(self):
        """Returns the number of lines it has logged."""
        return self.log.read_bytes().count(b"\n")
