# SPDX-License-Identifier: Apache-2.0
# run: alone all-only
"""The Python wheel in a virtual environment: the README's Python example, the commands with TLS and metrics, gRPC, what
is inside, and what is left of it.

Runs alone: `make wheel` may compile again, which other tests would notice.
"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
import urllib.request
import zipfile

import certs
import harness
import wheel

sys.path[:0] = [str(harness.ROOT / "tests/fresh"), str(harness.ROOT / "deploy")]
import elf  # noqa: E402
import portable  # noqa: E402
import readme  # noqa: E402

LOADED = 'print(*sorted({line.split()[-1] for line in open("/proc/self/maps") if ".so" in line}))\n'
SUMS = """
import numpy, reduction
with reduction.Communicator() as comm:
    x = numpy.ones(100000, numpy.float32)
    comm.all_reduce(x)
assert (x == 2).all()
"""
SYSTEM = re.compile(r".*/(ld-linux|libc|libm|libstdc\+\+|libgcc_s)[-.]")


def everything(folder):
    return {p for p in folder.rglob("*") if "__pycache__" not in p.parts}


@unittest.skipIf(wheel.why_not(), wheel.why_not())
class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.mkdtemp(prefix="reduction-")
        cls.addClassCleanup(shutil.rmtree, folder)
        cls.env = pathlib.Path(folder).resolve() / "env"
        cls.wheel = wheel.install(cls.env)
        cls.names = zipfile.ZipFile(cls.wheel).namelist()

    def command(self, name, *arguments, status=0, **more):
        done = subprocess.run([self.env / "bin" / name, *arguments], capture_output=True, text=True, cwd="/", **more)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout

    def python(self, code):
        return [self.env / "bin/python", "-c", code]

    def run_ranks(self, cluster, ranks, argv):
        return cluster.run(ranks, argv, env={"PYTHONPATH": "", "REDUCTION_LIBRARY": ""})

    def test_example(self):
        for group, found in (("torch.backends", "reduction.torch:register"), ("torchcomms.backends", "reducers")):
            entry = f"import importlib.metadata as m; print(*m.entry_points(group='{group}'))"
            self.assertIn(found, self.command("python", "-c", entry))
        program = self.env.parent / "program.py"
        program.write_text(readme.python_program((harness.ROOT / "README.md").read_text()) + LOADED)
        argv = ["sh", "-c", 'cd "$0" && exec env/bin/python program.py', self.env.parent]
        with harness.Cluster(reducers=2) as c:
            shutil.copy(c.write_config("job.yaml"), self.env.parent / "job.yaml")
            for p in self.run_ranks(c, 4, argv):
                self.assertTrue(p.out.startswith("4.0 4.0\n"), p.out)
                ours = [path for path in p.out.split() if path.startswith(str(self.env))]
                for library in (r"libreduction\.so\.0", r"r..yaml-0\.so\.2", r"r..crypto\.so\.3"):
                    self.assertEqual(len([path for path in ours if re.search(f"/reduction/lib/{library}$", path)]), 1)

    def test_commands_with_tls_and_metrics(self):
        with harness.Cluster(start=False) as c:
            files = certs.Folder(c.dir / "tls", "reducer:localhost,127.0.0.1")
            options = ["--listen", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--insecure"]
            options += ["--config", c._write("server.yaml", files.reducer("localhost"))]
            server = c.start("reducer r0", [self.env / "bin/reduction-server", *options])
            ports = {name: server.wait_text(rf"\b{name}\b.*?address=(\S+)").group(1)
                     for name in ("listening", "grpc-ready", "http-ready")}
            maps = pathlib.Path(f"/proc/{server.pid}/maps").read_text()  # it is the program itself, not Python
            for path in set(re.findall(r"/\S+\.so\S*", maps)):
                self.assertTrue(path.startswith(str(self.env)) or SYSTEM.match(path), path)
            for transport, port in ("tcp", "listening"), ("grpc", "grpc-ready"):
                reducers = [{"id": "r0", "address": ports[port], "grpc": ports[port]}]
                config = {**files.worker(), "job": {"name": transport, "transport": transport}, "reducers": reducers}
                yaml = str(c._write("job.yaml", config))
                self.command("reductionctl", "check", yaml)
                self.assertIn("r0", self.command("reductionctl", "check", "--connect", yaml))
                env = {"WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "REDUCTION_RUN": transport}
                env |= {"REDUCTION_CONFIG": yaml, "PYTHONPATH": ""}
                procs = [c.start(f"rank {rank}", self.python(SUMS), {**env, "RANK": str(rank)}) for rank in range(2)]
                self.assertEqual(c.wait_all(procs), [0, 0], "".join(p.report() for p in procs))
            status = ["--authority", files.file("ca.pem")]
            self.assertIn("reduction 0.1.0", self.command("reductionctl", "status", ports["grpc-ready"], *status))
            self.command("reductionctl", "doctor", ports["grpc-ready"], *status)
            with urllib.request.urlopen(f"http://{ports['http-ready']}/metrics", timeout=20 * harness.SCALE) as answer:
                self.assertIn("reduction_lane_received_bytes_total", answer.read().decode())
            server.signal(signal.SIGTERM)
            self.assertEqual(server.wait(), 0)

    def test_commands_are_the_programs(self):
        for name in portable.PROGRAMS:
            self.assertRegex(self.command(name, "--version"), rf"^{name} \d+\.\d+\.\d+")
            self.command(name, "--no-such-option", status=2)
        self.assertIn("OpenSSL", self.command("reductionctl", "--version"))
        reading, writing = os.pipe()
        os.close(reading)
        self.addCleanup(os.close, writing)
        programs = [self.env / "bin/reductionctl", harness.binary("reductionctl")]
        ends = [subprocess.run([p, "--help"], stdout=writing, stderr=subprocess.PIPE).returncode for p in programs]
        self.assertEqual(ends[0], ends[1])

    def test_mpi_library(self):
        path = self.command("python", "-m", "reduction.mpi").strip()
        self.command("python", "-c", f"import ctypes; ctypes.CDLL('{path}')")

    def test_plugin(self):
        line = self.command("python", "-m", "reduction.nccl")
        argv = ["bash", "-c", f'{line}\n[ -e "${{LD_LIBRARY_PATH%%:*}}/libnccl-net-$NCCL_NET_PLUGIN.so" ]']
        self.assertEqual(subprocess.run(argv).returncode, 0, line)

    def test_contents(self):
        bill = json.loads(zipfile.ZipFile(self.wheel).read("reduction-0.1.0.dist-info/sboms/sbom.cdx.json"))
        listed = {p["value"] for part in bill["components"] for p in part["properties"] if p["name"] == "file"}
        carried = {name.removeprefix("reduction/") for name in self.names if re.match(r"reduction/lib/r", name)}
        self.assertEqual(listed, carried)
        for part in bill["components"]:
            self.assertIn(f"reduction-0.1.0.dist-info/licenses/{part['name']}.copyright", self.names)
            self.assertTrue(part["licenses"] and part["version"], part)
        for name in ("examples/loopback.yaml", "bash-completion/completions/reductionctl", "man/man1/reductionctl.1"):
            self.assertIn(f"reduction/share/{name}", self.names)
        self.assertLess(self.wheel.stat().st_size, 25 << 20)

    def test_systems(self):
        """Where pip takes it, by the C library that it finds: Debian 11, RHEL 9, Ubuntu 22.04 and 24.04, musl."""
        tag = self.wheel.stem.split("-")[-1]
        code = ("from pip._vendor.packaging import _manylinux, tags\n"
                "_manylinux._glibc_version_string = lambda: {!r}\n"
                "print(*tags.platform_tags())")
        for glibc, taken in ("2.31", False), ("2.34", True), ("2.35", True), ("2.39", True), (None, False):
            found = self.command("python", "-c", code.format(glibc)).split()
            self.assertEqual(tag in found, taken, f"{glibc}: {found[:3]}")

    def test_private_names(self):
        """No symbol that a carried library defines has a name that it has outside."""
        lib = next(self.env.glob("lib/python3*/site-packages/reduction/lib"))
        system = set().union(*(elf.Elf(portable.find(name, "cc")).defined()
                               for name in ("libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1")))
        for path in lib.glob("r*"):
            original = elf.Elf(portable.find("lib" + path.name[3:], "cc"))
            self.assertEqual(elf.Elf(path).defined() & original.defined() - system, set(), path)

    def test_same_bytes(self):
        with tempfile.TemporaryDirectory(prefix="reduction-") as name:
            folder = pathlib.Path(name)
            version = re.search(r"-(\d[^-]*)-", self.wheel.name).group(1)
            for program, *arguments in (
                ("portable.py", "--build", harness.BUILD, "--out", folder / "tree"),
                ("wheel.py", "--tree", folder / "tree", "--man", harness.BUILD / "man", "--out", folder),
            ):
                argv = [harness.PYTHON, harness.ROOT / "deploy" / program, *arguments, "--version", version]
                subprocess.run(argv, check=True, capture_output=True, cwd=folder)
            self.assertEqual((folder / self.wheel.name).read_bytes(), self.wheel.read_bytes())

    def test_no_folder_of_the_build(self):
        """The bytes do not depend on it."""
        with zipfile.ZipFile(self.wheel) as file:
            for name in self.names:
                if re.match(r"reduction/(bin|lib)/", name):
                    self.assertFalse(b"/default/gen/" in file.read(name), name)

    def test_uninstall(self):
        with tempfile.TemporaryDirectory(prefix="reduction-") as name:
            env = pathlib.Path(name) / "env"
            subprocess.run([harness.PYTHON, "-m", "venv", env], check=True)
            before = everything(env)
            wheel.pip(env, "install", "--no-index", self.wheel)
            self.assertNotEqual(everything(env), before)
            wheel.pip(env, "uninstall", "-y", "reduction")
            self.assertEqual(everything(env), before)


if __name__ == "__main__":
    harness.main()
