"""Data for the page's chart: bars of records, with axes on a linear and a logarithmic scale."""

import dataclasses
import math

from shared.lab.records import formats, reading, scripts, stored
from shared.memory.accounting.blocks import CATEGORIES


def datasets(files):
    """Return the choices of the chart: a dictionary for each model of each file of records.

    Predictions for a GPU come first, side roads after the ladder, the user's own files last.
    """
    choices = []
    for group in reading.by_model([*stored.predictions().values()]):
        card = formats.listed(r["device"].removeprefix("emulated ") for r in group)
        names = {r["script"] for r in group}
        published = {name: gb for name, gb in stored.ARTICLE.items() if name in names}
        name = f"{reading.setting(group[0])}, predicted for {card}"
        choices.append(dataset(group, name, published))
    stored_files = [file for file, _ in stored.results()]
    for file in sorted(stored_files, key=lambda file: file == stored.TINY_SIDE_ROADS):
        choices += measurements(file)
    for file in files:
        choices += measurements(file, f" ({file.name})")
    return choices


def measurements(file, name=""):
    """Return dictionaries as in datasets(), one for each model of a file of records."""
    choices = []
    for records in reading.by_model(reading.read(file)[0]):
        # A user's file may have a script twice, after a change: the last run counts.
        group = [record for _, record in sorted(reading.by_script(records).items())]
        roads = {r["script"] for r in group} <= {*scripts.side_roads()}
        what = f"{reading.setting(group[0])}, {'side roads ' if roads else ''}measured on"
        title = f"{what} {formats.one_line(group[0]['device'])}{name}"
        choices.append(dataset(group, title, {}))
    return choices


def dataset(records, name, published):
    """Return one choice of the chart: name, bars, a table, and the axes' ticks.

    Positions are in % of the width.
    """
    axes = Axes.of(records, published)
    rows = [row(record, published.get(record["script"]), axes) for record in records]
    _, per_gb = formats.scale(records)
    return {
        "name": name,
        "setting": reading.setting(records[0]),
        "predicted": reading.is_prediction(records[0]),
        "rows": rows,
        "table": table(rows, reading.is_prediction(records[0])),
        "ticks": axes.ticks(per_gb),
    }


@dataclasses.dataclass(frozen=True)
class Axes:
    """A linear axis from 0 and a logarithmic one from a power of ten, both up to `top` GB."""

    top: float
    decade: int  # the logarithmic axis begins at 10**decade GB

    @classmethod
    def of(cls, records, published):
        """Return the axes for records' peaks and for published sizes, {script: GB}."""
        counters = ("device_peak_gb", "device_reserved_gb")
        marks = [record["train"][counter] for record in records for counter in counters]
        marks = [gb for gb in (*marks, *published.values()) if gb]
        # 2 % of room, so that the longest bar does not touch the end of the axis.
        return cls(max(marks) * 1.02, math.floor(math.log10(min(marks))))

    def at(self, gb):
        """Return the positions of a size on both axes, in %."""
        decades = math.log10(self.top) - self.decade
        # A logarithmic axis has no 0: what is smaller than its begin stands there.
        log = 100 * max(0.0, math.log10(gb) - self.decade) / decades if gb else 0
        return {"lin": 100 * gb / self.top, "log": log}

    def mark(self, gb):
        """Return a size as text, and its positions; None if it is not known."""
        return (formats.size(gb), self.at(gb)) if gb else None

    def ticks(self, per_gb):
        """Return the texts and positions of both axes' ticks, with round numbers of a unit.

        per_gb is the number of such units in a GB.
        """
        # Steps of 1, 2 or 5 times a power of ten: the smallest that makes at most 8 of them.
        most = self.top * per_gb
        step = 10 ** math.floor(math.log10(most))
        step = next(s for s in (step / 5, step / 2, step, 2 * step) if most / s <= 8)
        lin = [n * step / per_gb for n in range(int(most / step) + 1)]
        log = [10.0**n for n in range(self.decade, math.ceil(math.log10(self.top)))]
        return {
            "lin": [(round_size(gb), self.at(gb)["lin"]) for gb in lin],
            "log": [(round_size(gb), self.at(gb)["log"]) for gb in log],
        }


def row(record, published_gb, axes):
    """Return the bar of a record, with a published size or None beside it."""
    train = record["train"]
    on_host = formats.size(train["host_peak_gb"]) if reading.on_host(record) else None
    return {
        **bar(record, axes),
        "script": record["script"],
        "gpus": record["world_size"],
        "link": _shown(record["script"]),
        "published": axes.mark(published_gb),
        "loading": formats.size(record["load"]["device_peak_gb"]),
        "host": on_host,
        "where": formats.where(record) if "peak_at" in record else None,
    }


def bar(record, axes):
    """Return the peak of a record, its parts, and the memory reserved."""
    train = record["train"]
    return {
        "peak": formats.size(train["device_peak_gb"]),
        "at": axes.at(train["device_peak_gb"]),
        "parts": [
            (label, gb, formats.size(gb), share) for label, gb, share in visible_parts(train)
        ],
        "reserved": axes.mark(train["device_reserved_gb"]),
    }


def visible_parts(phase):
    """Return the parts of a phase's peak that can be seen in a bar, as (category, GB, share)."""
    peak = phase["device_peak_gb"]
    # Less than a tenth of a pixel of the bar could not be seen.
    least = max(5e-5 * peak, formats.LEAST)
    parts = [(label, phase["breakdown_gb"].get(label, 0)) for label in CATEGORIES]
    return [(label, gb, gb / peak) for label, gb in parts if gb >= least]


def table(rows, predicted):
    """Return the bars as a table: headings, and rows of cells; empty columns are left out."""
    heads = ["script", "predicted" if predicted else "measured", "reserved", "published in 2023"]
    heads += ["on the host", "loading"]
    lines = []
    for row in rows:
        sizes = {label: text for label, _, text, _ in row["parts"]}
        marks = (mark and mark[0] for mark in (row["reserved"], row["published"]))
        cells = [row["script"], row["peak"], *marks, row["host"], row["loading"]]
        lines.append([cell or "" for cell in (*cells, *map(sizes.get, CATEGORIES))])
    # Measurements on a CPU have nothing reserved, and only the first stages were published.
    used = [any(column) for column in zip(*lines)]
    shown = [[x for x, use in zip(line, used) if use] for line in ([*heads, *CATEGORIES], *lines)]
    return shown[0], shown[1:]


def _shown(script):
    """Return the stage of the page that a script belongs to, or None."""
    # A side road leads to the stage of its folder, which explains what it changes.
    stage = script if script in scripts.stages() else f"{script.partition('/')[0]}/train"
    return stage if stage in scripts.stages() else None


def round_size(gb):
    """Format a round size in GB (1e9 bytes), in MB if it is less than 1."""
    return f"{gb:g} GB" if gb >= 1 else f"{gb * 1e3:g} MB" if gb else "0"
