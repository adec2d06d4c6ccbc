"""Figures in sentences: a number on a page, with a comment after it that says which one it is.

`25 GB<!-- 01 peak -->` is the predicted peak of 01_baseline/train, and keeps the unit and the
decimals that the page gives it. After the script, which may be a whole name, comes one of
- `peak`, `reserved`, `host`, a category; `load`, `load host`, while loading; `card`, what it needs;
- any of these after `tiny`, as measured on a CPU; `tiny accuracy`, of the test;
- `median` (ms), `busy_ms`, `kernels`, `per_second`, `peak_gb`: of updates on a GPU, by `06,64,16`
  of 64 images, 16 at a time.
"""

import re

from emulated_gpu.why.fit import needs
from shared.lab.records import measured, reading, scripts, stored

FIGURE = re.compile(r"\d[\d,]*(\.\d+)?( [GM]B| ms|%| %)?(<!-- (\d\d[^\s]*) ([\w ]+) -->)")
UNITS = {" MB": 1000, "%": 100, " %": 100}  # of a GB, of 1
PEAKS = {"peak": "device_peak_gb", "reserved": "device_reserved_gb", "host": "host_peak_gb"}
PEAKS |= {"load": PEAKS["peak"], "load host": PEAKS["host"]}


def filled(text):
    """Return the text of a page with up-to-date figures in its sentences."""
    return FIGURE.sub(_figure, text)


def _figure(match):
    decimals, unit, comment, name, what = match.groups(default="")
    script, *sizes = name.split(",")
    script = next((stage for stage in scripts.ladder() if stage[:2] == script), script)
    number = _number(script, what, map(int, sizes)) * UNITS.get(unit, 1)
    return f"{number:,.{len(decimals[1:])}f}{unit}{comment}"


def _number(script, what, sizes):
    """Return a figure of a script, in GB if it is a size."""
    if hasattr(measured.Updates, what) or what in measured.Updates.__annotations__:
        return getattr(measured.updates(script, *sizes), what)
    _, tiny, what = what.rpartition("tiny ")
    records = stored.predicted(stored.STAGES, stored.SIDE_ROADS, stored.ONE_GPU)
    every = stored.measurements(stored.TINY_MEASURED) if tiny else reading.by_script(records)
    record = every[script]
    if what == "accuracy":
        return record["test_accuracy"]
    if what == "card":
        return needs(record)
    phase = record["load" if what.startswith("load") else "train"]
    return phase[PEAKS[what]] if what in PEAKS else phase["breakdown_gb"][what]
