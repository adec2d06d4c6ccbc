"""The side roads on the pages: tables for each folder, and a map of all."""

import os

from shared.lab.records import formats, markdown, measured, reading, scripts, stored
from shared.lab.records.columns import Column, in_markdown
from shared.run.record import ROOT


def records():
    """Return the predictions for a GPU at full size, of side roads and stages, {script: record}."""
    return reading.by_script(stored.predicted(stored.SIDE_ROADS, stored.STAGES))


def table(folder):
    """Return a short table of a folder's side roads; their docstrings explain them."""
    tiny = stored.measurements(stored.TINY_SIDE_ROADS)
    every = records()
    rows = []
    for script in map(scripts.get, scripts.side_roads({folder.name})):
        rows.append({"script": script, "before": every[script.parent], "now": every[script.name]})

    def change(row):
        peaks = (reading.peak(row[when]) for when in ("before", "now"))
        return _other(row) or markdown.compared(*peaks)

    columns = [
        Column("file", lambda row: "[{0.file}.py]({0.file}.py): {0.idea}".format(row["script"])),
        Column("lines", _lines),
        Column("peak", "now.train.device_peak_gb", formats.size),
        Column("change", change),
        # Left out where no road was timed.
        Column(f"update on {measured.gpu()}", _measured),
        Column("update, emulated", _emulated),
        Column("tiny", lambda row: formats.learned(tiny[row["script"].name])),
        Column("what it costs", "script.cost"),
    ]
    note = "Memory is emulated, the tiny model's accuracy measured."
    return markdown.text(note, in_markdown(columns, rows))


def _lines(row):
    """Return the number of changed lines, and the script that they change."""
    script = row["script"]
    stage, _, file = script.parent.removesuffix("/train").partition("/")
    # A stage is known by its number, a parent that is a side road by its file.
    return f"{markdown.changed(script.parent, script.name)} from {file or stage[:2]}"


def _other(row):
    """Return another model, input or card than the parent's, None if all are the same.

    Beside it, two sizes or times would show what nothing but the technique explains.
    """
    before, now = row["before"], row["now"]
    if reading.setting(now) != reading.setting(before):
        return reading.setting(now)
    return now["device"] if now["device"] != before["device"] else None


def _emulated(row):
    """Return the emulated time of an update beside that of the parent, as text."""
    now = row["now"]
    if measured.updates(now["script"]):  # measured is better
        return ""
    times = [reading.emulated_ms(r) for r in (row["before"], now)]
    if _other(row):
        # With three digits, or whole from 100 ms on.
        ms = f"{times[1]:,.0f}" if times[1] >= 100 else f"{times[1]:.3g}"
        taken = f"{ms} ms per {reading.unit(now)[:-1]}"
    else:
        taken = markdown.compared(*times)
    return f"at least {taken}" if reading.computes_on_host(now) else taken


def _measured(row):
    """Return the measured time of an update beside that of the parent; None if not measured.

    Where the host sets the pace, it is the number of kernels and the time that they take; but not
    for a script whose host also computes.
    """
    runs = [measured.updates(row[when]["script"]) for when in ("before", "now")]
    if not all(runs):
        return None
    # The pace of the host differs by half from run to run, so such times would look like a finding.
    # Where the host also computes, it takes long for another reason.
    if all(run.paced for run in runs) and not reading.computes_on_host(row["now"]):
        kernels = markdown.compared(*(run.kernels for run in runs))
        before, now = (f"{run.busy_ms:.0f}" for run in runs)
        return f"kernels: {kernels}; GPU busy for {now} ms, before {before}"
    return f"{markdown.compared(*(run.median for run in runs))}: {measured.spread(runs[1])} ms"


def overview(folder):
    """Return the index of all side roads: name, what it does, the script that it changes."""
    root = os.path.relpath(ROOT, folder)
    roads = sorted(map(scripts.get, scripts.side_roads()), key=lambda road: road.title.lower())

    def lines(road):
        return f"{markdown.changed(road.parent, road.name)} from {road.parent}"

    columns = [
        Column("technique", "title"),
        Column("in one line", "idea"),
        Column("file", lambda road: f"[{road.name}]({root}/{road.name}.py)"),
        Column("lines", lines),
    ]
    return markdown.text(in_markdown(columns, roads))
