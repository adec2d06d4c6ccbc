"""What the page's chart of memory against time shows: the picture stages and their side roads."""

import math

from shared.records import scripts, stored
from shared.records.views import (
    computes_on_host,
    duration,
    least_ms,
    origin,
    read_list,
    setting,
    size,
)
from shared.report import charts

ROOM = 0.1  # left free on each side of the points, as a share of an axis before it
AND_HOST = " and work on the host"
HOST = 2  # the page says "half the time"
NEAR = 1.2  # % of an axis: points that are no farther from each other cover each other


def chart():
    """Returns the chart as a dictionary: its points, the line, and both axes.

    It is None if no prediction tells how long an update takes at least, as older ones do not.
    """
    records = [(r, stored.PREDICTED) for r in read_list(stored.PREDICTED) if "image_px" in r]
    settings = {setting(r) for r, _ in records}
    roads = [r for r in read_list(stored.SIDE_ROADS) if setting(r) in settings]
    records += [(r, stored.SIDE_ROADS) for r in roads if r["script"] in scripts.side_roads()]
    records = [(r, file) for r, file in records if r.get("bound")]
    if not records:
        return None
    found = points([r for r, _ in records])
    x, ms_ticks = axis([p["ms"] for p in found])
    y, gb_ticks = axis([p["gb"] for p in found])
    for p in found:
        p |= {"x": x(p["ms"]), "y": 100 - y(p["gb"])}
    for p in found:
        p["near"] = [q for q in found if q is not p and _covers(p, q)]
        stages = sorted({q["script"][:2] for q in (p, *p["near"]) if q["stage"]})
        p["label"] = ", ".join(stages) if p["stage"] else ""
    best = sorted((p for p in found if p["best"]), key=lambda p: -p["gb"])
    return {
        "points": found,
        "line": [(p["x"], p["y"]) for p in best],
        "ms_ticks": [(f"{ms:g}", x(ms)) for ms in ms_ticks],
        "gb_ticks": [(charts.round_size(gb), 100 - y(gb)) for gb in gb_ticks],
        "setting": " and ".join(sorted(settings)),
        "card": " or ".join({r["device"].removeprefix("simulated "): r for r, _ in records}),
        "origins": [
            origin([r for r, its in records if its == file], file)
            for file in dict.fromkeys(file for _, file in records)
        ],
    }


def points(records):
    """Returns a dictionary for each record: figures to place it by, and texts to tell.

    Its "best" tells whether no other needs less memory without more time, or the reverse. The time
    that the host takes is not in the figures: a script whose "host" computes counts as faster than
    one whose does not only if it takes at most 1 / HOST of the time.

    Args:
        records: of predictions with "bound", of one task.
    """
    found = []
    for r in records:
        peak, script = r["train"]["device_peak_gb"], scripts.get(r["script"])
        per_image = least_ms(r)
        found.append(
            {
                "script": script.name,
                "title": script.title,
                "stage": not script.side_road,
                "link": f"{script.folder}/train",
                "gb": peak,
                "ms": per_image,
                "peak": size(peak),
                "per_image": duration(per_image),
                "parts": [(label, size(gb), x) for label, gb, x in charts.held(r["train"])],
                "images": r["batch_size"],
                "gpus": r["world_size"],
                "whole": f"{duration(r['bound']['ms'])}{AND_HOST * computes_on_host(r)}",
                "host": computes_on_host(r),
                "by": r["bound"]["by"],
                "times": _times(r["bound"]["parts_ms"]),
                "beside": _times(r["bound"]["beside_ms"]),
            }
        )
    for p in found:
        p["best"] = not any(_better(q, p) for q in found)
    return found


def axis(values):
    """Returns a logarithmic axis for positive values.

    Returns:
        a function from a value to its place, in % from the least end; and round values with ticks.
    """
    low, high = min(values), max(values)
    room = max(high / low, 2) ** ROOM
    low, high = low / room, high * room

    def at(value):
        return 100 * math.log(value / low) / math.log(high / low)

    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)))
    ticks = [float(f"{n}e{decade}") for decade in decades for n in (1, 2, 5)]
    return at, [value for value in ticks if low <= value <= high]


def _better(one, other):
    """Tells whether a point needs less of one thing than another point, and no more of the rest."""
    unknown = one["host"] and not other["host"]
    no_more = one["gb"] <= other["gb"] and one["ms"] * (HOST if unknown else 1) <= other["ms"]
    return no_more and (one["gb"], one["ms"]) != (other["gb"], other["ms"])


def _covers(one, other):
    return all(abs(one[key] - other[key]) <= NEAR for key in "xy")


def _times(parts):
    return ", ".join(f"{what} {duration(ms)}" for what, ms in parts.items())
