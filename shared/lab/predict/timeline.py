"""Pictures of one update for the pages: memory by category, from moment to moment."""

import matplotlib
import numpy as np

from shared.lab.records import bars
from shared.lab.records.bars import COLORS
from shared.memory.accounting.blocks import CATEGORIES

matplotlib.use("Agg")  # draws into files, needs no screen
import matplotlib.pyplot as plt

MARK = {"marker": "v", "color": "black", "ms": 6, "linestyle": "none"}  # at the peak
SHADES = {"forward": "#ffffff", "backward": "#eeeeee", "step": "#dcdcdc", "evaluation": "#ffffff"}
APART = 5  # peaks that differ by this factor are not shown on one scale
ABOVE = {"textcoords": "offset points", "fontsize": 9}  # a text above a point


def expanded(moments):
    """Return the result of condensed(), its MB as arrays of GB, (moments, CATEGORIES)."""
    zeros = [0] * len(moments["at"])
    rows = [moments["device"].get(label, zeros) for label in CATEGORIES]
    return {**moments, "device": np.array(rows).T / 1e3}


def beside(every, file):
    """Draw device memory of scripts side by side, on one scale unless their peaks differ much."""
    size = {"figsize": (8.5, 3.6), "layout": "constrained"}
    figure, axes = plt.subplots(1, len(every), squeeze=False, **size)
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


def _mark_peak(axes, at, total, gb_or_mb):
    """Mark the largest value of `total`, with its size above."""
    i = int(total.argmax())
    peak = at[i], total[i]
    axes.plot(*peak, **MARK)
    side = "right" if i > len(total) / 2 else "left"  # so that the text stays inside
    number = f"{peak[1]:.2f}" if gb_or_mb == "GB" else f"{peak[1]:.3g}"
    text = f"{number} {gb_or_mb}"
    axes.annotate(text, peak, xytext=(0, 8), ha=side, fontweight="bold", **ABOVE)


def _area(axes, moments, top):
    """Draw memory on a scale up to `top`, in GB; return the unit, and the factor from GB."""
    phases = moments["phases"]
    gb = moments["device"]
    x = moments["at"]
    gb_or_mb, factor = ("GB", 1) if top >= 1 else ("MB", 1000)
    used = [(label, column * factor) for label, column in zip(CATEGORIES, gb.T) if column.any()]
    # In steps: between two events, what is held stays the same.
    look = {"colors": [COLORS[label] for label, _ in used], "step": "post", "linewidth": 0}
    axes.stackplot(x, [column for _, column in used], **look)
    # Each phase has a shade of its own behind the areas.
    starts = [0, *(i for i in range(1, len(phases)) if phases[i] != phases[i - 1]), len(phases)]
    for begin, end in zip(starts, starts[1:]):
        # Up to where the next phase begins, so that no gap is left between two shades.
        last = x[min(end, len(x) - 1)]
        axes.axvspan(x[begin], last, color=SHADES[phases[begin]], zorder=0, linewidth=0)
    axes.set_xlim(x[0], x[-1])
    axes.set_ylim(0, top * factor * 1.12)  # above the peak stands its size
    axes.spines[["top", "right"]].set_visible(False)
    return gb_or_mb, factor


def _legend(figure, records):
    used = set()
    for r in records:
        used.update(r["train"]["breakdown_gb"])
    patches = [matplotlib.patches.Patch(color=COLORS[u], label=u) for u in COLORS if u in used]
    place = {"loc": "outside lower center", "ncols": 4, "frameon": False, "fontsize": 9}
    figure.legend(handles=patches, **place)
