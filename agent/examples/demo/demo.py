#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The demo: PyTorch trains a real model with its gradients summed by reducers, then with gloo, and both are compared.

Everything runs on this machine, on loopback, in a temporary folder, and is ended with the demo, also on Ctrl-C:
2 reducers, 2 "nodes" with one agent and 2 workers each.
"""

import argparse
import ctypes
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
TRAIN = pathlib.Path(__file__).resolve().with_name("train.py")
NODES, WORKERS = 2, 2  # nodes, and workers on each
RANKS = NODES * WORKERS
START_SECONDS, TRAIN_SECONDS = 60, 600  # also on a machine that compiles meanwhile
PR_SET_PDEATHSIG = 1


class DemoError(Exception):
    """The demo cannot go on; the text says why."""


class Process:
    """A process of the demo with its log. Invariant: it is the leader of its own process group.

    relay: its standard output is shown, all lines of it on one line.
    """

    def __init__(self, name, argv, env, log, relay=False):
        self.name, self.log = name, log
        libc = ctypes.CDLL(None)
        with log.open("w", encoding="utf-8") as errors:
            self._popen = subprocess.Popen(
                [str(a) for a in argv],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if relay else errors,
                stderr=errors,
                start_new_session=True,  # Ctrl-C is for the demo, which then ends its processes in order
                preexec_fn=lambda: libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM),
            )
        self.pid = self._popen.pid
        self._thread = None
        if relay:
            self._thread = threading.Thread(target=self._relay, daemon=True)
            self._thread.start()

    def _relay(self):
        for line in self._popen.stdout:
            print(" " + line.decode("utf-8", "replace").rstrip(), end="", flush=True)

    def status(self):
        """None while it runs, else its exit status."""
        code = self._popen.poll()
        if code is not None and self._thread:
            self._thread.join(2)
        return code

    def last_lines(self, n=25):
        """The end of its log, indented."""
        lines = self.log.read_text("utf-8", "replace").splitlines()[-n:]
        return "".join(f"\n    | {line}" for line in lines) or "\n    | (empty)"

    def signal(self, number):
        """To the process alone."""
        if self._popen.poll() is None:
            self._popen.send_signal(number)

    def end(self, seconds):
        """SIGTERM to it and all it started, SIGKILL when that did not help within the time."""
        self._signal_group(signal.SIGTERM)
        try:
            self._popen.wait(seconds)
        except subprocess.TimeoutExpired:
            pass
        self._signal_group(signal.SIGKILL)
        self._popen.wait()

    def _signal_group(self, number):
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            pass


def say(text=""):
    """One line for the reader, at once."""
    print(text, flush=True)


def reserve_port():
    """A socket that keeps a TCP port of loopback from other programs. PyTorch can listen there, since both set
    SO_REUSEADDR."""
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    return held


def clean_environment():
    """The environment without what a launcher may have left in it."""
    launcher = re.compile(r"(REDUCTION|SLURM|OMPI|PMIX|TORCHELASTIC)_|(LOCAL_|GROUP_|ROLE_)?(RANK|WORLD_SIZE)$|MASTER_")
    return {k: v for k, v in os.environ.items() if not launcher.match(k)}


class Demo:
    """Everything that the demo started, and its folder."""

    def __init__(self, args):
        self.args, self.build = args, args.build.resolve()
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="reduction-demo-"))
        self.processes = []
        self.daemons = []
        self.config = self.dir / "demo.yaml"

    def close(self):
        """Ends what still runs, workers first, and removes the folder."""
        for p in [p for p in self.processes if p not in self.daemons] + self.daemons:
            p.end(5)
        shutil.rmtree(self.dir, ignore_errors=True)

    def start(self, name, argv, env=None, relay=False):
        log = self.dir / (re.sub(r"\W+", "-", name) + ".log")
        p = Process(name, argv, env or clean_environment(), log, relay)
        self.processes.append(p)
        return p

    def wait_log(self, p, pattern):
        """Waits for a line in a daemon's log; returns what the group in the pattern matched."""
        deadline = time.monotonic() + START_SECONDS
        while not (match := re.search(pattern, p.log.read_text("utf-8", "replace"), re.M)):
            if p.status() is not None:
                raise DemoError(f"{p.name} ended with exit status {p.status()} at its start:{p.last_lines()}")
            if time.monotonic() > deadline:
                raise DemoError(f"{p.name} is not ready after {START_SECONDS} s:{p.last_lines()}")
            time.sleep(0.02)
        return match.group(1)

    def start_daemons(self):
        reducers = []
        for i in range(2):
            argv = [self.build / "bin" / "reduction-server", "--listen", "127.0.0.1:0"]
            reducers.append(self.start(f"reducer r{i}", argv))
            self.daemons.append(reducers[-1])
        lines = ["job: {name: demo}", "reducers:"]
        for i, p in enumerate(reducers):
            address = self.wait_log(p, r"\blistening\b.*?address=(\S+)")
            lines.append(f'  - {{id: r{i}, address: "{address}"}}')
            say(f"  reducer r{i}   pid {p.pid:<7} listens on {address}")
        self.config.write_text("\n".join(lines) + "\n")
        agents = []
        for i in range(NODES):
            argv = [self.build / "bin" / "reduction-agent", "--config", self.config, "--socket", self.socket(i)]
            agents.append(self.start(f"agent of node {i}", argv))
            self.daemons.insert(0, agents[-1])
        for i, p in enumerate(agents):
            self.wait_log(p, r"(\blistening\b)")
            ranks = " and ".join(str(WORKERS * i + j) for j in range(WORKERS))
            say(f"  node {i}       pid {p.pid:<7} agent, adds up ranks {ranks} in shared memory")

    def socket(self, node):
        return self.dir / f"node{node}.sock"

    def stop_daemons(self):
        """Asks them to end and checks that they did so in good order."""
        for p in self.daemons:
            p.signal(signal.SIGTERM)
        deadline = time.monotonic() + START_SECONDS
        for p in self.daemons:
            while p.status() is None and time.monotonic() < deadline:
                time.sleep(0.02)
            if p.status() != 0:
                raise DemoError(f"{p.name} did not end with exit status 0 but {p.status()}:{p.last_lines()}")
        self.daemons = []

    def start_worker(self, rank, gradients, port):
        env = clean_environment()
        env.update(  # what torchrun tells its workers
            RANK=str(rank),
            WORLD_SIZE=str(RANKS),
            LOCAL_RANK=str(rank % WORKERS),
            LOCAL_WORLD_SIZE=str(WORKERS),
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(port),
            OMP_NUM_THREADS=str(self.args.threads),
            USE_LIBUV="0",  # which Debian's PyTorch is built without, and asks for from 2.4 on
        )
        env.update(  # what finds the library, the reducers and this node's agent
            PYTHONPATH=str(ROOT / "agent" / "python"),
            REDUCTION_LIBRARY=str(self.build / "lib" / "libreduction.so.0"),
            REDUCTION_CONFIG=str(self.config),
            REDUCTION_MODE="agent",
            REDUCTION_AGENT=str(self.socket(rank // WORKERS)),
        )
        env.update(PYTHONUNBUFFERED="1", PYTHONDONTWRITEBYTECODE="1", GLOO_SOCKET_IFNAME="lo")
        env.update(TMPDIR=str(self.dir))  # PyTorch leaves a folder there when it is ended by a signal
        argv = [sys.executable, TRAIN, "--gradients", gradients, "--epochs", self.args.epochs, "--out", self.dir]
        argv += ["--threads", self.args.threads]
        if self.args.wrong_sum and gradients == "reducers" and rank == RANKS - 1:
            argv += ["--wrong-bucket", 7]
        return self.start(f"rank {rank} with {gradients}", argv, env, relay=rank == 0)

    def train(self, gradients):
        """Runs one training to its end; returns the results of all ranks."""
        print("  loss of each epoch:", end="", flush=True)
        try:
            with reserve_port() as held:
                return self._train(gradients, held.getsockname()[1])
        finally:
            say()

    def _train(self, gradients, port):
        workers = [self.start_worker(rank, gradients, port) for rank in range(RANKS)]
        deadline = time.monotonic() + TRAIN_SECONDS
        while any(p.status() is None for p in workers):
            for p in workers + self.daemons:
                code = p.status()
                if code is not None and (code != 0 or p in self.daemons):
                    raise DemoError(f"{p.name} ended with exit status {code}:{p.last_lines()}")
            if time.monotonic() > deadline:
                p = next(p for p in workers if p.status() is None)
                raise DemoError(f"{p.name} is not done after {TRAIN_SECONDS} s:{p.last_lines()}")
            time.sleep(0.05)
        for p in workers:
            if p.status() != 0:
                raise DemoError(f"{p.name} ended with exit status {p.status()}:{p.last_lines()}")
        return [json.loads((self.dir / f"{gradients}-{rank}.json").read_text()) for rank in range(RANKS)]


def sent_between_workers(results):
    """Bytes that workers sent each other during training: in all, and those from one node to another."""
    owner = {c["port"]: r["rank"] for r in results for c in r["after"]["connections"]}
    total = across = 0
    for r in results:
        before = {(c["port"], c["peer"]): c["sent"] for c in r["before"]["connections"]}
        for c in r["after"]["connections"]:
            if c["peer"] not in owner:
                raise DemoError(f"rank {r['rank']} is connected to port {c['peer']}, which is no worker's")
            sent = c["sent"] - before.get((c["port"], c["peer"]), 0)
            total += sent
            if owner[c["peer"]] // WORKERS != r["rank"] // WORKERS:
                across += sent
    return total, across


def sent_by_agents(results):
    """Bytes that the agents sent to the reducers during training."""
    return sum(r["after"]["agent"] - r["before"]["agent"] for r in results if r["rank"] % WORKERS == 0)


class Outcome:
    """One training, in the numbers of the table. Bytes are for one step."""

    def __init__(self, results):
        steps = len(results[0]["step_losses"])
        between, across = sent_between_workers(results)
        agents = sent_by_agents(results)
        self.gradient = 4 * results[0]["parameters"]
        self.steps = steps
        self.seconds = max(r["seconds"] for r in results)
        self.loss = [sum(ranks) / RANKS for ranks in zip(*(r["epoch_losses"] for r in results))]
        self.accuracy = results[0]["accuracy"]
        checked = [r["checked"] for r in results]
        self.elements, self.wrong = (sum(c[key] for c in checked) for key in ("elements", "wrong"))
        self.worst = max(c["worst"] for c in checked)
        self.same = len({r["digest"] for r in results}) == 1
        self.complete = all(c["elements"] == steps * r["parameters"] for c, r in zip(checked, results))
        self.worker_bytes = (between + agents) / RANKS / steps
        self.node_bytes = (across + agents) / NODES / steps


def amount(outcome, value):
    return f"{value / 1e6:.2f} MB ({value / outcome.gradient:.2f} G)"


def verdict(name, outcome):
    """What is wrong with the sums of one training, a sentence each."""
    faults = []
    if not outcome.complete:
        faults.append(f"{name}: not every gradient of every step was checked")
    if outcome.wrong:
        faults.append(f"{name}: {outcome.wrong} of {outcome.elements} elements are WRONG, the worst by "
                      f"{outcome.worst:.1f} times the rounding bound")
    if not outcome.same:
        faults.append(f"{name}: the ranks end with DIFFERENT parameters")
    return faults


def compare(ours, gloo):
    """Prints both trainings side by side; returns whether all sums are right."""
    both = (ours, gloo)
    last = len(ours.loss)
    rows = [
        ("averages checked, elements on all ranks", *(f"{o.elements:,}" for o in both)),
        ("of these outside the rounding bound", *(str(o.wrong) for o in both)),
        ("largest error, as a part of the bound", *(f"{o.worst:.2f}" for o in both)),
        ("loss of epoch 1, mean of ranks", *(f"{o.loss[0]:.6f}" for o in both)),
        (f"loss of epoch {last}, mean of ranks", *(f"{o.loss[-1]:.6f}" for o in both)),
        ("test accuracy at the end", *(f"{100 * o.accuracy[-1]:.1f} %" for o in both)),
        ("time of training", *(f"{o.seconds:.1f} s" for o in both)),
        ("sent per worker and step", *(amount(o, o.worker_bytes) for o in both)),
        ("sent per node to others and step", *(amount(o, o.node_bytes) for o in both)),
    ]
    say(f"  {'':40}{'reducers':>20}{'gloo (ring)':>20}")
    for name, a, b in rows:
        say(f"  {name:40}{a:>20}{b:>20}")
    say()
    say(f"  G = all gradients of one step: {ours.gradient / 1e6:.2f} MB; {ours.steps} steps. Sent bytes are measured.")
    say("  An agent sends the sum of its 2 workers once, 0.5 G for each; a ring of n = 4 sends 2(n-1)/n G = 1.5 G.")
    say("  Times are those of the processor: on the loopback of one machine there is no network to relieve.")
    faults = [fault for name, o in (("reducers", ours), ("gloo", gloo)) for fault in verdict(name, o)]
    say()
    for fault in faults:
        say(f"  {fault}.")
    if not faults:
        say("  The sums are right: on every rank each average of each step is the float64 average of the gradients,")
        say(f"  up to the rounding error of {RANKS} float32 operations. All ranks end with the same parameters.")
    say("  The losses may drift apart in late digits: float32 addition rounds, reducers and ring add in different")
    say("  orders, and training amplifies a difference in the last bit.")
    return not faults


def run(args):
    """The whole demo; returns the exit status."""
    started = time.monotonic()
    demo = Demo(args)
    try:
        say("A convolutional network learns handwritten digits (scikit-learn's, 1437 to train on and 360 to test) in")
        say(f"{RANKS} PyTorch processes (DistributedDataParallel), as if on {NODES} machines with {WORKERS} on each.")
        say()
        say("1. Gradients summed by reducers")
        demo.start_daemons()
        say(f"  {RANKS} workers    started as torchrun starts them")
        ours = Outcome(demo.train("reducers"))
        demo.stop_daemons()
        say()
        say("2. The same training with gloo's ring all-reduce between the workers")
        gloo = Outcome(demo.train("gloo"))
        say()
        say("3. Compared")
        right = compare(ours, gloo)
        say(f"  The demo took {time.monotonic() - started:.0f} s.")
        return 0 if right else 1
    except DemoError as exc:
        print(f"\ndemo: {exc}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ndemo: interrupted; ending what was started", file=sys.stderr)
        return 130
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        demo.close()


def parse_arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "default", help="folder of the build")
    p.add_argument("--epochs", type=int, default=10)
    p.add_argument("--threads", type=int, default=1, help="threads of PyTorch in each worker (default 1)")
    p.add_argument("--wrong-sum", action="store_true", help="make one element of one average wrong by a few units in "
                   "the last place, times 4: the demo finds it and exits with 1")
    version = re.search(r'RS_VERSION "(.*)"', (ROOT / "common" / "version.h").read_text()).group(1)
    p.add_argument("--version", action="version", version=f"demo.py {version}")
    return p.parse_args()


def raise_interrupt(number, frame):
    """SIGTERM and SIGHUP end the demo as Ctrl-C does."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, raise_interrupt)
    signal.signal(signal.SIGHUP, raise_interrupt)
    sys.exit(run(parse_arguments()))
