# SPDX-License-Identifier: Apache-2.0
"""Draws what elastic.py has measured: three charts over the same steps, and a line for each change of the reducers."""

import bisect
from xml.sax.saxutils import escape

WIDTH, LEFT, RIGHT = 860, 66, 20
CHARTS = {"loss": (84, 150), "reducers": (300, 64), "step": (412, 120)}  # name: top and height
HEIGHT = 590
STYLE = """
text { font: 12px system-ui, sans-serif; fill: #333 } .title { font-size: 15px; font-weight: 600 }
.grey { fill: #666 } .grid { stroke: #ddd } .mark { stroke: #999; stroke-dasharray: 2 3 }
.mine { stroke: #7db7e8; fill: none; stroke-width: 4 } .other { stroke: #7a2e00; fill: none; stroke-width: 1 }
.alive { fill: #2f9e62; fill-opacity: .35; stroke: #2f9e62; stroke-width: 1.5 } .dot { fill: #2a78c2 }
.start { fill: #1d7a48 } .drain { fill: #9a6a00 } .kill { fill: #c0392b } text.start, text.drain, text.kill
{ font-weight: 600 }
@media (prefers-color-scheme: dark) {
 text { fill: #ddd } .grey { fill: #aaa } .grid { stroke: #444 } .mine { stroke: #2f6ea8 } .other { stroke: #ffc49b }
 .start { fill: #5fd08f } .drain { fill: #e6b84d } .kill { fill: #ff7b6b }
}
"""


class Drawing:
    """An SVG that is being built. All charts have the same x axis, of `steps` steps."""

    def __init__(self, steps):
        self.steps, self.parts = steps, []

    def x(self, step):
        return LEFT + step / max(1, self.steps - 1) * (WIDTH - LEFT - RIGHT)

    @staticmethod
    def y(chart, value, top):
        at, height = CHARTS[chart]
        return at + height * (1 - value / top)

    def text(self, x, y, text, kind="", anchor="start"):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">{escape(text)}</text>')

    def line(self, points, kind):
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.parts.append(f'<polyline points="{path}" class="{kind}"/>')

    def across(self, kind, x0, y0, x1, y1):
        self.parts.append(f'<line class="{kind}" x1="{x0:.1f}" y1="{y0:.1f}" x2="{x1:.1f}" y2="{y1:.1f}"/>')

    def axis(self, chart, title, values, top, unit=""):
        self.text(LEFT, CHARTS[chart][0] - (26 if chart == "reducers" else 10), title)
        for v in values:
            self.across("grid", LEFT, self.y(chart, v, top), WIDTH - RIGHT, self.y(chart, v, top))
            self.text(LEFT - 8, self.y(chart, v, top) + 4, f"{v:g}{unit}", "grey", "end")

    def svg(self):
        return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}">',
                          f"<style>{STYLE}</style>", *self.parts, "</svg>"]) + "\n"  # fmt: skip


def round_step(top, parts=4):
    """Returns a round distance between grid lines, for at most that many parts."""
    return next(m * 10**e for e in range(-6, 12) for m in (1, 2, 5) if top / (m * 10**e) <= parts)


def grid_to(top, parts=4):
    """Returns grid lines from 0 on, the last one at or above `top`."""
    step = round_step(top, parts)
    return [i * step for i in range(int(-(-top // step)) + 1)]


def thinned(values, most=500):
    """Returns (index, value) of so many values: of each group of neighbours the first."""
    every = max(1, len(values) // most)
    return [(i, values[i]) for i in range(0, len(values), every)]


def draw(mine, other, changes, least):
    """Returns the SVG. mine, other: (when it ended, seconds, loss) of each step; changes: (when, what, slot); least:
    reducers at the start. Times are seconds since the epoch."""
    d, ends = Drawing(len(mine)), [end for end, _, _ in mine]
    marks = [(min(bisect.bisect(ends, at), len(mine) - 1), what, slot) for at, what, slot in changes]
    equal = [m[2] for m in mine] == [o[2] for o in other]
    d.text(LEFT, 24, "A training whose reducers come and go", "title")
    d.text(LEFT, 42, f"four ranks, {len(mine)} steps, real processes on loopback of one machine", "grey")
    for step, what, slot in marks:
        d.across("mark", d.x(step), CHARTS["loss"][0], d.x(step), HEIGHT - 58)
    draw_losses(d, [m[2] for m in mine], [o[2] for o in other], equal)
    draw_reducers(d, marks, least)
    draw_times(d, [m[1] for m in mine])
    for step in grid_to(len(mine) - 1, 6):
        if step < len(mine):
            d.text(d.x(step), HEIGHT - 40, f"{step:,}", "grey", "middle")
    d.text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 20, "step", "grey", "middle")
    return d.svg()


def draw_losses(d, mine, other, equal):
    lines = grid_to(max(mine))
    d.axis("loss", "loss", lines, lines[-1])
    d.line([(d.x(i), d.y("loss", v, lines[-1])) for i, v in thinned(mine)], "mine")
    d.line([(d.x(i), d.y("loss", v, lines[-1])) for i, v in thinned(other)], "other")
    at = WIDTH - RIGHT - 170
    for i, (kind, name) in enumerate((("mine", "reducers come and go"), ("other", "four reducers that stay"))):
        d.across(kind, at - 32, 20 + 18 * i, at - 8, 20 + 18 * i)
        d.text(at, 24 + 18 * i, name)
    d.text(at, 60, "equal bit for bit" if equal else "THEY DIFFER", "grey" if equal else "kill")


def draw_reducers(d, marks, least):
    """The number of reducers that have a share, and what has changed it."""
    alive, at, points, top = least, 0, [], 5
    base = d.y("reducers", 0, top)
    most = least + max(sum(1 if what == "start" else -1 for _, what, _ in marks[:n]) for n in range(len(marks) + 1))
    d.axis("reducers", "reducers that sum", range(0, most + 1, 2), top)
    for i, (step, what, slot) in enumerate(marks):
        points += [(d.x(at), d.y("reducers", alive, top)), (d.x(step), d.y("reducers", alive, top))]
        alive, at = alive + (1 if what == "start" else -1), step
        height = CHARTS["reducers"][0] - 12 + 16 * (i % 2)  # neighbours may be close
        d.text(d.x(step) + 3, height, f"{'+' if what == 'start' else '−'}r{slot} {what}", what)
    points += [(d.x(at), d.y("reducers", alive, top)), (d.x(d.steps - 1), d.y("reducers", alive, top))]
    d.line([(d.x(0), base), *points, (d.x(d.steps - 1), base)], "alive")


def draw_times(d, took):
    lines = grid_to(1e3 * max(took), 3)
    d.axis("step", "time of each step, ms", lines, lines[-1])
    for step, seconds in enumerate(took):
        at = d.y("step", 1e3 * seconds, lines[-1])
        d.parts.append(f'<circle class="dot" cx="{d.x(step):.1f}" cy="{at:.1f}" r="1.3"/>')
