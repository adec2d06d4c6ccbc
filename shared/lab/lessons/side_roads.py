"""The side roads on the pages: tables for each folder, and a map of all."""

import os

from shared.lab.records import formats, markdown, measured, reading, scripts, stored
from shared.lab.records.scripts import ROOT


def records():
    """Return the predictions for a GPU at full size, of side roads and stages, {script: record}."""
    return reading.by_script(stored.predicted(stored.SIDE_ROADS, stored.STAGES))


def table(folder):
    """Return a short table of a folder's side roads; their docstrings explain them."""
    tiny, every = reading.by_script(reading.read(stored.TINY_SIDE_ROADS)[0]), records()
    names = scripts.side_roads({folder.name})
    bound, on_gpu = "arithmetic and bytes (bound)", f"update on {measured.gpu()}"
    timed = any(map(measured.updates, names))
    rows = [("file", "lines", "peak", "change", *((on_gpu,) if timed else ()), bound)]
    rows[0] += ("tiny", "what it costs")
    for name in names:
        script = scripts.get(name)
        r, parent = every[name], every[script.parent]
        peaks = [x["train"]["device_peak_gb"] for x in (parent, r)]
        times = [reading.least_ms(x) for x in (parent, r)]
        link = f"[{script.file}.py]({script.file}.py): {script.idea}"
        stage, _, file = script.parent.removesuffix("/train").partition("/")
        lines = f"{markdown.changed(script.parent, name)} from {file or stage[:2]}"
        cells = [lines, formats.size(peaks[1])]
        least = formats.duration(times[1])
        if reading.setting(r) != reading.setting(parent):
            cells.append(reading.setting(r))
        elif r["device"] != parent["device"]:
            cells.append(r["device"])
        else:
            cells.append(markdown.compared(*peaks))
            least = markdown.compared(*times)
        if timed:
            cells.append(_measured(name, script.parent))
        cells.append("" if measured.updates(name) else least)
        rows.append((link, *cells, formats.learned(tiny[name]), script.cost))
    note = "One file each. Memory is predicted, the tiny model's accuracy is measured."
    return markdown.text(note, rows)


def _measured(name, parent):
    """Return the measured time of an update beside that of the parent, as text."""
    runs = [measured.updates(script) for script in (parent, name)]
    if not all(runs):
        return ""
    return f"{markdown.compared(*(run.median for run in runs))}: {measured.spread(runs[1])} ms"


def overview(folder):
    """Return the map: the side roads of each stage."""
    rows, root = [("stage", "side roads")], os.path.relpath(ROOT, folder)
    for name in (name for name in scripts.stages() if name.endswith("/train")):
        stage = scripts.get(name)
        roads = map(scripts.get, scripts.side_roads({stage.folder}))
        links = [f"[{road.file}]({root}/{road.name}.py)" for road in roads]
        if links:
            rows.append((f"[{stage.folder}]({root}/{stage.folder}/)", ", ".join(links)))
    return markdown.text(rows)
