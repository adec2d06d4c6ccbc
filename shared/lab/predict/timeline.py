"""Pictures of one update: the memory by category, from moment to moment."""

import json

import matplotlib
import numpy as np

from shared.lab.records import bars
from shared.lab.records.atomic_files import write_text
from shared.lab.records.bars import COLORS
from shared.lab.records.formats import where
from shared.lab.records.reading import at_once, setting, unit
from shared.memory.accounting.blocks import CATEGORIES

matplotlib.use("Agg")  # draws into files, needs no screen
import matplotlib.pyplot as plt

MARK = {"marker": "v", "color": "black", "ms": 6, "linestyle": "none"}  # at the peak
PEAK = matplotlib.lines.Line2D([], [], label="peak", **MARK)
SHADES = {"forward": "#ffffff", "backward": "#eeeeee", "step": "#dcdcdc", "evaluation": "#ffffff"}
APART = 5  # peaks that differ by this factor are not shown on one scale
ABOVE = {"textcoords": "offset points", "fontsize": 9}  # a text above a point


def expanded(moments):
    """Return the result of condensed(), its MB as arrays of GB, (moments, CATEGORIES)."""
    zeros = [0] * len(moments["at"])
    rows = [moments["device"].get(label, zeros) for label in CATEGORIES]
    return {**moments, "device": np.array(rows).T / 1e3}


def draw_all(every, out):
    """Draw a picture per script, such as 06_sgd_train.png; of several, also peaks.png.

    Their data, a list of results of history.condensed(), are written to timelines.json.
    """
    for moments in every:
        picture = out / f"{moments['script'].replace('/', '_')}.png"
        draw(moments["record"], moments, picture)
    write_text(out / "timelines.json", json.dumps(every) + "\n")
    if len(every) > 1:
        bars.draw([moments["record"] for moments in every], out / "peaks.png")


def beside(every, file):
    """Draw device memory of scripts side by side, on one scale unless their peaks differ much."""
    figure, axes = _figure(len(every), 8.5, 3.6)
    held = [expanded(moments) for moments in every]
    tops = [moments["device"].sum(1).max() for moments in held]
    together = max(tops) < APART * min(tops)  # else the smaller one would be a line at the bottom
    for n, (ax, moments) in enumerate(zip(axes[0], held)):
        gb_or_mb, factor = _area(ax, moments, max(tops) if together else tops[n])
        _mark_peak(ax, moments["at"], moments["device"].sum(1) * factor, gb_or_mb)
        ax.set_title(moments["script"], fontsize=10)
        ax.set_xticks([])
        if n and together:
            ax.set_yticklabels([])
        else:
            ax.set_ylabel(f"{gb_or_mb} on the GPU")
    records = [moments["record"] for moments in held]
    _legend(figure, records)
    title = "One update, without rounding: allocations in order, not time. White: forward pass, "
    figure.suptitle(f"{title}gray: backward pass, darker: optimizer step", fontsize=9)
    bars.save(figure, file, bars.peaks(records))


def _mark_peak(axes, at, total, gb_or_mb, more=""):
    """Mark the largest value of `total`, with its size and further text above."""
    i = int(total.argmax())
    peak = at[i], total[i]
    axes.plot(*peak, **MARK)
    side = "right" if i > len(total) / 2 else "left"  # so that the text stays inside
    number = f"{peak[1]:.2f}" if gb_or_mb == "GB" else f"{peak[1]:.3g}"
    text = f"{number} {gb_or_mb}{more}"
    axes.annotate(text, peak, xytext=(0, 8), ha=side, fontweight="bold", **ABOVE)


def draw(record, moments, file):
    """Draw the GPU memory of one script."""
    held = expanded(moments)
    figure, axes = _figure(1, 11, 4.8)
    gb_or_mb, factor = _area(axes[0, 0], held)
    axes[0, 0].set_ylabel(f"{gb_or_mb} on the GPU")
    axes[0, 0].set_xlabel("allocations and frees during one update, in order")
    total = held["device"].sum(1) * factor
    _mark_peak(axes[0, 0], held["at"], total, gb_or_mb, f", {where(record)}")
    _legend(figure, [record], PEAK)
    micro = f", {at_once(record)} at a time" if record["micro_batch_size"] else ""
    devices = f" over {record['world_size']} devices" if record["world_size"] > 1 else ""
    figure.suptitle(
        f"{record['script']}: {setting(record)}, {record['batch_size']}"
        f" {unit(record)}{devices}{micro}, {record['precision']}, {record['device']}"
    )
    bars.save(figure, file, bars.peaks([record]))


def _figure(columns, width, height):
    size = {"figsize": (width, height), "layout": "constrained"}
    return plt.subplots(1, columns, squeeze=False, **size)


def _area(axes, moments, largest_gb=None):
    """Draw memory on a scale up to `largest_gb`; return the unit, and the factor from GB."""
    phases = moments["phases"]
    gb = moments["device"]
    x = moments["at"]
    top = largest_gb or gb.sum(1).max()
    gb_or_mb, factor = ("GB", 1) if top >= 1 else ("MB", 1000)
    used = [(label, column * factor) for label, column in zip(CATEGORIES, gb.T) if column.any()]
    # In steps: between two events, what is held stays the same.
    look = {"colors": [COLORS[label] for label, _ in used], "step": "post", "linewidth": 0}
    axes.stackplot(x, [column for _, column in used], **look)
    # Each phase has a shade of its own behind the areas, and its name where there is room.
    starts = [0, *(i for i in range(1, len(phases)) if phases[i] != phases[i - 1]), len(phases)]
    for begin, end in zip(starts, starts[1:]):
        # Up to where the next phase begins, so that no gap is left between two shades.
        last = x[min(end, len(x) - 1)]
        axes.axvspan(x[begin], last, color=SHADES[phases[begin]], zorder=0, linewidth=0)
        if end - begin > 0.04 * len(phases) and largest_gb is None:
            middle = (x[begin] + x[end - 1]) / 2, 0.985
            inside = {"xycoords": ("data", "axes fraction"), "ha": "center", "va": "top"}
            axes.annotate(phases[begin], middle, fontsize=9, **inside)
    axes.set_xlim(x[0], x[-1])
    # Above the peak stands its size and, in a picture of one script, the names of phases.
    axes.set_ylim(0, top * factor * (1.12 if largest_gb else 1.3))
    axes.spines[["top", "right"]].set_visible(False)
    return gb_or_mb, factor


def _legend(figure, records, *marks):
    used = set()
    for r in records:
        used.update(r["train"]["breakdown_gb"])
    patches = [matplotlib.patches.Patch(color=COLORS[u], label=u) for u in COLORS if u in used]
    handles = [*patches, *marks]
    columns = len(handles) if figure.get_figwidth() > 10 else 4  # on one line if it fits
    place = {"loc": "outside lower center", "ncols": columns, "frameon": False, "fontsize": 9}
    figure.legend(handles=handles, **place)
