# SPDX-License-Identifier: Apache-2.0
# run: alone all-only
"""The wheel in one process with packages that bring gRPC, abseil, protobuf, OpenSSL or libuv of their own: each is
imported and used before ours, and after. Ours sums over TCP with TLS, then over gRPC with TLS. Also the wheel in each
Python that it is for, and what auditwheel says. `make wheel-others` installs all these from PyPI and runs this program;
without that it skips.
"""

import pathlib
import platform
import subprocess
import sys
import tempfile
import unittest

import certs
import harness
import wheel

sys.path[:0] = [str(harness.ROOT / "tests"), str(harness.ROOT / "tests/fresh")]
import venv  # noqa: E402  (tests/venv.py)
import wheel_user  # noqa: E402

PYTHON = venv.python("others")
OTHERS = ("grpc", "torch", "cryptography", "tensorflow", "ray")
PYTHONS = ("3.9", "3.10", "3.11", "3.12", "3.13", "3.14")
PROGRAM = """
import os, sys, tempfile
sys.path.insert(0, os.environ["OURS"])

def use_grpc():
    import grpc
    from concurrent import futures
    handler = grpc.unary_unary_rpc_method_handler(lambda request, context: request * 2)
    server = grpc.server(futures.ThreadPoolExecutor(1), options=[("grpc.so_reuseport", 0)])
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("a.B", {"c": handler}),))
    texts = [open(os.environ["TLS"] + name, "rb").read() for name in ("/localhost.key", "/localhost.pem", "/ca.pem")]
    port = server.add_secure_port("localhost:0", grpc.ssl_server_credentials([tuple(texts[:2])]))
    server.start()
    with grpc.secure_channel(f"localhost:{port}", grpc.ssl_channel_credentials(texts[2])) as channel:
        assert channel.unary_unary("/a.B/c")(b"12", timeout=60) == b"1212"
    server.stop(None).wait()

def use_torch():
    import torch
    assert torch.ones(1000).sum().item() == 1000

def use_cryptography():
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    key = ec.generate_private_key(ec.SECP256R1())
    key.public_key().verify(key.sign(b"x", ec.ECDSA(hashes.SHA256())), b"x", ec.ECDSA(hashes.SHA256()))

def use_tensorflow():
    import tensorflow
    from tensorflow.python.data.experimental.service import server_lib  # its gRPC
    assert float(tensorflow.reduce_sum(tensorflow.ones(1000))) == 1000
    dispatcher = tensorflow.data.experimental.service.DispatchServer(start=True)
    dispatcher.target

def use_ray():
    import ray
    from ray._raylet import ObjectID, GcsClientOptions  # its gRPC
    assert len(ObjectID.from_random().hex()) > 10

def ours():
    import numpy, reduction
    for transport in ("tcp", "grpc"):
        with reduction.Communicator(config=os.environ[transport.upper()]) as comm:
            x = numpy.ones(100000, numpy.float32)
            comm.all_reduce(x)
            assert (x == 2).all()

first = sys.argv[1] == "first"
uses = [globals()["use_" + name] for name in sys.argv[2:]]
for f in [*uses, ours, *uses, ours] if first else [ours, *uses, ours, *uses]:
    f()
print("done", flush=True)
"""

SUM = """
import numpy, reduction
with reduction.Communicator() as comm:
    x = numpy.ones(100000, numpy.float32)
    comm.all_reduce(x)
assert (x == 2).all()
print(reduction.__file__)
"""


def why_not():
    if platform.machine() != "x86_64":
        return "PyPI has not all packages for this processor"
    if PYTHON is None:
        return f"there are no packages from PyPI in {venv.FOLDER / 'others'}: make wheel-others installs them"
    return wheel.why_not()


@unittest.skipIf(why_not(), why_not())
class Others(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="reduction-")
        cls.addClassCleanup(folder.cleanup)
        cls.env = pathlib.Path(folder.name).resolve() / "env"
        cls.file = wheel.install(cls.env)
        cls.ours = next(cls.env.glob("lib/python3*/site-packages"))

    def together(self, order, *others, libraries=""):
        """libraries: LD_LIBRARY_PATH of the reducer and of the ranks."""
        with harness.Cluster(start=False) as c:
            files = certs.Folder(c.dir / "tls", "reducer:localhost,127.0.0.1")
            options = ["--listen", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--insecure"]
            options += ["--config", c._write("server.yaml", files.reducer("localhost"))]
            found = {"LD_LIBRARY_PATH": libraries}
            server = c.start("reducer r0", [self.env / "bin/reduction-server", *options], found)
            address = server.wait_text(r"\blistening\b.*?address=(\S+)").group(1)
            grpc = server.wait_text(r"\bgrpc-ready\b.*?address=(\S+)").group(1)
            env = {"WORLD_SIZE": 2, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1, "OURS": self.ours, "TLS": c.dir / "tls"}
            env |= {"PYTHONPATH": "", "REDUCTION_LIBRARY": "", "REDUCTION_RUN": "run", "HOME": c.dir, **found}
            for name, where in (("tcp", {"address": address}), ("grpc", {"address": address, "grpc": grpc})):
                config = {"job": {"name": name, "transport": name}, "reducers": [{"id": "r0", **where}]}
                env[name.upper()] = c._write(f"{name}.yaml", {**files.worker(), **config})
            argv = [PYTHON, "-c", PROGRAM, order, *others]
            ranks = [
                c.start(f"rank {rank}", argv, {k: str(v) for k, v in {**env, "RANK": rank}.items()}) for rank in (0, 1)
            ]
            self.assertEqual(c.wait_all(ranks, 300), [0, 0], "".join(rank.report() for rank in ranks))

    def test_each(self):
        for order in ("first", "last"):
            for other in OTHERS:
                with self.subTest(order=order, other=other):
                    self.together(order, other)

    def test_all_together(self):
        for order in ("first", "last"):
            with self.subTest(order=order):
                self.together(order, *OTHERS)

    def test_cuda_in_the_search_path(self):
        """As in images for GPUs: all folders with libraries of CUDA and of torch are in LD_LIBRARY_PATH."""
        packages = venv.site_packages("others")
        folders = {path.parent for name in ("nvidia", "torch") for path in packages.glob(f"{name}/**/lib*.so*")}
        self.assertTrue([f for f in folders if any(f.glob("libcudart.so*"))], folders)
        self.together("last", "torch", libraries=":".join(map(str, sorted(folders))))

    def test_torchrun(self):
        """The first way of the README, with PyPI's torch: no file, a list of reducers."""
        with harness.Cluster(start=False) as c:
            server = c.start("reducer r0", [self.env / "bin/reduction-server", "--listen", "127.0.0.1:0", "--insecure"])
            address = server.wait_text(r"\blistening\b.*?address=(\S+)").group(1)
            (c.dir / "train.py").write_text(wheel_user.TRAIN)
            argv = [PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 4, c.dir / "train.py"]
            env = {"PYTHONPATH": self.ours, "REDUCTION_LIBRARY": "", "REDUCTION_REDUCERS": address, "HOME": c.dir}
            run = c.start("torchrun", argv, {key: str(value) for key, value in env.items()})
            self.assertEqual(run.wait(120), 0, run.report())

    def test_auditwheel(self):
        argv = [PYTHON, "-m", "auditwheel", "show", self.file]
        said = " ".join(subprocess.run(argv, check=True, capture_output=True, text=True).stdout.split())
        self.assertIn('is consistent with the following platform tag: "manylinux_2_34_x86_64"', said)


@unittest.skipIf(wheel.why_not(), wheel.why_not())
class Pythons(unittest.TestCase):
    def test_each(self):
        """Installation, a sum of two ranks, commands, and what uninstallation leaves."""
        file = wheel.make()
        for version in PYTHONS:
            with self.subTest(python=version):
                if not venv.python(version):
                    self.skipTest(f"Python {version} was not found: make wheel-others")
                self.use(file, venv.FOLDER / version)

    def use(self, file, env):
        before = {p for p in env.rglob("*") if "__pycache__" not in p.parts}
        wheel.pip(env, "install", "--no-index", file)
        try:
            with harness.Cluster() as c:
                argv = [env / "bin/python", "-c", SUM]
                for rank in c.run(2, argv, env={"PYTHONPATH": "", "REDUCTION_LIBRARY": ""}):
                    self.assertTrue(rank.out.startswith(str(env)), rank.out)
            for argv in ("reductionctl", "--version"), ("python", "-m", "reduction.nccl"):
                subprocess.run([env / "bin" / argv[0], *argv[1:]], check=True, capture_output=True, cwd="/")
        finally:
            wheel.pip(env, "uninstall", "-y", "reduction")
        self.assertEqual({p for p in env.rglob("*") if "__pycache__" not in p.parts}, before)


if __name__ == "__main__":
    harness.main()
