# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan all-only
"""deploy/release.sh in a clone, with a make that makes empty files: what it refuses, and what it writes."""

import hashlib
import os
import pathlib
import subprocess
import tempfile
import unittest

import harness

MAKE = """#!/bin/sh
[ "$*" = "wheel rpm deb aarch64" ] || exit 1
for m in x86_64 aarch64; do
	folder=build/$m
	[ $m = aarch64 ] || folder=build
	mkdir -p $folder/wheel $folder/portable-archive $folder/rpm build/deb
	echo a$m >$folder/wheel/reduction-$V-py3-none-$m.whl
	echo b$m >$folder/portable-archive/reduction-$V-$m.tar.gz
	echo c$m >$folder/rpm/reduction-$V-1.$m.rpm
done
echo d >build/deb/reduction-server_${V}_amd64.deb
echo e >build/deb/reduction-server-dbgsym_${V}_amd64.deb
"""


@unittest.skipIf(harness.SAN, "the script is that of every build")
class Release(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="reduction-")
        self.addCleanup(folder.cleanup)
        self.dir = pathlib.Path(folder.name)
        self.tree = self.dir / "tree"
        for path in ("deploy/release.sh", "deploy/CHANGELOG.md", "common/version.h"):
            (self.tree / path).parent.mkdir(parents=True, exist_ok=True)
            (self.tree / path).write_bytes((harness.ROOT / path).read_bytes())
        (self.tree / "deploy/release.sh").chmod(0o755)
        (self.tree / ".gitignore").write_text("build\n")
        self.version = next(line.split('"')[1] for line in (self.tree / "common/version.h").read_text().splitlines()
                            if "define RS_VERSION " in line)
        make = self.dir / "make"
        make.write_text(MAKE)
        make.chmod(0o755)
        self.git("init", "--quiet")
        self.commit()

    def git(self, *args):
        subprocess.run(["git", "-c", "user.name=x", "-c", "user.email=x@x.example", *args], cwd=self.tree, check=True)

    def commit(self):
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "x")

    def release(self, version, built=None):
        env = {**os.environ, "MAKE": str(self.dir / "make"), "V": built or self.version, "PYTHON": "true"}
        return subprocess.run(["deploy/release.sh", version, "build/release"], cwd=self.tree, env=env,
                              capture_output=True, text=True)

    def refused(self, text, *args):
        done = self.release(*args)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn(text, done.stderr)
        self.assertFalse((self.tree / "build/release/SHA256SUMS").exists())

    def describe(self):
        (self.tree / "deploy/CHANGELOG.md").write_text(f"# Changelog\n\n## {self.version} - 2026-01-01\n")
        self.commit()

    def test_refused(self):
        self.refused("found no VERSION", "")
        self.refused("VERSION: found 99.0.0, expected " + self.version, "99.0.0")
        (self.tree / "deploy/CHANGELOG.md").write_text(f"# Changelog\n\n## Unreleased\n\n### {self.version}\n")
        self.refused("changes that are not committed:  M deploy/CHANGELOG.md", self.version)
        self.commit()
        self.refused(f'found no entry "## {self.version}"', self.version)
        self.describe()
        (self.tree / "new").write_text("")
        self.refused("changes that are not committed: ?? new", self.version)
        (self.tree / "new").unlink()
        self.refused("is not of version", self.version, "0.0.99")

    def test_all_artefacts(self):
        self.describe()
        done = self.release(self.version)
        self.assertEqual(done.returncode, 0, done.stderr)
        folder = self.tree / "build/release"
        sums = dict(reversed(line.split()) for line in (folder / "SHA256SUMS").read_text().splitlines())
        self.assertEqual(set(sums), {p.name for p in folder.iterdir()} - {"SHA256SUMS"})
        self.assertEqual({name.rpartition(".")[2] for name in sums}, {"whl", "gz", "rpm", "deb"})
        self.assertEqual(len(sums), 7)
        for name, digest in sums.items():
            self.assertEqual(hashlib.sha256((folder / name).read_bytes()).hexdigest(), digest)


if __name__ == "__main__":
    harness.main()
