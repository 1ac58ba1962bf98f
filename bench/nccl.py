#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the NCCL plugin without NCCL: tests/nccl/exercise calls it as NCCL does. Prints one JSON line for each row,
with the medians of both sides and their ratio. The two sides of a row take turns.

    loopback  all-reduces of 512 KiB, 8 under way, beside one all-reduce of 64 MiB of reduction-bench (direct); and
              beside 512 KiB, 8 under way, of reduction-bench. cpu_s_per_GiB: processor seconds of ranks and reducers
    net       messages of 4 MiB over the net table, beside a plain TCP flow
    links     16 MiB as all-reduces of 512 KiB, 4 hosts and 4 reducers on links of 1 Gbit/s, beside a ring over the net
              table; needs root
"""

import argparse
import json
import os
import pathlib
import resource
import socket
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "net"))
import lab as lab_  # noqa: E402

WAIT_S = 120


def parse_arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", type=pathlib.Path, default="build/default", help="folder of the build (%(default)s)")
    p.add_argument("--repeats", type=int, default=3, help="runs of each side (%(default)s)")
    p.add_argument("--ranks", type=int, default=2, help="ranks on loopback (%(default)s)")
    p.add_argument("--rows", default="loopback,net,links", help="rows to measure (%(default)s)")
    args = p.parse_args()
    args.build = args.build.resolve()
    return args


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def output(argv, env=None):
    """Runs a program and returns the last JSON object that it prints."""
    done = subprocess.run([*map(str, argv)], env={**os.environ, **(env or {})}, capture_output=True, text=True,
                          timeout=WAIT_S)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, argv))}: exit status {done.returncode}\n{done.stderr}")
    return last_object(done.stdout)


def last_object(text):
    return json.loads([line for line in text.splitlines() if line.startswith("{")][-1])


def environment(config):
    return {"REDUCTION_CONFIG": str(config), "NCCL_COLLNET_ENABLE": "1", "REDUCTION_LOG": "error"}


def exercise(args, case, *words):
    library = args.build / "lib/libnccl-net-reduction.so"
    return [args.build / "tests/nccl/exercise", "--library", library, "--case", case, *words]


def report(row, unit, ours, others, other, **more):
    a, b = statistics.median(ours), statistics.median(others)
    print(json.dumps({"row": row, "unit": unit, "plugin": round(a, 1), other: round(b, 1), "ratio": round(a / b, 3),
                      "plugin_runs": ours, f"{other}_runs": others, "load": os.getloadavg()[0], **more}), flush=True)


def write_config(folder, addresses):
    path = pathlib.Path(folder) / "job.yaml"
    reducers = [{"id": f"r{i}", "address": a} for i, a in enumerate(addresses)]
    path.write_text(json.dumps({"job": {"name": "bench-nccl"}, "reducers": reducers}))
    return path


class CpuTime:
    """Processor seconds of ended children (the ranks) and of the reducers."""

    def __init__(self, reducers):
        self._reducers = reducers

    def now(self):
        ranks = resource.getrusage(resource.RUSAGE_CHILDREN)
        return ranks.ru_utime + ranks.ru_stime + sum(lab_.cpu_seconds(p.pid) for p in self._reducers)


def measure_loopback(args, folder):
    addresses = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    config = write_config(folder, addresses)
    reducers = [subprocess.Popen([args.build / "bin/reduction-server", "--listen", a], stderr=subprocess.DEVNULL)
                for a in addresses]
    cpu = CpuTime(reducers)

    def plugin():
        words = ["--ranks", args.ranks, "--bytes", 512 << 10, "--depth", 8, "--ops", 1280]
        return output(exercise(args, "speed", *words), environment(config))["algbw_MBps"], 1296 << 19

    def bench(size, iterations, warmup, together):
        row = output([args.build / "bin/reduction-bench", "--ranks", args.ranks, "--config", config, "--mode", "direct",
                      "-b", size, "-e", size, "-n", iterations, "-w", warmup, "-a", together, "-c", 0,
                      "--inplace", "no", "--json"])
        return round(row["algbw"] * 1e3, 1), (iterations + warmup) * together * size

    sides = {"plugin": plugin, "64MiB": lambda: bench(64 << 20, 10, 2, 1),
             "512KiBx8": lambda: bench(512 << 10, 160, 2, 8)}
    speeds, costs = ({name: [] for name in sides} for _ in range(2))
    try:
        for _ in range(args.repeats):
            for name, run in sides.items():
                before = cpu.now()
                speed, size = run()
                speeds[name].append(speed)
                costs[name].append((cpu.now() - before) / (size * args.ranks / 2**30))
        for other in ("64MiB", "512KiBx8"):
            report("loopback", "MB/s", speeds["plugin"], speeds[other], f"bench_{other}",
                   cpu_s_per_GiB={n: round(statistics.median(costs[n]), 3) for n in ("plugin", other)})
    finally:
        for p in reducers:
            p.terminate()
        for p in reducers:
            p.wait()


def measure_net(args, folder):
    config = write_config(folder, ["127.0.0.1:7600"])
    ours, flows = [], []
    for _ in range(args.repeats):
        ours.append(output(exercise(args, "net-speed", "--bytes", 4 << 20, "--depth", 8, "--ops", 1000),
                           environment(config))["MBps"])
        port = str(free_port())
        loop = args.build / "bench/tcp-loop"
        with subprocess.Popen([loop, "sink", port], stdout=subprocess.PIPE, text=True) as sink:
            subprocess.run([loop, "flow", "127.0.0.1", port, "2"], check=True, timeout=WAIT_S)
            flows.append(last_object(sink.communicate(timeout=WAIT_S)[0])["MBps"])
    report("net", "MB/s", ours, flows, "tcp")


def in_lab(args, lab, folder, config, case, *words):
    """Runs a case with rank i on host i. Returns what rank 0 prints."""
    shared = pathlib.Path(folder) / "shared"
    shared.unlink(missing_ok=True)
    env = {**os.environ, **environment(config), "NCCL_SOCKET_IFNAME": "^lo"}
    ranks = [lab.popen(r, exercise(args, case, "--ranks", 4, "--shared", shared, "--rank", r, *words), env=env,
                       stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) for r in range(4)]
    outs = [r.communicate(timeout=WAIT_S)[0] for r in ranks]
    if any(r.returncode for r in ranks):
        sys.exit(f"{case}: a rank has failed")
    return last_object(outs[0])["algbw_MBps"]


def measure_links(args, folder):
    try:
        lab_.check_machine()
    except lab_.LabError as e:
        print(f"# links: left out: {e}", file=sys.stderr)
        return
    with lab_.Lab(8, rate="1gbit", queue_ms=5) as lab:
        config = write_config(folder, [f"{lab.address(4 + i)}:7600" for i in range(4)])
        for i in range(4):
            lab.popen(4 + i, [args.build / "bin/reduction-server", "--listen", f"{lab.address(4 + i)}:7600",
                              "--insecure"], stderr=subprocess.DEVNULL)
        ours, rings = [], []
        for _ in range(args.repeats):
            ours.append(in_lab(args, lab, folder, config, "speed", "--bytes", 512 << 10, "--depth", 8, "--ops", 320))
            rings.append(in_lab(args, lab, folder, config, "ring-speed", "--bytes", 16 << 20, "--ops", 8))
        report("links", "MB/s", ours, rings, "ring")


def main():
    args = parse_arguments()
    rows = {"loopback": measure_loopback, "net": measure_net, "links": measure_links}
    for row in args.rows.split(","):
        if row not in rows:
            sys.exit(f"--rows: found {row}, expected {', '.join(rows)}")
    with tempfile.TemporaryDirectory(prefix="bench-nccl-") as folder:
        for row in args.rows.split(","):
            rows[row](args, folder)


if __name__ == "__main__":
    main()
