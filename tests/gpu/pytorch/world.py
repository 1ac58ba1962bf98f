# SPDX-License-Identifier: Apache-2.0
"""Processes, reducers and hosts with shaped links for part torch. All of them end with their `with` block."""

import ctypes
import os
import pathlib
import signal
import socket
import subprocess
import time

CLONE_NEWNET = 0x40000000
PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def _enter(host):
    """In a new process: it ends with its parent, and runs in the network namespace of process `host`."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if host is not None:
        fd = os.open(f"/proc/{host.pid}/ns/net", os.O_RDONLY)
        if _libc.setns(fd, CLONE_NEWNET) != 0:
            os._exit(126)
        os.close(fd)


class Process:
    """A process with its log."""

    def __init__(self, argv, env, log, host=None):
        self.log = pathlib.Path(log)
        with open(log, "ab") as out:
            self.popen = subprocess.Popen(
                argv, env={**os.environ, **env}, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                preexec_fn=lambda: _enter(host),  # noqa: PLW1509
            )  # fmt: skip

    def said(self, text, until):
        """Waits for a text in the log. False: the process has ended or the time is over."""
        while text not in self.log.read_text(errors="replace"):
            if self.popen.poll() is not None or time.monotonic() > until:
                return text in self.log.read_text(errors="replace")
            time.sleep(0.02)
        return True

    def kill(self):
        self.popen.kill()
        self.popen.wait()


class Processes:
    """The ranks of a training."""

    def __init__(self):
        self.all = []

    def start(self, argv, env, log, host):
        self.all.append(Process(argv, env, log, host))

    def said(self, rank, text, until):
        return self.all[rank].said(text + "\n", until)

    def wait(self, until):
        """Returns "" when all have ended well, or a sentence as soon as one has not."""
        running = dict(enumerate(self.all))
        while running:
            for rank, process in list(running.items()):
                status = process.popen.poll()
                if status:
                    return f"rank {rank} ended with status {status}: {process.log.read_text(errors='replace')[-1500:]}"
                if status == 0:
                    del running[rank]
            if running and time.monotonic() > until:
                return f"ranks {', '.join(map(str, running))} did not end in time"
            time.sleep(0.02)
        return ""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.all:
            process.kill()


class Host:
    """A network namespace, that of a process."""

    def __init__(self, pid, address):
        self.pid, self.address = pid, address


class Links:
    """`n` hosts whose links carry 1 Gbit/s in each direction; 0: none."""

    def __init__(self, root, n):
        self.hosts, self.popen = [], None
        if n == 0:
            return
        argv = [str(root / "bin/gpu-links"), str(n), "1000"]
        self.popen = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for line in self.popen.stdout:
            if line == "ready\n":
                break
            pid, address = line.split()
            self.hosts.append(Host(int(pid), address))
        if len(self.hosts) != n:
            self.__exit__()
            raise RuntimeError("hosts with shaped links cannot be made")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.popen is not None:
            self.popen.stdin.close()
            self.popen.wait()


class Reducers:
    """`n` reducers, on hosts or on loopback, and the configuration of a job."""

    def __init__(self, root, folder, n, hosts, deterministic=False):
        self.server = str(root / "bin/reduction-server")
        self.folder = pathlib.Path(folder) / f"reducers.{time.monotonic_ns()}"
        self.folder.mkdir()
        self.hosts = list(hosts[:n]) or [None] * n
        self.ports, self.processes = [], [None] * n
        for host in self.hosts:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                self.ports.append(7600 if host else free.getsockname()[1])
        self.config = str(self.folder / "job.yaml")
        lines = [f"job: {{name: check-gpu, deterministic: {str(deterministic).lower()}}}", "reducers:"]
        lines += [f'  - {{id: r{i}, address: "{self.address(i)}"}}' for i in range(n)]
        pathlib.Path(self.config).write_text("\n".join(lines) + "\n")

    def address(self, i):
        return f"{self.hosts[i].address if self.hosts[i] else '127.0.0.1'}:{self.ports[i]}"

    def start(self, i):
        """Starts a reducer and waits until it listens. It listens where it did before."""
        log = self.folder / f"{i}.{time.monotonic_ns()}.log"
        argv = [self.server, "--listen", self.address(i), "--insecure"]
        self.processes[i] = Process(argv, {}, log, self.hosts[i])
        if not self.processes[i].said(" listening ", time.monotonic() + 20):
            raise RuntimeError(f"reducer {i} does not listen: {log.read_text()[-500:]}")

    def kill(self, i):
        self.processes[i].kill()

    def __enter__(self):
        for i in range(len(self.ports)):
            self.start(i)
        return self

    def __exit__(self, *_):
        for process in self.processes:
            if process is not None:
                process.kill()
