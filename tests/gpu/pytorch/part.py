# SPDX-License-Identifier: Apache-2.0
"""Part torch of check-gpu: one model, trained with plain NCCL sockets, the plugin, the hook, the hook with
local="nccl", and the process group, by 2 and by 4 processes. One GPU is enough: NCCL_HOSTID makes
each process a node of its own.

With --cpu gloo takes the place of NCCL, and no speed is judged: so tests run this part without a GPU."""

import argparse
import json
import os
import pathlib
import sys
import tempfile
import time

import world

LOSS_BAR, CALL_US_BAR, RATE_BAR, OVERLAP_BAR = 1e-4, 200, 1.3, 80
SHARED = "processes share the GPU by time slices: nothing is claimed"
failed = False


def row(check, result, note, value=None, unit=""):
    """Prints a row as row.h does."""
    global failed
    failed |= result == "fail"
    line = {"part": "torch", "check": check, "result": result}
    if value is not None:
        line.update(value=float(f"{value:.4g}"), unit=unit)
    print(json.dumps({**line, "note": " ".join(note.split())[-400:]}), flush=True)


def overlap(folder):
    """Returns how many percent of the time of copies pieces were on the network, from the timelines of
    REDUCTION_GPU_TRACE; None if nothing was copied."""
    about = [json.loads(f.read_text())["otherData"] for f in pathlib.Path(folder).glob("*.json")]
    copies = sum(a["copies_us"] for a in about)
    return 100 * sum(a["overlap_us"] for a in about) / copies if copies else None


def environment(args, way, rank, n, hosts, config, traces):
    """Returns the variables of a rank. traces: folder for timelines."""
    per_node = 2 if way == "local" else 1
    env = {
        "RANK": rank, "WORLD_SIZE": n, "LOCAL_RANK": rank % per_node, "LOCAL_WORLD_SIZE": per_node,
        "GROUP_RANK": rank // per_node, "REDUCTION_CONFIG": config, "REDUCTION_MODE": "direct",
        "REDUCTION_RUN": f"check-{way}-{n}", "OMP_NUM_THREADS": 1, "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        "REDUCTION_GPU_TRACE": traces, "NCCL_HOSTID": f"node{rank}", "NCCL_MNNVL_ENABLE": 0,
        "NCCL_SOCKET_IFNAME": "eth0" if hosts else "lo",
        "NCCL_RAS_ENABLE": 0, "NCCL_MAX_NCHANNELS": 2, "GLOO_SOCKET_IFNAME": "eth0" if hosts else "lo",
    }  # fmt: skip
    if way == "plugin":
        env.update(
            NCCL_NET_PLUGIN=args.root / "lib/libnccl-net-reduction.so", NCCL_NET="reduction", NCCL_COLLNET_ENABLE=1,
            NCCL_ALGO="allreduce:collnetchain", NCCL_NET_PLUGIN_REF_COUNT=1, REDUCTION_REQUIRED=1, NCCL_DEBUG="INFO",
            NCCL_DEBUG_SUBSYS="INIT,NET,TUNING", NCCL_DEBUG_FILE=f"{args.folder}/nccl.%p",
        )  # fmt: skip
    else:
        env.update(NCCL_NET="Socket", NCCL_COLLNET_ENABLE=0)
    return {name: str(value) for name, value in env.items()}


def train(args, way, n, reducers, hosts, meanwhile=lambda ranks: None):
    """Trains once. Returns what the ranks found, or a sentence."""
    serial = f"{args.folder}/{way}.{time.monotonic_ns()}"
    traces = f"{serial}.traces"
    os.mkdir(traces)
    options = ["--cpu"] if args.cpu else []
    for name in ("steps", "width", "layers", "rows", "local", "module"):
        if getattr(args, name) is not None:
            options += [f"--{name}", str(getattr(args, name))]
    with world.Processes() as ranks:
        for rank in range(n):
            argv = [sys.executable, str(args.here / "rank.py"), "--way", way, "--store", serial, "--out",
                    f"{serial}.{rank}", *options]
            ranks.start(argv, environment(args, way, rank, n, hosts, reducers.config, traces), f"{serial}.{rank}.log",
                        hosts[rank] if hosts else None)
        until = min(args.until, time.monotonic() + args.limit)
        meanwhile(ranks)
        why = ranks.wait(until)
    if why:
        return why
    found = [json.loads(pathlib.Path(f"{serial}.{rank}").read_text()) for rank in range(n)]
    found[0]["overlap"] = overlap(traces)
    return found


def check_way(args, way, n, reducers, hosts, reference):
    """Trains in one way and judges it. Returns what rank 0 found, or None."""
    name = f"{way}, {n} processes"
    if time.monotonic() > args.until - 5:
        row(f"loss, {name}", "skip", "no time is left")
        return None
    found = train(args, way, n, reducers, hosts)
    if isinstance(found, str):
        row(f"loss, {name}", "fail", found)
        return None
    if way == "plugin" and not all(f["used"] for f in found[:1]):
        row(f"CollNet, {name}", "fail", found[0]["why"])
    elif way == "plugin":
        row(f"CollNet, {name}", "ok", found[0]["why"])
    loss, rate = found[0]["loss"], found[0]["rate"]
    if len({f["digest"] for f in found}) != 1:
        row(f"parameters, {name}", "fail", "ranks have different parameters after the training")
    if reference is None:
        row(f"loss, {name}", "info", f"loss {loss:.6f}, {rate:.3g} steps/s: the reference")
        return found[0]
    error = abs(loss - reference["loss"]) / abs(reference["loss"])
    row(f"loss, {name}", "ok" if error <= LOSS_BAR else "fail", f"relative, to {args.plain}; bar {LOSS_BAR:g}", error)
    if "call_us" in found[0]:
        call = found[0]["call_us"]
        good = "info" if args.cpu or way == "local" else "ok" if call <= CALL_US_BAR else "fail"
        row(f"call of the hook, {name}", good, f"median of the buckets; bar {CALL_US_BAR}", call, "us")
    if found[0]["overlap"] is not None:
        share = found[0]["overlap"]
        row(f"copies under network, {name}", "info" if way == "local" else "ok" if share >= OVERLAP_BAR else "fail",
            f"share of the time of copies in which pieces are on the network; bar {OVERLAP_BAR}", share, "%")
    ratio = rate / reference["rate"]
    if way == "local":
        row(f"step rate, {name}", "info", "on one GPU this proves correctness only", ratio, "x")
    elif args.cpu:
        row(f"step rate, {name}", "info", "on a CPU: nothing is claimed", ratio, "x")
    elif hosts:
        row(f"step rate, {name}", "ok" if ratio >= RATE_BAR else "fail",
            f"to sockets, links of 1 Gbit/s; bar {RATE_BAR}", ratio, "x")
    else:
        row(f"step rate, {name}", "info", SHARED, ratio, "x")
    return found[0]


def check_ways(args, n, shaped):
    """All ways with n processes, on shaped links if there are any."""
    with world.Links(args.root, 2 * n if shaped else 0) as links:
        hosts = links.hosts[:n]
        with world.Reducers(args.root, args.folder, n if shaped else 2, links.hosts[n:]) as reducers:
            reference = check_way(args, "sockets", n, reducers, hosts, None)
            for way in args.ways:
                if reference is not None and way not in ("sockets", "local"):
                    check_way(args, way, n, reducers, hosts, reference)
    if reference is not None and "local" in args.ways and n == 4:  # a node's ranks talk over loopback
        with world.Reducers(args.root, args.folder, 2, []) as reducers:
            check_way(args, "local", n, reducers, [], reference)


def check_bits(args):
    """Two trainings with `deterministic: true`; the second one loses a reducer, which comes back."""
    digests = []
    for loses in (False, True):
        with world.Reducers(args.root, args.folder, 2, [], deterministic=True) as reducers:

            def meanwhile(ranks, loses=loses, reducers=reducers):
                if loses and ranks.said(0, f"step {args.steps // 3 // 10 * 10 or 10}", args.until):
                    reducers.kill(1)
                    if ranks.said(0, f"step {args.steps // 3 * 2 // 10 * 10 or 10}", args.until):
                        reducers.start(1)

            found = train(args, "hook", 2, reducers, [], meanwhile)
        if isinstance(found, str):
            row("bits, hook, a reducer is killed" if loses else "bits, hook", "fail", found)
            return
        digests.append(found[0]["digest"])
    equal = digests[0] == digests[1]
    row("bits, hook, a reducer is killed", "ok" if equal else "fail",
        f"parameters are {'equal' if equal else 'different'} after {args.steps} steps with and without the loss")


def arguments():
    parser = argparse.ArgumentParser(description="Part torch of check-gpu.")
    parser.add_argument("--cpu", action="store_true", help="gloo in place of NCCL; speed is not judged")
    parser.add_argument("--steps", type=int, default=50, help="default 50, at least 30")
    parser.add_argument("--processes", default="2,4", help="default 2,4")
    parser.add_argument("--ways", default="plugin,hook,local,group", help="besides sockets (default: %(default)s)")
    parser.add_argument("--no-bits", action="store_true", help="do not kill a reducer")
    parser.add_argument("--values", action="store_true", help="only check values of operations on CUDA tensors")
    parser.add_argument("--seconds", type=float, default=float(os.environ.get("CHECK_GPU_SECONDS", "300")),
                        help="for everything; what does not fit is left out and said")
    parser.add_argument("--limit", type=float, default=90, help="seconds for one training (default 90)")
    parser.add_argument("--width", type=int, help="of the model")
    parser.add_argument("--layers", type=int, help="of the model")
    parser.add_argument("--rows", type=int, help="of a rank's batch")
    parser.add_argument("--local", help="the group within a node, for tests")
    parser.add_argument("--module", help="a module that ranks import first, for tests")
    args = parser.parse_args()
    args.here = pathlib.Path(__file__).resolve().parent
    args.root = args.here.parent
    args.ways = args.ways.split(",")
    args.plain = "gloo" if args.cpu else "NCCL's sockets"
    args.until = time.monotonic() + args.seconds - 5
    if args.cpu and "plugin" in args.ways:
        args.ways.remove("plugin")
        row("plugin", "skip", "there is no NCCL on a CPU")
    return args


def check_values(args):
    """The programs of tests/torch_cuda."""
    import values

    def of(way, rank, n, config):
        return environment(args, way, rank, n, [], config, "")

    values.check(args, row, of)


def main():
    args = arguments()
    try:
        import torch
    except ImportError as exc:
        row("torch", "skip", f"there is no torch: {exc}")
        return 77
    if not args.cpu and not torch.cuda.is_available():
        row("torch", "skip", f"no GPU here: torch {torch.__version__} finds none")
        return 77
    shaped = os.environ.get("REDUCTION_LINKS") == "1"
    with tempfile.TemporaryDirectory(prefix="check-gpu-") as args.folder:
        if args.values:
            check_values(args)
            return 1 if failed else 0
        for n in map(int, args.processes.split(",")):
            check_ways(args, n, shaped and n == 4)
        if not args.no_bits:
            check_bits(args)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
