"""Pictures of one update: who holds the memory, from moment to moment."""

import json

import matplotlib

from shared.memory.blocks import CATEGORIES
from shared.predict.history import expanded
from shared.records.atomic_files import write_text
from shared.records.bars import COLORS, save
from shared.records.views import at_once, by_model, folder, on_host, setting, unit, where

matplotlib.use("Agg")  # draws into files, needs no screen
import matplotlib.pyplot as plt

MARK = {"marker": "v", "color": "black", "ms": 6, "linestyle": "none"}  # at the peak
PEAK = matplotlib.lines.Line2D([], [], label="peak", **MARK)
SHADES = {"forward": "#ffffff", "backward": "#eeeeee", "step": "#dcdcdc"}
ABOVE = {"textcoords": "offset points", "fontsize": 9}  # a text above a point


def draw_all(every, out):
    """Draws a picture per script, such as 06_sgd_train.png, and one of all scripts of each model.

    The latter is timeline.png, on a common scale; for a second model, timeline_FOLDER.png. What the
    pictures show, a list of what history.condensed() returned, is written to timelines.json.
    """
    for moments in every:
        picture, record = out / f"{moments['script'].replace('/', '_')}.png", moments["record"]
        slide(record, moments, picture, (11, 4.8 * (1 + on_host(record))))
    write_text(out / "timelines.json", json.dumps(every) + "\n")
    for n, group in enumerate(by_model([moments["record"] for moments in every])):
        if len(group) > 1:
            name = f"timeline_{folder(group[0])}" if n else "timeline"
            together = [expanded(moments) for moments in every if moments["record"] in group]
            _draw_together(together, out / f"{name}.png")


def slide(record, moments, file, size=(13, 7.3)):
    """Draws what one script holds on the device and, if anything, below it on the host.

    The size is in inches, by default 16:9.
    """
    held = expanded(moments)
    parts = [("device", "computer" if record["train"]["host_peak_gb"] is None else "simulated GPU")]
    parts += [("host", "host")] if on_host(record) else []
    figure, axes = _figure(len(parts), 1, *size)
    for ax, (part, name) in zip(axes[:, 0], parts):
        gb_or_mb, factor = _area(ax, held, part)
        ax.set_ylabel(f"{gb_or_mb} on the {name}")
        ax.set_xlabel("allocations and releases during one update, in order")
        total = held[part].sum(1) * factor
        i = int(total.argmax())
        peak = held["at"][i], total[i]
        ax.plot(*peak, **MARK)
        text = f"{peak[1]:.3g} {gb_or_mb}" + (f", {where(record)}" if part == "device" else "")
        side = "right" if i > len(total) / 2 else "left"  # so that the text stays inside
        ax.annotate(text, peak, xytext=(0, 8), ha=side, fontweight="bold", **ABOVE)
    _legend(figure, [record], PEAK)
    micro = f", {at_once(record)} at a time" if record["micro_batch_size"] else ""
    devices = f" over {record['world_size']} devices" if record["world_size"] > 1 else ""
    figure.suptitle(
        f"{record['script']}: {setting(record)}, {record['batch_size']}"
        f" {unit(record)}{devices}{micro}, {record['precision']}, {record['device']}"
    )
    save(figure, file, [record])


def _draw_together(every, file):
    """Draws all stages in one row, and those that are too small there in further rows.

    The stages in a row have one scale; each further row has a larger one.
    """
    rows = [every]
    while len(small := [m for m in rows[-1] if _peak_gb(m) < max(map(_peak_gb, rows[-1])) / 5]) > 1:
        rows.append(small)
    columns = [moments["script"] for moments in every]
    figure, axes = _figure(len(rows), len(every), max(1.6 * len(every) + 1, 9), 3.4 * len(rows) + 1)
    for ax in axes.flat:
        ax.set_visible(False)
    for line, row in zip(axes, rows):
        largest = max(map(_peak_gb, row))
        for moments in row:
            ax, record = line[columns.index(moments["script"])], moments["record"]
            ax.set_visible(True)
            gb_or_mb, factor = _area(ax, moments, "device", largest)
            gpus = f", {record['world_size']} devices" if record["world_size"] > 1 else ""
            stage = record["script"].replace("_", "\n", 1).replace("_", " ")
            ax.set_title(f"{stage}\n{record['batch_size']} {unit(record)}{gpus}", fontsize=9)
            peak = moments["device"].sum(1).max() * factor
            inside = {"xycoords": ("axes fraction", "data"), "ha": "center", "xytext": (0, 3)}
            ax.annotate(f"{peak:.3g}", (0.5, peak), **inside, **ABOVE)
            ax.set_xticks([])
            if moments is row[0]:
                ax.set_ylabel(f"{gb_or_mb} on the device")
            else:
                ax.set_yticklabels([])
    records = [moments["record"] for moments in every]
    _legend(figure, records)
    figure.suptitle(
        f"One update of every script: {setting(records[0])}, on each {records[0]['device']}.\nFrom"
        " left to right: allocations and releases in order, not time. White: forward, grey:"
        " backward, darker: step",
        fontsize=11,
    )
    save(figure, file, records)


def _figure(rows, columns, width, height):
    size = {"figsize": (width, height), "layout": "constrained"}
    return plt.subplots(rows, columns, squeeze=False, **size)


def _peak_gb(moments):
    return moments["record"]["train"]["device_peak_gb"]


def _area(axes, moments, part, largest_gb=None):
    """Draws what is held, on a scale up to `largest_gb`; returns its unit, and that in GB."""
    phases, held, x = moments["phases"], moments[part], moments["at"]
    top = largest_gb or held.sum(1).max()
    gb_or_mb, factor = ("GB", 1) if top >= 1 else ("MB", 1000)
    used = [(label, column * factor) for label, column in zip(CATEGORIES, held.T) if column.any()]
    look = {"colors": [COLORS[label] for label, _ in used], "step": "post", "linewidth": 0}
    axes.stackplot(x, [column for _, column in used], **look)
    starts = [0, *(i for i in range(1, len(phases)) if phases[i] != phases[i - 1]), len(phases)]
    for begin, end in zip(starts, starts[1:]):
        last = x[min(end, len(x) - 1)]
        axes.axvspan(x[begin], last, color=SHADES[phases[begin]], zorder=0, linewidth=0)
        if end - begin > 0.04 * len(phases) and largest_gb is None:
            middle = (x[begin] + x[end - 1]) / 2, 0.985
            inside = {"xycoords": ("data", "axes fraction"), "ha": "center", "va": "top"}
            axes.annotate(phases[begin], middle, fontsize=9, **inside)
    axes.set_xlim(x[0], x[-1])
    axes.set_ylim(0, top * factor * (1.12 if largest_gb else 1.3))
    axes.spines[["top", "right"]].set_visible(False)
    return gb_or_mb, factor


def _legend(figure, records, *marks):
    used = set()
    for r in records:
        used.update(r["train"]["breakdown_gb"], r["host_breakdown_gb"]["train"] or {})
    patches = [matplotlib.patches.Patch(color=COLORS[u], label=u) for u in COLORS if u in used]
    handles = [*patches, *marks]
    columns = len(handles) if figure.get_figwidth() > 10 else 4
    place = {"loc": "outside lower center", "ncols": columns, "frameon": False, "fontsize": 9}
    figure.legend(handles=handles, **place)
