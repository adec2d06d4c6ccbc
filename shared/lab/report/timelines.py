"""Data for the interactive timelines: what holds the memory, and the line that runs."""

import functools
import re

from markupsafe import Markup

from shared.lab.records import scripts, stored
from shared.lab.records.reading import at_once, by_script, setting, unit
from shared.lab.report import side_by_side

SHOWN = ("parallelize", "build", "train_step")  # functions of a script beside its timeline


@functools.cache
def of_all():
    """Return the stored moments of every stage, {script: what history.condensed() returned}."""
    return by_script(stored.timelines())


def for_page():
    """Return the data that the page's scripts draw, {script: dictionary}, for JSON.

    Besides what is stored, it has the model with its inputs (scripts with the same share a scale),
    and a description of the script.
    """
    timelines = {}
    for name, moments in of_all().items():
        record = moments["record"]
        gpus = record["world_size"]
        on = f"each of {gpus} GPUs" if gpus > 1 else "one GPU"
        many = f"{record['batch_size']} {unit(record)} per update, {at_once(record)} at a time"
        timelines[name] = {
            **{key: value for key, value in moments.items() if key != "record"},
            "setting": setting(record),
            "about": f"{on}; {many}",
            # Blocks are rounded up; of that, only the amount at the peak is known.
            "rounded": "rounding" in record["train"]["breakdown_gb"],
            "before": scripts.get(name).parent,
        }
    return timelines


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
