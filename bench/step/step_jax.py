#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Measures data-parallel training steps of JAX on CPUs, on shaped links. The systems:

    gloo        JAX's own collectives
    reducers    `import reduction.jax`
    wire:W      the same with job.wire W: bf16, fp8 or int8

Every host is a network namespace (bench/net/lab.py) with a host name that all resolve, which gloo in JAX needs. A
launch trains a model for some steps with one system. Systems take turns. The result is the median over all steps of
all launches; a step lasts as long as that of its slowest rank. The models: `dense`, two layers with 16 MiB of
gradients; `transformer`, 30 tensors with 2 MiB. Prints a line of JSON for each case and system, then a table. Exit
status: 0 success, 1 an error, 2 wrong usage, 77 the laboratory cannot be made, or there is no jax.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench" / "net"))

import lab as net  # noqa: E402
import systems  # noqa: E402
from placement import Placement  # noqa: E402

WORKER = pathlib.Path(__file__).resolve().with_name("worker_jax.py")
MODELS = ("dense", "transformer")
SYSTEMS = ("gloo", "reducers", "wire:bf16", "wire:fp8")
PORT = 29500
LAUNCH_S = 240
OWN_HOSTS = 'mount --bind "$0" /etc/hosts && exec "$@"'  # in the mount namespace of the host


def parse_arguments():
    p = argparse.ArgumentParser(
        prog="bench-jax", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--python", default=sys.executable, help="a Python with jax (default: the one that runs this)")
    p.add_argument("--workers", default="4,8", help="workers, and as many reducers, comma-separated (default 4,8)")
    p.add_argument("--rate", default="250mbit", help="rate of links (default 250mbit)")
    p.add_argument("--models", default=",".join(MODELS), help="comma-separated (default both)")
    p.add_argument("--systems", default=",".join(SYSTEMS), help=f"comma-separated (default {','.join(SYSTEMS)})")
    p.add_argument("--repeats", type=int, default=2, help="launches of each system (default 2)")
    p.add_argument("--steps", type=int, default=6, help="timed steps of a launch (default 6)")
    p.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "default")
    args = p.parse_args()
    args.workers = [int(n) for n in args.workers.split(",")]
    args.models, args.systems = args.models.split(","), args.systems.split(",")
    return args


def environment(lab, place, rank, folder, args, system):
    """Returns the environment of the only rank of a node."""
    env = dict(
        os.environ,
        RANK=str(rank),
        WORLD_SIZE=str(place.n),
        LOCAL_RANK="0",
        LOCAL_WORLD_SIZE="1",
        MASTER_ADDR=lab.address(place.workers[0]),
        MASTER_PORT=str(PORT),
        JAX_PLATFORMS="cpu",
        OMP_NUM_THREADS="1",
        XLA_FLAGS="--xla_cpu_multi_thread_eigen=false",
        MALLOC_MMAP_THRESHOLD_=str(1 << 30),  # keeps memory: new pages are slow on virtual machines
        MALLOC_TRIM_THRESHOLD_=str(1 << 30),
        PYTHONPATH=str(ROOT / "agent" / "python"),
        PYTHONDONTWRITEBYTECODE="1",
        REDUCTION_LIBRARY=str(args.build / "lib" / "libreduction.so.0"),
        REDUCTION_WIRE=system.partition(":")[2] or "same",
        REDUCTION_CONFIG=f"{folder}/job.yaml",
        REDUCTION_MODE="direct",
    )
    return env | ({"JAX_CPU_COLLECTIVES_IMPLEMENTATION": "gloo"} if system == "gloo" else {})


def collect(ranks, folder, what):
    """Returns what the ranks print. Raises LabError if one fails or takes too long."""
    deadline, rows = time.monotonic() + LAUNCH_S, []
    for rank, p in enumerate(ranks):
        try:
            out, _ = p.communicate(timeout=max(1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise net.LabError(f"{what}: rank {rank} is not done within {LAUNCH_S} s") from None
        if p.returncode:
            words = pathlib.Path(f"{folder}/{rank}.err").read_text(errors="replace")[-800:]
            raise net.LabError(f"{what}: rank {rank}: exit status {p.returncode}: {words}")
        rows.append(json.loads(out.splitlines()[-1]))  # gloo writes lines before
    return rows


def launch(lab, place, system, model, args):
    """Trains once. Returns (seconds of each step, seconds of compute, last loss)."""
    with tempfile.TemporaryDirectory(prefix="bench-jax-") as folder:
        one = systems.Launch(lab, place, 16 << 20, args.steps, 1, args.build)
        one.dir = folder
        servers = systems.Ours().start_servers(one) if system != "gloo" else []
        hosts = pathlib.Path(folder, "hosts")
        hosts.write_text("127.0.0.1 localhost\n" + "".join(f"{lab.address(i)} h{i}\n" for i in range(lab.hosts)))
        ranks = []
        try:
            for rank, host in enumerate(place.workers):
                command = ["sh", "-c", OWN_HOSTS, hosts, args.python, WORKER, "--model", model, "--steps", args.steps]
                with open(f"{folder}/{rank}.err", "w", encoding="utf-8") as errors:
                    env = environment(lab, place, rank, folder, args, system)
                    ranks.append(
                        lab.popen(
                            host, command, stdout=subprocess.PIPE, stderr=errors, stdin=subprocess.DEVNULL, env=env
                        )
                    )
            rows = collect(ranks, folder, f"{system}, {model}")
        finally:
            for p in ranks + servers:
                net.end(p)
    return [max(s) for s in zip(*(r["seconds"] for r in rows))], max(r["compute"] for r in rows), rows[0]["loss"]


def measure(n, args):
    """Runs all systems and models with n workers, in turn; returns lines."""
    place = Placement(n, n, payload=[net.payload_bits(net.parse_rate(args.rate))] * 2 * n)
    samples = {}
    for _ in range(args.repeats):
        with net.Lab(2 * n, args.rate, build=args.build) as lab:
            lab.rate_text = args.rate
            for model in args.models:
                for system in args.systems:
                    seconds, compute, loss = launch(lab, place, system, model, args)
                    found = samples.setdefault((model, system), ([], [], []))
                    found[0].extend(seconds)
                    found[1].append(compute)
                    found[2].append(loss)
                    print(f"# n={n} {model} {system}: {statistics.median(seconds):.3f} s", file=sys.stderr)
    return [
        {
            "n": n,
            "rate": args.rate,
            "model": model,
            "system": system,
            "step_s_median": round(statistics.median(seconds), 4),
            "min": round(min(seconds), 4),
            "max": round(max(seconds), 4),
            "compute_s": round(statistics.median(compute), 4),
            "loss": loss[0],
        }
        for (model, system), (seconds, compute, loss) in samples.items()
    ]


def print_table(lines):
    """Prints the seconds of a step, and how many times faster it is than with gloo."""
    print(f"\n{'model, workers':18}{'system':>12}{'step':>10}{'':>9}{'compute':>10}{'last loss':>11}")
    for line in lines:
        base = [x for x in lines if (x["n"], x["model"], x["system"]) == (line["n"], line["model"], "gloo")]
        times = f"{base[0]['step_s_median'] / line['step_s_median']:.2f} x" if base else ""
        head = f"{line['model']}, n={line['n']}"
        print(f"{head:18}{line['system']:>12}{line['step_s_median']:>8.3f} s{times:>9}{line['compute_s']:>8.3f} s"
              f"{line['loss']:>11.4f}")  # fmt: skip


def main():
    args = parse_arguments()
    args.build = args.build.resolve()
    if subprocess.run([args.python, "-c", "import jax"], capture_output=True).returncode:
        raise net.LabError(f"{args.python} has no jax: name another Python with --python", net.CANNOT_RUN_HERE)
    lines = []
    with net.only_one_measures():
        net.check_machine()
        for n in args.workers:
            lines += measure(n, args)
    for line in lines:
        print(json.dumps(line))
    print_table(lines)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except net.LabError as error:
        print(f"bench-jax: {error}", file=sys.stderr)
        sys.exit(error.code)
    except KeyboardInterrupt:
        sys.exit(130)
