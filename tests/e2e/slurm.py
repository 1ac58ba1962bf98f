# SPDX-License-Identifier: Apache-2.0
"""Debian's Slurm with nodes in network namespaces: slurmctld on the host "head", and a slurmd on each node.

    with slurm.Slurm(env) as s:
        job = s.submit("sbatch train.sbatch")      # in the folder s.folder
        s.wait(job)

A node is a namespace of replicas.py: it has its own address, host name, /etc/hosts and /run. One munged serves all.
"""

import os
import pathlib
import re
import shutil
import signal
import time

import harness
import replicas

GPU, CPU = ["gpu1", "gpu2"], ["cpu1", "cpu2"]
# No cgroups: /sys/fs/cgroup of the machine is not there in a namespace, and nothing here
# needs limits.
CONFIG = """
ClusterName=test
SlurmctldHost=head
SlurmUser=root
AuthInfo=socket={folder}/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SlurmdParameters=config_overrides
MpiDefault=none
StateSaveLocation={folder}/head
SlurmctldPidFile={folder}/head/pid
SlurmdSpoolDir={folder}/%n
SlurmdPidFile={folder}/%n/pid
SelectType=select/cons_tres
SchedulerParameters=bf_interval=1,sched_min_interval=1
SlurmdTimeout=60
ReturnToService=2
KillWait=1
GresTypes=gpu
NodeName=gpu[1-2] CPUs=2 Gres=gpu:2
NodeName=cpu[1-2] CPUs=4
PartitionName=gpu Nodes=gpu[1-2] Default=YES
PartitionName=cpu Nodes=cpu[1-2]
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
PartitionName=spare Nodes=cpu[1-2] PriorityTier=1 GraceTime=10
PartitionName=paid Nodes=cpu[1-2] PriorityTier=2 PreemptMode=OFF
"""
TOOLS = ("slurmctld", "slurmd", "sbatch", "srun", "munged")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def why_not():
    """Why no Slurm can be started here, or None."""
    missing = [tool for tool in TOOLS if not shutil.which(tool, path=PATH)]
    if missing:
        return f"{', '.join(missing)} not installed"
    return replicas.why_not()


class Slurm:
    """env: variables of all jobs."""

    def __init__(self, env):
        self._replicas = replicas.Replicas(["head", *GPU, *CPU])
        self.folder = self._replicas.dir
        self._env = env | {"SLURM_CONF": f"{self.folder}/slurm.conf", "PATH": f"{harness.BUILD}/bin:{PATH}"}
        self._slurmd = {}

    def __enter__(self):
        self._replicas.__enter__()
        try:
            self._start()
        except BaseException as e:
            self.__exit__(type(e), e, None)
            raise
        return self

    def __exit__(self, kind, value, trace):
        if kind:
            for path in sorted(self.folder.glob("*.out")):
                print(f"--- {path.name}\n{path.read_text()}")
        self._replicas.__exit__(kind, value, trace)

    def _start(self):
        d = self.folder
        (d / "slurm.conf").write_text(CONFIG.format(folder=d))
        (d / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        # two files that every machine has stand for two GPUs
        (d / "gres.conf").write_text("".join(f"NodeName=gpu[1-2] Name=gpu File=/dev/{f}\n" for f in ("null", "zero")))
        (d / "key").write_bytes(os.urandom(64))
        os.chmod(d / "key", 0o400)
        for name in self._replicas.names:
            (d / name).mkdir()
        self._replicas.start("head", [
            "munged", "--foreground", "--force", "--key-file", f"{d}/key", "--socket", f"{d}/munge", "--pid-file",
            f"{d}/munge.pid", "--seed-file", f"{d}/seed"], self._env)
        self.until(lambda: (d / "munge").exists(), "munged has no socket")
        self._replicas.start("head", ["slurmctld", "-D", "-i"], self._env)
        for name in GPU + CPU:
            self._start_slurmd(name)
        for name in GPU + CPU:
            self._wait_idle(name)

    def start_node(self, name):
        """Starts the slurmd of a node, and waits until it can take jobs."""
        self._start_slurmd(name)
        self._wait_idle(name)

    def _start_slurmd(self, name):
        self._slurmd[name] = self._replicas.start(name, ["slurmd", "-D", "-N", name], self._env)

    def _wait_idle(self, name):
        self.head(f'until [ "$(sinfo -h -n {name} -o %T)" = idle ]; do sleep 0.1; done')

    def kill_node(self, name):
        """Ends all processes of a node, those of jobs too, like a loss of power."""
        for pid in self.processes(name):
            os.kill(pid, signal.SIGKILL)
        self._slurmd[name].kill()

    def processes(self, name):
        """The processes in the network namespace of a node."""
        ours = os.stat(f"/proc/{self._slurmd[name].pid}/ns/net")
        found = []
        for path in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if os.path.samestat(os.stat(path / "ns/net"), ours):
                    found.append(int(path.name))
            except OSError:
                pass  # it has ended
        return found

    def until(self, holds, otherwise, timeout=60):
        deadline = time.monotonic() + timeout * harness.SCALE
        while not holds():
            if time.monotonic() > deadline:
                raise AssertionError(otherwise)
            time.sleep(0.05)

    def head(self, command):
        """Runs a shell command on the host of slurmctld, in the folder; returns the ended harness.Proc."""
        p = self._replicas.start("head", ["sh", "-c", f"cd {self.folder} && {command}"], self._env)
        p.wait()
        return p

    def submit(self, command):
        """Runs sbatch; returns the number of the job."""
        p = self.head(command)
        found = re.match(r"Submitted batch job (\d+)\n", p.out)
        if not found:
            raise AssertionError(p.report())
        return int(found[1])

    def wait(self, job):
        """Waits until a job has left all its nodes; returns what it has written."""
        self.head('while [ -n "$(squeue -h)" ]; do sleep 0.1; done')
        return (self.folder / f"train-{job}.out").read_text()

    def wait_text(self, job, pattern):
        """Waits until a job has written something."""
        path = self.folder / f"train-{job}.out"
        self.until(lambda: path.exists() and re.search(pattern, path.read_text()), f"job {job} has no {pattern}")
