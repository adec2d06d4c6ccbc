"""Data for the page's map: each stage of the ladder, and its side roads."""

import math

from shared.lessons import side_roads
from shared.records import markdown, scripts, stored
from shared.records.views import least_ms, on_host, origin, setting, size, unit
from shared.report import charts

# On the logarithmic scale, a bar of this share of its model's longest bar has no length.
LEAST = 1e-3


def drawn():
    """Return the map: its stages, the scale of each model, and the origins of the figures.

    A stage is what place() returns and, as "roads", a list of what road() returns. Stages without
    side roads are included: the map shows the whole ladder.
    """
    records = side_roads.records()
    stages = [name for name in scripts.stages() if name in records]
    roads = [name for name in scripts.side_roads() if name in records]
    tops = {}
    for r in (records[name] for name in (*stages, *roads)):
        tops[setting(r)] = max(r["train"]["device_peak_gb"], tops.get(setting(r), 0))
    places = []
    for name in stages:
        folder = scripts.get(name).folder
        beside = []
        if name == scripts.stages([folder])[-1]:  # which the side roads of a folder leave
            beside = [x for x in roads if scripts.get(x).folder == folder]
        of_stage = [road(x, records, tops) for x in beside]
        places.append({**place(name, records, tops), "roads": of_stage})
    ladder, beside = stored.predictions().values(), [records[name] for name in roads]
    groups = list(ladder), beside
    return {
        "stages": places,
        "scales": [(model, size(most)) for model, most in tops.items()],
        "origins": [origin(group, stored.PREDICTED) for group in groups if group],
    }


def place(name, records, tops):
    """Return the data of a stage or a side road: its texts, its peak, and its bar.

    tops is {model with its inputs: the largest peak of it, in GB}.
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
    """Return the data of a side road: place(), what it changes, and what that costs.

    The peak and the least time are compared with the parent's if both are of one model; otherwise
    they are None. "time" is also None if a prediction has no bound.
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
        "peak_change": markdown.compared(before, now) if alike else None,
        "time": markdown.compared(least_ms(parent), least_ms(r)) if timed else None,
        "unit": unit(r).removesuffix("s"),
        "cost": script.cost,
    }
