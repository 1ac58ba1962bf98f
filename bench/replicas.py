#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Kills a replica of a training with torchft's Manager in a loop, with reduction.torchft.ProcessGroupReduction and with
torchft's ProcessGroupGloo in turn. A replica is one process. The one that is killed is started again at once; the next
kill comes when all replicas have committed a step together.

Prints and appends to --out one JSON line for each kill:

    lost        steps that a surviving replica did not commit, the most of any
    noticed_s   from the kill to the end of the first of these
    recovered_s from the kill to the first step that a surviving replica committed and had begun after the kill
    configure_s the longest configure() of a surviving replica meanwhile
    back_s      from the kill to the first step that all replicas have committed; most of it is the start of a process
    error       what a surviving replica was told

and one for each system: medians, 90 % and maxima. Needs torchft (PyPI).
"""

import argparse
import datetime
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import daemon

ROOT = pathlib.Path(__file__).resolve().parents[1]
SYSTEMS = ("reduction", "gloo")
TIMES = ("noticed_s", "recovered_s", "configure_s", "back_s")
LIMIT_S = 300  # until all replicas are back; on a busy machine a start takes 90 s


def parse_arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", type=pathlib.Path, default="build/default", help="folder of the build (%(default)s)")
    p.add_argument("--out", type=pathlib.Path, default="build/bench/replicas.jsonl", help="(%(default)s)")
    p.add_argument("--minutes", type=float, default=10, help="of all systems together (%(default)s)")
    p.add_argument("--turns", type=int, default=2, help="of each system (%(default)s)")
    p.add_argument("--replicas", type=int, default=3, help="3 or more (%(default)s)")
    p.add_argument("--reducers", type=int, default=2, help="(%(default)s)")
    p.add_argument("--width", type=int, default=1000, help="the model has its square of weights (%(default)s)")
    p.add_argument("--compute", type=float, default=0.05, help="seconds of other work in a step (%(default)s)")
    p.add_argument("--heartbeat", type=int, default=1000, help="ms until a replica counts as lost (%(default)s)")
    p.add_argument("--seed", type=int, default=1, help="of the choice of replicas (%(default)s)")
    p.add_argument("--worker", help=argparse.SUPPRESS)
    args = p.parse_args()
    args.build = args.build.resolve()
    return args


def say(**row):
    print(json.dumps(row), flush=True)


def worker(args):
    """Trains until it is killed. Says the end of each step and of each configure()."""
    import torch
    import torchft

    import reduction.torchft

    kind, name = args.worker.split(":")
    made = {"reduction": reduction.torchft.ProcessGroupReduction, "gloo": torchft.ProcessGroupGloo}[kind]

    class Timed(made):
        def configure(self, *args, **kwargs):
            began = time.time()
            try:
                super().configure(*args, **kwargs)
            finally:
                say(end=time.time(), configure=time.time() - began)

    torch.set_num_threads(1)
    torch.manual_seed(1)
    net = torch.nn.Linear(args.width, args.width)
    inner = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    limit = datetime.timedelta(seconds=30)
    store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    manager = torchft.Manager(
        pg=Timed(timeout=limit), min_replica_size=2, replica_id=name, rank=0, world_size=1, store_addr="127.0.0.1",
        store_port=store.port, hostname="127.0.0.1", timeout=limit, quorum_timeout=limit, connect_timeout=limit,
        state_dict=lambda: {"net": net.state_dict(), "inner": inner.state_dict()},
        load_state_dict=lambda state: (net.load_state_dict(state["net"]), inner.load_state_dict(state["inner"])),
    )  # fmt: skip
    optimizer = torchft.Optimizer(manager, inner)
    while True:
        began, before = time.time(), manager.current_step()
        optimizer.zero_grad()
        net(torch.randn(8, args.width)).square().mean().backward()
        time.sleep(args.compute)
        for p in net.parameters():  # torchft's DDP raises AssertionError in backward() if an all-reduce fails
            manager.allreduce(p.grad).wait()
        optimizer.step()
        error = manager.errored()
        say(begin=began, end=time.time(), step=before, committed=manager.current_step() > before,
            members=manager.num_participants(), error=error and str(error.original_exception))  # fmt: skip


class Replica:
    """A process that is started again whenever it was killed. rows: what it has said since the last start."""

    def __init__(self, command, env, log):
        self.command, self.env, self.log = command, env, log
        self.start()

    def start(self):
        self.rows = []
        self.process = subprocess.Popen(self.command, env=self.env, stdout=subprocess.PIPE, stderr=self.log)
        threading.Thread(target=self.read, args=(self.process, self.rows), daemon=True).start()

    def read(self, process, rows):
        for line in process.stdout:
            if line.startswith(b"{"):
                rows.append(json.loads(line))

    def since(self, moment):
        return [row for row in list(self.rows) if row["end"] > moment]

    def kill(self):
        self.process.kill()
        self.process.wait()


def commits(replica, moment, members=0):
    """Returns the ends of the steps that it has committed and had begun after the moment."""
    return [row["end"] for row in replica.since(moment)
            if row.get("committed") and row["begin"] > moment and row["members"] >= members]  # fmt: skip


def wait_for_all(replicas, moment):
    """Waits until all have committed a step together. Returns when that was."""
    deadline = time.time() + LIMIT_S
    while not all(found := [commits(r, moment, len(replicas)) for r in replicas]):
        if time.time() > deadline or any(r.process.poll() is not None for r in replicas):
            words = pathlib.Path(replicas[0].log.name).read_text(errors="replace")[-2000:]
            sys.exit(f"not all replicas are back: {[r.rows[-1:] for r in replicas]}; last words: {words}")
        time.sleep(0.05)
    return max(ends[0] for ends in found)


def kill_one(replicas, choice):
    victim, moment = replicas[choice], time.time()
    others = [r for r in replicas if r is not victim]
    victim.kill()
    victim.start()
    back = wait_for_all(replicas, moment)
    failed = [[row for row in r.since(moment) if row.get("committed") is False] for r in others]
    first = min((rows[0] for rows in failed if rows), key=lambda row: row["end"], default=None)
    recovered = max(commits(r, moment)[0] for r in others)
    during = [row["configure"] for r in others for row in r.since(moment)
              if "configure" in row and row["end"] < recovered]  # fmt: skip
    return {
        "lost": max(map(len, failed)), "noticed_s": first and round(first["end"] - moment, 3),
        "recovered_s": round(recovered - moment, 3), "configure_s": during and round(max(during), 4) or None,
        "back_s": round(back - moment, 3), "error": first and first["error"],
    }  # fmt: skip


def turn(args, system, reducers, folder, seconds, choices, out):
    """Kills replicas of one system for so many seconds. Returns the rows."""
    from torchft.coordination import LighthouseServer

    lighthouse = LighthouseServer(bind="127.0.0.1:0", min_replicas=2, heartbeat_timeout_ms=args.heartbeat)
    port = lighthouse.address().rsplit(":", 1)[1]
    env = {**os.environ, "TORCHFT_LIGHTHOUSE": f"http://127.0.0.1:{port}", "OMP_NUM_THREADS": "1",
           "PYTHONPATH": str(ROOT / "agent/python"), "REDUCTION_REDUCERS": ",".join(reducers),
           "REDUCTION_LIBRARY": str(args.build / "lib/libreduction.so.0")}  # fmt: skip
    command = [sys.executable, __file__, "--width", args.width, "--compute", args.compute, "--worker"]
    rows = []
    with (folder / "replicas.log").open("ab") as log:
        replicas = [Replica([*map(str, command), f"{system}:{i}"], env, log) for i in range(args.replicas)]
        try:
            began = wait_for_all(replicas, 0)
            while time.time() - began < seconds:
                rows.append({"system": system, **kill_one(replicas, choices.randrange(args.replicas))})
                print(json.dumps(rows[-1]), file=out, flush=True)
                say(**rows[-1])
        finally:
            for r in replicas:
                r.kill()
            lighthouse.shutdown()
    return rows


def summary(system, rows):
    found = {"system": system, "kills": len(rows), "lost_mean": round(statistics.mean(r["lost"] for r in rows), 2),
             "lost_max": max(r["lost"] for r in rows)}  # fmt: skip
    for name in TIMES:
        values = sorted(r[name] for r in rows if r[name] is not None)
        if values:
            found[name] = [values[len(values) // 2], values[len(values) * 9 // 10], values[-1]]
    return found


def main():
    args = parse_arguments()
    if args.worker:
        return worker(args)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    server, rows = args.build / "bin/reduction-server", {system: [] for system in SYSTEMS}
    with tempfile.TemporaryDirectory(prefix="bench-replicas-") as name, args.out.open("a") as out:
        folder = pathlib.Path(name)
        daemons = [daemon.Daemon([server, "--listen", "127.0.0.1:0", "--insecure"], folder / f"reducer{i}.log")
                   for i in range(args.reducers)]  # fmt: skip
        try:
            reducers = [d.__enter__().address for d in daemons]
            choices = {system: random.Random(args.seed) for system in SYSTEMS}
            for _ in range(args.turns):
                for system in SYSTEMS:
                    seconds = args.minutes * 60 / args.turns / len(SYSTEMS)
                    rows[system] += turn(args, system, reducers, folder, seconds, choices[system], out)
        finally:
            for d in daemons:
                d.__exit__()
        for system, found in rows.items():
            print(json.dumps(summary(system, found)), file=out, flush=True)
            say(**summary(system, found))
    return None


if __name__ == "__main__":
    main()
