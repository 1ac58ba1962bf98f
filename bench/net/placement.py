# SPDX-License-Identifier: Apache-2.0
"""Where the ranks and reducers of a case run, and the configuration that says so. Where links or reducers differ, the
shard map is the one that `reductionctl plan` makes from the bandwidths; what the links allow is its answer too."""

import json
import pathlib
import subprocess

from lab import LabError

PORT = 7600


class Placement:
    """Where ranks and reducers run: in hosts 0.. the workers, then the dedicated reducers; on loopback everything is in
    host 0. `payload` are the hosts' rates in bit/s of TCP payload, None when nothing is shaped."""

    def __init__(self, n, k, mixed=False, loopback=False, payload=None, uses_plan=False):
        self.n, self.k, self.mixed, self.loopback, self.payload = n, k, mixed, loopback, payload
        self.uses_plan = uses_plan
        self.workers = [0 if loopback else i for i in range(n)]
        self.reducers = [(0 if loopback else n + j, PORT + j) for j in range(k)]
        if mixed:
            self.reducers += [(i, PORT) for i in range(n)]
        self.hosts = 1 if loopback else n + k
        self._plans = {}

    def address(self, lab, host):
        return "127.0.0.1" if self.loopback else lab.address(host)

    def yaml(self, address_of, sections=None):
        """The job's configuration, with the bandwidths of all links where they are known; `sections` of it are more
        keys, or further sections: {"sharding": {"window": 4}}."""
        sections = {"job": {"name": "bench-net"}} | (sections or {})

        def link(host):
            return f", host: h{host}, bandwidth: {round(self.payload[host] / 1e3)}kbit" if self.payload else ""

        lines = [f"{name}: {{{', '.join(f'{k}: {v}' for k, v in keys.items())}}}" for name, keys in sections.items()]
        lines += ["reducers:"]
        lines += [f'  - {{id: r{j}, address: "{address_of(host)}:{port}"{link(host)}}}'
                  for j, (host, port) in enumerate(self.reducers)]
        if self.payload:
            lines += ["workers:"] + [f"  - {{{link(host)[2:]}}}" for host in self.workers]
        return "\n".join(lines) + "\n"

    def write_config(self, lab, folder, build, sections=None):
        """Writes job.yaml for ranks into a folder; with the plan's shard map where this placement needs one."""
        path = pathlib.Path(folder) / "job.yaml"
        path.write_text(self.yaml(lambda host: self.address(lab, host), sections), encoding="ascii")
        if self.uses_plan:
            reductionctl(build, "plan", path, "--write", path)

    def plan(self, build, size):
        """The answer of `reductionctl plan --json` for one all-reduce of `size` bytes; None where nothing is shaped or
        one worker has nobody to reduce with."""
        if not self.payload or self.n < 2:
            return None
        if size not in self._plans:
            text = self.yaml(lambda host: f"10.99.0.{host + 1}")
            answer = reductionctl(build, "plan", "/dev/stdin", "--json", "--bytes", size, text=text)
            self._plans[size] = json.loads(answer)
        return self._plans[size]


def reductionctl(build, *words, text=None):
    """Runs it; returns its output."""
    command = [str(pathlib.Path(build) / "bin/reductionctl"), *map(str, words)]
    try:
        done = subprocess.run(command, input=text, capture_output=True, text=True)
    except OSError as e:
        raise LabError(f"{command[0]}: {e.strerror}: build it first") from e
    if done.returncode:
        raise LabError(f"{' '.join(command)}: {done.stderr.strip() or f'exit status {done.returncode}'}")
    return done.stdout
