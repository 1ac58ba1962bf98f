#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Draws what bench-net measured, as SVG files: plot.py net.jsonl FOLDER.

  net-<case>.svg     algbw against size, one line a system, with the bounds of the links drawn in
  net-speedup.svg    how much faster than the better ring, against the number of workers
"""

import json
import math
import pathlib
import sys
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 760, 430
LEFT, RIGHT, TOP, BOTTOM = 64, 176, 58, 52
INK, GREY, GRID = "#1f2933", "#616e7c", "#e4e7eb"
COLOURS = {"reduction": "#0b6e99", "gloo": "#c2571a", "ompi-ring": "#8a6d00", "ompi": "#b59b3c",
           "mpich": "#7b5ea7", "bare-loop": "#8d99a6"}
OTHERS = ["#2a9d6f", "#c0396b", "#4a5fc1", "#7a7a2a"]
NAMES = {"gloo": "gloo ring", "ompi-ring": "Open MPI ring", "ompi": "Open MPI", "mpich": "MPICH",
         "bare-loop": "bare TCP echo"}


def size_text(size):
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:g} {name}"
    return f"{size} B"


def rate_text(rate):
    """"250mbit" -> "250 Mbit/s"."""
    for unit in ("kbit", "mbit", "gbit"):
        rate = rate.replace(unit, f" {unit.capitalize()}/s")
    return rate


def step_of(top):
    """A round distance between grid lines, for about six of them."""
    raw = top / 6
    power = 10 ** math.floor(math.log10(raw))
    return next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw)


class Chart:
    """An SVG under way: x and y scales, and the elements so far."""

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

    def series(self, points, colour, width=2.0):
        """points: (x, median, low, high) with a whisker from low to high."""
        self.line([(self.x(x), self.y(m)) for x, m, _, _ in points], colour, width)
        for x, median, low, high in points:
            self.line([(self.x(x), self.y(low)), (self.x(x), self.y(high))], colour, 1)
            self.parts.append(f'<circle cx="{self.x(x):.1f}" cy="{self.y(median):.1f}" r="3.5" fill="{colour}"/>')

    def labels(self, wanted):
        """Names at the right end, pushed apart where they would touch. wanted: (y value, text, colour, bold)."""
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
    return NAMES.get(system, system.replace("reduction", "Reduction Server", 1))


def by_size(lines, title):
    """The SVG of one case."""
    lines = [r for r in lines if r["algbw_MBps_median"]]
    first = lines[0]
    systems = list(dict.fromkeys(r["system"] for r in lines))
    sizes = sorted({r["bytes"] for r in lines})
    bounds = []
    for r in lines:  # ours may have several, for different placements
        if r["system"].startswith("reduction") and r["bound_MBps"]:
            kind = "mixed bound" if r["mixed"] else "bound of the links"
            if (r["bound_MBps"], kind) not in bounds:
                bounds.append((r["bound_MBps"], kind))
    if first["ring_bound_MBps"]:
        bounds.append((first["ring_bound_MBps"], "bound of any ring"))
    top = max([r["max"] for r in lines] + [b for b, _ in bounds]) * 1.06
    where = "loopback, not shaped" if first["rate"] == "none" else (
        f"{rate_text(first['rate'])} both ways, switch queues {first['queue_ms']:g} ms")
    chart = Chart(title, f"{first['n']} workers, {first['k']} reducers; {where}; float32 sum; median and range of "
                  f"{len(first['runs'])} launches", (math.log2(sizes[0]), math.log2(sizes[-1])), top)
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
                     colours[system], 3 if ours else 2)
        wanted.append((rows[-1]["algbw_MBps_median"], name_of(system), colours[system], ours))
    chart.labels(wanted)
    return chart.svg()


def speedups(lines):
    """n -> (rate, size, speed-up of ours over the better ring) where k = n and all links are equal, for the rate and
    size with the most n."""
    groups = {}
    for r in lines:
        if r["k"] == r["n"] and r["n"] > 1 and not r["half"] and not r["delay_ms"] and r["algbw_MBps_median"]:
            groups.setdefault((r["rate"], r["queue_ms"], r["bytes"]), {}).setdefault(r["n"], {})[r["system"]] = r
    best = (None, {})
    for key, by_n in groups.items():
        found = {}
        for n, rows in by_n.items():
            rings = [rows[s] for s in ("gloo", "ompi-ring") if s in rows]
            if "reduction" in rows and rings:
                ring = max(rings, key=lambda r: r["algbw_MBps_median"])
                ours, base = rows["reduction"], ring["algbw_MBps_median"]
                found[n] = (ours["algbw_MBps_median"] / base, ours["min"] / base, ours["max"] / base)
        if len(found) > len(best[1]):
            best = (key, found)
    return best


def by_workers(lines):
    """The SVG of the speed-up, or None when fewer than two n were measured."""
    key, found = speedups(lines)
    if len(found) < 2:
        return None
    rate, queue_ms, size = key
    ns = sorted(found)
    top = max([v[2] for v in found.values()] + [2.0]) * 1.06
    chart = Chart("Speed-up over the better ring", f"as many reducers as workers, {rate_text(rate)} both ways, switch "
                  f"queues {queue_ms:g} ms; {size_text(size)}, float32 sum", (ns[0], ns[-1]), top)
    chart.axes([(n, str(n)) for n in ns], "workers", "times the better of gloo's and Open MPI's ring")
    steps = [ns[0] + (ns[-1] - ns[0]) * i / 60 for i in range(61)]
    chart.line([(chart.x(n), chart.y(2 * (n - 1) / n)) for n in steps], GREY, 1.2, "6 4")
    chart.line([(LEFT, chart.y(1)), (WIDTH - RIGHT, chart.y(1))], COLOURS["gloo"], 1.2)
    chart.series([(n, *found[n]) for n in ns], COLOURS["reduction"], 3)
    chart.labels([(found[ns[-1]][0], "Reduction Server", COLOURS["reduction"], True),
                  (2 * (ns[-1] - 1) / ns[-1], "2(n-1)/n: both at bound", GREY, False),
                  (1, "the better ring", COLOURS["gloo"], False)])
    return chart.svg()


def write_all(lines, out):
    """Writes the plots that the lines are enough for; returns their paths. Plots of an earlier run go."""
    written = []
    for old in pathlib.Path(out).glob("net-*.svg"):
        old.unlink()

    def write(name, svg):
        path = pathlib.Path(out) / name
        path.write_text(svg, encoding="utf-8")
        written.append(path)

    for case in dict.fromkeys(r["case"] for r in lines):
        rows = [r for r in lines if r["case"] == case]
        if len({r["bytes"] for r in rows if r["algbw_MBps_median"]}) > 1:
            write(f"net-{case}.svg", by_size(rows, "All-reduce speed against size"))
    svg = by_workers(lines)
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
