"""The picture of a ladder: a bar per script, stacked by who holds the memory."""

import matplotlib

from shared import stages
from shared.ledger import CATEGORIES
from shared.figures import by_model, png_text, scale, setting

matplotlib.use("Agg")  # draws into files, needs no screen
import matplotlib.pyplot as plt


def draw(records, file):
    """Draws the peaks while training as a bar per script, stacked by category, and the peaks while loading.

    Every model has a scale of its own; bars that would be too small beside the first are drawn a second time.
    """
    parts = []
    for group in by_model(records):
        most = max(r["train"]["device_peak_gb"] for r in group)
        parts += [group, [r for r in group if r["train"]["device_peak_gb"] < most / 5]]
    parts = [part for part in parts if part]
    figure, axes = plt.subplots(1, len(parts), figsize=(13, 5.5), width_ratios=[len(p) for p in parts], layout="constrained", squeeze=False)
    for ax, part in zip(axes[0], parts):
        _draw_bars(ax, part)
    axes[0][0].legend(frameon=False)
    what = "; ".join(setting(group[0]) + (f", on {group[0]['dataset']}" if group[0]["dataset"] else "") for group in by_model(records))
    r = records[0]
    figure.suptitle(f"Peak device memory: {what}; {r['device']}, torch {r['versions']['torch']}, {r['date']}", fontsize=10)
    figure.savefig(file, dpi=130, metadata=png_text(records))
    plt.close(figure)


def _draw_bars(axes, records):
    unit, factor = scale(records)
    positions = range(len(records))
    bottoms = [0.0] * len(records)
    for label, color in zip(CATEGORIES, plt.get_cmap("tab10").colors):
        heights = [r["train"]["breakdown_gb"].get(label, 0) * factor for r in records]
        axes.bar(positions, heights, bottom=bottoms, label=label, color=color, width=0.65)
        bottoms = [a + b for a, b in zip(bottoms, heights)]
    axes.plot(positions, [r["load"]["device_peak_gb"] * factor for r in records], "kd", ms=5, label="peak while loading")
    reserved = [(x, r["train"]["device_reserved_gb"] * factor) for x, r in zip(positions, records) if r["train"]["device_reserved_gb"]]
    if reserved:
        axes.plot(*zip(*reserved), "k_", ms=18, label="reserved by the allocator")
    for x, r in zip(positions, records):
        peak = r["train"]["device_peak_gb"] * factor
        axes.annotate(f"{peak:.3g}", (x, max(peak, bottoms[x])), ha="center", xytext=(0, 4), textcoords="offset points")
    axes.set_xticks(positions, [stages.run_of(r).replace("_", "\n").replace("/", "\n") for r in records], fontsize=8)
    axes.set_ylabel(unit)
    axes.spines[["top", "right"]].set_visible(False)
