"""What the page's chart shows: bars of records, with axes on a linear and a logarithmic scale."""

import math

from shared.common import scripts
from shared.lessons import stored
from shared.memory.blocks import CATEGORIES
from shared.records.origin import origin
from shared.records.record import (
    by_model,
    by_script,
    learned,
    on_host,
    scale,
    setting,
    speed,
    unit,
    usable,
    where,
)
from shared.records.units import one_line, size


def datasets(own=()):
    """Returns what the chart can show: a dictionary for each model of each file of records.

    Predictions for a GPU come first.

    Args:
        own: files of records besides those of the repository; one JSON object per line.
    """
    found = []
    for group in by_model(list(stored.predictions().values())):
        gpus = "GPUs" if group[-1]["world_size"] > 1 else "a GPU"
        names = {r["script"] for r in group}
        published = {name: gb for name, gb in stored.ARTICLE.items() if name in names}
        name = f"{setting(group[0])}, predicted for {gpus}"
        found.append(dataset(group, name, origin(group, stored.PREDICTED), published))
    for file, _ in stored.results():
        found += measurements(file)
    for file in own:
        found += measurements(file, f" ({file.name})")
    return found


def measurements(file, name=""):
    """Returns a dictionary as in datasets() for each model of a file of records."""
    last = by_script(usable(file)[0])
    found = []
    for group in by_model([last[script] for script in sorted(last)]):
        title = f"{setting(group[0])}, measured on {one_line(group[0]['device'])}{name}"
        found.append(dataset(group, title, origin(group, file), {}))
    return found


def dataset(records, name, from_where, published):
    """Returns one choice of the chart: name, origin, bars, and axes in both scales.

    Positions are in % of the width.
    """
    marks = [r["train"][key] for r in records for key in ("device_peak_gb", "device_reserved_gb")]
    marks = [gb for gb in (*marks, *published.values()) if gb]
    top, decade = max(marks) * 1.02, math.floor(math.log10(min(marks)))
    decades = math.log10(top) - decade

    def at(gb):
        return {
            "lin": 100 * gb / top,
            "log": 100 * max(0.0, math.log10(gb) - decade) / decades if gb else 0,
        }

    def mark(gb):
        return (size(gb), at(gb)) if gb else None

    rows = []
    for r in records:
        train, peak = r["train"], r["train"]["device_peak_gb"]
        held = [(label, train["breakdown_gb"].get(label, 0)) for label in CATEGORIES]
        rows.append(
            {
                "script": r["script"],
                "link": _shown(r["script"]),
                "peak": size(peak),
                "at": at(peak),
                "parts": [(x, gb, size(gb), gb / peak) for x, gb in held if gb >= 5e-5 * peak],
                "reserved": mark(train["device_reserved_gb"]),
                "published": mark(published.get(r["script"])),
                "loading": size(r["load"]["device_peak_gb"]),
                "host": size(train["host_peak_gb"]) if on_host(r) else None,
                "where": where(r) if "peak_at" in r else None,
            }
        )
    return {
        "name": name,
        "origin": from_where,
        "rows": rows,
        "ticks": _ticks(top, decade, scale(records)[1], at),
        "records": records,
    }


def _shown(script):
    """Returns the stage of the page that a script belongs to, None if there is none."""
    stage = script if script in scripts.stages() else f"{script.partition('/')[0]}/train"
    return stage if stage in scripts.stages() else None


def _ticks(top, decade, factor, at):
    """Returns the texts and positions of both axes; factor, how many of the unit are one GB."""
    most = top * factor
    step = 10 ** math.floor(math.log10(most))
    step = next(s for s in (step / 5, step / 2, step, 2 * step) if most / s <= 8)
    sizes = {
        "lin": [n * step / factor for n in range(int(most / step) + 1)],
        "log": [10.0**n for n in range(decade, math.ceil(math.log10(top)))],
    }

    return {
        kind: [(round_size(gb), at(gb)[kind]) for gb in values] for kind, values in sizes.items()
    }


def round_size(gb):
    """Writes a round size in GB (1e9 bytes) for people, in MB if it is less than 1."""
    return f"{gb:g} GB" if gb >= 1 else f"{gb * 1e3:g} MB" if gb else "0"


def costs(script, before, chosen):
    """Returns what a script costs in speed and accuracy: rows of a table, after the script before.

    Args:
        script, before: names; before may be None.
        chosen: datasets().
    """
    rows = []
    for data in chosen:
        records = by_script(data["records"])
        for name in (before, script):
            if script in records and name in records and speed(records[name]):
                r = records[name]
                fast = f"{speed(r):.0f} {unit(r)}/s"
                peak = size(r["train"]["device_peak_gb"])
                rows.append((name, fast, learned(r), peak, data["name"]))
    return rows
