"""Data for the interactive timelines: what holds the memory, and the line that runs."""

import functools
import itertools
import json
import re

from markupsafe import Markup

from shared.lab.predict.timeline import expanded
from shared.lab.records import markdown, scripts, stored
from shared.lab.records.formats import LEAST, amount, size, where
from shared.lab.records.reading import at_once, by_script, on_host, setting, unit
from shared.lab.report import side_by_side
from shared.memory.accounting.blocks import CATEGORIES
from shared.run.errors import UserError

SHOWN = ("parallelize", "build", "train_step")  # functions of a script beside its timeline
RIGHT = "pass the timelines.json that python -m shared predict --timeline DIR has written"


@functools.cache
def of_all():
    """Return the stored moments of every stage, {script: what history.condensed() returned}."""
    return by_script(stored.timelines())


def with_files(files):
    """Return the moments of every stage and those in files of timelines, {title: moments}.

    A title is the name of the script; if that is taken, the model and its inputs follow.
    """
    timelines = dict(of_all())
    for file in files:
        try:
            every = by_script(json.loads(file.read_text()))
            for moments in every.values():
                check(moments)
        # The user may name any file: none, no JSON, or JSON of something else.
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            raise UserError(f"--timelines {file}: not a file of timelines; {RIGHT}") from None
        for title, moments in every.items():
            if title in timelines:
                title = f"{title}, {setting(moments['record'])}"
            while title in timelines:
                title += ", again"
            timelines[title] = moments
    return timelines


def check(moments):
    """Raise an exception, of some type, if a timeline lacks what the page shows of it."""
    known = next(iter(of_all().values()))
    if wrong := [key for key in known if type(moments[key]) is not type(known[key])]:
        raise TypeError(wrong)
    for_page({"": moments})
    moved(moments, moments)


def for_page(every):
    """Return the data that the page's scripts draw, {title: dictionary}, for JSON.

    Besides what is stored, it has the model with its inputs (scripts with the same share a scale),
    and a description of the script.
    """
    timelines = {}
    for title, moments in every.items():
        record = moments["record"]
        gpus = record["world_size"]
        on = f"each of {gpus} GPUs" if gpus > 1 else "one GPU"
        many = f"{record['batch_size']} {unit(record)} per update, {at_once(record)} at a time"
        timelines[title] = {
            **{key: value for key, value in moments.items() if key != "record"},
            "setting": setting(record),
            "about": f"{on}; {many}",
            # Blocks are rounded up; of that, only the amount at the peak is known.
            "rounded": "rounding" in record["train"]["breakdown_gb"],
            # A user's timeline stands alone.
            "before": scripts.get(title).parent if title in scripts.stages() else None,
        }
    return timelines


def table(name):
    """Return a timeline as rows of texts; the first is the heading.

    A row is one line of the script while it runs, at the moment with the most on the GPU.
    """
    moments = of_all()[name]
    by_moment = expanded(moments)["device"]  # (moments, categories), GB
    total = by_moment.sum(1)
    lines = scripts.get(name).lines
    labels = [label for label, column in zip(CATEGORIES, by_moment.T) if column.any()]
    rows = [("pass", "line", "most on the GPU", *labels)]
    # At a moment outside of the script, no line of it runs.
    working = [i for i, line in enumerate(moments["lines"]) if line]
    for (phase, line), stretch in itertools.groupby(
        working, lambda i: (moments["phases"][i], moments["lines"][i])
    ):
        # A line takes and frees memory; what limits a card is the most.
        most = max(stretch, key=lambda i: total[i])
        cells = (amount(by_moment[most, CATEGORIES.index(label)]) for label in labels)
        # A table has no room for the comments behind the code.
        code = lines[line - 1].partition("  # ")[0].strip()
        rows.append((phase, f"{line}: {code}", size(total[most]), *cells))
    return rows


def source(name):
    """Return the lines of a script beside its timeline: a list of (number, HTML).

    The lines are those of the functions SHOWN, with (None, "") between two functions.
    """
    rows = []
    inside = False
    for n, line in enumerate(scripts.get(name).lines, 1):
        if line and not line[0].isspace():
            defined = re.match(r"def (\w+)", line)
            inside = bool(defined) and defined[1] in SHOWN
            if inside and rows:
                rows.append((None, Markup("")))
        if inside and line:  # empty lines would only take height
            rows.append((n, side_by_side.html(name, n)))
    return rows


def moved(before, after):
    """Return the changes from the peak of one stage to that of another, as a list of texts.

    The category that changes most comes first. The list is empty if the models differ.
    """
    records = [moments["record"] for moments in (before, after)]
    if len({setting(r) for r in records}) > 1:
        return []
    peaks = [r["train"]["device_peak_gb"] for r in records]
    breakdowns = [r["train"]["breakdown_gb"] for r in records]
    rows = [(label, *(gb.get(label, 0) for gb in breakdowns)) for label in CATEGORIES]
    # What is a five hundredth of the peak would round to nothing in a sentence.
    rows = [row for row in rows if max(row[1:]) >= 0.002 * max(peaks)]
    rows.sort(key=lambda row: -abs(row[2] - row[1]))
    changes = [_change("allocated", *peaks), *(_change(*row) for row in rows)]
    places = [where(r) for r in records]
    if places[0] != places[1]:
        changes.append(f"the peak moves from {places[0]} to {places[1]}")
    # A few numbers on the host count as nothing, as in the tables.
    host = [r["train"]["host_peak_gb"] if on_host(r) else 0 for r in records]
    return [*changes, _change("on the host", *host)] if any(host) else changes


def _change(name, *sizes):
    sizes = [gb if gb >= LEAST else 0 for gb in sizes]
    if not all(sizes):
        return f"{name}: {markdown.compared(*sizes)}, {size(max(sizes))}"
    return f"{name}: {size(sizes[0])} to {size(sizes[1])}, {markdown.compared(*sizes)}"
