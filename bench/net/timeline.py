#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Draws when the links of a ring and of reducers are busy in one all-reduce: timeline.py FILE.svg.

The picture follows from the formulas: 4 workers, S bytes, B bytes a second in each direction of each link. It contains
no measurement. bench/net/plots/timeline.svg is its output.
"""

import sys
from xml.sax.saxutils import escape

from plot import COLOURS, GREY, GRID, INK

N = 4  # workers, and reducers
CHUNKS = 32  # of S bytes, in the picture; a real operation has more
WIDTH, LEFT, RIGHT = 800, 178, 24
END = 1.62  # of the time axis, in S/B
BAR, GAP = 20, 5
OUT, BACK, RING, GATHER = COLOURS["reduction"], COLOURS["reduction/agent"], COLOURS["gloo"], COLOURS["ompi-ring"]


class Picture:
    """An SVG that is being built; y is where the next row begins."""

    def __init__(self):
        self.parts, self.y = [], 0

    @staticmethod
    def x(time):
        return LEFT + time / END * (WIDTH - LEFT - RIGHT)

    def text(self, x, y, text, colour=INK, anchor="start", size=12, bold=False):
        weight = ' font-weight="bold"' if bold else ""
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" text-anchor="{anchor}" font-size="{size}"'
                          f'{weight}>{escape(text)}</text>')

    def row(self, label, blocks):
        """blocks: (begin, end, colour, text or "")."""
        self.text(LEFT - 10, self.y + 14, label, GREY, "end")
        for begin, end, colour, text in blocks:
            width = self.x(end) - self.x(begin) - 1
            self.parts.append(f'<rect x="{self.x(begin):.1f}" y="{self.y}" width="{width:.1f}" height="{BAR}" '
                              f'fill="{colour}"/>')
            if text:
                self.text((self.x(begin) + self.x(end)) / 2, self.y + 14, text, "#ffffff", "middle", 11)
        self.y += BAR + GAP

    def heading(self, text):
        self.text(LEFT, self.y + 12, text, bold=True)
        self.y += 20

    def end_of(self, time, top, text):
        """Marks the end of an all-reduce, from `top` down to the rows so far."""
        x = self.x(time)
        self.parts.append(f'<polyline points="{x:.1f},{top} {x:.1f},{self.y}" fill="none" stroke="{INK}" '
                          'stroke-width="1.5"/>')
        self.text(x + 5, top + 14, text, bold=True)

    def axis(self):
        top = self.y + 4
        self.parts.append(f'<polyline points="{LEFT},{top} {WIDTH - RIGHT},{top}" fill="none" stroke="{GREY}"/>')
        for quarter in range(7):
            x = self.x(quarter / 4)
            self.parts.append(f'<polyline points="{x:.1f},{top} {x:.1f},{top + 5}" fill="none" stroke="{GREY}"/>')
            self.text(x, top + 19, f"{quarter / 4:g}", GREY, "middle")
        self.text((LEFT + WIDTH - RIGHT) / 2, top + 37, "time, in S/B: 1 is the time that one link needs for S bytes",
                  GREY, "middle")
        self.y = top + 46

    def svg(self):
        height = self.y
        head = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} '
                f'{height}" font-family="Helvetica, Arial, sans-serif" font-size="12">',
                f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>']
        for quarter in range(7):
            x = self.x(quarter / 4)
            head.append(f'<polyline points="{x:.1f},54 {x:.1f},{height - 42}" fill="none" stroke="{GRID}"/>')
        return "\n".join(head + self.parts + ["</svg>"]) + "\n"


def ring():
    """Draws the steps of a ring: n - 1 of reduce-scatter and n - 1 of all-gather, S/n bytes each way in each."""
    steps = 2 * (N - 1)
    return [(i / N, (i + 1) / N, RING if i < N - 1 else GATHER, f"S/{N}") for i in range(steps)]


def chunks(colour, delay):
    return [((i + delay) / CHUNKS, (i + 1 + delay) / CHUNKS, colour, None) for i in range(CHUNKS)]


def draw():
    p = Picture()
    p.text(LEFT, 24, f"One all-reduce of S bytes, {N} workers", size=15, bold=True)
    p.text(LEFT, 42, "Each link carries B bytes a second each way. Drawn from the formulas, not measured.", GREY)
    p.y = 58
    p.heading(f"Ring: {N} machines. Reduce-scatter, then all-gather")
    top = p.y
    p.row("each worker sends", ring())
    p.row("each worker receives", ring())
    p.end_of(2 * (N - 1) / N, top, f"{2 * (N - 1) / N:g}")
    p.y += 8
    p.heading(f"Reducers: {2 * N} machines, {N} workers and {N} reducers")
    top = p.y
    p.row("each worker sends", chunks(OUT, 0))
    p.row("each worker receives", chunks(BACK, 1))
    p.row("each reducer receives", chunks(OUT, 0))
    p.row("each reducer sends", chunks(BACK, 1))
    p.end_of(1 + 1 / CHUNKS, top, "1, and one chunk")
    p.text(p.x(1 + 1 / CHUNKS) + 14, top + 40, "gradients go out", OUT)
    p.text(p.x(1 + 1 / CHUNKS) + 14, top + 58, "sums come back", BACK)
    p.axis()
    return p.svg()


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print(__doc__, file=sys.stdout if "--help" in sys.argv or "-h" in sys.argv else sys.stderr)
        sys.exit(0 if "--help" in sys.argv or "-h" in sys.argv else 2)
    with open(sys.argv[1], "w", encoding="utf-8") as f:
        f.write(draw())
