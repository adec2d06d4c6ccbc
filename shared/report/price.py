"""Data for the page's chart of memory against time: the stages on images, and side roads."""

import math

from shared.records import scripts, stored, views
from shared.report import charts

ROOM = 0.1  # free space on each side of the points, as a share of the axis that they take
HOST = 2  # the page says "half the time"
NEAR = 1.2  # % of an axis: points no farther apart than this cover each other


def chart():
    """Return the chart as a dictionary: its points, the line of the best, and both axes."""
    stages = [r for r in stored.predicted(stored.STAGES) if "image_px" in r]
    settings = {views.setting(r) for r in stages}
    roads = [r for r in stored.predicted(stored.SIDE_ROADS) if views.setting(r) in settings]
    roads = [r for r in roads if r["script"] in scripts.side_roads()]
    points = [point(r) for r in (*stages, *roads)]
    x, ms_ticks = axis([p["ms"] for p in points])
    y, gb_ticks = axis([p["gb"] for p in points])
    for p in points:
        p["x"], p["y"] = x(p["ms"]), 100 - y(p["gb"])
        p["best"] = not any(_better(q, p) for q in points)
    for p in points:
        near = [q for q in points if all(abs(p[key] - q[key]) <= NEAR for key in "xy")]
        p["near"] = [q for q in near if q is not p]
        labels = sorted({q["script"][:2] for q in near if q["stage"]})
        p["label"] = ", ".join(labels) if p["stage"] else ""
    best = sorted((p for p in points if p["best"]), key=lambda p: -p["gb"])
    return {
        "points": points,
        "line": [(p["x"], p["y"]) for p in best],
        "ms_ticks": [(f"{ms:g}", x(ms)) for ms in ms_ticks],
        "gb_ticks": [(charts.round_size(gb), 100 - y(gb)) for gb in gb_ticks],
        "setting": " and ".join(sorted(settings)),
        "card": stages[0]["device"].removeprefix("emulated "),
        "origins": [views.origin(records, stored.PREDICTED) for records in (stages, roads)],
    }


def point(r):
    """Return a prediction as a point: figures that place it, and texts."""
    peak, script = r["train"]["device_peak_gb"], scripts.get(r["script"])
    host = views.computes_on_host(r)
    return {
        "script": script.name,
        "title": script.title,
        "stage": not script.side_road,
        "link": f"{script.folder}/train",
        "gb": peak,
        "ms": views.least_ms(r),
        "peak": views.size(peak),
        "per_image": views.duration(views.least_ms(r)),
        "parts": [(label, views.size(gb), x) for label, gb, x in charts.held(r["train"])],
        "images": r["batch_size"],
        "gpus": r["world_size"],
        "whole": views.duration(r["bound"]["ms"]) + (" and work on the host" if host else ""),
        "host": host,
        "by": r["bound"]["by"],
        "times": _times(r["bound"]["parts_ms"]),
        "beside": _times(r["bound"]["beside_ms"]),
    }


def axis(values):
    """Return a function from a value to its place on a logarithmic axis, in %; and the ticks."""
    low, high = min(values), max(values)
    room = max(high / low, 2) ** ROOM
    low, high = low / room, high * room

    def at(value):
        return 100 * math.log(value / low) / math.log(high / low)

    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)))
    ticks = [float(f"{n}e{decade}") for decade in decades for n in (1, 2, 5)]
    return at, [value for value in ticks if low <= value <= high]


def _better(one, other):
    """Return whether a point needs less memory or time than another one, and no more of the other.

    The time that the host computes is unknown: a script that computes there counts as faster than
    another one only if it takes at most 1 / HOST of the time.
    """
    unknown = one["host"] and not other["host"]
    no_more = one["gb"] <= other["gb"] and one["ms"] * (HOST if unknown else 1) <= other["ms"]
    return no_more and (one["gb"], one["ms"]) != (other["gb"], other["ms"])


def _times(parts):
    return ", ".join(f"{what} {views.duration(ms)}" for what, ms in parts.items())
