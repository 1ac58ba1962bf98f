# SPDX-License-Identifier: Apache-2.0
"""Where the ranks and reducers of a case run, and their configuration. If links or reducers differ, `reductionctl plan`
makes the shard map from the bandwidths, and predicts the throughput that the links allow."""

import json
import pathlib
import subprocess

from lab import LabError

PORT = 7600


class Placement:
    """Places workers in hosts 0, 1, ..., then dedicated reducers; on loopback everything is in host 0. payload: the
    hosts' rates in bit/s of TCP payload, None if no link is shaped. A subclass has racks, see rack_maps.py."""

    racks = None
    server_file = "reducer.yaml"  # which of the launch's files reducers read

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
        """Returns the job's configuration, with the bandwidths of all links if they are known. sections: further keys
        or sections, such as {"sharding": {"window": 4}}."""
        sections = {"job": {"name": "bench-net"}} | (sections or {})

        def link(host):
            return f", host: h{host}, bandwidth: {round(self.payload[host] / 1e3)}kbit" if self.payload else ""

        lines = [f"{name}: {{{', '.join(f'{k}: {v}' for k, v in keys.items())}}}" for name, keys in sections.items()]
        lines += ["reducers:"]
        keys = ("address", "grpc") if sections["job"].get("transport") == "grpc" else ("address",)
        for j, (host, port) in enumerate(self.reducers):
            at = ", ".join(f'{key}: "{address_of(host)}:{port}"' for key in keys)
            lines += [f"  - {{id: r{j}, {at}{link(host)}}}"]
        if self.payload:
            lines += ["workers:"] + [f"  - {{{link(host)[2:]}}}" for host in self.workers]
        return "\n".join(lines) + "\n"

    def environment(self, _rank):
        """Returns further variables of a rank."""
        return {}

    def write_config(self, lab, folder, build, sections=None):
        """Writes job.yaml of the ranks into a folder, with the plan's shard map if this placement needs one."""
        path = pathlib.Path(folder) / "job.yaml"
        path.write_text(self.yaml(lambda host: self.address(lab, host), sections), encoding="ascii")
        if self.uses_plan:
            reductionctl(build, "plan", path, "--write", path)

    def plan(self, build, size):
        """Returns the output of `reductionctl plan --json` for one all-reduce of `size` bytes; None if no link is
        shaped or there is only one worker."""
        if not self.payload or self.n < 2:
            return None
        if size not in self._plans:
            text = self.yaml(lambda host: f"10.99.0.{host + 1}")
            answer = reductionctl(build, "plan", "/dev/stdin", "--json", "--bytes", size, text=text)
            self._plans[size] = json.loads(answer)
        return self._plans[size]


def reductionctl(build, *words, text=None):
    """Runs `reductionctl plan` and returns its output."""
    command = [str(pathlib.Path(build) / "bin/reductionctl"), *map(str, words)]
    try:
        done = subprocess.run(command, input=text, capture_output=True, text=True)
    except OSError as e:
        raise LabError(f"{command[0]}: {e.strerror}: build it first") from e
    if done.returncode:
        raise LabError(f"{' '.join(command)}: {done.stderr.strip() or f'exit status {done.returncode}'}")
    return done.stdout
