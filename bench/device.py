#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Do copies from and to a GPU overlap with the network? With the fake GPU of tests/cuda, as root.

    bench/device.py [--mib 64] [--mbit 2000] [--rounds 7] [--build build/default] [--svg FILE]

Two ranks reduce one buffer through one reducer, over a loopback of limited speed in a network namespace of its own:
first from host memory, then on fake GPUs that take as long for a copy in each direction as the network for the whole
operation. Prints a line of JSON: median milliseconds of the operation in host memory, of one copy, of the operation on
the GPU, and the ratio of the last one to the slowest stage. One after the other would be 3. Then the same on the GPU
with REDUCTION_GPU_TRACE: median milliseconds, and the share of the copies' time in which pieces are on the network;
--svg draws the last operation.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import trace_svg
from daemon import Daemon

ROOT = pathlib.Path(__file__).resolve().parents[1]
WORKER = """
import statistics, sys, time
import numpy, reduction
mib, rounds, gpu = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "gpu"
comm = reduction.Communicator()
x = numpy.ones(mib << 18, "float32")
if gpu:
    import fake_gpu
    x = fake_gpu.Gpu().array(x)
took = []
for i in range(rounds + 2):
    comm.barrier()
    begin = time.monotonic()
    comm.all_reduce(x, "avg")
    took.append(1000 * (time.monotonic() - begin))
assert (x.get() if gpu else x)[-1] == 1
comm.close()
if comm.rank == 0:
    print(statistics.median(took[2:]))
"""


def operation_ms(args, config, where, rate, trace=""):
    """Returns the median milliseconds of an operation. trace: folder for the ranks' timelines."""
    build = pathlib.Path(args.build).resolve()
    procs = []
    for rank in range(2):
        env = {
            **os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "REDUCTION_MODE": "direct", "REDUCTION_CONFIG": config,
            "REDUCTION_RUN": "device",
            "REDUCTION_BUILD": str(build), "REDUCTION_LIBRARY": str(build / "lib" / "libreduction.so.0"),
            "REDUCTION_LOG": "error", "FAKE_CUDA_RATE": str(rate), "REDUCTION_GPU_TRACE": trace,
            "PYTHONPATH": f"{ROOT / 'agent' / 'python'}:{ROOT / 'tests' / 'e2e'}",
        }  # fmt: skip
        command = ["/usr/bin/python3", "-c", WORKER, str(args.mib), str(args.rounds), where]
        procs.append(subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True))
    said = [p.communicate(timeout=300)[0] for p in procs]
    if any(p.returncode for p in procs):
        sys.exit("a rank has failed")
    return float(said[0])


def read_traces(args, folder):
    """Returns the share of copies under the network; draws the last operation."""
    files = sorted(pathlib.Path(folder).glob("device.0.*.json"))
    about = [json.loads(f.read_text())["otherData"] for f in files]
    if args.svg:
        label = f"Fake GPU, {args.mib} MiB, {args.mbit / 1000:g} Gbit/s"
        subprocess.run([trace_svg.__file__, *files, "--op", str(about[0]["operations"] - 1), "--label", label,
                        "--out", args.svg], check=True)  # fmt: skip
    return sum(a["overlap_us"] for a in about) / sum(a["copies_us"] for a in about)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=64, help="bytes of the buffer (64 MiB)")
    parser.add_argument("--mbit", type=int, default=2000, help="speed of the loopback in Mbit/s (2000)")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--build", default="build/default")
    parser.add_argument("--svg", help="file for a drawing of one operation")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if not args.inside:  # the namespace ends with its last process
        os.execvp("unshare", ["unshare", "--net", sys.executable, *sys.argv, "--inside"])
    subprocess.run("ip link set lo up mtu 9000", shell=True, check=True)
    subprocess.run(f"tc qdisc add dev lo root tbf rate {args.mbit}mbit burst 256kb limit 64mb", shell=True, check=True)
    with tempfile.TemporaryDirectory() as folder:
        config = f"{folder}/job.yaml"
        address = "127.0.0.1:7600"
        tree = {"job": {"name": "device"}, "reducers": [{"id": "r0", "address": address}]}
        pathlib.Path(config).write_text(json.dumps(tree))
        server = [f"{args.build}/bin/reduction-server", "--config", config, "--listen", address]
        with Daemon(server, f"{folder}/log"):
            wire = operation_ms(args, config, "host", 0)
            rate = int((args.mib << 20) / (wire * 1000))  # MB/s
            copy = (args.mib << 20) / (rate * 1000)
            total = operation_ms(args, config, "gpu", rate)
            traced = operation_ms(args, config, "gpu", rate, folder)
        overlap = read_traces(args, folder)
    ratio = total / max(wire, copy)
    print(json.dumps({"mib": args.mib, "mbit": args.mbit, "wire_ms": round(wire, 1), "copy_ms": round(copy, 1),
                      "gpu_ms": round(total, 1), "ratio": round(ratio, 3), "traced_ms": round(traced, 1),
                      "overlap": round(overlap, 3)}))  # fmt: skip


if __name__ == "__main__":
    main()
