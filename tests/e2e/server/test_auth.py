#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# run: beside-others
"""Jobs that have secrets: a peer without the right secret is refused with a reason, on either side, and disturbs no
other job. """

import json
import os
import pathlib
import re
import shutil
import socket
import tempfile
import threading
import unittest

import harness
import wire

RIGHT = "0123456789abcdef-of-the-job\n"
OTHER = "fedcba9876543210-of-another\n"

# Opens, and sums once for each line of input.
STEPS = harness.python(
    """
    import numpy, reduction, worker
    def run():
        with reduction.Communicator() as comm:
            steps = 0
            worker.say("open")
            while worker.listen() == "step":
                x = numpy.full(20000, comm.rank + 1, "float32")
                comm.all_reduce(x)
                steps += 1
                worker.say("sum", step=steps, value=float(x.min()), all=bool((x == x[0]).all()))
    worker.say("end", **worker.attempt(run))
    """
)


class Proxy:
    """Forwards everything to an address, and records what was sent there on each connection."""

    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.to = host, int(port)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.sent = []
        self.sockets = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                a, _ = self.listener.accept()
            except OSError:
                return
            b = socket.create_connection(self.to)
            self.sockets += [a, b]
            self.sent.append(bytearray())
            for source, sink, kept in ((a, b, self.sent[-1]), (b, a, None)):
                threading.Thread(target=self._pump, args=(source, sink, kept), daemon=True).start()

    @staticmethod
    def _pump(source, sink, kept):
        try:
            while data := source.recv(65536):
                if kept is not None:
                    kept += data
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def close(self):
        self.listener.close()
        for s in self.sockets:
            s.close()


class Impostor:
    """Listens in place of a reducer, knows the protocol, and does not know the secret."""

    def __init__(self, challenge, mac):
        """challenge: it sends CHALLENGE. mac: of its WELCOME; None: there is none; "reflect": the worker's own."""
        self.challenge, self.mac = challenge, mac
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.told = []  # types of frames that arrived after its WELCOME
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            sock.settimeout(10 * harness.SCALE)
            try:
                self._greet(wire.Client(sock))
            except (OSError, AssertionError):
                pass

    def _greet(self, c):
        with c:
            c.expect(wire.HELLO)
            mac = self.mac
            if self.challenge:
                c.send(wire.frame(wire.CHALLENGE, wire.pb.Challenge(nonce=os.urandom(32))))
                proof = wire.pb.Proof.FromString(c.expect(wire.PROOF)).mac
                mac = proof if mac == "reflect" else mac
            c.send(wire.frame(wire.WELCOME, wire.pb.Welcome(detect_ms=10000, mac=mac)))
            c.send(wire.frame(wire.START))
            while frame := c.receive():
                self.told.append(frame[0])


class Guarded(unittest.TestCase):
    """A folder with the secrets of reducers, and one of workers."""

    TRANSPORT = None  # the harness's

    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="reduction-auth-"))
        self.addCleanup(shutil.rmtree, self.dir)
        (self.dir / "jobs").mkdir()
        self.mine = self.write("mine", RIGHT)
        self.give("test", RIGHT)

    def write(self, name, text, mode=0o600):
        path = self.dir / name
        new = self.dir / "new"
        new.write_text(text)
        new.chmod(mode)
        new.replace(path)
        return str(path)

    def give(self, job, text, mode=0o600):
        """Writes the secret of a job, on the reducers."""
        self.write(f"jobs/{job}.secret", text, mode)

    def cluster(self, server=None, limits=None, **more):
        server = {"server": {"secrets_dir": str(self.dir / "jobs"), **(limits or {})}, **(server or {})}
        config = {"security": {"secret": self.mine}, "timeouts": {"connect": "60s"}}
        more.setdefault("transport", self.TRANSPORT)
        return harness.Cluster(server_config=server, config=config | more.pop("config", {}), **more)

    def step(self, workers, value):
        for w in workers:
            w.tell("step")
            w.steps = getattr(w, "steps", 0) + 1
        for w in workers:
            w.wait_text(rf'"what": "sum", "step": {w.steps}, "value": {value}, "all": true\}}', stream="out")

    def finish(self, c, workers):
        for w in workers:
            w.tell("end")
            self.assertEqual(w.said("end")["message"], "", w.report())
        c.wait_all(workers)

    def start(self, c, world=2, **more):
        workers = c.start_workers(world, STEPS, **more)
        for w in workers:
            w.said("open")
        return workers

    def refused(self, c, pattern, log=None, error="RefusedError", **config):
        """A worker with this configuration is refused with a reason, and the log of the reducer that it names has it
        too."""
        w = c.start_worker(0, 1, STEPS, config=config)
        end = w.said("end", 40)
        self.assertEqual(end["error"], error, end)
        self.assertRegex(end["message"], pattern)
        c.wait_all([w])
        if log:
            c.reducers[int(re.search(r"reducer r(\d)", end["message"]).group(1))].wait_text(log)


class Auth(Guarded):
    def test_the_right_secret(self):
        for agents in (0, 2):
            with self.subTest(agents=agents), self.cluster(reducers=2, agents=agents, lanes=2) as c:
                workers = self.start(c)
                self.step(workers, 3.0)
                self.finish(c, workers)

    def test_wrong_secrets_are_refused(self):
        """While another job continues undisturbed."""
        self.give("calm", OTHER)
        self.give("bare", RIGHT)
        self.give("open", RIGHT, 0o644)
        self.give("short", "hush\n")
        self.give("both", RIGHT)
        theirs = self.write("theirs", OTHER)
        with self.cluster(reducers=2) as c:
            calm = self.start(c, config={"job": {"name": "calm"}, "security": {"secret": theirs}})
            self.step(calm, 3.0)
            at = r"reducer r[01] \(127\.0\.0\.1:\d+\): "
            proof = ("has not proven that it has the job's secret: "
                     "the file of its security.secret differs from this reducer's")
            for job, secret, told, logged in (
                ("test", theirs, at + rf"rank 0 of job test \(pid \d+ on .*\) {proof}",
                 rf"rank 0 of job test .* {proof}"),
                ("calm", self.mine, at + rf"rank 0 of job calm .* {proof}", rf"rank 0 of job calm .* {proof}"),
                ("bare", "", at + "this reducer asks for the secret of job bare and rank 0 has none: set security",
                 "asks for the secret of job bare"),
                ("none", self.mine, at + "this reducer has no secret for job none, and serves no job without one",
                 "no secret for job none"),
                ("open", self.mine, at + "this reducer cannot use its secret for job open: its log says why",
                 r"secret-unusable job=open reason=.*/jobs/open\.secret has mode 0644, so everybody can read it"),
                ("short", self.mine, at + "this reducer cannot use its secret for job short: its log says why",
                 r"secret-unusable job=short reason=.*/jobs/short\.secret has 4 bytes; "
                 r"expected a secret of 16 to 1024 bytes"),
            ):  # fmt: skip
                with self.subTest(job):
                    self.refused(c, told, logged, job={"name": job}, security={"secret": secret})
            # one rank of two: the other one gets the missing rank's name
            one = c.start_worker(0, 2, STEPS, config={"job": {"name": "both"}, **harness.SOON})
            self.refused(c, proof, job={"name": "both"}, security={"secret": theirs})
            self.assertRegex(one.said("end", 40)["message"], "rank 1 of 2 has not joined job both")
            c.wait_all([one])
            self.step(calm, 3.0)
            self.finish(c, calm)

    def test_agents_are_refused_like_ranks(self):
        theirs = self.write("theirs", OTHER)
        with self.cluster(reducers=2, agents=1, config={"security": {"secret": theirs}}) as c:
            self.refused(c, r"reducer r[01] .*: rank 0 of job test .* has not proven that it has the job's secret")

    def test_a_reducer_without_challenge(self):
        """A worker with a secret does not trust it, since it may be an impostor."""
        with harness.Cluster(config={"security": {"secret": self.mine}}) as c:
            self.refused(c, r"reducer r0 \(127.0.0.1:\d+\): it has not proven that it has the secret of job test: its "
                            "server.secrets_dir is not set, or another process listens at its address")  # fmt: skip

    def test_impostors_get_no_data(self):
        """Nothing is sent to them, whatever they send."""
        for challenge, mac in ((False, None), (True, None), (True, b"x" * 32), (True, "reflect"), (False, b"y" * 32)):
            with self.subTest(challenge=challenge, mac=mac), self.cluster(
                reducers=1, start=False, transport="tcp"
            ) as c:
                impostor = Impostor(challenge, mac)
                self.addCleanup(impostor.listener.close)
                where = [{"id": "r0", "address": impostor.address}]
                self.refused(c, "it has not proven that it has the secret of job test", reducers=where)
                self.assertLessEqual(set(impostor.told), {wire.ABORT})

    def test_a_recorded_handshake_is_refused_on_other_connections(self):
        with self.cluster(reducers=2, transport="tcp") as c:
            proxy = Proxy(c.address(0))
            self.addCleanup(proxy.close)
            where = [{"id": "r0", "address": proxy.address}, {"id": "r1", "address": c.address(1)}]
            workers = self.start(c, config={"reducers": where})
            self.step(workers, 3.0)
            for said in [bytes(s) for s in proxy.sent]:
                hello = 64 + wire.protocol.decode(said[:64])["payload_len"]
                self.assertEqual(wire.protocol.decode(said[hello : hello + 64])["type"], wire.PROOF)
                for i in (0, 1):  # there, and elsewhere
                    with wire.Client(c.connect(i)) as client:
                        client.send(said[:hello])
                        client.expect(wire.CHALLENGE)
                        client.send(said[hello : hello + 64 + 34])
                        self.assertIn("has not proven", client.reason(wire.REFUSED))
            self.step(workers, 3.0)
            self.finish(c, workers)
            for i in (0, 1):  # the job is over, and its places are free
                with wire.Client(c.connect(i)) as client:
                    client.send(said)
                    client.expect(wire.CHALLENGE)
                    self.assertIn("has not proven", client.reason(wire.REFUSED))

    def test_secrets_change(self):
        """A running job continues; new connections need the new secret, also reconnects."""
        for agents in (0, 2):
            with self.subTest(agents=agents), self.cluster(reducers=2, agents=agents) as c:
                self.write("mine", RIGHT)
                self.give("test", RIGHT)
                workers = self.start(c)
                tell = c.agents or workers
                self.step(workers, 3.0)
                self.give("test", OTHER)
                self.step(workers, 3.0)
                if not agents:
                    self.refused(c, "has not proven", job={"name": "test"}, security={"secret": self.mine})
                # a reducer that is lost and returns has only the new secret, until the
                # workers have it too
                c.reducers[1].kill()
                for p in tell:
                    p.wait_text("reducer-lost reducer=r1")
                c.start_reducer(1)
                c.reducers[1].wait_text("has not proven that it has the job's secret")
                self.step(workers, 3.0)
                self.write("mine", OTHER)
                for p in tell:
                    p.wait_text("reducer-back reducer=r1")
                self.step(workers, 3.0)
                (self.dir / "jobs" / "test.secret").unlink()
                self.step(workers, 3.0)
                self.finish(c, workers)
                if not agents:
                    self.refused(c, "this reducer has no secret for job test")

    def test_files_of_workers(self):
        """Their errors are reported before anything is connected to, in direct mode and by the agent."""
        cases = (
            (self.write("all", RIGHT, 0o644), "/all has mode 0644, so everybody can read it", "ConfigError"),
            (self.write("few", "x" * 15), "/few has 15 bytes; expected a secret of 16 to 1024 bytes", "ConfigError"),
            (str(self.dir), "is not a regular file", "ConfigError"),
            (str(self.dir / "none"), "/none cannot be opened: No such file", "ReductionError"),
        )
        for path, pattern, error in cases:
            for agents in (0, 1):
                with self.subTest(path, agents=agents):
                    with self.cluster(reducers=1, agents=agents, config={"security": {"secret": path}}) as c:
                        w = c.start_worker(0, 1, STEPS)
                        end = w.said("end")
                        self.assertRegex(end["message"], r"security\.secret: .*" + pattern)
                        self.assertEqual(end["error"], error)
                        c.wait_all([w])

    def test_reducers_require_the_folder_of_secrets(self):
        with harness.Cluster(reducers=0) as c:
            c.dir.joinpath("f.yaml").write_text(f"server: {{secrets_dir: {self.dir}/nowhere}}\n")
            p = c.start("reducer", [harness.binary("reduction-server"), "--config", "f.yaml"])
            self.assertEqual(p.wait(), 1)
            self.assertRegex(p.err,
                             r"server\.secrets_dir: .*/nowhere is not a directory that this reducer can read: No")

    def test_secrets_permit_a_public_address(self):
        with self.cluster(reducers=1, server_args=["--listen", "0.0.0.0:0"]) as c:
            c.reducers[0].wait_text(r"listening address=0\.0\.0\.0:")

    def test_reductionctl_check(self):
        def check(c, secrets=None, **security):
            tree = {"security": {key: str(value) for key, value in security.items()}}
            if secrets:
                tree["server"] = {"secrets_dir": str(secrets)}
            c.dir.joinpath("f.yaml").write_text(json.dumps(tree))
            p = c.start("reductionctl", [harness.binary("reductionctl"), "check", "f.yaml"])
            return p.wait(), p.out + p.err

        with harness.Cluster(reducers=0) as c:
            jobs = self.dir / "jobs"
            code, said = check(c, secret=self.mine, secrets=jobs)
            self.assertEqual(code, 0, said)
            self.assertIn(f"security.secret: {self.mine}: ok, 27 bytes", said)
            self.assertIn(f"server.secrets_dir: {jobs}: ok, 1 job has one", said)
            code, said = check(c, secret=self.dir / "none", secrets=self.dir / "nowhere")
            self.assertEqual(code, 0, said)
            self.assertIn("none is not on this machine, not checked", said)
            self.assertIn("nowhere is not on this machine, not checked", said)
            code, said = check(c, secret=self.write("all", RIGHT, 0o644))
            self.assertEqual(code, 1)
            self.assertIn("all has mode 0644, so everybody can read it", said)
            self.give("bert", "few")
            code, said = check(c, secrets=jobs)
            self.assertEqual(code, 1)
            self.assertIn("bert.secret has 3 bytes; expected a secret of 16 to 1024 bytes", said)
            self.give("bert", RIGHT)
            self.give("../stray", RIGHT)
            (jobs / "notes.txt").write_text("x")
            code, said = check(c, secrets=jobs)
            self.assertEqual(code, 0, said)
            self.assertIn("ok, 2 jobs have one", said)


class RawPeers(Guarded):
    """Peers that know the protocol, on a plain socket."""

    TRANSPORT = "tcp"
    SECRET = RIGHT.rstrip("\n").encode()

    def test_the_specification_suffices(self):
        with self.cluster(reducers=1) as c, wire.Client(c.connect(0)) as client:
            want = client.prove(self.SECRET)
            self.assertEqual(wire.pb.Welcome.FromString(client.expect(wire.WELCOME)).mac, want)
            client.expect(wire.START)

    def test_invalid_proofs(self):
        with self.cluster(reducers=1) as c:
            for name, frame, expected in (
                ("random", wire.frame(wire.PROOF, wire.pb.Proof(mac=os.urandom(32))), "has not proven"),
                ("empty", wire.frame(wire.PROOF), "the proof in PROOF has 0 bytes, 32 were expected"),
                ("31 bytes", wire.frame(wire.PROOF, wire.pb.Proof(mac=b"x" * 31)), "has 31 bytes, 32 were expected"),
                ("no protobuf", wire.frame(wire.PROOF, b"\xff" * 9), "the PROOF message cannot be decoded"),
                ("long", wire.frame(wire.PROOF, payload_len=65), "announces 65 payload bytes, at most 64 are allowed"),
                ("HELLO", wire.hello(), "the second frame is HELLO instead of PROOF"),
                ("DATA", wire.frame(wire.DATA), "the second frame is DATA instead of PROOF"),
                ("ABORT", wire.frame(wire.ABORT), "the second frame is ABORT instead of PROOF"),
            ):
                with self.subTest(name), wire.Client(c.connect(0)) as client:
                    client.be_challenged()
                    client.send(frame)
                    self.assertIn(expected, client.reason(wire.REFUSED))
            for nonce in (b"", b"x" * 31, b"x" * 33):
                with self.subTest(nonce=nonce), wire.Client(c.connect(0)) as client:
                    client.send(wire.hello(nonce=nonce))
                    expected = f"the nonce in HELLO has {len(nonce)}" if nonce else "asks for the secret of job test"
                    self.assertIn(expected, client.reason(wire.REFUSED))

    def test_job_names_are_no_paths(self):
        """Names that would lead out of the folder, or to a file in it that is no secret."""
        (self.dir / "outside.secret").write_text(RIGHT)
        os.chmod(self.dir / "outside.secret", 0o600)
        (self.dir / "jobs" / "deep").mkdir()
        shutil.copy2(self.dir / "outside.secret", self.dir / "jobs" / "deep" / "x.secret")
        with self.cluster(reducers=1) as c:
            for job in ("../outside", "deep/x", "./test", "/etc/passwd", "test ", "t\u00e9st", "..", "*", "a" * 63):
                with self.subTest(job), wire.Client(c.connect(0)) as client:
                    client.send(wire.hello(job=job, nonce=b"x" * 32))
                    self.assertIn("this reducer has no secret for job", client.reason(wire.REFUSED))

    def test_challenges_are_new(self):
        with self.cluster(reducers=1) as c:
            seen = set()
            for _ in range(20):
                with wire.Client(c.connect(0)) as client:
                    seen.add(client.be_challenged()[1])
            self.assertEqual(len(seen), 20)

    def test_a_slow_proof_is_closed(self):
        """Wherever in PROOF it stops."""
        with self.cluster({"timeouts": {"handshake": "2500ms"}}, reducers=1) as c:
            proof = wire.frame(wire.PROOF, wire.pb.Proof(mac=b"x" * 32))
            clients = [(wire.Client(c.connect(0)), sent) for sent in (0, 1, 64, 65, len(proof) - 1)]
            for client, sent in clients:
                self.addCleanup(client.sock.close)
                client.be_challenged()
                client.send(proof[:sent])
            for client, sent in clients:
                with self.subTest(sent=sent):
                    self.assertIn("no complete PROOF came within 2.5 s", client.reason(wire.REFUSED))

    def test_a_close_after_challenge_is_logged(self):
        with self.cluster(reducers=1) as c:
            with wire.Client(c.connect(0)) as client:
                client.be_challenged()
            c.reducers[0].wait_text("it closed the connection before a complete PROOF")

    def test_many_connections_without_proof(self):
        """More than the reducer has places for; workers can join nevertheless."""
        with self.cluster(limits={"max_connections": 40}, reducers=1) as c:
            crowd = [wire.Client(c.connect(0)) for _ in range(60)]
            for client in crowd:
                client.send(wire.hello(nonce=os.urandom(32)))
            workers = self.start(c)
            self.step(workers, 3.0)
            self.finish(c, workers)
            for client in crowd:
                client.sock.close()


if __name__ == "__main__":
    harness.main()
