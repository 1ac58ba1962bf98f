#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Draws one operation of a trace as a picture.

    reductionctl trace job.yaml unix:/run/reduction/status.sock --output trace.json
    bench/trace_svg.py trace.json --op 812 --out trace.svg

A row for each rank at each process: its chunks, one below the other if they overlap, with their phases in colours. The
colours are those of a light and of a dark page.
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
}
STYLE = """
text { font: 11px system-ui, sans-serif; fill: #333 } .title { font-size: 13px; font-weight: 600 }
.grid { stroke: #ccc } .name { font-weight: 600 }
.send { fill: #2a78c2 } .away { fill: #c9dcef }
.receive { fill: #2f9e62 } .wait { fill: #e6b84d } .result { fill: #8a5fbf }
@media (prefers-color-scheme: dark) { text { fill: #ddd } .grid { stroke: #444 } .away { fill: #34506b } }
"""
LEFT, WIDTH, BAR, TOP = 90, 800, 3, 62


def rows_of(slices):
    """Distributes slices over rows so that none overlap: [(row, slice)]."""
    ends, placed = [], []
    for s in sorted(slices, key=lambda s: (s["ts"], s["args"]["chunk"])):
        row = next((i for i, end in enumerate(ends) if end <= s["ts"]), len(ends))
        ends[row:row + 1] = [s["ts"] + s["dur"]]
        placed.append((row, s))
    return len(ends), placed


def step(span):
    """A round distance of lines for about six of them."""
    for scale in (10**i for i in range(9)):
        for n in (1, 2, 5):
            if span / (n * scale) <= 7:
                return n * scale
    raise SystemExit("trace_svg: the operation is too long")


def draw(trace, op):
    names = {e["pid"]: e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "process_name"}
    slices = [e for e in trace["traceEvents"] if e["ph"] == "X" and e["args"]["op"] == op]
    if not slices:
        raise SystemExit(f"trace_svg: the trace has no operation {op}")
    start = min(s["ts"] for s in slices)
    span = max(s["ts"] + s["dur"] for s in slices) - start or 1
    x = lambda ts: LEFT + (ts - start) * WIDTH / span  # noqa: E731
    groups = collections.defaultdict(list)
    for s in slices:
        groups[s["cat"] != "worker", s["pid"], s["args"]["rank"]].append(s)
    body, y, before = [], TOP, None
    for (_, pid, rank), members in sorted(groups.items()):
        if pid != before:
            y += 14
            body.append(f'<text class="name" x="8" y="{y - 3}">{html.escape(names[pid])}</text>')
            before = pid
        count, placed = rows_of([s for s in members if s["name"].startswith("op ")])
        at = {(s["args"]["chunk"], s["tid"]): row for row, s in placed}
        body.append(f'<text x="20" y="{y + count * BAR / 2 + 4:.0f}">rank {rank}</text>')
        for s in members:
            if s["name"] not in PHASES:
                continue
            row = at[s["args"]["chunk"], s["tid"]]
            title = f"chunk {s['args']['chunk']}, rank {rank}: {s['name']}, {s['dur']} us"
            body.append(f'<rect class="{PHASES[s["name"]][0]}" x="{x(s["ts"]):.1f}" y="{y + row * BAR}" '
                        f'width="{max(s["dur"] * WIDTH / span, 0.6):.1f}" height="{BAR - 0.5}">'
                        f"<title>{title}</title></rect>")
        y += count * BAR + 6
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
    ranks, chunks = ({s["args"][key] for s in slices} for key in ("rank", "chunk"))
    error = trace["otherData"]["clock_error_us"]
    title = f"Operation {op}: {len(ranks)} ranks, {len(chunks)} chunks; clocks aligned to {error / 1000:g} ms"
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 30} {y + 10}" role="img" '
            f'aria-label="{title}">\n<style>{STYLE}</style>\n<text class="title" x="8" y="18">{title}</text>\n'
            + "\n".join(legend + lines + body) + "\n</svg>\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("trace", help="file of reductionctl trace")
    parser.add_argument("--op", type=int, help="number of the operation [the first one]")
    parser.add_argument("--out", help="file of the picture [standard output]")
    args = parser.parse_args()
    trace = json.loads(pathlib.Path(args.trace).read_text())
    ops = sorted({e["args"]["op"] for e in trace["traceEvents"] if e["ph"] == "X"})
    if not ops:
        raise SystemExit(f"trace_svg: {args.trace} has no operation")
    text = draw(trace, ops[0] if args.op is None else args.op)
    if args.out:
        pathlib.Path(args.out).write_text(text)
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
