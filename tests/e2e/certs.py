# SPDX-License-Identifier: Apache-2.0
"""Certificates for tests of TLS: valid ones from deploy/make-certs.sh, as documented, and invalid ones."""

import pathlib
import ssl
import subprocess

import harness

MAKE = harness.ROOT / "deploy" / "make-certs.sh"


class Folder:
    """Certificates of one authority in a folder of the cluster, or of any other path."""

    def __init__(self, path, *wanted):
        self.path = pathlib.Path(path)
        self.make(*wanted)

    def make(self, *wanted):
        """Arguments as for make-certs.sh: "reducer:NAME,...", "client:NAME"."""
        subprocess.run([MAKE, self.path, *wanted], check=True, capture_output=True)

    def file(self, name):
        return str(self.path / name)

    def reducer(self, name, mutual=False, **more):
        """Returns the configuration of a reducer with the certificate of this name."""
        return {"security": {"tls": "mutual" if mutual else "on", **self.own(name), **more}}

    def own(self, name):
        keys = {"certificate": self.file(f"{name}.pem"), "key": self.file(f"{name}.key")}
        return {**keys, "authority": self.file("ca.pem")}

    def worker(self, name=None, **more):
        """Returns the configuration of workers; name: of their certificate."""
        if name:
            return {"security": {"tls": "mutual", **self.own(name), **more}}
        return {"security": {"tls": "on", "authority": self.file("ca.pem"), **more}}

    def expired(self, name):
        """Makes a certificate like those of make-certs.sh that has expired."""
        self.valid(name, "20200101000000Z", "20210101000000Z")

    def valid(self, name, start, end):
        """Makes a certificate like those of make-certs.sh that is valid between two times."""
        (self.path / "index.txt").write_text("")
        (self.path / "serial").write_text("0100")
        config = self.path / "ca.cnf"
        config.write_text(
            f"[ca]\ndefault_ca=d\n[d]\ndatabase={self.path}/index.txt\nserial={self.path}/serial\n"
            f"new_certs_dir={self.path}\ndefault_md=sha256\npolicy=p\n[p]\ncommonName=supplied\n"
            "[v]\nsubjectAltName=DNS:localhost,IP:127.0.0.1\n"
        )
        key, request = self.file(f"{name}.key"), self.file(f"{name}.csr")
        for argv in (
            ["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", key],
            ["req", "-new", "-key", key, "-subj", f"/CN={name}", "-out", request],
            ["ca", "-batch", "-notext", "-config", config, "-cert", self.file("ca.pem"), "-keyfile",
             self.file("ca.key"), "-in", request, "-extensions", "v", "-startdate", start, "-enddate", end, "-out",
             self.file(f"{name}.pem")],
        ):  # fmt: skip
            subprocess.run(["openssl", *argv], check=True, capture_output=True)
        pathlib.Path(key).chmod(0o600)

    def client_context(self, name=None, alpn="reduction/1", newest=None):
        """Returns a context of Python's ssl: a client that accepts any reducer of this authority."""
        ctx = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        ctx.load_verify_locations(self.file("ca.pem"))
        ctx.check_hostname = False
        if alpn:
            ctx.set_alpn_protocols([alpn])
        if newest:
            ctx.maximum_version = newest
        if name:
            ctx.load_cert_chain(self.file(f"{name}.pem"), self.file(f"{name}.key"))
        return ctx

    def server_context(self, name, newest=None):
        """Returns a context of Python's ssl for a fake reducer."""
        ctx = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        ctx.load_cert_chain(self.file(f"{name}.pem"), self.file(f"{name}.key"))
        ctx.set_alpn_protocols(["reduction/1"])
        if newest:
            ctx.maximum_version = newest
        return ctx
