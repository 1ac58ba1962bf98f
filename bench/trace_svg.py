#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Draws one operation of a trace as a picture.

    reductionctl trace job.yaml unix:/run/reduction/status.sock --output trace.json
    bench/trace_svg.py trace.json --op 812 --out trace.svg
    REDUCTION_GPU_TRACE=traces torchrun ... train.py
    bench/trace_svg.py traces/*.json --op 812 --out trace.svg

A row for each rank at each process: its chunks, one below the other if they overlap, with their phases in colours. For
buffers of GPUs, a row for each phase of the pieces. The colours are those of a light and of a dark page. Several files
must be of processes of one machine, since they have one clock.
"""

import argparse
import collections
import html
import json
import pathlib
import sys

PHASES = {  # name: class, what the legend says
    "send": ("send", "worker sends"),
    "wait for result": ("away", "worker waits for the result"),
    "receive": ("receive", "reducer receives"),
    "wait and sum": ("wait", "reducer waits for other ranks, and sums"),
    "send result": ("result", "reducer sends the result"),
    "copy out": ("out", "copied from the GPU"),
    "network": ("network", "on the network: sent, summed by the reducers, received"),
    "copy in": ("in", "copied to the GPU"),
}
STYLE = """
text { font: 11px system-ui, sans-serif; fill: #333 } .title { font-size: 13px; font-weight: 600 }
.grid { stroke: #ccc } .name { font-weight: 600 }
.send { fill: #2a78c2 } .away { fill: #c9dcef }
.receive { fill: #2f9e62 } .wait { fill: #e6b84d } .result { fill: #8a5fbf }
.out { fill: #2a78c2 } .network { fill: #c9dcef } .in { fill: #2f9e62 }
@media (prefers-color-scheme: dark) {
 text { fill: #ddd } .grid { stroke: #444 } .away, .network { fill: #34506b }
}
"""
LEFT, WIDTH, BAR, TOP = 90, 800, 3, 62
ROUNDING = 0.001  # us


def part(s):
    """What a slice is a part of, and its number there."""
    return next((kind, s["args"][kind]) for kind in ("chunk", "piece") if kind in s["args"])


def rows_of(slices):
    """Distributes slices over rows so that none overlap: [(row, slice)]."""
    ends, placed = [], []
    for s in sorted(slices, key=lambda s: (s["ts"], part(s))):
        row = next((i for i, end in enumerate(ends) if end <= s["ts"] + ROUNDING), len(ends))
        ends[row:row + 1] = [s["ts"] + s["dur"]]
        placed.append((row, s))
    return len(ends), placed


def lanes_of(members, rank):
    """What is drawn of a rank: [(text, slices that are distributed over rows, slices that are drawn there)]."""
    shown = [s for s in members if s["name"] in PHASES]
    if members[0]["cat"] != "gpu":
        return [(f"rank {rank}", [s for s in members if s["name"].startswith("op ")], shown)]
    lanes = [(name, [s for s in shown if s["name"] == name]) for name in PHASES]
    return [(name, of, of) for name, of in lanes if of]


def step(span):
    """A round distance of lines for about six of them."""
    for scale in (10**i for i in range(9)):
        for n in (1, 2, 5):
            if span / (n * scale) <= 7:
                return n * scale
    raise SystemExit("trace_svg: the operation is too long")


def overlap(slices):
    """The share of the time of copies in which at least one piece of the same rank is on the network."""
    copies, both = 0, 0
    for rank in {s["args"]["rank"] for s in slices}:
        network = []
        for s in sorted((s for s in slices if s["args"]["rank"] == rank), key=lambda s: s["ts"]):
            end = s["ts"] + s["dur"]
            if s["name"] == "network" and network and s["ts"] <= network[-1][1]:
                network[-1][1] = max(end, network[-1][1])
            elif s["name"] == "network":
                network.append([s["ts"], end])
        for s in slices:
            if s["args"]["rank"] == rank and s["name"] in ("copy out", "copy in"):
                copies += s["dur"]
                both += sum(max(0, min(s["ts"] + s["dur"], e) - max(s["ts"], b)) for b, e in network)
    return both / copies


def title_of(trace, op, slices, label):
    ranks, parts = ({key(s) for s in slices} for key in (lambda s: s["args"]["rank"], part))
    text = f"Operation {op}: {len(ranks)} ranks, {len(parts)} {min(parts)[0]}s; "
    if "clock_error_us" in trace["otherData"]:
        text += f"clocks aligned to {trace['otherData']['clock_error_us'] / 1000:g} ms"
    else:
        text += f"{100 * overlap(slices):.0f} % of the copies while pieces are on the network"
    return f"{label}. {text}" if label else text


def draw(trace, op, label=None):
    names = {e["pid"]: e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "process_name"}
    slices = [e for e in trace["traceEvents"] if e["ph"] == "X" and e["args"]["op"] == op]
    if not slices:
        raise SystemExit(f"trace_svg: the trace has no operation {op}")
    start = min(s["ts"] for s in slices)
    span = max(s["ts"] + s["dur"] for s in slices) - start or 1
    x = lambda ts: LEFT + (ts - start) * WIDTH / span  # noqa: E731
    groups = collections.defaultdict(list)
    for s in slices:
        groups[s["cat"] == "reducer", s["pid"], s["args"]["rank"]].append(s)
    body, y, before = [], TOP, None
    for (_, pid, rank), members in sorted(groups.items()):
        if pid != before:
            y += 14
            body.append(f'<text class="name" x="8" y="{y - 3}">{html.escape(names[pid])}</text>')
            before = pid
        for text, rows, shown in lanes_of(members, rank):
            count, placed = rows_of(rows)
            at = {(part(s), s["tid"]): row for row, s in placed}
            lane = not text.startswith("rank ")
            y += 3 if lane else 0
            bar, gap = (3 * BAR, 0.6) if lane and count <= 4 else (BAR, 0)
            body.append(f'<text x="20" y="{y + count * bar / 2 + 4:.0f}">{text}</text>')
            for s in shown:
                row = at[part(s), s["tid"]]
                title = f"{part(s)[0]} {part(s)[1]}, rank {rank}: {s['name']}, {s['dur']:g} us"
                body.append(f'<rect class="{PHASES[s["name"]][0]}" x="{x(s["ts"]):.1f}" y="{y + row * bar:g}" '
                            f'width="{max(s["dur"] * WIDTH / span - gap, 0.6):.1f}" height="{bar - 0.5}">'
                            f"<title>{title}</title></rect>")
            y += count * bar + (0 if lane else 6)
        y += 6 if lane else 0
    lines, distance = [], step(span)
    for i in range(int(span / distance) + 1):
        at = x(start + i * distance)
        lines.append(f'<line class="grid" x1="{at:.1f}" y1="{TOP - 4}" x2="{at:.1f}" y2="{y}"/>'
                     f'<text x="{at:.1f}" y="{TOP - 8}" text-anchor="middle">{i * distance / 1000:g} ms</text>')
    legend, left = [], 8
    for name, (style, text) in PHASES.items():
        if any(s["name"] == name for s in slices):
            legend.append(f'<rect class="{style}" x="{left}" y="28" width="10" height="10"/>'
                          f'<text x="{left + 14}" y="37">{text}</text>')
            left += 26 + 5.7 * len(text)
    title = html.escape(title_of(trace, op, slices, label))
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 30} {y + 10}" role="img" '
            f'aria-label="{title}">\n<style>{STYLE}</style>\n<text class="title" x="8" y="18">{title}</text>\n'
            + "\n".join(legend + lines + body) + "\n</svg>\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("trace", nargs="+", help="file of reductionctl trace, or files of REDUCTION_GPU_TRACE")
    parser.add_argument("--op", type=int, help="number of the operation [the first one]")
    parser.add_argument("--label", help="text before the title")
    parser.add_argument("--out", help="file of the picture [standard output]")
    args = parser.parse_args()
    traces = [json.loads(pathlib.Path(name).read_text()) for name in args.trace]
    trace = {**traces[0], "traceEvents": [e for t in traces for e in t["traceEvents"]]}
    ops = sorted({e["args"]["op"] for e in trace["traceEvents"] if e["ph"] == "X"})
    if not ops:
        raise SystemExit(f"trace_svg: {args.trace[0]} has no operation")
    text = draw(trace, ops[0] if args.op is None else args.op, args.label)
    if args.out:
        pathlib.Path(args.out).write_text(text)
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
