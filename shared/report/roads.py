"""What the page's map shows: each stage of the ladder, and the side roads that leave it."""

import math

from shared.lessons import side_roads
from shared.records import scripts, stored
from shared.records.views import change, least_ms, less, on_host, origin, setting, size, unit
from shared.report import charts

# On the logarithmic scale, a bar has no length at this share of the longest bar of its model.
LEAST = 1e-3


def drawn():
    """Returns the map: its rungs, the length of each model's scale, and where figures are from."""
    records = side_roads.records()
    tops = _tops(records)
    return {
        "rungs": rungs(records, tops),
        "scales": [(model, size(most)) for model, most in tops.items()],
        "origins": origins(records),
    }


def rungs(records, tops):
    """Returns a dictionary for each stage, in the ladder's order.

    Each has what place() tells, and "roads", a list of what road() tells. A stage without side
    roads is there, too: the map is of the whole ladder.

    Args: as of place().
    """
    found = []
    for name in (name for name in scripts.stages() if name in records):
        script = scripts.get(name)
        # The side roads of a folder leave its last stage.
        last = name == scripts.stages([script.folder])[-1]
        names = scripts.side_roads({script.folder}) if last else []
        its = [road(x, records, tops) for x in names if x in records]
        found.append({**place(name, records, tops), "roads": its})
    return found


def place(name, records, tops):
    """Returns what is told of a stage or a side road: its words, its peak, and its bar.

    Args:
        name: of the script.
        records: {script: record} of predictions.
        tops: {model with its inputs: the largest peak of it, in GB}.
    """
    script, r = scripts.get(name), records[name]
    train, most = r["train"], tops[setting(r)]
    peak = train["device_peak_gb"]
    log = 1 + math.log(peak / most) / -math.log(LEAST)
    return {
        "script": name,
        "file": f"{script.file}.py",
        "title": script.title,
        "idea": script.idea,
        "model": setting(r),
        "peak": size(peak),
        "host": size(train["host_peak_gb"]) if on_host(r) else None,
        "at": {"lin": 100 * peak / most, "log": 100 * max(0.0, log)},
        "parts": [(label, share) for label, _, share in charts.held(train)],
        "gpus": r["world_size"],
    }


def road(name, records, tops):
    """Returns what is told of a side road: place(), what it changes, and what that costs.

    The peak and the least time stand beside its parent's, where both are of one model; the others
    are None. "time" is None, too, if a prediction does not tell it.

    Args: as of place().
    """
    script = scripts.get(name)
    r, parent = records[name], records.get(script.parent)
    alike = parent is not None and setting(r) == setting(parent)
    before, now = (x and x["train"]["device_peak_gb"] for x in (alike and parent, r))
    timed = alike and r.get("bound") and parent.get("bound")
    return {
        **place(name, records, tops),
        "parent": script.parent,
        "stage": script.parent if script.parent in scripts.stages() else None,
        "peak_change": _against(before, now) if alike else None,
        "time": _against(least_ms(parent), least_ms(r)) if timed else None,
        "unit": unit(r).removesuffix("s"),
        "cost": side_roads.cost(name),
    }


def origins(records):
    """Returns where the figures come from, in Markdown, a text for each file."""
    ladder = list(stored.predictions().values())
    roads = [records[name] for name in scripts.side_roads() if name in records]
    groups = ((ladder, stored.PREDICTED), (roads, stored.SIDE_ROADS))
    return [origin(group, file) for group, file in groups if group]


def _tops(records):
    """Returns {model with its inputs: the largest peak of it, in GB}, the ladder's first."""
    tops = {}
    for name in [*scripts.stages(), *scripts.side_roads()]:
        if name in records:
            gb, model = records[name]["train"]["device_peak_gb"], setting(records[name])
            tops[model] = max(gb, tops.get(model, 0))
    return tops


def _against(before, now):
    """Writes a figure beside the one before it: "the same", "+12.3%" or "2.4x less"."""
    if change(before, now) in ("+0.0%", "-0.0%"):
        return "the same" if now == before else "nearly the same"
    if now >= 2 * before:
        return f"{now / before:.1f}x more"
    return less(before, now) if before >= 2 * now else change(before, now)
