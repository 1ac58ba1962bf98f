# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan all-only
"""What `make aarch64` has built, in its Debian of that machine, under QEMU: ranks sum through a reducer of the
wheel and one of the archive."""

import json
import pathlib
import subprocess
import tempfile
import unittest
import zipfile

import harness
import wheel

FOLDER = harness.BUILD.parent / "aarch64"
ROOT = FOLDER / "root"
WHEELS, ARCHIVES = (sorted(FOLDER.glob(p)) for p in ("wheel/*_aarch64.whl", "portable-archive/*-aarch64.tar.gz"))
# In a mount namespace of its own: $1 is the root, $2 the script, the others are files.
ENTER = """set -eu
root=$1 script=$2
shift 2
mount -t tmpfs tmpfs "$root/tmp"
mount -t proc proc "$root/proc"
cp -R "$@" "$root/tmp"
exec chroot "$root" sh -c "$script"
"""
USE = """set -eu
cd /tmp
mkdir archive
tar -xzf *.tar.gz -C archive --strip-components=1
uname -m
export PYTHONPATH=/tmp/site
for bin in site/reduction/bin archive/bin; do
	$bin/reduction-server --listen 127.0.0.1:7600 --grpc 127.0.0.1:7601 >log 2>&1 &
	reducer=$!
	for _ in $(seq 600); do ! grep -q ' listening ' log || break; sleep 0.1; done
	$bin/reductionctl status 127.0.0.1:7601
	export REDUCTION_REDUCERS=127.0.0.1 REDUCTION_RUN=a REDUCTION_MODE=direct WORLD_SIZE=2
	for rank in 0 1; do
		RANK=$rank python3 -c '
import numpy, reduction
x = numpy.arange(100000, dtype="float32")
with reduction.Communicator() as comm:
    comm.all_reduce(x, op="sum")
print("right" if (x == 2 * numpy.arange(100000)).all() else "wrong")' &
		ranks="${ranks-} $!"
	done
	for rank in $ranks; do wait $rank; done
	ranks=
	archive/bin/reduction-bench --ranks 2 -b 64K -e 64K -n 1 -w 0
	kill $reducer
	wait $reducer
	grep -o 'cpu=.*' log
done
"""


@unittest.skipIf(harness.SAN or not WHEELS or not ARCHIVES or not ROOT.exists(), "make aarch64 has not run")
class Aarch64(unittest.TestCase):
    def test_use(self):
        folder = tempfile.TemporaryDirectory(prefix="reduction-")
        self.addCleanup(folder.cleanup)
        env, site = pathlib.Path(folder.name, "env"), pathlib.Path(folder.name, "site")
        subprocess.run([harness.PYTHON, "-m", "venv", env], check=True)
        tag = WHEELS[0].stem.split("-")[-1]
        wheel.pip(env, "install", "--no-index", "--only-binary=:all:", "--platform", tag, "--target", site, WHEELS[0])
        argv = ["unshare", "--mount", "--pid", "--net", "--fork", "--kill-child", "sh", "-c",
                'ip link set lo up; exec sh -c "$0" sh "$@"', ENTER, ROOT, USE, site, ARCHIVES[0]]
        done = subprocess.run(list(map(str, argv)), capture_output=True, text=True, timeout=600)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertTrue(done.stdout.startswith("aarch64\n"), done.stdout)
        for text, times in (("right", 4), ("wrong elements: 0", 2), ("jobs 0", 2), ("cpu=neon", 2)):
            self.assertEqual(done.stdout.count(text), times, done.stdout)

    def test_bill(self):
        """It names the packages of that machine, not those of the one that built."""
        file = zipfile.ZipFile(WHEELS[0])
        (name,) = [name for name in file.namelist() if name.endswith("/sboms/sbom.cdx.json")]
        bill = json.loads(file.read(name))
        self.assertTrue(bill["components"])
        self.assertEqual([c["purl"] for c in bill["components"] if "arch=arm64&" not in c["purl"]], [])


if __name__ == "__main__":
    harness.main()
