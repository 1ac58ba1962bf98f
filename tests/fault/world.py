# SPDX-License-Identifier: Apache-2.0
"""Reducers, agents and workers on hosts of their own, and the faults that can happen to them.

The hosts are those of a laboratory (bench/net/lab.py) if root can make one: nodes first, then one host for each
reducer, so that links can be cut. Otherwise all processes are on loopback, and no link can be cut: `has_links`.

The happy path is: `with World(reducers=3, nodes=4, folder=..., config=...) as w:`, start workers, apply faults,
`heal()`. Leaving the block ends everything; `problems` then lists unexpected behaviour of daemons.
"""

import collections
import contextlib
import json
import os
import pathlib
import re
import signal
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "e2e"), str(HERE.parents[1] / "bench" / "net")]
import harness  # noqa: E402
import lab as net  # noqa: E402

PORT = 7600
_REPORT = re.compile(r"(ERROR|WARNING): \w+Sanitizer|SUMMARY: \w+Sanitizer|: runtime error: ")


def merged(base, more):
    """Returns a configuration with another one merged into it, section by section."""
    tree = dict(base)
    for section, value in (more or {}).items():
        tree[section] = {**tree.get(section, {}), **value} if isinstance(value, dict) else value
    return tree


class World:
    """`config` is merged into the configuration file of all processes. `lanes`: of each reducer.

    Invariant: `reducers[i]` and `agents[node]` are the Procs started last, running or not; `procs` holds all that may
    still run."""

    def __init__(self, reducers, nodes, folder, config=None, lanes=2, links=True, group=None):
        """group: returns the name of a node's group; None: there are no groups."""
        self.folder = pathlib.Path(folder)
        self.nodes, self.lanes = nodes, lanes
        self.config = config or {}
        self._group = group
        self.reducers = [None] * reducers
        self.agents = {}
        self.procs = []
        self.problems = []
        self._links = links
        self._lab = None
        self._cuts, self._unplugged = collections.Counter(), set()
        self._stopped, self._draining = set(), set()  # Procs of reducers
        self._addresses = [None] * reducers
        self._moves, self._slow = 0, set()

    @property
    def has_links(self):
        return self._lab is not None

    def __enter__(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as stack:
            stack.callback(self._end)
            self._make_hosts(stack)
            for i in range(len(self.reducers)):
                self.start_reducer(i)
            self._undo = stack.pop_all()
        return self

    def __exit__(self, *_):
        self._undo.close()

    def _make_hosts(self, stack):
        if self._links:
            lab = net.Lab(self.nodes + len(self.reducers), rate="none")
            try:
                lab.start()
                self._lab = lab
            except net.LabError as e:
                if e.code != net.CANNOT_RUN_HERE:
                    raise
        for i in range(len(self.reducers)):
            if self._lab:
                self._addresses[i] = f"{net.Lab.address(self.nodes + i)}:{PORT}"
            else:
                held = harness.reserve_port()
                stack.callback(held.close)
                self._addresses[i] = "127.0.0.1:%d" % held.getsockname()[1]
        self.write_config("job.yaml")

    def write_config(self, name, config=None):
        """Writes the configuration file of all processes, with more merged into it; returns its path."""
        base = {
            "reducers": [
                {"id": f"r{i}", "address": a, "lanes": self.lanes} for i, a in enumerate(self._addresses)
            ],
            "server": {"lanes": self.lanes},
            "server": {"insecure": True},
        }
        text = json.dumps(merged(merged(base, self.config), config), indent=1) + "\n"  # JSON is YAML
        return harness.write_whole(self.folder / name, text)

    def start(self, name, argv, env=None, host=None):
        """Starts a process on a host; it is ended with the world."""
        inside = ["ip", "netns", "exec", self._lab.namespace(host)] if self._lab and host is not None else []
        argv = list(map(str, argv))
        full = {k: str(v) for k, v in {**harness.sanitizer_env(argv), **(env or {})}.items()}
        p = harness.Proc(name, inside + argv, full, cwd=self.folder)
        self.procs.append(p)
        return p

    def forget(self, p):
        """Stops watching a process that has ended; sweep() may have done so before."""
        if p not in self.procs:
            return
        self._look(p)
        self.procs.remove(p)
        self._draining.discard(p)

    def start_reducer(self, i):
        """Starts reducer i at its fixed address; returns its Proc once it listens."""
        argv = [harness.binary("reduction-server"), "--paranoid", "--config", self.folder / "job.yaml",
                "--listen", self._addresses[i]]  # fmt: skip
        self.reducers[i] = self.start(f"reducer r{i}", argv, host=self.nodes + i)
        self.reducers[i].wait_text(r"\blistening\b")
        return self.reducers[i]

    def _group_env(self, node):
        return {"REDUCTION_GROUP": self._group(node)} if self._group else {}

    def socket_path(self, node):
        return str(self.folder / f"agent{node}.sock")

    def start_agent(self, node):
        argv = [harness.binary("reduction-agent"), "--paranoid", "--config", self.folder / "job.yaml",
                "--socket", self.socket_path(node)]  # fmt: skip
        self.agents[node] = self.start(f"agent {node}", argv, self._group_env(node), host=node)
        self.agents[node].wait_text(r"\blistening\b")
        return self.agents[node]

    def start_worker(self, name, argv, node, env):
        """Starts a worker on a node. env says rank, world size and so on."""
        full = {"REDUCTION_CONFIG": self.folder / "job.yaml", "REDUCTION_PARANOID": "1", **harness.worker_env(),
                **self._group_env(node), **env}  # fmt: skip
        if self._lab:
            full["GLOO_SOCKET_IFNAME"] = "eth0"
        return self.start(name, argv, full, host=node)

    # faults

    def kill(self, i):
        """Ends reducer i without warning."""
        self.reducers[i].kill()

    def stop(self, i):
        """Stops reducer i until it is continued."""
        self._stopped.add(self.reducers[i])
        self.reducers[i].signal(signal.SIGSTOP)

    def go_on(self, i):
        self._stopped.discard(self.reducers[i])
        self.reducers[i].signal(signal.SIGCONT)

    def drain(self, i):
        """Asks reducer i to drain."""
        self._draining.add(self.reducers[i])
        self.reducers[i].signal(signal.SIGTERM)

    def leave(self, i):
        """Ends reducer i in good order, and waits for it."""
        self.drain(i)
        self._wait(self.reducers[i], 40)

    def move(self, i):
        """Reducer i dies, and its successor has another address, which is in the file before it runs."""
        self.kill(i)
        self._moves += 1
        self._addresses[i] = f"{net.Lab.address(self.nodes + i)}:{PORT + self._moves}"
        self.write_config("job.yaml")

    def slow(self, i, rate):
        """Changes the rate of the link of reducer i; "none": it is as fast as can be."""
        if (rate != "none") == (i in self._slow):
            return  # two of these faults overlap
        self._lab.set_rate(self.nodes + i, rate)
        (self._slow.discard if rate == "none" else self._slow.add)(i)

    def restart_drained(self, i):
        """Waits until a draining reducer has ended, and starts it again."""
        self._wait(self.reducers[i], 40)
        self.start_reducer(i)

    def is_well(self, i):
        """Returns whether reducer i runs, and only its links may have faults."""
        p = self.reducers[i]
        return p.running() and p not in self._draining and p not in self._stopped

    def cut(self, node, i, out=True, back=True):
        """Drops traffic from a node to reducer i, in the other direction, or in both. A link that is cut twice must be
        mended twice."""
        for pair in self._ways(node, i, out, back):
            self._lab.cut(*pair)
            self._cuts[pair] += 1

    def mend(self, node, i, out=True, back=True):
        """Undoes a cut; after heal() there is none."""
        for pair in self._ways(node, i, out, back):
            if self._cuts[pair] == 1:
                self._lab.mend(*pair)
            self._cuts[pair] = max(0, self._cuts[pair] - 1)

    def _ways(self, node, i, out, back):
        host = self.nodes + i
        return [(node, host)] * out + [(host, node)] * back

    def plug(self, i, is_in):
        """Disconnects reducer i from the switch, or connects it."""
        (self._unplugged.discard if is_in else self._unplugged.add)(i)
        self._lab.plug(self.nodes + i, is_in)

    def heal(self, timeout=20):
        """Makes all reducers run and reachable again, whatever happened to them."""
        for pair in +self._cuts:
            self._lab.mend(*pair)
        self._cuts.clear()
        for i in list(self._unplugged):
            self.plug(i, True)
        for i in list(self._slow):
            self.slow(i, "none")
        for i, p in enumerate(self.reducers):
            self.go_on(i)
            if p in self._draining:
                self._wait(p, timeout)
            if not p.running():
                self.start_reducer(i)

    def _wait(self, p, timeout):
        try:
            p.wait(timeout)
        except AssertionError as e:
            self.problems.append(str(e).splitlines()[0])

    def _look(self, p):
        """Returns whether an ended process has the right exit status and no report of a sanitizer."""
        if p.code is None:
            p.wait(1)
        if p.name.startswith(("reducer", "agent")):
            if not p.killed and p.code != 0:
                self.problems.append(f"{p.name} ended with status {p.code}, expected 0")
        if found := next((line for line in p.err.splitlines() if _REPORT.search(line)), None):
            self.problems.append(f"{p.name}: {found}")

    def sweep(self):
        """Removes the processes that have ended, and checks how they ended."""
        for p in list(self.procs):
            current = p in self.reducers or p in self.agents.values()
            if not p.running() and not current:
                self.forget(p)

    def _end(self):
        for p in self.procs:
            p.signal(signal.SIGCONT)
            if not p.name.startswith(("reducer", "agent")):
                p.kill()
        for p in self.procs:
            p.signal(signal.SIGTERM)
        for p in self.procs:
            if p.running():
                self._wait(p, 20)
            if p.running():
                p.kill()
            self._look(p)
        if self._lab:
            self._lab.stop()

    def keep_logs(self, folder):
        """Writes the output of all processes into files of a folder."""
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        for n, p in enumerate(self.procs):
            text = f"{' '.join(p.argv)}\nexit status {p.code}\n--- stdout\n{p.out}\n--- stderr\n{p.err}"
            (folder / f"{n:02}-{p.name.replace(' ', '-')}.log").write_text(text)
        for path in self.folder.glob("*.yaml"):
            (folder / path.name).write_text(path.read_text())


def memory_of(pid):
    """Returns (resident KiB, open descriptors) of a process; None if it has ended."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as f:
            resident = int(re.search(r"VmRSS:\s+(\d+)", f.read()).group(1))
        return resident, len(os.listdir(f"/proc/{pid}/fd"))
    except (OSError, AttributeError):
        return None
