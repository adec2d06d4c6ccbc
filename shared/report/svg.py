"""Timelines as SVG, for an HTML page that sets their colours."""

import math
from pathlib import Path

import jinja2
from markupsafe import Markup
from matplotlib.colors import to_hex

from shared.memory.blocks import CATEGORIES
from shared.predict.history import expanded
from shared.records.bars import COLORS
from shared.records.record import on_host, where
from shared.records.units import size

WIDTH, HEIGHT = 800, 290  # of one drawing, in units of the SVG
LEFT, TOP, BOTTOM = 72, 22, 26  # around the area: axis, labels of the passes, title
CHARACTER = 8  # width of a character of a label: the average is less
TEMPLATE = Path(__file__).parent / "template" / "timeline.svg.jinja"


def variable(label):
    """Returns the name of a category's colour in CSS."""
    return f"--{label.replace(' ', '-')}"


def hex_color(label):
    """Returns a category's colour, such as #1f77b4."""
    return to_hex(COLORS[label])


def timeline(record, moments):
    """Returns who held the memory during one update, as SVG.

    Args:
        record: of the prediction.
        moments: from history.condensed().
    """
    whole = expanded(moments)
    parts = [("device", "simulated GPU" if whole["host"] is not None else "computer")]
    parts += [("host", "host")] if on_host(record) else []
    drawings = []
    for part, place in parts:
        peak_at = where(record) if part == "device" else None
        drawings.append(_drawing(whole, whole[part], place, peak_at))
    template = jinja2.Template(TEMPLATE.read_text(), trim_blocks=True, lstrip_blocks=True)
    return Markup(template.render(drawings=drawings, width=WIDTH, height=HEIGHT))


def _drawing(moments, held, place, peak_at):
    """Returns what the template needs to draw one part: areas, passes, axis and peak."""
    at = moments["at"]
    total = held.sum(1)
    top = total.max() * 1.15  # room for the label of the peak
    right, floor = WIDTH - 8, HEIGHT - BOTTOM

    def x(event):
        return round(LEFT + (right - LEFT) * (event - at[0]) / max(at[-1] - at[0], 1), 1)

    def y(gb):
        return round(floor - (floor - TOP) * gb / top, 1)

    xs = [x(event) for event in at]
    below, areas = held[:, 0] * 0, []
    for label, column in zip(CATEGORIES, held.T):
        if column.any():
            above = below + column
            areas.append((variable(label), _steps(xs, [*map(y, below)], [*map(y, above)])))
            below = above
    phases = moments["phases"]
    starts = [0, *(i for i in range(1, len(at)) if phases[i] != phases[i - 1]), len(at) - 1]
    peak = int(total.argmax())
    label = size(total[peak]) + (f", {peak_at}" if peak_at else "")
    width = len(label) * CHARACTER
    return {
        "place": place,
        "left": LEFT,
        "top": TOP,
        "floor": floor,
        "right": right,
        "areas": areas,
        "passes": [
            (phases[begin], xs[begin], xs[end] - xs[begin])
            for begin, end in zip(starts, starts[1:])
            if end > begin
        ],
        "ticks": [(size(gb) if gb else "0", y(gb)) for gb in _ticks(top)],
        "peak": {
            "x": xs[peak],
            "y": y(total[peak]),
            "text": label,
            "text_x": round(min(max(xs[peak] - width / 2, LEFT), right - width), 1),
        },
    }


def _steps(xs, low, high):
    """Returns the path of an area whose height changes at xs, and holds in between."""
    there = "".join(f"H{x}V{y}" for x, y in zip(xs[1:], high[1:]))
    back = "".join(f"H{x}V{y}" for x, y in zip(reversed(xs[1:]), reversed(low[:-1])))
    return f"M{xs[0]} {high[0]}{there}V{low[-1]}{back}H{xs[0]}Z"


def _ticks(top):
    """Returns four to nine round numbers from 0 up to a size."""
    step = 10.0 ** math.floor(math.log10(top))
    step = next(s for s in (step / 5, step / 2, step, 2 * step) if top / s <= 8)
    return [n * step for n in range(int(top / step) + 1)]
