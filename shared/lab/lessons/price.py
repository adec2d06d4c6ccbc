"""The picture of memory against time: a point for each stage, and which steps cost time."""

import statistics

import matplotlib

from emulated_gpu.why.fit import needs
from shared.lab.lessons.parts import FIGURES
from shared.lab.records import bars, measured, scripts, stored

matplotlib.use("Agg")  # draws into files, needs no screen
import matplotlib.pyplot as plt

FILES = {theme: FIGURES / f"memory_and_time_{theme}.png" for theme in ("light", "dark")}
# Of the page, of words, of steps that are free, and of those that are paid with time: GitHub's.
COLORS = {
    "light": ("#ffffff", "#1f2328", "#1a7f37", "#bc4c00"),
    "dark": ("#0d1117", "#e6edf3", "#3fb950", "#f0883e"),
}
TICKS = 1, 2, 5, 10, 20
BESIDE = 9, 3  # the points by which a name is right of and above its stage; and where lines are:
AT = {"02": (8, -8), "03": (13, -7), "08": (-48, -5), "09": (-68, -9), "10": (-60, -14)}


def points():
    """Return {script: [GB that a card needs, least, usual and most ms for an image]}."""
    found = {}
    ladder = scripts.ladder()
    for name in ladder:
        r, run = stored.predictions()[name], measured.updates(name)
        # Where the host sets the pace, scripts of the same kernels are several runs of one.
        others = [other for other in map(measured.updates, ladder) if other is not run]
        alike = [run, *(other for other in others if measured.same_kernels(run, other))]
        ms = [ms / other.batch_size for other in alike for ms in other.ms]
        if r["world_size"] > 1:
            ms = [1e3 / measured.most_per_second(name, r["world_size"])]
        found[name] = [needs(r), min(ms), statistics.median(ms), max(ms)]
    return found


def draw(file, theme):
    """Draw the ladder: steps up to 03 are free, those after it are paid with time."""
    page, ink, free, paid = COLORS[theme]
    figure, axes = plt.subplots(figsize=(6, 4.1), layout="constrained", facecolor=page)
    axes.set(xscale="log", yscale="log", xlim=(0.9, 70), ylim=(1.2, 36), facecolor=page)
    every = points()
    names = [*every]
    parts = ((paid, "o:", names[6:]), (paid, "o-", names[2:7]), (free, "o-", names[:3]))
    for color, form, part in parts:
        gb, _, ms, _ = zip(*map(every.get, part))
        axes.plot(ms, gb, form, color=color, lw=2, ms=7)
    labels = {}  # by place, since 06 and 07 are at the same one
    for name, (gb, least, _, most) in every.items():
        axes.plot((least, most), (gb, gb), color=paid if name > names[2] else free, lw=5, alpha=0.3)
        labels.setdefault((most, gb), []).append(name.partition("/")[0].replace("_", " "))
    for place, texts in labels.items():
        shift = AT.get(texts[0][:2], BESIDE)
        axes.annotate(", ".join(texts), place, shift, textcoords="offset points", color=ink)
    axes.text(2.1, 24, "free", color=free, size=15, weight="bold")
    axes.text(2.7, 8.2, "paid with time", color=paid, size=15, weight="bold")
    axes.text(1.1, 1.35, "dotted: on each of\nfour GPUs, and at\nleast this time", color=ink)
    for axis, unit in ((axes.xaxis, "ms"), (axes.yaxis, "GB")):
        axis.set_ticks(TICKS, [f"{tick} {unit}" for tick in TICKS], color=ink)
        axis.set_ticks([], minor=True)
    axes.set_xlabel(f"time for an image, measured ({measured.gpu()})", color=ink)
    axes.set_ylabel("memory that a card needs, emulated", color=ink)
    axes.tick_params(color=ink)
    axes.spines[:].set_color(ink)
    axes.spines[["top", "right"]].set_visible(False)
    bars.save(figure, file, points())
