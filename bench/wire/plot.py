#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the trainings of train.py as SVG files: plot.py wire-train.jsonl FOLDER.

  wire-<model>.svg   validation loss against steps, one line for each encoding, the mean over seeds

The whisker at the end of float32's line is the range of its runs, with ranks in either order.
"""

import json
import math
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "net"))

from plot import BOTTOM, GREY, GRID, HEIGHT, INK, LEFT, RIGHT, TOP, WIDTH, Chart, step_of  # noqa: E402

COLOURS = {"float32": INK, "bf16": "#0072b2", "fp8": "#d55e00", "int8": "#009e73"}
LABELS = {"transformer": ("transformer", "nats a character"), "cnn": ("CNN", "cross-entropy")}


class Curves(Chart):
    """A chart whose y axis need not begin at 0."""

    def __init__(self, title, subtitle, x_range, y_range):
        super().__init__(title, subtitle, x_range, y_range[1])
        self.bottom = y_range[0]

    def y(self, v):
        return HEIGHT - BOTTOM - (v - self.bottom) / (self.top - self.bottom) * (HEIGHT - TOP - BOTTOM)

    def grid(self, ticks, x_label, y_label):
        step = step_of(self.top - self.bottom)
        for i in range(math.ceil(self.bottom / step), math.floor(self.top / step) + 1):
            self.line([(LEFT, self.y(i * step)), (WIDTH - RIGHT, self.y(i * step))], GRID, 1)
            self.text(LEFT - 8, self.y(i * step) + 4, f"{i * step:g}", GREY, "end")
        for value in ticks:
            self.text(self.x(value), HEIGHT - BOTTOM + 18, f"{value:,}", GREY, "middle")
        self.text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, x_label, GREY, "middle")
        self.text(LEFT - 40, TOP - 4, y_label, GREY)


def dash_of(way):
    return "7 4" if "feedback" in way else "2 3" if "stochastic" in way or "reversed" in way else None


def mean_curve(runs):
    """Returns [(step, mean loss over the seeds)]."""
    return [(points[0][0], statistics.fmean(loss for _, loss in points)) for points in zip(*(r["curve"] for r in runs))]


def draw(model, runs):
    """Returns the SVG of a model. Ways with fewer seeds than float32 are left out."""
    by_way = {"float32": []}
    for r in runs:
        by_way.setdefault(r["way"], []).append(r)
    base = by_way["float32"]
    by_way = {way: rows for way, rows in by_way.items() if len(rows) == len(base)}
    curves = {way: mean_curve(rows) for way, rows in by_way.items()}
    finals = [r["final"] for r in runs if r["way"].startswith("float32")]
    last = curves["float32"][-1][0]
    first = last // 5
    curves = {way: [point for point in curve if point[0] >= first] for way, curve in curves.items()}
    lowest = min(loss for curve in curves.values() for _, loss in curve)
    top = max(loss for curve in curves.values() for _, loss in curve)
    name, unit = LABELS[model]
    chart = Curves(f"Validation loss, {name} with {base[0]['parameters']:,} weights",
                   f"4 ranks; mean of {len(base)} seeds; from step {first:,} on", (first, last),
                   (lowest - (top - lowest) * 0.25, top))
    chart.grid(range(first, last + 1, first), "steps", unit)
    wanted = []
    for way in curves:  # float32 first, below the others
        colour = COLOURS[way.replace(",", "").split()[0]]
        points = [(chart.x(step), chart.y(loss)) for step, loss in curves[way]]
        chart.line(points, colour, 4 if way == "float32" else 1.6, dash_of(way))
        wanted.append((curves[way][-1][1], f"{way} {curves[way][-1][1]:.4f}", colour, way == "float32"))
    chart.line([(chart.x(last) + 6, chart.y(min(finals))), (chart.x(last) + 6, chart.y(max(finals)))], INK, 2)
    chart.labels(wanted)
    return chart.svg()


def main():
    if len(sys.argv) != 3 or sys.argv[1].startswith("-"):
        print(__doc__, file=sys.stdout if "--help" in sys.argv or "-h" in sys.argv else sys.stderr)
        return 0 if "--help" in sys.argv or "-h" in sys.argv else 2
    with open(sys.argv[1], encoding="utf-8") as f:
        runs = [json.loads(line) for line in f]
    for model in dict.fromkeys(r["model"] for r in runs):
        path = pathlib.Path(sys.argv[2]) / f"wire-{model}.svg"
        path.write_text(draw(model, [r for r in runs if r["model"] == model]), encoding="utf-8")
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
