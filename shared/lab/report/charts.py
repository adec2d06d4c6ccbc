"""Data for the page's chart: bars of records, with axes on a linear and a logarithmic scale."""

import math

from shared.lab.records import scripts, stored, views
from shared.lab.report import nearest_prediction
from shared.memory.blocks import CATEGORIES


def datasets(own=()):
    """Return the choices of the chart: a dictionary for each model of each file of records.

    Predictions for a GPU come first, side roads after the ladder, the user's own files last.
    """
    choices = []
    for group in views.by_model([*stored.predictions().values()]):
        gpus = "GPUs" if group[-1]["world_size"] > 1 else "a GPU"
        names = {r["script"] for r in group}
        published = {name: gb for name, gb in stored.ARTICLE.items() if name in names}
        name = f"{views.setting(group[0])}, predicted for {gpus}"
        choices.append(dataset(group, name, views.origin(group, stored.PREDICTED), published))
    files = [file for file, _ in stored.results()]
    for file in sorted(files, key=lambda file: file == stored.TINY_SIDE_ROADS):
        choices += measurements(file)
    for file in own:
        choices += measurements(file, f" ({file.name})")
    return choices


def measurements(file, name=""):
    """Return dictionaries as in datasets(), one for each model of a file of records."""
    choices = []
    for records in views.by_model(views.read(file)[0]):
        group = [record for _, record in sorted(views.by_script(records).items())]
        roads = {r["script"] for r in group} <= {*scripts.side_roads()}
        what = f"{views.setting(group[0])}, {'side roads ' if roads else ''}measured on"
        title = f"{what} {views.one_line(group[0]['device'])}{name}"
        choices.append(dataset(group, title, views.origin(group, file), {}))
    return choices


def dataset(records, name, from_where, published):
    """Return one choice of the chart: name, origin, bars, a table, and axes in both scales.

    Positions are in % of the width. Measurements have their stored predictions beside them.
    """
    predicted = nearest_prediction.predictions(records)
    shown = [*records, *predicted.values()]
    marks = [r["train"][key] for r in shown for key in ("device_peak_gb", "device_reserved_gb")]
    marks = [gb for gb in (*marks, *published.values()) if gb]
    top, decade = max(marks) * 1.02, math.floor(math.log10(min(marks)))
    decades = math.log10(top) - decade

    def at(gb):
        return {
            "lin": 100 * gb / top,
            "log": 100 * max(0.0, math.log10(gb) - decade) / decades if gb else 0,
        }

    def mark(gb):
        return (views.size(gb), at(gb)) if gb else None

    def bar(r):
        train = r["train"]
        return {
            "peak": views.size(train["device_peak_gb"]),
            "at": at(train["device_peak_gb"]),
            "parts": [(label, gb, views.size(gb), share) for label, gb, share in held(train)],
            "reserved": mark(train["device_reserved_gb"]),
        }

    rows = []
    for r in records:
        second = predicted.get(r["script"])
        peaks = [x["train"]["device_peak_gb"] for x in (r, second) if x]
        rows.append(
            {
                **bar(r),
                "script": r["script"],
                "gpus": r["world_size"],
                "link": _shown(r["script"]),
                "predicted": second
                and {**bar(second), "difference": nearest_prediction.difference(*peaks)},
                "published": mark(published.get(r["script"])),
                "loading": views.size(r["load"]["device_peak_gb"]),
                "host": views.size(r["train"]["host_peak_gb"]) if views.on_host(r) else None,
                "where": views.where(r) if "peak_at" in r else None,
            }
        )
    measured = not views.is_prediction(records[0])
    on_gpu = measured and records[0]["train"]["device_reserved_gb"] is not None
    note, origins = nearest_prediction.note(records, predicted) if on_gpu else ("", [])
    return {
        "name": name,
        "setting": views.setting(records[0]),
        "origins": [from_where, *origins],
        "beside": bool(predicted),
        "note": note,
        "rows": rows,
        "table": table(rows, measured),
        "ticks": _ticks(top, decade, views.scale(records)[1], at),
        "records": records,
    }


def held(phase):
    """Return the visible parts of what a phase held at its peak, as (category, GB, share)."""
    peak = phase["device_peak_gb"]
    least = max(5e-5 * peak, views.LEAST)
    parts = [(label, phase["breakdown_gb"].get(label, 0)) for label in CATEGORIES]
    return [(label, gb, gb / peak) for label, gb in parts if gb >= least]


def table(rows, measured):
    """Return the bars as a table: headings, and rows of cells; empty columns are left out."""
    heads = ["script", "measured" if measured else "predicted", "predicted", "difference"]
    heads += ["reserved", "reserved, predicted", "published in 2023", "on the host", "loading"]
    lines = []
    for row in rows:
        second = row["predicted"] or {}
        sizes = {label: text for label, _, text, _ in row["parts"]}
        cells = [row["script"], row["peak"], second.get("peak"), second.get("difference")]
        marks = (row["reserved"], second.get("reserved"), row["published"])
        cells += [*(mark and mark[0] for mark in marks), row["host"], row["loading"]]
        lines.append([cell or "" for cell in (*cells, *map(sizes.get, CATEGORIES))])
    used = [any(column) for column in zip(*lines)]
    shown = [[x for x, use in zip(line, used) if use] for line in ([*heads, *CATEGORIES], *lines)]
    return shown[0], shown[1:]


def _shown(script):
    """Return the stage of the page that a script belongs to, or None."""
    stage = script if script in scripts.stages() else f"{script.partition('/')[0]}/train"
    return stage if stage in scripts.stages() else None


def _ticks(top, decade, factor, at):
    """Return the texts and positions of both axes' ticks; factor is the units per GB."""
    most = top * factor
    step = 10 ** math.floor(math.log10(most))
    step = next(s for s in (step / 5, step / 2, step, 2 * step) if most / s <= 8)
    lin = [n * step / factor for n in range(int(most / step) + 1)]
    log = [10.0**n for n in range(decade, math.ceil(math.log10(top)))]
    return {
        "lin": [(round_size(gb), at(gb)["lin"]) for gb in lin],
        "log": [(round_size(gb), at(gb)["log"]) for gb in log],
    }


def round_size(gb):
    """Format a round size in GB (1e9 bytes), in MB if it is less than 1."""
    return f"{gb:g} GB" if gb >= 1 else f"{gb * 1e3:g} MB" if gb else "0"


def costs(script, before, chosen):
    """Return rows of measured speed and accuracy, of a script and of the one before."""
    rows = []
    for data in chosen:
        records = views.by_script(data["records"])
        for name in (before, script):
            if script in records and name in records and views.speed(records[name]):
                r = records[name]
                fast = f"{views.speed(r):.0f} {views.unit(r)}/s"
                peak = views.size(r["train"]["device_peak_gb"])
                rows.append((name, fast, views.learned(r), peak, data["name"]))
    return rows
