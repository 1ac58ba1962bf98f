# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan all-only
"""The page and the script of deploy/slurm under Debian's Slurm: trainings in a row, the loss of a node, and JAX."""

import re
import shutil
import subprocess
import unittest

import harness
import slurm
import test_launchers

FOLDER = harness.ROOT / "deploy/slurm"
# trains until its node is lost
ENDLESS = """#!/usr/bin/python3
import numpy, reduction
with reduction.Communicator() as comm:
    x = numpy.zeros(4096, numpy.float32)
    for i in range(10**9):
        comm.all_reduce(x)
        if i == 10:
            print(f"rank {comm.rank} trains", flush=True)
"""
JAX = f"""#!{harness.PYTHON}
import reduction.jax
import jax, numpy
from jax.experimental import multihost_utils
jax.distributed.initialize()
ones = multihost_utils.process_allgather(numpy.float32(1))
print(f"rank {{jax.process_index()}} of {{jax.process_count()}}: {{ones.sum():.1f}}", flush=True)
"""


class Pages(unittest.TestCase):
    def test_the_page_is_short(self):
        self.assertLessEqual((FOLDER / "README.md").read_text(encoding="utf-8").count("\n"), 60)


@unittest.skipIf(slurm.why_not(), f"no Slurm: {slurm.why_not()}")
@unittest.skipIf(harness.SAN, "Python under a launcher cannot load the sanitizers' library")
class Trainings(unittest.TestCase):
    def setUp(self):
        self.blocks = test_launchers.blocks("../slurm/README.md")

    def block(self, language):
        return next(text for found, text in self.blocks if found == language)

    def sums(self, out):
        self.assertEqual(sorted(re.findall(r"rank \d of \d: \d\.\d", out)), [f"rank {i} of 4: 4.0" for i in range(4)])
        self.assertRegex(out, r"configuration source=Slurm index=1 workers=2 reducers=2 run=slurm:\d+")

    def program(self, s, name, text):
        (s.folder / name).write_text(text)
        (s.folder / name).chmod(0o755)

    def trainings_of_the_page(self, s):
        self.sums(s.wait(s.submit(self.block("sh"))))
        self.assertFalse(list(s.folder.glob("*.secret")), "the script leaves its secret behind")
        # the agents of the page, in the place of the training's line; these nodes share
        # /tmp, but not /run
        agents = self.block("bash").rstrip().replace("/tmp/", "/run/")
        self.program(s, "agents.sbatch", self.script.replace(self.training, agents))
        out = s.wait(s.submit("sbatch agents.sbatch"))
        self.sums(out)
        self.assertRegex(out, r"listening socket=/run/agent-\d+\.sock")

    def two_kinds_of_workers(self, s):
        """Their nodes are two components, and one step."""
        node = re.search(r"^#SBATCH --partition=gpu .*$", self.script, re.M)[0].replace("--nodes=2", "--nodes=1")
        self.program(s, "kinds.sbatch", self.script
                     .replace("--nodes=2 --ntasks-per-node=2", "--nodes=1 --ntasks-per-node=2")
                     .replace("#SBATCH hetjob\n", f"#SBATCH hetjob\n{node}\n#SBATCH hetjob\n")
                     .replace("--het-group=1", "--het-group=2")
                     .replace("--het-group=0", "--het-group=0,1"))
        self.sums(s.wait(s.submit("sbatch kinds.sbatch")))

    def one_step_for_all(self, s):
        line = "srun --kill-on-bad-exit --het-group=0 ./train.py : --het-group=1 reduction-server"
        self.program(s, "one.sbatch", self.script.replace("srun --het-group=1 reduction-server &\n", "")
                     .replace(self.training, line))
        self.assertIn("this step of Slurm has other nodes than those of the workers, so that its 6 tasks",
                      s.wait(s.submit("sbatch one.sbatch")))

    def loss_of_a_node(self, s):
        self.program(s, "endless.py", ENDLESS)
        job = s.submit("sbatch train.sbatch ./endless.py")
        for rank in range(4):
            s.wait_text(job, f"rank {rank} trains")
        s.kill_node("gpu2")
        s.wait_text(job, r"reduction\.errors\.\w+Error: .*gpu2")
        s.head("scontrol update NodeName=gpu2 State=DOWN Reason=lost")  # as slurmctld does after a while
        s.wait(job)
        s.start_node("gpu2")
        self.sums(s.wait(s.submit(self.block("sh"))))

    def preempted(self, s):
        """A job that takes the node of a reducer: the reducer drains before its GraceTime is over."""
        self.program(s, "spare.sbatch", "#!/bin/sh\n#SBATCH --partition=spare --nodelist=cpu1 --exclusive\n"
                     "#SBATCH --output=train-%j.out\nsrun reduction-server --listen 127.0.0.1:7699\n")  # fmt: skip
        job = s.submit("sbatch spare.sbatch")
        s.wait_text(job, " listening ")
        s.submit("sbatch --partition=paid --nodelist=cpu1 --exclusive --output=train-%j.out --wrap true")
        out = s.wait(job)
        self.assertRegex(out, r"\bdraining by=SIGTERM ")
        self.assertRegex(out, r"\bdrained because=SIGTERM jobs=0 .*\n.*\bstopped result=clean")

    def ends_soon(self, s):
        """--signal, before the time limit of a job."""
        self.program(s, "late.sbatch", "#!/bin/sh\n#SBATCH --partition=cpu --nodelist=cpu1 --signal=TERM@60 --time=1\n"
                     "#SBATCH --output=train-%j.out\nsrun reduction-server --listen 127.0.0.1:7699\n")  # fmt: skip
        self.assertRegex(s.wait(s.submit("sbatch late.sbatch")), r"\bdrained because=SIGTERM jobs=0 ")

    def test_jobs(self):
        self.script = (FOLDER / "train.sbatch").read_text(encoding="utf-8")
        self.training = re.search(r"^srun --het-group=0 .*$", self.script, re.M)[0]
        with slurm.Slurm(harness.worker_env()) as s:
            shutil.copy(FOLDER / "train.sbatch", s.folder)
            self.program(s, "train.py", self.block("python"))
            for jobs in (self.trainings_of_the_page, self.two_kinds_of_workers, self.one_step_for_all,
                         self.preempted, self.ends_soon, self.loss_of_a_node):
                jobs(s)

    @unittest.skipIf(subprocess.run([harness.PYTHON, "-c", "import jax"], capture_output=True).returncode,
                     "jax is not installed for this Python")  # fmt: skip
    def test_jax(self):
        """jax.distributed finds its coordinator from what srun sets, and the library the reducers and the nodes."""
        with slurm.Slurm(harness.worker_env() | {"JAX_PLATFORMS": "cpu"}) as s:
            shutil.copy(FOLDER / "train.sbatch", s.folder)
            self.program(s, "train.py", JAX)
            out = s.wait(s.submit(self.block("sh")))
            self.assertEqual(set(re.findall(r"rank \d of 4: 4\.0", out)), {f"rank {i} of 4: 4.0" for i in range(4)})
            self.assertRegex(out, r"communicator-open job=jax-\S+ .* run=jax@gpu1\S+ rank=0 world_size=4 nodes=2 ")


if __name__ == "__main__":
    harness.main()
