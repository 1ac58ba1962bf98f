# SPDX-License-Identifier: Apache-2.0
"""A cluster whose ranks are in two groups, with relays."""

import json
import re

import harness

NAMES = ("rack-a", "rack-b")
# Of four reducers each is home of a quarter of the shards, and relays for one group.
GROUPS = [{"name": "rack-a", "relays": ["r0", "r1"]}, {"name": "rack-b", "relays": ["r2", "r3"]}]
WORLD = 4


class Cluster(harness.Cluster):
    """Four reducers, whose file has the groups too; of the ranks or of two agents the first half is in rack-a.

    server         merged into the file of the reducers
    without        reducers whose file has no groups
    host           the host of all reducers' addresses in the file of the reducers
    """

    def __init__(self, reducers=4, agents=0, groups=None, config=None, server=None, without=(), server_args=(),
                 host=None, **more):  # fmt: skip
        self.groups, self.server, self.without, self.host = groups or GROUPS, server or {}, without, host
        super().__init__(
            reducers=reducers, agents=agents, config={"groups": self.groups, **(config or {})}, start=False,
            server_args=["--log-level", "debug", *server_args], **more,
        )  # fmt: skip

    def __enter__(self):
        super().__enter__()
        try:
            if self.transport == "grpc":  # relays connect over TCP
                self.config["reducers"] = [
                    {"id": f"r{i}", "address": self._reserve(), "grpc": self.address(i), "lanes": self.lanes}
                    for i in range(len(self.reducers))
                ]
            for i in range(len(self.reducers)):
                self.start_reducer(i, wait=False)
            for i in range(len(self.reducers)):
                self.address(i)
            for i in range(len(self.agents)):
                self.start_agent(i, env=self.group_of(i, len(self.agents)))
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    @staticmethod
    def group_of(i, n):
        return {"REDUCTION_GROUP": NAMES[i * 2 // n]}

    def start_reducer(self, i, wait=True):
        tree = json.loads((self.dir / self.write_config("reducers.yaml", self.server)).read_text())
        if i in self.without:
            del tree["groups"]
        for reducer in tree["reducers"] if self.host else ():
            reducer["address"] = reducer["address"].replace("127.0.0.1", self.host)
        args = self.server_args
        self.server_args = [*args, "--config", self._write(f"reducer{i}.yaml", tree)]
        if self.transport == "grpc":
            self.server_args += ["--listen", self.config["reducers"][i]["address"]]
        try:
            return super().start_reducer(i, wait)
        finally:
            self.server_args = args

    def start_worker(self, rank, world_size, argv, env=None, config=None):
        env = {**self.group_of(rank, world_size), **(env or {})}
        return super().start_worker(rank, world_size, argv, env, config)

    def relayed(self):
        """Returns the pairs (relay, home) that have been connected so far."""
        return {
            (relay, f"r{i}")
            for i, r in enumerate(self.reducers)
            for relay in re.findall(r'\brelay-joined\b.*label="?relay (\w+)', r.err)
        }
