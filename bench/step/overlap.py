#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Shows that all-reduces run under backward: draws one step of rank 0 as a timeline, overlap.py --out FILE.svg.

Two workers and two reducers on shaped links (bench/net/lab.py) train a DistributedDataParallel model of eight layers
with the backend `reduction`; a bucket holds one layer. Of several backward passes the one with the median time is
drawn. Prints one JSON line: the seconds until loss.backward() returned, until the last gradient was computed, of all
all-reduces together, and how much of these lay under the computation.
Exit status: 0 success, 1 an error, 2 wrong usage, 77 the laboratory cannot be made.
"""

import argparse
import json
import os
import pathlib
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "net"))

import lab as net  # noqa: E402
import step as steps  # noqa: E402
import systems  # noqa: E402
from placement import Placement  # noqa: E402
from plot import GREY, GRID, INK, step_of  # noqa: E402

RANKS, LAYERS, WIDTH, ROWS, WARMUP, STEPS = 2, 8, 1024, 24, 2, 9
WIDTH_PX, LEFT, TOP, ROW = 900, 130, 64, 22
COLOURS = {"backward": "#e69f00", "all-reduce": "#0072b2"}


def parse_arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", type=pathlib.Path, default=HERE.parents[1] / "build/default", help="folder of the build")
    p.add_argument("--rate", default="1gbit", help="rate of each link (%(default)s)")
    p.add_argument("--out", type=pathlib.Path, help="file of the drawing")
    p.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    return p.parse_args()


class Recorder:
    """What happens in a backward pass, as (row, kind, text, start, end)."""

    def __init__(self, model, group):
        self.bars, self.works, self.mark = [], [], 0.0
        for i, layer in enumerate(model):
            layer.weight.register_hook(lambda _, i=i: self.backward(i))
        self.start_all_reduce = group.allreduce
        group.allreduce = self.all_reduce  # DistributedDataParallel calls it for each bucket

    def backward(self, layer):
        now = time.monotonic()
        self.bars.append((0, "backward", f"{layer}", self.mark, now))
        self.mark = now

    def all_reduce(self, tensors, options=None):
        started, bucket = time.monotonic(), sum(bar[1] == "all-reduce" for bar in self.bars)
        place = len(self.bars)
        self.bars.append((1 + bucket, "all-reduce", f"{bucket}", started, started))
        work = self.start_all_reduce(tensors, options)

        def ended(_):
            self.bars[place] = self.bars[place][:4] + (time.monotonic(),)

        work.get_future().then(ended)
        self.works.append(work)  # C++ code of torch 1.13 does not keep a Work whose future has been asked for
        return work

    def step(self, model, data):
        """Trains once. Returns the seconds of the backward pass, and the bars, which begin at 0."""
        loss = model(data).square().mean()
        self.bars, self.works, self.mark = [], [], time.monotonic()
        started = self.mark
        loss.backward()
        ended = time.monotonic()
        return ended - started, [(*bar[:3], bar[3] - started, bar[4] - started) for bar in self.bars]


def worker():
    import torch
    import torch.distributed as dist

    import reduction.torch  # noqa: F401 registers the backend

    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("reduction")
    layers = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)))
    model = torch.nn.parallel.DistributedDataParallel(layers, bucket_cap_mb=1)
    recorder, data = Recorder(layers, dist.group.WORLD), torch.randn(ROWS, WIDTH)
    found = []
    for _ in range(WARMUP + STEPS):
        dist.barrier()
        model.zero_grad(set_to_none=False)
        found.append(recorder.step(model, data))
    print(json.dumps(sorted(found[WARMUP:])[STEPS // 2]), flush=True)
    dist.barrier()
    os._exit(0)  # threads of gloo may wait for peers that have ended


def measure(args):
    """Returns rank 0's median step."""
    place = Placement(RANKS, RANKS)
    with net.only_one_measures(), tempfile.TemporaryDirectory(prefix="bench-overlap-") as folder:
        net.check_machine()
        with net.Lab(2 * RANKS, args.rate, build=args.build) as lab:
            launch = systems.Launch(lab, place, 1, 1, 1, args.build)
            launch.dir = folder
            systems.Ours().start_servers(launch)
            ranks = []
            for rank, host in enumerate(place.workers):
                with open(f"{folder}/{rank}.err", "w", encoding="utf-8") as errors:
                    ranks.append(lab.popen(host, ["/usr/bin/python3", __file__, "--worker"], stdout=-1, stderr=errors,
                                           env=steps.environment(lab, place, rank, folder, args.build)))  # fmt: skip
            outs = [p.communicate(timeout=120)[0] for p in ranks]
            if any(p.returncode for p in ranks):
                raise net.LabError(pathlib.Path(f"{folder}/0.err").read_text(errors="replace")[-800:])
    return json.loads(outs[0])


def hidden(bars):
    """Returns (when the last gradient was computed, seconds of all all-reduces together, seconds of these before)."""
    end = max(bar[4] for bar in bars if bar[1] == "backward")
    busy = before = 0.0
    reached = 0.0
    for _, _, _, start, stop in sorted((b for b in bars if b[1] == "all-reduce"), key=lambda b: b[3]):
        start = max(start, reached)
        if stop > start:
            busy += stop - start
            before += max(0.0, min(stop, end) - start)
            reached = stop
    return end, busy, before


def draw(seconds, bars, title):
    """Returns the SVG."""
    rows = 1 + max(bar[0] for bar in bars)
    height = TOP + rows * ROW + 40
    scale = (WIDTH_PX - LEFT - 20) / seconds
    text = '<text x="{:.1f}" y="{:.1f}" fill="{}" text-anchor="{}"{}>{}</text>'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH_PX}" height="{height}" '
        f'viewBox="0 0 {WIDTH_PX} {height}" font-family="Helvetica, Arial, sans-serif" font-size="12">',
        f'<rect width="{WIDTH_PX}" height="{height}" fill="#ffffff"/>',
        text.format(LEFT, 22, INK, "start", ' font-weight="bold" font-size="15"', title),
    ]
    distance = step_of(seconds * 1000)
    for tick in range(int(seconds * 1000 / distance) + 1):
        x = LEFT + tick * distance / 1000 * scale
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 6}" y2="{height - 34}" stroke="{GRID}"/>')
        parts.append(text.format(x, height - 16, GREY, "middle", "", f"{tick * distance:g} ms"))
    names = {0: "backward, layers"} | {i: f"all-reduce {i - 1}" for i in range(1, rows)}
    for row, name in names.items():
        parts.append(text.format(LEFT - 8, TOP + row * ROW + 15, GREY, "end", "", name))
    for row, kind, label, start, stop in bars:
        x, y = LEFT + start * scale, TOP + row * ROW + 2
        parts.append(f'<rect x="{x:.1f}" y="{y}" width="{max(1.0, (stop - start) * scale - 1):.1f}" height="{ROW - 4}" '
                     f'rx="2" fill="{COLOURS[kind]}"/>')  # fmt: skip
        if kind == "backward":
            parts.append(text.format(x + (stop - start) * scale / 2, y + 13, "#ffffff", "middle", "", label))
    end = hidden(bars)[0]
    x = LEFT + end * scale
    parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 6}" y2="{height - 34}" stroke="{INK}" '
                 'stroke-dasharray="5 4"/>')  # fmt: skip
    parts.append(text.format(x, TOP - 12, INK, "middle", "", "last gradient"))
    return "\n".join([*parts, "</svg>"]) + "\n"


def main():
    args = parse_arguments()
    if args.worker:
        return worker()
    seconds, bars = measure(args)
    end, busy, before = hidden(bars)
    print(json.dumps({"n": RANKS, "rate": args.rate, "mib": LAYERS * 4, "backward_s": round(seconds, 4),
                      "last_gradient_s": round(end, 4), "all_reduce_s": round(busy, 4),
                      "under_computation": round(before / busy, 3)}))  # fmt: skip
    if args.out:
        rate = args.rate.replace("mbit", " Mbit/s").replace("gbit", " Gbit/s")
        title = f"One backward pass of rank 0: {RANKS} workers, {LAYERS} buckets of 4 MiB, links of {rate}"
        args.out.write_text(draw(seconds, bars, title), encoding="utf-8")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except net.LabError as error:
        print(f"bench-overlap: {error}", file=sys.stderr)
        sys.exit(error.code)
