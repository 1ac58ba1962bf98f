#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan
"""The reference client of proto/python in jobs with C workers: over TCP and gRPC, with secrets, TLS, checksums, groups,
sharded operations, encodings, several lanes and relays, while reducers are killed and return. Every result is checked
on every rank.

Not under ThreadSanitizer: it reports races in Python's own gRPC.
"""

import json
import pathlib
import shutil
import tempfile
import unittest

import certs
import harness

RANK = harness.ROOT / "tests/e2e/reference_rank.py"
WORLD = 4  # of which two ranks are the reference client, 2 and 3 if a test does not say so
KIB16 = 16384
RACKS = [("rack-a", [0, 1]), ("rack-b", [2, 3])]  # groups, and which reducers relay for each
RACK_OF = [0, 1, 0, 1]  # the group of each rank: each has a rank of both kinds


class Reference(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="reduction-reference-"))
        self.addCleanup(shutil.rmtree, self.dir)
        self.secret = self.dir / "test.secret"
        self.secret.write_text("a secret of more than 16 bytes\n")
        self.secret.chmod(0o600)

    def start(self, c, rounds, gates=(), settings=None, config=None, wire=None, moves=False, references=(2, 3),
              flying=None, racks=False):  # fmt: skip
        """Starts two ranks of each kind. settings: of the reference client; wire: encodings; moves: after the rounds
        they go on in the next generation, in the opposite order, and repeat them; references: ranks of the reference
        client; flying: not None: the operations are sharded, and rank 0 announces these rounds while they run; racks:
        the ranks are in groups."""
        common = {"rounds": rounds, "gates": list(gates), "wire": wire, "moves": moves, "flying": flying,
                  "group_of": RACK_OF if racks else None}  # fmt: skip
        full = {**common, "job": "test", "run": "test", "chunk_bytes": KIB16, "grpc": c.transport == "grpc",
                "reducers": [(f"r{i}", c.address(i), c.lanes) for i in range(len(c.reducers))],
                "relays": RACKS if racks else [], **(settings or {})}  # fmt: skip
        procs = []
        for rank in range(WORLD):
            if rank not in references:
                argv = [harness.PYTHON, RANK, "product", rank, WORLD, json.dumps(common)]
                env = {"REDUCTION_GROUP": RACKS[RACK_OF[rank]][0]} if racks else {}
                procs.append(c.start_worker(rank, WORLD, argv, env, config))
            else:
                argv = [harness.PYTHON, RANK, "reference", rank, WORLD, json.dumps(full)]
                procs.append(c.start(f"reference client {rank}", argv))
        return procs

    def done(self, procs):
        for p in procs:
            self.assertEqual(p.wait(60), 0, p.report())
            p.said("done")

    def gate(self, procs, seq):
        procs[0].wait_text(rf'"what": "gate", "round": {seq}\}}', stream="out")

    def failover(self, transport, settings, config, server=None, wire=None):
        """Reducer r1 is killed, returns, and then r0 is killed, so that r1 is the last one."""
        config = {"sharding": {"chunk_bytes": "16KiB"}, **config}
        with harness.Cluster(reducers=2, lanes=2, transport=transport, config=config, server_config=server) as c:
            procs = self.start(c, 40, [10, 20, 30], settings, wire=wire)
            self.gate(procs, 10)
            c.reducers[1].kill()
            procs[0].tell()
            self.gate(procs, 20)
            procs[0].wait_text(r"reducer-lost reducer=r1")
            c.start_reducer(1)
            for p in procs[:2]:
                p.wait_text(r"reducer-back reducer=r1")
            c.reducers[1].wait_text(r"job-started")
            procs[0].tell()
            self.gate(procs, 30)
            c.reducers[0].kill()
            procs[0].tell()
            self.done(procs)

    def test_failover_over_tcp(self):
        self.failover(
            "tcp", {"secret": str(self.secret), "checksum": True, "deterministic": True},
            {"job": {"checksum": True, "deterministic": True}, "security": {"secret": str(self.secret)}},
            {"server": {"secrets_dir": str(self.dir)}},
        )  # fmt: skip

    @unittest.skipUnless(harness.HAS_GRPC, "this build has no gRPC")
    def test_failover_over_grpc(self):
        self.failover("grpc", {}, {})

    def test_shares(self):
        """Rank 0 sets shares every few operations, also after a reducer was killed and came back."""
        config = {"sharding": {"chunk_bytes": "16KiB"}}
        with harness.Cluster(reducers=2, lanes=2, transport="tcp", config=config) as c:
            procs = self.start(c, 40, [10, 20], {"shares": True}, references=(0, 3))
            self.gate(procs, 10)
            c.reducers[1].kill()
            procs[0].tell()
            self.gate(procs, 20)
            procs[1].wait_text(r"reducer-lost reducer=r1")
            c.start_reducer(1)
            for p in procs[1:3]:
                p.wait_text(r"reducer-back reducer=r1")
            c.reducers[1].wait_text(r"job-started")
            procs[0].tell()
            self.done(procs)

    def sharded_failover(self, settings, config, server=None, wire=None):
        """Reducer r1 is killed within a step, returns, and then r0 is killed within a step."""
        config = {"sharding": {"chunk_bytes": "16KiB"}, **config}
        with harness.Cluster(reducers=2, lanes=2, transport="tcp", config=config, server_config=server) as c:
            procs = self.start(c, 40, [20], settings, wire=wire, flying=[10, 30])
            self.gate(procs, 10)
            c.reducers[1].kill()
            self.gate(procs, 20)
            procs[0].wait_text(r"reducer-lost reducer=r1")
            c.start_reducer(1)
            for p in procs[:2]:
                p.wait_text(r"reducer-back reducer=r1")
            c.reducers[1].wait_text(r"job-started")
            procs[0].tell()
            self.gate(procs, 30)
            c.reducers[0].kill()
            self.done(procs)

    def test_sharded_failover(self):
        self.sharded_failover({}, {})

    def test_sharded_failover_with_checksums(self):
        self.sharded_failover({"checksum": True, "deterministic": True},
                              {"job": {"checksum": True, "deterministic": True}})  # fmt: skip

    def test_sharded_failover_with_encodings(self):
        settings, config, wire = self.encodings("fp8", "int8", "stochastic")
        self.sharded_failover(settings, config, wire=wire)

    def test_sharded_encodings(self):
        for words in (("bf16", "same"), ("same", "int8"), ("int4", "fp16", "stochastic")):
            settings, config, wire = self.encodings(*words)
            config["sharding"] = {"chunk_bytes": "16KiB"}
            with self.subTest(words), harness.Cluster(reducers=2, lanes=2, transport="tcp", config=config) as c:
                self.done(self.start(c, 3, settings=settings, wire=wire, flying=[]))

    def encodings(self, up, down, rounding="nearest"):
        """Returns the settings of the reference client, the configuration, and what both kinds of ranks use."""
        decoded = 8 if {up, down} == {"int4"} else 0 if {up, down} <= {"same", "bf16", "fp16"} else 4
        settings = {"deterministic": True, "decoded_bytes": decoded * KIB16}
        config = {"job": {"deterministic": True, "wire": {"up": up, "down": down, "rounding": rounding}}}
        return settings, config, {"up": up, "down": down, "random": rounding != "nearest"}

    def test_failover_with_encodings(self):
        settings, config, wire = self.encodings("fp8", "int8", "stochastic")
        self.failover("tcp", settings, config, wire=wire)

    def test_encodings(self):
        for words in (("bf16", "bf16"), ("fp8", "fp8"), ("int8", "bf16", "stochastic"), ("bf16", "same", "stochastic"),
                      ("same", "int8"), ("fp16", "fp16", "stochastic"), ("int4", "int4", "stochastic"),
                      ("int4", "fp16")):  # fmt: skip
            settings, config, wire = self.encodings(*words)
            config["sharding"] = {"chunk_bytes": "16KiB"}
            with self.subTest(words), harness.Cluster(reducers=2, lanes=2, config=config) as c:
                self.done(self.start(c, 3, settings=settings, wire=wire))

    def racks(self, rounds, settings, config, server=None, wire=None, lose=True, flying=None):
        """Four reducers, of which each relays for a group. r1 is killed, returns, and then r2 is killed. flying: as of
        start(); nothing is relayed then."""
        groups = [{"name": name, "relays": [f"r{r}" for r in relays]} for name, relays in RACKS]
        config = {**config, "sharding": {"chunk_bytes": "16KiB"}, "groups": groups}
        with harness.Cluster(reducers=4, lanes=2, transport="tcp", config=config, start=False) as c:
            reducers = [{"id": f"r{i}", "address": c.address(i), "lanes": c.lanes} for i in range(4)]
            c.server_config = {"reducers": reducers, "groups": groups, "logging": {"level": "debug"}, **(server or {})}
            for i in range(4):
                c.start_reducer(i)
            procs = self.start(c, rounds, [10, 20, 30] if lose else [], settings, wire=wire, flying=flying, racks=True)
            for reducer in c.reducers if flying is None else []:
                reducer.wait_text("relay-joined")
            if lose:
                self.gate(procs, 10)
                c.reducers[1].kill()
                procs[0].tell()
                self.gate(procs, 20)
                procs[0].wait_text(r"reducer-lost reducer=r1")
                c.start_reducer(1)
                for p in procs[:2]:
                    p.wait_text(r"reducer-back reducer=r1")
                c.reducers[1].wait_text(r"job-started")
                procs[0].tell()
                self.gate(procs, 30)
                c.reducers[1].wait_text("relay-joined")
                c.reducers[2].kill()
                procs[0].tell()
            self.done(procs)

    def test_relays(self):
        self.racks(40, {}, {})

    def test_relays_with_secrets_and_checksums(self):
        self.racks(
            40, {"secret": str(self.secret), "checksum": True, "deterministic": True},
            {"job": {"checksum": True, "deterministic": True}, "security": {"secret": str(self.secret)}},
            {"server": {"secrets_dir": str(self.dir)}},
        )  # fmt: skip

    def test_relays_with_encodings(self):
        """Bit by bit: relays encode the sums of their groups, and so do homes for groups without relays."""
        settings, config, wire = self.encodings("fp8", "int8", "stochastic")
        self.racks(40, settings, config, wire=wire)

    def test_relays_encodings(self):
        for words in (("bf16", "bf16"), ("int8", "same"), ("fp16", "fp16", "stochastic"), ("int4", "int4")):
            settings, config, wire = self.encodings(*words)
            with self.subTest(words):
                self.racks(3, settings, config, wire=wire, lose=False)
                self.racks(3, settings, config, wire=wire, lose=False, flying=[])

    def test_reconfigure(self):
        """Reducers see no new connection."""
        settings = {"secret": str(self.secret)}
        config = {"sharding": {"chunk_bytes": "16KiB"}, "security": {"secret": str(self.secret)}}
        server = {"server": {"secrets_dir": str(self.dir)}}
        with harness.Cluster(reducers=2, lanes=2, transport="tcp", config=config, server_config=server) as c:
            self.done(self.start(c, 3, settings=settings, moves=True))

    def test_tls(self):
        folder = certs.Folder(self.dir / "certs", "reducer:localhost,127.0.0.1", "client:worker")
        tls = {"authority": folder.file("ca.pem"), "certificate": folder.file("worker.pem"),
               "key": folder.file("worker.key")}  # fmt: skip
        server = folder.reducer("localhost", mutual=True) | {"access": [{"certificate": "worker", "jobs": "test"}]}
        config = {"sharding": {"chunk_bytes": "16KiB"}, **folder.worker("worker")}
        with harness.Cluster(lanes=2, transport="tcp", config=config, server_config=server) as c:
            self.done(self.start(c, 5, settings={"tls": tls}))


if __name__ == "__main__":
    harness.main()
