"""The picture of a ladder: a bar per script, stacked by who holds the memory."""

import json
import os
import warnings

import matplotlib

from shared.memory.blocks import CATEGORIES
from shared.records.views import by_model, one_line, scale, setting

matplotlib.use("Agg")  # draws into files, needs no screen
matplotlib.rcParams["text.parse_math"] = False  # a dollar in a name is a dollar
import matplotlib.pyplot as plt

COLORS = dict(zip(CATEGORIES, plt.get_cmap("tab10").colors))


def draw(records, file):
    """Draws a bar per script: the peak while training, stacked by category; a mark for loading.

    Every model has a scale of its own. Bars that are too small there are drawn a second time.
    """
    parts, groups = [], by_model(records)
    for group in groups:
        most = max(r["train"]["device_peak_gb"] for r in group)
        parts += [group, [r for r in group if r["train"]["device_peak_gb"] < most / 5]]
    parts = [part for part in parts if part]
    widths = [len(part) for part in parts]
    wide = max(13, 0.5 * sum(widths))  # so that the names below the bars have room
    figure, axes = plt.subplots(
        1, len(parts), figsize=(wide, 5.5), width_ratios=widths, layout="constrained", squeeze=False
    )
    for ax, part in zip(axes[0], parts):
        _draw_bars(ax, part)
    axes[0][0].legend(frameon=False)
    on = [f", on {one_line(r['dataset'])}" if r["dataset"] else "" for r, *_ in groups]
    what = "; ".join(setting(group[0]) + data for group, data in zip(groups, on))
    r = records[0]
    made = f"{one_line(r['device'])}, torch {r['versions']['torch']}, {r['date']}"
    figure.suptitle(f"Peak device memory: {what}; {made}", fontsize=10)
    save(figure, file, records)


def save(figure, file, records):
    """Writes a figure as a PNG file, and closes it.

    The records' peaks are in its metadata: by them a test can tell when the picture is stale.
    """
    told = json.dumps({r["script"]: r["train"]["device_peak_gb"] for r in records})
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f"{file.name}.part")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")  # in a name, such as CJK
        figure.savefig(part, format="png", dpi=130, metadata={"Description": told})
    os.replace(part, file)
    plt.close(figure)


def _draw_bars(axes, records):
    gb_or_mb, factor = scale(records)
    positions = range(len(records))
    bottoms = [0.0] * len(records)
    for label, color in COLORS.items():
        heights = [r["train"]["breakdown_gb"].get(label, 0) * factor for r in records]
        axes.bar(positions, heights, bottom=bottoms, label=label, color=color, width=0.65)
        bottoms = [a + b for a, b in zip(bottoms, heights)]
    loading = [r["load"]["device_peak_gb"] * factor for r in records]
    axes.plot(positions, loading, "ko", ms=5, label="peak while loading")
    reserved = [r["train"]["device_reserved_gb"] for r in records]
    reserved = [(x, gb * factor) for x, gb in zip(positions, reserved) if gb]
    if reserved:
        axes.plot(*zip(*reserved), "k_", ms=18, label="reserved by the allocator")
    for x, r in zip(positions, records):
        peak = r["train"]["device_peak_gb"] * factor
        at, above = (x, max(peak, bottoms[x])), {"xytext": (0, 4), "textcoords": "offset points"}
        axes.annotate(f"{peak:.3g}", at, ha="center", **above)
    names = [one_line(r["script"]).replace("_", "\n").replace("/", "\n") for r in records]
    axes.set_xticks(positions, names, fontsize=8)
    axes.set_ylabel(gb_or_mb)
    axes.spines[["top", "right"]].set_visible(False)
