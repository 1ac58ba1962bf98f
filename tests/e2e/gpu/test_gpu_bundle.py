#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan all-only
"""The bundle for machines with a GPU (tests/gpu) works where nothing but a C library is installed."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import harness

LIMIT = 64 << 20
PATH = os.environ["PATH"] + ":/usr/sbin:/sbin"
MISSING = [tool for tool in ("patchelf", "unshare", "ip", "tc") if not shutil.which(tool, path=PATH)]
BASE = r"(?:ld-linux[^/\s]*|lib(?:c|m|dl|pthread|rt|resolv|util|anl)\.so[^/\s]*)"  # of the C library
BARE = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]


def may_change_root():
    command = ["unshare", *BARE, "--mount", "mount", "--bind", "/proc", "/proc"]
    return subprocess.run(command, capture_output=True).returncode == 0


@unittest.skipIf(harness.SAN, "the bundle is made of the default build")
@unittest.skipIf(MISSING, f"not found: {', '.join(MISSING)}")
class Bundle(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.root = pathlib.Path(folder.name)
        argv = [harness.ROOT / "tests/gpu/bundle.sh", harness.BUILD, cls.root / "gpu"]
        subprocess.run(argv, check=True, cwd=harness.ROOT, stdout=subprocess.DEVNULL)

    def test_size(self):
        size = sum(f.stat().st_size for f in self.root.glob("gpu/**/*") if f.is_file())
        self.assertLess(size, LIMIT)
        names = {f.name for f in self.root.glob("gpu/pytorch/*")}
        self.assertEqual(names, {
            "gpu-torch", "part.py", "rank.py", "world.py", "ddp_transformer.py", "values.py", "kernels.py",
            "programs.py", "cuda_rank.py",
        })  # fmt: skip
        self.assertRegex((self.root / "gpu/GLIBC").read_text(), r"^2\.\d+\n$")

    def test_nothing_from_this_machine(self):
        """Every shared object that is needed is in the bundle, or belongs to the C library."""
        here = {f.name for f in self.root.glob("gpu/lib/*")}
        for f in [*self.root.glob("gpu/bin/*"), *self.root.glob("gpu/lib/*")]:
            dynamic = subprocess.run(["readelf", "-d", f], check=True, capture_output=True, text=True).stdout
            for name in re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic):
                if not re.fullmatch(BASE, name):
                    self.assertIn(name, here, f"needed by {f.name}")
            self.assertIn("Library rpath: [$ORIGIN" + ("/../lib]" if f.parent.name == "bin" else "]"), dynamic, f)

    def check_gpu(self, *parts):
        """Runs check-gpu in a root that has only a C library. Returns its exit status and output."""
        script = 'mount --rbind /proc "$0/proc" && exec env -i "$(command -v chroot)" "$0" /gpu/bin/check-gpu "$@"'
        argv = ["unshare", *BARE, "--mount", "sh", "-c", script, self.root, *parts]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=100 * harness.SCALE)
        return done.returncode, done.stdout + done.stderr

    def make_root(self):
        for name in ("proc", "tmp", "dev"):
            (self.root / name).mkdir(exist_ok=True)
        (self.root / "dev/null").touch()
        argv = ["ldd", *self.root.glob("gpu/bin/*"), *self.root.glob("gpu/lib/*")]
        linked = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
        for path in set(re.findall(rf"(/\S*/{BASE}) \(", linked)):
            to = self.root / path.lstrip("/")
            if str(self.root) not in path and not to.exists():
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, to)

    def test_bare_root(self):
        if not may_change_root():
            self.skipTest("this user may not mount in a namespace of its own")
        self.make_root()
        status, text = self.check_gpu("cpu")
        self.assertEqual(status, 0, text)
        rows = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
        results = {row["check"]: row["result"] for row in rows if row["part"] == "cpu"}
        self.assertEqual(results, {"reducers": "ok", "libreduction, 2 ranks": "ok", "NCCL plugin, 2 ranks": "ok"}, text)
        self.assertIn("libcuda.so.1: cannot open shared object file", text)
        status, text = self.check_gpu()
        self.assertEqual((status, text.splitlines()[-1]), (77, "no GPU here"))
        status, text = self.check_gpu("torch")
        self.assertEqual((status, text.splitlines()[-1]), (77, "no GPU here"))
        self.assertEqual(self.check_gpu("nothing")[0], 2)


if __name__ == "__main__":
    harness.main()
