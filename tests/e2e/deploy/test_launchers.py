# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan all-only
"""The commands of the pages in deploy/launchers and of deploy/costs.md, read from the pages and run.

Those of the launchers run in one network namespace that has all addresses of the page, so nothing in them is replaced.
"""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import textwrap
import unittest

import harness
import replicas

PAGES = harness.ROOT / "deploy/launchers"
LINES = 60


def blocks(page):
    """The code of a page as (language, text)."""
    text = (PAGES / page).read_text(encoding="utf-8")
    return [(m[2], textwrap.dedent(m[3])) for m in re.finditer(r"^( *)```(\w+)\n(.*?)^\1```$", text, re.S | re.M)]


class Page:
    """The files and the commands of a page, in a folder and a namespace."""

    def __init__(self, page):
        self.folder = tempfile.TemporaryDirectory(prefix="reduction-")
        self.procs = []
        self.commands = []
        for language, text in blocks(page):
            if language in ("yaml", "python"):
                name = re.match(r"# (\S+)\n", text)[1]
                pathlib.Path(self.folder.name, name).write_text(text)
            elif language == "sh":
                self.commands += text.splitlines()
        ssh = pathlib.Path(self.folder.name, "ssh")  # to an address of this machine: [-OPTION]... HOST COMMAND...
        ssh.write_text('#!/bin/sh\nwhile [ "${1#-}" != "$1" ]; do shift; done\nshift\nexec sh -c "$*"\n')
        ssh.chmod(0o755)
        self.addresses = sorted(set(re.findall(r"10\.0\.0\.\d+", "\n".join(self.commands))))

    def __enter__(self):
        self.holder = self._start(["sleep", "600"], ["unshare", "--net"])
        # not on lo, which Open MPI does not use
        lines = ["link set lo up", "link add eth0 type veth peer name eth1"]
        lines += ["link set eth0 up", "link set eth1 up"]
        lines += [f"addr add {a}/24 dev eth0" for a in self.addresses]
        made = self._inside(["sh", "-ec", "\n".join(f"ip {line}" for line in lines)])
        if made.wait():
            raise AssertionError(made.report())
        return self

    def __exit__(self, *_):
        for p in self.procs:
            if p.running():
                p.kill()
        self.folder.cleanup()

    def _start(self, argv, prefix):
        env = harness.worker_env() | {
            "PATH": f"{harness.BUILD}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "OMPI_MCA_plm_rsh_agent": f"{self.folder.name}/ssh",
            "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        }
        p = harness.Proc(argv[-1], [*prefix, *argv], env, self.folder.name)
        self.procs.append(p)
        return p

    def _inside(self, argv):
        # the namespace exists once the program that made it has become sleep
        while os.path.basename(os.readlink(f"/proc/{self.holder.pid}/exe")) == "unshare":
            self.holder.wait_more(0.01)
        return self._start(argv, ["nsenter", f"--net=/proc/{self.holder.pid}/ns/net"])

    def run(self):
        """Starts all commands of the page, and waits for those that end. Returns their output."""
        started = [self._inside(["sh", "-c", f"exec env {line}"]) for line in self.commands]
        ends = [p for p, line in zip(started, self.commands) if not line.startswith("reduction-server")]
        for p in ends:
            if p.wait(60):
                raise AssertionError("\n".join(p.report() for p in self.procs))
        for p in started:
            if p not in ends and p.stop():
                raise AssertionError(p.report())
        return "".join(p.out for p in ends)


@replicas.needed
@unittest.skipIf(harness.SAN, "Python under a launcher cannot load the sanitizers' library")
class Launchers(unittest.TestCase):
    def sums(self, page, tool):
        if not shutil.which(tool):
            self.skipTest(f"{tool} is not installed")
        with Page(page) as p:
            out = p.run()
        self.assertEqual(sorted(re.findall(r"rank \d of 4: \d\.\d", out)), [f"rank {i} of 4: 4.0" for i in range(4)])

    def test_torchrun(self):
        store = "import torch.distributed as d; d.TCPStore('127.0.0.1', 0, 1, True)"
        done = subprocess.run([harness.PYTHON, "-c", store], capture_output=True, text=True)
        if "without libuv" in done.stderr:  # deploy/troubleshooting.md tells it
            self.skipTest("this PyTorch is built without libuv, so its torchrun does not work")
        self.sums("torchrun.md", "torchrun")

    def test_mpirun(self):
        self.sums("mpirun.md", "mpirun")


@unittest.skipIf(harness.SAN, "documents are those of every build")
class Costs(unittest.TestCase):
    def test_the_planner_says_what_the_page_says(self):
        found = blocks("../costs.md")
        with tempfile.TemporaryDirectory(prefix="reduction-") as folder:
            done = subprocess.run(["sh", "-e"], input="".join(text for language, text in found if language == "sh"),
                                  capture_output=True, text=True, cwd=folder,
                                  env={"PATH": f"{harness.BUILD}/bin:/usr/bin:/bin"})
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout, "".join(text for language, text in found if language == "text"))


class Pages(unittest.TestCase):
    def test_pages_are_short_and_their_programs_compile(self):
        for path in sorted(PAGES.glob("*.md")):
            self.assertLessEqual(path.read_text(encoding="utf-8").count("\n"), LINES, path.name)
            for language, text in blocks(path.name):
                if language == "python":
                    compile(text, path.name, "exec")

    def test_the_unit_reads_the_file_of_the_page(self):
        """With the page's file in its place, the command line of the unit is one that the reducer accepts."""
        unit = (harness.ROOT / "deploy/systemd/reduction-server.service").read_text(encoding="utf-8")
        argv = re.search(r"^ExecStart=(.*)$", unit, re.M)[1].split()
        self.assertIn(argv[argv.index("--config") + 1], (PAGES / "torchrun.md").read_text(encoding="utf-8"))
        with harness.Cluster(reducers=0) as c:
            config = c.dir / "job.yaml"
            config.write_text([text for language, text in blocks("torchrun.md") if language == "yaml"][0])
            argv[argv.index("--config") + 1] = str(config)
            done = subprocess.run([harness.binary(os.path.basename(argv[0])), *argv[1:], "--check"],
                                  capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    harness.main()
