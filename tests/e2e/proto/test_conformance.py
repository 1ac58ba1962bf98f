#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan
"""The reducer answers every misbehaviour of conformance_rows.py as proto/FRAMES.md says, over TCP and over gRPC, while
a healthy job beside it goes on. And the table notices wrong answers.

Not under ThreadSanitizer: it reports races in Python's own gRPC.
"""

import pathlib
import re
import socket
import subprocess
import tempfile
import threading
import unittest

import conformance
import conformance_rows
import harness
import wire

LEAST, LEAST_PROOFS, LEAST_RELAYS = 220, 20, 35  # rows
SILENCE = {"timeouts": {"detect": "5s"}}  # so that the silent ranks of the table are lost soon


class Conformance(unittest.TestCase):
    def check(self, address, *words, least=LEAST):
        argv = [harness.PYTHON, harness.ROOT / "tests/e2e/conformance.py", address, *words]
        p = subprocess.run(argv, capture_output=True, text=True, timeout=300)
        self.assertEqual(p.returncode, 0, p.stdout + p.stderr)
        rows, wrong, rounds = map(int, re.findall(r"\d+", p.stdout.splitlines()[-1]))
        self.assertGreaterEqual(rows, least)
        self.assertEqual(wrong, 0)
        self.assertGreater(rounds, rows / 10)

    def test_over_tcp(self):
        with harness.Cluster(transport="tcp", server_config=SILENCE) as c:
            self.check(c.address(0))

    @unittest.skipUnless(harness.HAS_GRPC, "this build has no gRPC")
    def test_over_grpc(self):
        with harness.Cluster(transport="grpc", server_config=SILENCE) as c:
            self.check(c.address(0), "grpc")

    def test_proofs(self):
        for transport in ("tcp", "grpc") if harness.HAS_GRPC else ("tcp",):
            with self.subTest(transport), tempfile.TemporaryDirectory(prefix="reduction-") as folder:
                secret = pathlib.Path(folder, "conformance.secret")
                secret.write_text("a secret of more than 16 bytes\n")
                secret.chmod(0o600)
                with harness.Cluster(transport=transport, server_config={"server": {"secrets_dir": folder}}) as c:
                    words = ["grpc"] if transport == "grpc" else []
                    self.check(c.address(0), *words, str(secret), least=LEAST_PROOFS)

    def test_relays(self):
        reducers = [{"id": f"r{i}", "address": f"127.0.0.1:{i + 1}"} for i in range(2)]  # nothing is relayed
        groups = [{"name": name, "relays": [reducer]} for name, reducer in (("rack-a", "r0"), ("rack-b", "r1"))]
        for transport in ("tcp", "grpc") if harness.HAS_GRPC else ("tcp",):
            config = {"reducers": reducers, "groups": groups}
            with self.subTest(transport), harness.Cluster(transport=transport, server_config=config) as c:
                words = ["grpc"] if transport == "grpc" else []
                self.check(c.address(0), *words, "relays", least=LEAST_RELAYS)

    def test_wrong_answers_are_found(self):
        """A listener that closes without an answer, that answers with another code, or with another frame."""
        other_code = wire.frame(wire.REFUSED, wire.pb.Refused(code=-1, message="no"))
        for reply, found in ((b"", "without an answer"), (other_code, "code -1"),
                             (wire.frame(wire.START), "type 5")):  # fmt: skip
            with self.subTest(found), socket.create_server(("127.0.0.1", 0)) as listener:

                def serve(listener=listener, reply=reply):
                    with listener.accept()[0] as s:
                        s.recv(65536)
                        s.sendall(reply)

                thread = threading.Thread(target=serve)
                thread.start()
                table = conformance.Table("127.0.0.1:%d" % listener.getsockname()[1])
                table.row("zeros", lambda: table.first(bytes(64), conformance_rows.PROTO))
                thread.join()
                self.assertEqual(len(table.failed), 1)
                self.assertIn(found, table.failed[0])


if __name__ == "__main__":
    harness.main()
