#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Starts two trainings at the same time that look alike, again and again: mix.py --rounds 100

Each round is two starts of two ranks, in random order, at the same reducers. What identifies them is one of KINDS, with
and without a name for the job. A rank gets the sum of its own training or an error: never a sum with a rank of the
other one. An error about two trainings names a rank of each.

Exit status: 0 no sum was wrong, 1 a rank got a foreign sum, no answer, or an error that does not name both sides.
"""

import argparse
import collections
import json
import random
import re
import sys
import time

from world import HERE, harness

AT_ONCE = 40  # rounds
LIMIT_S = 60  # for a round
VALUES = (1, 100)  # of the ranks of both starts


def torch(n, start, rank):
    return {"RANK": rank, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 20000 + 2 * (n % 20000) + start}


def slurm(n, start, rank):
    return {"SLURM_PROCID": rank, "SLURM_NTASKS": 2, "SLURM_JOB_ID": 2 * n + start, "SLURM_STEP_ID": 0}


# What each rank of a start in round n has in its environment.
KINDS = {
    "one rdzv_id": lambda n, *of: {"TORCHELASTIC_RUN_ID": f"id-{n}", **torch(n, *of)},
    "RANK by hand": torch,
    "no run": lambda n, start, rank: {"RANK": rank, "WORLD_SIZE": 2},
    "one run, torch": lambda n, *of: {"REDUCTION_RUN": f"run-{n}", **torch(n, *of)},
    "one run, Slurm": lambda n, *of: {"REDUCTION_RUN": f"run-{n}", **slurm(n, *of)},
}
MODES = ("direct", "node", "agent")


class Round:
    def __init__(self, n, kind, mode, chance, cluster, config):
        self.kind, self.mode, self.said, self.began = kind, mode, {}, time.monotonic()
        self.todo = []
        named = {"REDUCTION_JOB": f"mix-{n}"} if chance.random() < 0.5 else {}
        for start in (0, 1):
            for rank in (0, 1):
                local = {"LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": 2} if mode == "node" else {
                    "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1}  # fmt: skip
                if kind.endswith("Slurm"):
                    local = {"REDUCTION_LOCAL_RANK": local["LOCAL_RANK"],
                             "REDUCTION_LOCAL_WORLD_SIZE": local["LOCAL_WORLD_SIZE"]}  # fmt: skip
                where = harness.reach(cluster.socket_path(rank) if mode == "agent" else mode)
                env = {"REDUCTION_CONFIG": config, **KINDS[kind](n, start, rank), **local, **named, **where}
                self.todo.append({"id": [n, start, rank], "env": {k: str(v) for k, v in env.items()},
                                  "after": chance.random() * 0.05, "value": VALUES[start]})  # fmt: skip
        chance.shuffle(self.todo)

    def verdicts(self):
        """Yields (verdict, sentence) of each rank: "right", "refused", or what must not be."""
        for (_, start, _), said in self.said.values():
            if "sum" in said:
                yield ("right" if said["sum"] == 2 * VALUES[start] else "FOREIGN"), f"got {said['sum']}"
            elif said["error"] == "MismatchError":
                named = len(re.findall(r"\brank \d \((?:pid|process|processes) [-\d]+ on ", said["message"]))
                yield ("refused" if named == 2 else "UNNAMED"), said["message"]
            else:
                yield "refused", said["message"]
        for _ in range(4 - len(self.said)):
            yield "SILENT", f"no answer within {LIMIT_S} s"


def play(rounds, cluster, ranks):
    """Runs the rounds, some at once, and yields each that has ended."""
    waiting, running, read = list(rounds), {}, 0
    while waiting or running:
        while waiting and len(running) < AT_ONCE:
            n, make = waiting.pop(0)
            running[n] = make()
            for todo in running[n].todo:
                ranks.tell(json.dumps(todo))
        ranks.wait_more(0.2)
        text = ranks.out
        end = text.rfind("\n") + 1
        for line in text[read:end].splitlines():
            said = json.loads(line)
            if said["id"][0] in running:
                running[said["id"][0]].said[tuple(said["id"])] = (said["id"], said)
        read = end
        for n, of in list(running.items()):
            if len(of.said) == 4 or time.monotonic() - of.began > LIMIT_S * harness.SCALE:
                yield running.pop(n)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20, help="of each kind in each mode [%(default)s]")
    parser.add_argument("--seed", type=int, default=1, help="of the first round [%(default)s]")
    parser.add_argument("--mode", choices=MODES, help="only this one")
    parser.add_argument("--kind", choices=KINDS, help="only this one")
    options = parser.parse_args()
    modes = [options.mode] if options.mode else MODES
    kinds = [options.kind] if options.kind else list(KINDS)
    found, bad = collections.Counter(), []
    config = {"job": {"name": ""}, "timeouts": {"connect": "4s"}}
    with harness.Cluster(reducers=2, agents=2, config=config) as cluster:
        ranks = cluster.start("ranks", [harness.PYTHON, HERE / "mix_rank.py"], harness.worker_env())
        file = cluster.write_config("mix.yaml", {"logging": {"level": "error"}})
        rounds = [(options.seed + i, lambda i=i, kind=kind, mode=mode: Round(
                      options.seed + i, kind, mode, random.Random(options.seed + i), cluster, file))
                  for i, (kind, mode) in enumerate((k, m) for _ in range(options.rounds) for m in modes for k in kinds)
                 ]  # fmt: skip
        for of in play(rounds, cluster, ranks):
            for verdict, sentence in of.verdicts():
                found[of.mode, of.kind, verdict] += 1
                if verdict not in ("right", "refused"):
                    bad.append(f"{of.mode}, {of.kind}: {verdict}: {sentence}")
    print("right/foreign/refused".ljust(10), *(f"{kind:>16}" for kind in kinds))
    for mode in modes:
        cells = ("/".join(str(found[mode, kind, v]) for v in ("right", "FOREIGN", "refused")) for kind in kinds)
        print(f"{mode:21}", *(f"{cell:>16}" for cell in cells))
    print(*bad[:20], sep="\n", file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
