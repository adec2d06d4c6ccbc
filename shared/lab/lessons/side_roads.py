"""The side roads on the pages: tables for each folder, and a map of all."""

import os

from shared.lab.records import formats, markdown, measured, reading, scripts, stored
from shared.run.record import ROOT


def records():
    """Return the predictions for a GPU at full size, of side roads and stages, {script: record}."""
    return reading.by_script(stored.predicted(stored.SIDE_ROADS, stored.STAGES))


def table(folder):
    """Return a short table of a folder's side roads; their docstrings explain them."""
    tiny = stored.measurements(stored.TINY_SIDE_ROADS)
    predicted = records()
    names = scripts.side_roads({folder.name})
    # Without a road that was timed, the column would be empty.
    timed = any(map(measured.updates, names))
    heading = ["file", "lines", "peak", "change"]
    if timed:
        heading.append(f"update on {measured.gpu()}")
    heading += ["update, emulated", "tiny", "what it costs"]
    rows = [tuple(heading)]
    for name in names:
        script = scripts.get(name)
        r = predicted[name]
        parent = predicted[script.parent]
        peaks = [x["train"]["device_peak_gb"] for x in (parent, r)]
        times = [reading.emulated_ms(x) for x in (parent, r)]
        link = f"[{script.file}.py]({script.file}.py): {script.idea}"
        stage, _, file = script.parent.removesuffix("/train").partition("/")
        # A stage is known by its number, a parent that is a side road by its file.
        lines = f"{markdown.changed(script.parent, name)} from {file or stage[:2]}"
        cells = [lines, formats.size(peaks[1])]
        taken = f"{formats.duration(times[1])} per {reading.unit(r)[:-1]}"
        # Another model, input or card: two sizes that nothing but the technique would explain are
        # not there to compare, so the cell says what differs.
        if reading.setting(r) != reading.setting(parent):
            cells.append(reading.setting(r))
        elif r["device"] != parent["device"]:
            cells.append(r["device"])
        else:
            cells.append(markdown.compared(*peaks))
            taken = markdown.compared(*times)
        if reading.computes_on_host(r):
            taken = f"at least {taken}"
        if timed:
            cells.append(_measured(name, script.parent, reading.computes_on_host(r)))
        cells.append("" if measured.updates(name) else taken)  # measured is better
        rows.append((link, *cells, formats.learned(tiny[name]), script.cost))
    note = "Memory is emulated, the tiny model's accuracy measured."
    return markdown.text(note, rows)


def _measured(name, parent, on_host):
    """Return the measured time of an update beside that of the parent, as text.

    Where the host sets the pace, it is the number of kernels and the time that they take; but not
    for a script whose host also computes, `on_host`.
    """
    runs = [measured.updates(script) for script in (parent, name)]
    if not all(runs):
        return ""
    # The pace of the host differs by half from run to run, so such times would look like a finding.
    # Where the host also computes, it takes long for another reason.
    if all(run.paced for run in runs) and not on_host:
        kernels = markdown.compared(*(run.kernels for run in runs))
        before, now = (f"{run.busy_ms:.0f}" for run in runs)
        return f"kernels: {kernels}; GPU busy for {now} ms, before {before}"
    return f"{markdown.compared(*(run.median for run in runs))}: {measured.spread(runs[1])} ms"


def overview(folder):
    """Return the index of all side roads: name, what it does, the script that it changes."""
    root = os.path.relpath(ROOT, folder)
    roads = sorted(map(scripts.get, scripts.side_roads()), key=lambda road: road.title.lower())
    rows = [("technique", "in one line", "file", "lines")]
    for road in roads:
        link = f"[{road.name}]({root}/{road.name}.py)"
        lines = f"{markdown.changed(road.parent, road.name)} from {road.parent}"
        rows.append((road.title, road.idea, link, lines))
    return markdown.text(rows)
