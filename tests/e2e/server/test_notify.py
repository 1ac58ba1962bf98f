#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan
"""What the daemons tell a service manager (sd_notify): readiness, status, reloads, the end, and signs of life, which
stop as soon as one of their threads is stuck."""

import contextlib
import ctypes
import os
import pathlib
import re
import signal
import socket
import time
import unittest

import harness

PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT, WALL = 17, 0x4206, 0x4207, 0x40000000

HOLD = harness.python("""
    import numpy, reduction, worker
    with reduction.Communicator() as comm:
        worker.say("open")
        worker.listen()
        x = numpy.ones(100000, dtype="float32")
        comm.all_reduce(x)
        worker.say("sum", value=float(x[0]))
    """)


class Manager:
    """The service manager's socket."""

    def __init__(self, folder, name):
        self.path = str(folder / name)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)

    def env(self, watchdog_s=1):
        return {"NOTIFY_SOCKET": self.path, "WATCHDOG_USEC": str(int(watchdog_s * 1e6))}

    def forget(self):
        """Drops the messages that have come."""
        self.socket.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                self.socket.recv(4096)

    def next(self, pattern, timeout=20):
        """Returns the match in the next message that has one; None: none came within timeout seconds."""
        deadline = time.monotonic() + timeout
        while (left := deadline - time.monotonic()) > 0:
            self.socket.settimeout(left)
            try:
                text = self.socket.recv(4096).decode()
            except TimeoutError:
                break
            if match := re.search(pattern, text, re.M):
                return match
        return None


@contextlib.contextmanager
def stuck(pid, name):
    """One thread of a process stands still."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long] * 4
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        if (task / "comm").read_text().strip() == name:
            thread = int(task.name)
            break
    else:
        raise AssertionError(f"process {pid} has no thread {name}")
    if libc.ptrace(PTRACE_SEIZE, thread, 0, 0):
        raise unittest.SkipTest(f"this user may not stop a thread: {os.strerror(ctypes.get_errno())}")
    libc.ptrace(PTRACE_INTERRUPT, thread, 0, 0)
    os.waitpid(thread, WALL)
    try:
        yield
    finally:
        libc.ptrace(PTRACE_DETACH, thread, 0, 0)


class Notify(unittest.TestCase):
    def setUp(self):
        self.c = harness.Cluster(agents=1, lanes=2, transport="tcp", start=False,
                                 config={"agent": {"single_node": "reducers"}})
        self.c.__enter__()
        self.addCleanup(self.c.__exit__, None, None, None)
        self.manager = Manager(self.c.dir, "notify")
        self.addCleanup(self.manager.socket.close)

    def expect(self, pattern, timeout=20):
        match = self.manager.next(pattern, timeout * harness.SCALE)
        self.assertIsNotNone(match, f"no message with {pattern}")
        return match

    def start(self, name, env=None):
        """Starts a daemon with a configuration file; returns its Proc."""
        path = self.c.write_config(f"{name}.yaml", {"server": {"listen": self.c.address(0), "lanes": 2}})
        argv = [harness.binary(name), "--config", path]
        if name == "reduction-agent":
            argv += ["--socket", self.c.socket_path(0)]
        p = self.c.start(name, argv, env)
        (self.c.reducers if name == "reduction-server" else self.c.agents)[0] = p
        return p

    def silent_while_stuck(self, pid, thread):
        """Signs of life end while a thread stands still, and come again afterwards."""
        self.expect("^WATCHDOG=1$")
        with stuck(pid, thread):
            self.manager.forget()
            if self.manager.next("^WATCHDOG=1$", 2.5):  # it had answered before
                self.assertIsNone(self.manager.next("^WATCHDOG=1$", 2.5))
        self.expect("^WATCHDOG=1$")

    def test_reducer(self):
        p = self.start("reduction-server", self.manager.env())
        self.expect(r"^STATUS=serving 0 jobs, 0 ranks$")
        self.expect("^READY=1$")
        p.wait_text("listening")
        ranks = self.c.start_workers(2, HOLD, env={"REDUCTION_MODE": "direct", "REDUCTION_AGENT": ""})
        self.expect(r"^STATUS=serving 1 job, 2 ranks$")
        self.silent_while_stuck(p.pid, "lane 1")
        for rank in ranks:
            rank.tell()
        self.c.wait_all(ranks)
        self.expect(r"^STATUS=serving 0 jobs, 0 ranks$")

        pathlib.Path(p.argv[2]).write_text("server: {lanes: many}\n")
        p.signal(signal.SIGHUP)
        self.expect("^RELOADING=1\nMONOTONIC_USEC=[0-9]+$")
        self.expect(r"^STATUS=serving .*; the last reload was refused: .*lanes")
        self.expect("^READY=1$")
        pathlib.Path(p.argv[2]).write_text("server: {lanes: 2}\n")
        p.signal(signal.SIGHUP)
        self.expect(r"^STATUS=serving 0 jobs, 0 ranks$")
        self.expect("^READY=1$")
        p.signal(signal.SIGTERM)
        self.expect("^STOPPING=1\nEXTEND_TIMEOUT_USEC=[0-9]+$")
        self.assertEqual(p.wait(), 0)

    def test_reducer_drains(self):
        """The service manager waits for the drain, whatever its own time limit."""
        p = self.start("reduction-server", self.manager.env())
        self.expect("^READY=1$")
        ranks = self.c.start_workers(2, HOLD, env={"REDUCTION_MODE": "direct", "REDUCTION_AGENT": ""})
        for rank in ranks:
            rank.said("open")
        p.signal(signal.SIGTERM)
        first = int(self.expect("^STOPPING=1\nEXTEND_TIMEOUT_USEC=([0-9]+)$")[1])
        self.assertGreater(first, 30e6)  # timeouts.drain
        self.expect(r"^STATUS=draining: 1 job, 2 ranks, at most [0-9]+ s more$")
        self.assertLess(int(self.expect("^STOPPING=1\nEXTEND_TIMEOUT_USEC=([0-9]+)$")[1]), first)
        for rank in ranks:
            rank.tell()
        self.c.wait_all(ranks)
        self.assertEqual(p.wait(), 0)

    def test_agent(self):
        self.start("reduction-server")
        self.c.reducers[0].wait_text("listening")
        p = self.start("reduction-agent", self.manager.env())
        self.expect(r"^STATUS=serving 0 jobs, 0 local ranks$")
        self.expect("^READY=1$")
        ranks = self.c.start_workers(2, HOLD)
        for rank in ranks:
            rank.said("open")
        self.expect(r"^STATUS=serving 1 job, 2 local ranks$")
        self.silent_while_stuck(p.pid, "reduction")
        p.signal(signal.SIGHUP)
        self.expect("^RELOADING=1$")
        self.expect("^READY=1$")
        p.signal(signal.SIGTERM)
        self.expect("^STOPPING=1$")
        self.expect(r"^STATUS=draining: 1 job, 2 local ranks")
        for rank in ranks:
            rank.tell()
        self.c.wait_all(ranks)
        self.assertEqual([r.said("sum")["value"] for r in ranks], [2.0, 2.0])
        self.assertEqual(p.wait(), 0)

    def test_other_environments(self):
        """Variables that are for another process, or are wrong, do no harm."""
        sockets = ("relative", "/nowhere/notify", "@" + "x" * 200)
        for env in (*({"NOTIFY_SOCKET": path} for path in sockets), {**self.manager.env(), "WATCHDOG_PID": "1"}):
            with self.subTest(env):
                p = self.start("reduction-server", env)
                p.wait_text("listening")
                if "WATCHDOG_PID" in env:
                    self.expect("^READY=1$")
                    self.assertIsNone(self.manager.next("^WATCHDOG=1$", 1.5))
                self.assertEqual(p.stop(), 0)


if __name__ == "__main__":
    harness.main()
