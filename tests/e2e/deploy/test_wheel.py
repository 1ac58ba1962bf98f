# SPDX-License-Identifier: Apache-2.0
# run: alone all-only
"""The Python wheel is installed into a virtual environment, and the README's Python example runs there.

Runs alone: `make wheel` may compile again, which other tests would notice.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import harness

sys.path.append(str(harness.ROOT / "tests/fresh"))
import readme  # noqa: E402

LOADED = 'print(*sorted({line.split()[-1] for line in open("/proc/self/maps") if ".so" in line}))\n'


def why_not():
    if harness.SAN:
        return "a sanitized library is not packed"
    if not shutil.which("dpkg-query"):
        return "the licences of the libraries in the wheel are Debian's; dpkg-query is not installed"
    if subprocess.run([harness.PYTHON, "-c", "import ensurepip, numpy"], capture_output=True).returncode:
        return "Python has no ensurepip (Debian: python3-venv) or no NumPy"
    return ""


@unittest.skipIf(why_not(), why_not())
class Wheel(unittest.TestCase):
    def test_example(self):
        with tempfile.TemporaryDirectory(prefix="reduction-") as name:
            folder = pathlib.Path(name)
            flags = [v for v in ("WERROR=1", "CCACHE=ccache") if os.environ.get(v.split("=")[0])]
            argv = ["make", "-s", "wheel", f"BUILD={harness.BUILD.parent}", *flags]
            made = subprocess.run(argv, cwd=harness.ROOT, capture_output=True, text=True)
            self.assertEqual(made.returncode, 0, made.stdout + made.stderr)
            wheel = made.stdout.split()[-1]
            # NumPy is that of the system: nothing is downloaded
            subprocess.run([harness.PYTHON, "-m", "venv", "--system-site-packages", folder / "env"], check=True)
            pip = [folder / "env/bin/pip", "-q", "--disable-pip-version-check", "install", "--no-index"]
            done = subprocess.run([*pip, wheel], cwd=harness.ROOT, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            entry = "import importlib.metadata as m; print(*m.entry_points(group='torch.backends'))"
            found = subprocess.run([folder / "env/bin/python", "-c", entry], capture_output=True, text=True, check=True)
            self.assertIn("reduction.torch:register", found.stdout)
            program = folder / "program.py"
            program.write_text(readme.python_program((harness.ROOT / "README.md").read_text()) + LOADED)
            python = ["sh", "-c", 'cd "$0" && exec env/bin/python program.py', folder]
            with harness.Cluster(reducers=2) as c:
                shutil.copy(c.write_config("job.yaml"), folder / "job.yaml")
                env = {"PYTHONPATH": "", "REDUCTION_LIBRARY": ""}
                for p in c.run(4, python, env=env):
                    self.assertTrue(p.out.startswith("4.0 4.0\n"), p.out)
                    for library in ("libreduction.so.0", "libyaml-0.so.2", "libprotobuf-c.so.1"):
                        (found,) = [path for path in p.out.split() if path.endswith("/" + library)]
                        self.assertTrue(found.startswith(str(folder.resolve() / "env")), found)


if __name__ == "__main__":
    harness.main()
