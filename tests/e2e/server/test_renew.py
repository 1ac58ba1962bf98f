# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan
"""Certificates, keys and tokens that are replaced while a reducer runs: a link is swapped as Kubernetes does it, or a
file after the other. Nobody tells the process. Its connections stay.

Not under ThreadSanitizer: it reports races in what OpenSSL does for gRPC.
"""

import datetime
import json
import pathlib
import re
import shutil
import socket
import ssl
import subprocess
import time
import unittest
import urllib.request

import certs
import harness
from test_http import HAS_HTTP, STEADY, http_of

NAMES = "reducer:r0,localhost,127.0.0.1"


class Volume:
    """A folder as Kubernetes mounts a secret: its files are links into the folder that `..data` names."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.path.mkdir()
        self.version = 0
        self.authority = certs.Folder(self.path / "authority", NAMES)

    def swap(self, ends=False):
        """A new certificate, and new tokens: all of them appear at once. ends: after a year, in 20 days."""
        self.version += 1
        folder = self.path / f"..{self.version}"
        folder.mkdir()
        self.authority.make(NAMES)
        if ends:
            today = datetime.datetime.now(datetime.timezone.utc)
            times = [today + datetime.timedelta(days=days, hours=1) for days in (-345, 20)]
            self.authority.valid("r0", *(f"{time:%Y%m%d%H%M%SZ}" for time in times))
        for name in ("r0.pem", "r0.key", "ca.pem"):
            shutil.copy(self.authority.file(name), folder / name)
        for name in ("read", "admin"):
            (folder / name).write_text(f"{name}-token-of-version-{self.version}\n")
            (folder / name).chmod(0o600)
        for file in folder.iterdir():
            if not (self.path / file.name).is_symlink():
                (self.path / file.name).symlink_to(f"..data/{file.name}")
        (self.path / "..new").symlink_to(folder.name)
        (self.path / "..new").rename(self.path / "..data")

    def security(self, **more):
        names = {"certificate": "r0.pem", "key": "r0.key", "authority": "ca.pem"}
        return {**{key: str(self.path / name) for key, name in names.items()}, **more}

    def tokens(self):
        return {f"{name}_token": str(self.path / name) for name in ("read", "admin")}


class Renew(unittest.TestCase):
    def shown(self, at, alpn=None):
        """The certificate that a port shows."""
        host, port = at.rsplit(":", 1)
        context = ssl.create_default_context(cafile=self.volume.authority.file("ca.pem"))
        if alpn:
            context.set_alpn_protocols([alpn])
        with socket.create_connection((host, int(port)), timeout=20 * harness.SCALE) as s:
            with context.wrap_socket(s, server_hostname="localhost") as tls:
                return tls.getpeercert(binary_form=True)

    def start(self, c, **security):
        """Starts a reducer; returns each of its ports with the protocol that it expects in TLS."""
        self.volume = Volume(c.dir / "volume")
        self.volume.swap(ends=True)
        server = {"http": "127.0.0.1:0", "http_tls": "on"} if HAS_HTTP else {}
        if harness.HAS_GRPC:
            server["grpc"] = "127.0.0.1:0"
        if HAS_HTTP and harness.HAS_GRPC:
            security = {**self.volume.tokens(), **security}
        c.server_config = {"server": server, "security": self.volume.security(tls="on", **security)}
        c.start_reducer(0)
        ports = [(c.address(0), "reduction/1")]
        ports += [(self.grpc(c), "h2")] if harness.HAS_GRPC else []
        return ports + ([(http_of(c.reducers[0]), None)] if HAS_HTTP else [])

    def grpc(self, c):
        return c.reducers[0].wait_text(r"grpc-ready address=(\S+)")[1]

    def ctl(self, c, version, *argv):
        """Runs reductionctl with the read token of this version."""
        token = c.dir / "token"
        token.write_text(f"read-token-of-version-{version}\n")
        token.chmod(0o600)
        argv = [harness.binary("reductionctl"), *argv, "--token", token, "--authority",
                self.volume.authority.file("ca.pem"), self.grpc(c)]
        return subprocess.run(list(map(str, argv)), capture_output=True, text=True)

    @unittest.skipUnless(harness.HAS_GRPC, "this build has no gRPC")
    def test_swapped_volume(self):
        with harness.Cluster(start=False, transport="tcp") as c:
            ports = self.start(c)
            before = [self.shown(*port) for port in ports]
            c.config = {"security": {"tls": "on", "authority": self.volume.authority.file("ca.pem")}}
            ranks = c.start_workers(2, STEADY)
            for p in ranks:
                p.said("open", 60)
            self.assertEqual(self.ctl(c, 1, "status").returncode, 0)
            self.volume.swap()
            c.reducers[0].wait_text("renew result=.*read again", 40)
            after = [self.shown(*port) for port in ports]
            self.assertFalse(set(before) & set(after))
            self.assertEqual(len(set(after)), 1)
            self.assertIn("the token is not that", self.ctl(c, 1, "status").stderr)
            # the job has noticed nothing
            (job,) = json.loads(self.ctl(c, 2, "status", "--json").stdout)["jobs"]
            self.assertEqual(job["joined"], 2)
            for p in ranks:
                p.tell("end")
            for p in ranks:
                self.assertEqual(p.wait(), 0, p.report())
                self.assertNotIn("reducer-lost", p.err)

    def test_one_file_after_the_other(self):
        """Certificate and key are used when they belong together, and a broken file never."""
        with harness.Cluster(start=False, transport="tcp") as c:
            ports = self.start(c)
            before = [self.shown(*port) for port in ports]
            folder = self.volume.path / "..data"
            self.volume.authority.make("reducer:new,localhost,127.0.0.1")
            shutil.copy(self.volume.authority.file("new.pem"), folder / "r0.pem")
            c.reducers[0].wait_text("warn +renew result=.kept the old files.* does not belong to the certificate", 40)
            self.assertEqual([self.shown(*port) for port in ports], before)
            (folder / "r0.pem").write_text("nothing\n")
            c.reducers[0].wait_text("warn +renew .*holds no certificate", 40)
            self.assertEqual([self.shown(*port) for port in ports], before)
            shutil.copy(self.volume.authority.file("new.pem"), folder / "r0.pem")
            shutil.copy(self.volume.authority.file("new.key"), folder / "r0.key")
            c.reducers[0].wait_text("info +renew result=.*read again", 40)
            self.assertFalse(set(before) & {self.shown(*port) for port in ports})

    @unittest.skipUnless(HAS_HTTP and harness.HAS_GRPC, "this build has no gRPC or no HTTP")
    def test_what_tells_that_one_ends(self):
        """The log, the metrics and the doctor, until there is another one."""
        with harness.Cluster(start=False, transport="tcp") as c:
            at = self.start(c)[-1][0]
            context = ssl.create_default_context(cafile=self.volume.authority.file("ca.pem"))

            def left(version):
                request = urllib.request.Request(f"https://{at}/metrics", headers={
                    "Authorization": f"Bearer read-token-of-version-{version}"})
                with urllib.request.urlopen(request, timeout=20 * harness.SCALE, context=context) as answer:
                    text = answer.read().decode()
                return [(float(re.search(rf"^reduction_certificate_{name}_timestamp_seconds (\S+)$", text, re.M)[1]) -
                         time.time()) / 86400 for name in ("expiry", "renew")]

            c.reducers[0].wait_text("warn +certificate-ends certificate=\\S* days=20 file=", 40)
            expiry, renew = left(1)
            self.assertAlmostEqual(expiry, 20, delta=0.1)
            self.assertAlmostEqual(renew, -10, delta=0.1)
            found = self.ctl(c, 1, "doctor").stdout
            self.assertRegex(found, "the certificate expires soon\n.* in 20.0 days\n.*deploy/renew.md")
            self.volume.swap()
            c.reducers[0].wait_text("renew result=.*read again", 40)
            expiry, renew = left(2)
            self.assertAlmostEqual(expiry, 365, delta=1)
            self.assertAlmostEqual(renew, 335, delta=1)
            self.assertNotIn("certificate", self.ctl(c, 2, "doctor").stdout)


if __name__ == "__main__":
    harness.main()
