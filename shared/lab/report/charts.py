"""Data for the page's chart: bars of records on a linear axis. Positions are in % of its width."""

import math

from shared.lab.records import formats, reading, scripts, stored
from shared.memory.accounting.blocks import CATEGORIES


def datasets():
    """Return the choices of the chart: a dictionary for each model, predicted and as measured."""
    records = [*stored.predictions().values(), *stored.read(stored.TINY_MEASURED)]
    choices = []
    for group in reading.by_model(records):
        how = "predicted for" if reading.is_prediction(group[0]) else "measured on"
        devices = formats.listed(r["device"].removeprefix("emulated ") for r in group)
        choices.append(dataset(group, f"{reading.setting(group[0])}, {how} {devices}"))
    return choices


def dataset(records, name):
    """Return one choice of the chart: name, bars, and the axis' ticks."""
    counters = ("device_peak_gb", "device_reserved_gb")
    marks = [record["train"][counter] or 0 for record in records for counter in counters]
    top = 1.02 * max(marks)  # so that the longest bar does not touch the end of the axis
    _, per_gb = formats.scale(records)
    return {
        "name": name,
        "setting": reading.setting(records[0]),
        "predicted": reading.is_prediction(records[0]),
        "rows": [row(record, top, per_gb) for record in records],
        "ticks": ticks(top, per_gb),
    }


def ticks(top, per_gb):
    """Return the texts and positions of an axis' ticks, with round numbers of a unit.

    per_gb is the number of such units in a GB.
    """
    # Steps of 1, 2 or 5 times a power of ten: the smallest that makes at most 8 of them.
    most = top * per_gb
    step = 10 ** math.floor(math.log10(most))
    step = next(s for s in (step / 5, step / 2, step, 2 * step) if most / s <= 8)
    sizes = [n * step / per_gb for n in range(int(most / step) + 1)]
    return [(round_size(gb), 100 * gb / top) for gb in sizes]


def row(record, top, per_gb):
    """Return the bar of a record, with its parts, on an axis that ends at `top` GB."""
    train = record["train"]
    peak = train["device_peak_gb"]
    reserved = train["device_reserved_gb"]
    return {
        "script": record["script"],
        "gpus": record["world_size"],
        "link": _shown(record["script"]),
        # In the unit of the axis, so that lengths and numbers can be compared.
        "peak": f"{peak:.2f} GB" if per_gb == 1 else formats.size(peak),
        "at": 100 * peak / top,
        "parts": [
            (label, gb, formats.size(gb), share) for label, gb, share in visible_parts(train)
        ],
        "reserved": (formats.size(reserved), 100 * reserved / top) if reserved else None,
        "loading": formats.size(record["load"]["device_peak_gb"]),
        "host": formats.size(train["host_peak_gb"]) if reading.on_host(record) else None,
        "where": formats.where(record) if "peak_at" in record else None,
    }


def visible_parts(phase):
    """Return the parts of a phase's peak that can be seen in a bar, as (category, GB, share)."""
    peak = phase["device_peak_gb"]
    # Less than a tenth of a pixel of the bar could not be seen.
    least = max(5e-5 * peak, formats.LEAST)
    parts = [(label, phase["breakdown_gb"].get(label, 0)) for label in CATEGORIES]
    return [(label, gb, gb / peak) for label, gb in parts if gb >= least]


def _shown(script):
    """Return the stage of the page that a script belongs to, or None."""
    # A side road leads to the stage of its folder, which explains what it changes.
    stage = script if script in scripts.stages() else f"{script.partition('/')[0]}/train"
    return stage if stage in scripts.stages() else None


def round_size(gb):
    """Format a round size in GB (1e9 bytes), in MB if it is less than 1."""
    return f"{gb:g} GB" if gb >= 1 else f"{gb * 1e3:g} MB" if gb else "0"
