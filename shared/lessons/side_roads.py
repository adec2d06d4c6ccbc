"""The side roads on the pages: a table and the diffs for each folder, and a map of all.

What a side road costs stands on its folder's page, under its heading, after **Cost:**.
"""

import os
import re

from shared.records import markdown, scripts, stored, views
from shared.records.scripts import ROOT


def records():
    """Returns predictions for a GPU at full size, of side roads and stages, {script: record}."""
    return {**views.by_script(views.read_list(stored.SIDE_ROADS)), **stored.predictions()}


def cost(name):
    """Returns what a side road costs, as its folder's page says it."""
    script = scripts.get(name)
    text = (ROOT / script.folder / "README.md").read_text()
    _, _, rest = text.partition(f"\n### {script.file}.py\n")
    return re.search(r"^\*\*Cost:\*\* (.+)$", rest, re.M)[1]


def table(folder):
    """Returns a table of a folder's side roads: predicted at full size, measured on tiny."""
    names = scripts.side_roads({folder.name})
    measured, every = views.by_script(views.read(stored.TINY_SIDE_ROADS)[0]), records()
    host = any(views.on_host(every[name]) for name in names)
    settings = {views.setting(every[name]) for name in names}
    several = len(settings) > 1
    heading = ["side road", "changes", *["predicted for"] * several, "allocated", "", "reserved"]
    heading += [*["host"] * host, "least time", "", "tiny: allocated", "tiny: test accuracy"]
    rows = [(*heading, "what it costs")]
    for name in names:
        script, r = scripts.get(name), every[name]
        now, before = (x["train"]["device_peak_gb"] for x in (r, every[script.parent]))
        peaks = [f"**{views.size(now)}**", views.size(r["train"]["device_reserved_gb"])]
        peaks += [views.amount(r["train"]["host_peak_gb"])] if host else []
        there = measured[name]
        tiny = (views.size(there["train"]["device_peak_gb"]), views.learned(there))
        link = f"[{script.file}.py](#{script.file}py)"
        alike = views.setting(r) == views.setting(every[script.parent])
        peaks.insert(1, markdown.against(before, now) if alike else views.NOTHING)
        times = [views.least_ms(x) for x in (every[script.parent], r)]
        peaks += [views.duration(times[1]), views.change(*times) if alike else views.NOTHING]
        its = [views.setting(r)] if several else []
        rows.append((link, script.parent, *its, *peaks, *tiny, cost(name)))
    predicted = [every[name] for name in names]
    number = folder.name[:2]
    what = "full size" if several else views.setting(predicted[0])
    note = (
        "Each of these is one file, a small change of another script. Peaks per GPU while training "
        f"are predicted for {what}, and the least time for one of the "
        f"{views.unit(predicted[0])} on one GPU; the tiny model is measured on "
        f"{measured[names[0]]['device']}. `python -m shared.predict {number} --side-roads` and "
        f"`python -m shared.ladder {number} --side-roads` show them beside the stage."
    )
    from_where = [views.origin(predicted, stored.SIDE_ROADS), ""]
    from_where += [views.origin([measured[name] for name in names], stored.TINY_SIDE_ROADS)]
    return markdown.text(note, rows, markdown.folded(markdown.ORIGIN, from_where))


def diff(folder, file):
    """Returns the diff that leads to a side road, folded up."""
    script = scripts.get(f"{folder.name}/{file}")
    lines, how_much = markdown.diff(script.parent, script.name)
    return markdown.text(markdown.folded(f"The diff from {script.parent}.py: {how_much}", lines))


def overview(folder):
    """Returns the map: each stage with its side roads, and what they need at full size."""
    rows, root = [("stage", "GB", "side roads")], os.path.relpath(ROOT, folder)
    for name in (name for name in scripts.stages() if name.endswith("/train")):
        stage = scripts.get(name)
        roads = []
        for road in map(scripts.get, scripts.side_roads({stage.folder})):
            gb = records()[road.name]["train"]["device_peak_gb"]
            roads.append(f"[{road.file}]({root}/{road.folder}/README.md#{road.file}py) {gb:.2f}")
        if roads:
            gb = records()[name]["train"]["device_peak_gb"]
            link = f"[{stage.folder}]({root}/{stage.folder}/)"
            rows.append((link, f"{gb:.2f}", ", ".join(roads)))
    return markdown.text(rows)
