#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the measurements of bench-net as SVG files: plot.py net.jsonl FOLDER.

  net-<case>.svg     algbw against size, one line a system, with a plain flow and the bounds of the links drawn in
  net-speedup.svg    how much faster than the best peer, against the number of workers

The colours are those of Okabe and Ito, which colour-blind people can distinguish. Each system also has a mark of its
own, and its name stands at the end of its line.
"""

import json
import math
import pathlib
import sys
from xml.sax.saxutils import escape

from cases import COMPARABLE, TCP_PEERS, rate_text, size_text

WIDTH, HEIGHT = 800, 430
LEFT, RIGHT, TOP, BOTTOM = 64, 230, 58, 52
INK, GREY, GRID = "#1f2933", "#616e7c", "#e4e7eb"
COLOURS = {"reduction": "#0072b2", "reduction/agent": "#56b4e9", "reduction/node": "#8250c8",
           "reduction/node+malloc": "#b79be0", "reduction/local": "#003a5d", "reduction/local+malloc": "#0072b2",
           "reduction/dedicated": "#56b4e9", "gloo": "#d55e00",
           "ompi-ring": "#e69f00", "ompi": "#009e73", "mpich": "#cc79a7", "ompi-shm": "#5f6b76", "bare-loop": "#9aa5b1",
           "torch-bf16": "#8c564b", "torch-fp8": "#7f7f7f"}
OTHERS = ["#56b4e9", "#5f6b76", "#a37500"]
NAMES = {"gloo": "gloo ring", "gloo-2d": "2-D ring of gloo", "gloo-2d-phased": "2-D ring of gloo, not pipelined",
         "ompi-ring": "Open MPI ring", "ompi": "Open MPI", "mpich": "MPICH",
         "ompi-shm": "Open MPI, shared memory", "bare-loop": "bare TCP echo", "torch-bf16": "torch's gloo, bfloat16",
         "torch-fp8": "torch's gloo, fp8 all-to-all and all-gather"}
MPI_OVER_TCP = ("ompi-ring", "ompi", "mpich")  # on one host MPI chooses shared memory unless told otherwise
MARKS = {"reduction": "circle", "gloo": "square", "ompi-ring": "up", "ompi": "down", "mpich": "diamond"}


def step_of(top):
    """Returns a round distance between grid lines, for about six of them."""
    raw = top / 6
    power = 10 ** math.floor(math.log10(raw))
    return next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw)


class Chart:
    """An SVG that is being built: x and y scales, and the elements so far."""

    def __init__(self, title, subtitle, x_range, y_top):
        self.x0, self.x1 = x_range
        self.top = y_top
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" '
            'font-family="Helvetica, Arial, sans-serif" font-size="12">',
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        ]
        self.text(LEFT, 24, title, size=15, bold=True)
        self.text(LEFT, 42, subtitle, colour=GREY)

    def x(self, v):
        span = (self.x1 - self.x0) or 1
        return LEFT + 16 + (v - self.x0) / span * (WIDTH - LEFT - RIGHT - 32)

    def y(self, v):
        return HEIGHT - BOTTOM - v / self.top * (HEIGHT - TOP - BOTTOM)

    def text(self, x, y, text, colour=INK, anchor="start", size=12, bold=False):
        weight = ' font-weight="bold"' if bold else ""
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" text-anchor="{anchor}" font-size="{size}"'
                          f'{weight}>{escape(text)}</text>')

    def line(self, points, colour, width=2.0, dash=None):
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"{dashed}/>')

    def axes(self, ticks, x_label, y_label):
        """ticks: (value, text) along x."""
        step = step_of(self.top)
        v = 0.0
        while v <= self.top * 1.0001:
            self.line([(LEFT, self.y(v)), (WIDTH - RIGHT, self.y(v))], GRID, 1)
            self.text(LEFT - 8, self.y(v) + 4, f"{v:g}", GREY, "end")
            v += step
        for value, text in ticks:
            self.text(self.x(value), HEIGHT - BOTTOM + 18, text, GREY, "middle")
        self.text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, x_label, GREY, "middle")
        middle = (TOP + HEIGHT - BOTTOM) / 2
        self.parts.append(f'<text transform="translate(16 {middle:.1f}) rotate(-90)" fill="{GREY}" '
                          f'text-anchor="middle">{escape(y_label)}</text>')

    def mark(self, x, y, shape, colour):
        """Adds a point in the shape of its system."""
        outlines = {"square": "-4,-4 4,-4 4,4 -4,4", "up": "0,-5 5,4 -5,4", "down": "0,5 5,-4 -5,-4",
                    "diamond": "0,-5.5 5.5,0 0,5.5 -5.5,0"}
        if shape in outlines:
            self.parts.append(f'<polygon transform="translate({x:.1f} {y:.1f})" points="{outlines[shape]}" '
                              f'fill="{colour}"/>')
        else:
            fill = "#ffffff" if shape == "ring" else colour
            self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{fill}" stroke="{colour}" '
                              'stroke-width="1.5"/>')

    def series(self, points, colour, width=2.0, shape="circle"):
        """points: (x, median, low, high) with a whisker from low to high."""
        self.line([(self.x(x), self.y(m)) for x, m, _, _ in points], colour, width)
        for x, median, low, high in points:
            self.line([(self.x(x), self.y(low)), (self.x(x), self.y(high))], colour, 1)
            self.mark(self.x(x), self.y(median), shape, colour)

    def labels(self, wanted):
        """Writes names at the right end, moved apart if they would overlap. wanted: (y value, text, colour, bold)."""
        places = sorted(((self.y(v), text, colour, bold) for v, text, colour, bold in wanted), key=lambda p: p[0])
        ys = [p[0] for p in places]
        for _ in range(200):
            for i in range(1, len(ys)):
                overlap = 15 - (ys[i] - ys[i - 1])
                if overlap > 0:
                    ys[i - 1] -= overlap / 2
                    ys[i] += overlap / 2
        for y, (_, text, colour, bold) in zip(ys, places):
            self.text(WIDTH - RIGHT + 6, y + 4, text, colour, bold=bold)

    def svg(self):
        return "\n".join(self.parts + ["</svg>"]) + "\n"


def colours_of(names):
    free = iter(OTHERS * 4)
    return {n: COLOURS.get(n) or next(free) for n in names}


def name_of(system):
    text = NAMES.get(system, system.replace("reduction", "Reduction Server", 1))
    words = {"/agent": ", with agent", "/local": ", default", "/node": ", shared memory, then reducers",
             "/dedicated": ", dedicated", "/flat": ", flat", "/groups": ", groups", "/mixture": ", mixture",
             "/declared": ", groups without relays", "/tls": ", TLS", "/grpc": ", gRPC", "+tls": " + TLS",
             "+malloc": ", malloc()"}
    for short, long in words.items():
        text = text.replace(short, long)
    return text


def by_size(lines, title):
    """Returns the SVG of one case."""
    lines = [r for r in lines if r["algbw_MBps_median"]]
    first = lines[0]
    systems = list(dict.fromkeys(r["system"] for r in lines))
    sizes = sorted({r["bytes"] for r in lines})
    bounds = []
    if first["bound_MBps"]:
        bounds.append((first["line_MBps"], "plain TCP flow"))
    for r in lines:  # our system may have several lines, for different placements
        if r["system"].startswith("reduction") and r["bound_MBps"]:
            kind = "links allow, mixed" if r["mixed"] else "links allow"
            if (r["bound_MBps"], kind) not in bounds:
                bounds.append((r["bound_MBps"], kind))
    if first["ring_bound_MBps"]:
        bounds.append((first["ring_bound_MBps"], "links allow a ring"))
    top = max([r["max"] for r in lines] + [b for b, _ in bounds]) * 1.06
    where = "loopback, not shaped" if first["rate"] == "none" else (
        f"{rate_text(first['rate'])} both ways, switch queues {first['queue_ms']:g} ms")
    if first["delay_us"]:
        where += f", {first['delay_us']:g} us more each way"
    runs = max(len(r["runs"]) for r in lines)
    chart = Chart(title, f"{first['n']} workers, {first['k']} reducers; {where}; float32 sum; median and range of "
                  f"{runs} launch{'es' if runs > 1 else ''}", (math.log2(sizes[0]), math.log2(sizes[-1])), top)
    chart.axes([(math.log2(s), size_text(s)) for s in sizes], "size of the all-reduce", "algbw, MB/s")
    wanted = []
    for value, name in bounds:
        chart.line([(LEFT, chart.y(value)), (WIDTH - RIGHT, chart.y(value))], GREY, 1.2, "6 4")
        wanted.append((value, f"{name} {value:.0f}", GREY, False))
    colours = colours_of(systems)
    for system in reversed(systems):
        rows = sorted((r for r in lines if r["system"] == system), key=lambda r: r["bytes"])
        ours = system == "reduction"
        chart.series([(math.log2(r["bytes"]), r["algbw_MBps_median"], r["min"], r["max"]) for r in rows],
                     colours[system], 3 if ours else 2, MARKS.get(system, "ring"))
        name = name_of(system) + (" over TCP" if first["rate"] == "none" and system in MPI_OVER_TCP else "")
        wanted.append((rows[-1]["algbw_MBps_median"], name, colours[system], ours))
    chart.labels(wanted)
    return chart.svg()


def speedups(lines):
    """Returns n -> (rate, size, speed-up of ours over the best peer) for k = n and equal links, with the rate and size
    that have the most values of n."""
    groups = {}
    for r in lines:
        plain = not (r["half"] or r["delay_us"] or r.get("rtt_ms") or "racks" in r)
        if r["k"] == r["n"] and r["n"] > 1 and plain and r["algbw_MBps_median"]:
            groups.setdefault((r["rate"], r["queue_ms"], r["bytes"]), {}).setdefault(r["n"], {})[r["system"]] = r
    best = (None, {})
    for key, by_n in groups.items():
        found = {}
        for n, rows in by_n.items():
            peers = [rows[s] for s in TCP_PEERS if s in rows]
            if "reduction" in rows and peers:
                ours, base = rows["reduction"], max(r["algbw_MBps_median"] for r in peers)
                found[n] = (ours["algbw_MBps_median"] / base, ours["min"] / base, ours["max"] / base)
        if len(found) > len(best[1]):
            best = (key, found)
    return best


def by_workers(lines):
    """Returns the SVG of the speed-up, or None if fewer than two values of n were measured."""
    key, found = speedups(lines)
    if len(found) < 2:
        return None
    rate, queue_ms, size = key
    ns = sorted(found)
    top = max([v[2] for v in found.values()] + [2.0]) * 1.06
    chart = Chart("Speed-up over the best peer", f"as many reducers as workers, {rate_text(rate)} both ways, switch "
                  f"queues {queue_ms:g} ms; {size_text(size)}, float32 sum", (ns[0], ns[-1]), top)
    chart.axes([(n, str(n)) for n in ns], "workers", "algbw by that of the best ring or MPI")
    steps = [ns[0] + (ns[-1] - ns[0]) * i / 60 for i in range(61)]
    chart.line([(chart.x(n), chart.y(2 * (n - 1) / n)) for n in steps], GREY, 1.2, "6 4")
    chart.line([(LEFT, chart.y(1)), (WIDTH - RIGHT, chart.y(1))], COLOURS["gloo"], 1.2)
    chart.series([(n, *found[n]) for n in ns], COLOURS["reduction"], 3)
    chart.labels([(found[ns[-1]][0], "Reduction Server", COLOURS["reduction"], True),
                  (2 * (ns[-1] - 1) / ns[-1], "2(n-1)/n: both at their bound", GREY, False),
                  (1, "the best peer", COLOURS["gloo"], False)])
    return chart.svg()


def write_all(lines, out):
    """Writes all plots that the lines suffice for, and removes plots of earlier runs. Returns the paths."""
    written = []
    for old in pathlib.Path(out).glob("net-*.svg"):
        old.unlink()

    def write(name, svg):
        path = pathlib.Path(out) / name
        path.write_text(svg, encoding="utf-8")
        written.append(path)

    def write_case(name, rows, title):
        if len({r["bytes"] for r in rows if r["algbw_MBps_median"]}) > 1:
            write(f"net-{name}.svg", by_size(rows, title))

    for case in dict.fromkeys(r["case"] for r in lines if "system" in r):
        rows = [r for r in lines if r.get("case") == case and "system" in r]
        if "racks" in rows[0]:
            continue  # a table shows them: each of ours has a bound of its own
        if case != "loopback":
            write_case(case, rows, "All-reduce speed against size")
            continue
        for key, (work, systems) in COMPARABLE.items():
            same = [r for r in rows if r["system"] in systems]
            write_case(f"{case}-{key}", same, f"All-reduce on one machine: {work}")
    svg = by_workers([r for r in lines if "system" in r])
    if svg:
        write("net-speedup.svg", svg)
    return written


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1].startswith("-"):
        print(__doc__, file=sys.stdout if "--help" in sys.argv or "-h" in sys.argv else sys.stderr)
        sys.exit(0 if "--help" in sys.argv or "-h" in sys.argv else 2)
    with open(sys.argv[1], encoding="utf-8") as f:
        measured = [row for row in map(json.loads, f) if "system" in row]
    print("\n".join(map(str, write_all(measured, sys.argv[2]))))
