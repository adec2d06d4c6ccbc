"""Pictures of one update: who holds the memory, from event to event."""

import json

import matplotlib
import numpy as np

from shared.common.writing import write_text
from shared.memory.blocks import CATEGORIES
from shared.predict.history import expanded
from shared.records.bars import COLORS, save
from shared.records.record import at_once, by_model, folder, on_host, setting, unit, where

matplotlib.use("Agg")  # draws into files, needs no screen
import matplotlib.pyplot as plt

MARK = {"marker": "v", "color": "black", "ms": 6, "linestyle": "none"}  # at the peak
PEAK = matplotlib.lines.Line2D([], [], label="peak", **MARK)
SHADES = {"forward": "#ffffff", "backward": "#eeeeee", "step": "#dcdcdc"}


def draw_all(results, out):
    """Draws a picture per script, such as 06_sgd_train.png, and one of all scripts of each model.

    The latter is timeline.png, on a common scale; for a second model, timeline_FOLDER.png. What the
    pictures show is written to timelines.json, condensed.

    Args:
        results: list of (record, history), from simulation.predict().
        out: pathlib.Path; it must be there.
    """
    for record, history in results:
        figure = _draw(record, history, (11, 4.8))
        save(figure, out / f"{record['script'].replace('/', '_')}.png", [record])
    moments = [history["shown"] for _, history in results]
    write_text(out / "timelines.json", json.dumps(moments) + "\n")
    groups = by_model([record for record, _ in results])
    for group in groups:
        if len(group) > 1:
            name = "timeline" if group is groups[0] else f"timeline_{folder(group[0])}"
            together = [result for result in results if result[0] in group]
            _draw_together(together, out / f"{name}.png")


def slide(record, moments, file):
    """Draws a picture of 16:9 for a slide.

    Args:
        record: of the prediction.
        moments: from condensed().
        file: for the picture.
    """
    save(_draw(record, expanded(moments), (13, 7.3 / (1 + on_host(record)))), file, [record])


def _draw(record, history, figsize):
    """Draws what one script holds on the device and, below it, on the host.

    Args:
        record, history: of the prediction.
        figsize: of each of the two, in inches.
    """
    parts = [("device", "simulated GPU" if history["host"] is not None else "computer")]
    parts += [("host", "host")] if on_host(record) else []
    figure, axes = plt.subplots(
        len(parts),
        1,
        figsize=(figsize[0], figsize[1] * len(parts)),
        layout="constrained",
        squeeze=False,
    )
    for ax, (part, name) in zip(axes[:, 0], parts):
        gb_or_mb, factor = _area(ax, history, part)
        ax.set_ylabel(f"{gb_or_mb} on the {name}")
        ax.set_xlabel("allocations and releases during one update, in order")
        place = where(record) if part == "device" else None
        _mark_peak(ax, history, part, factor, gb_or_mb, place)
    _legend(figure, [record], PEAK)
    figure.suptitle(_title(record))
    return figure


def _draw_together(results, file):
    """Draws all stages in one row, and those that are too small there in further rows.

    The stages in a row have one scale; each further row has a larger one.
    """
    rows = [results]
    while len(small := [r for r in rows[-1] if _peak_gb(r) < max(map(_peak_gb, rows[-1])) / 5]) > 1:
        rows.append(small)
    columns = [record["script"] for record, _ in results]
    figure, axes = plt.subplots(
        len(rows),
        len(columns),
        figsize=(max(1.6 * len(columns) + 1, 9), 3.4 * len(rows) + 1),
        layout="constrained",
        squeeze=False,
    )
    for ax in axes.flat:
        ax.set_visible(False)
    for line, row in zip(axes, rows):
        largest = max(map(_peak_gb, row))
        for result in row:
            record, history = result
            ax = line[columns.index(record["script"])]
            ax.set_visible(True)
            gb_or_mb, factor = _area(ax, history, "device", largest)
            gpus = f", {record['world_size']} devices" if record["world_size"] > 1 else ""
            stage = record["script"].replace("_", "\n", 1).replace("_", " ")
            title = f"{stage}\n{record['batch_size']} {unit(record)}{gpus}"
            ax.set_title(title, fontsize=9)
            peak = history["device"].sum(1).max() * factor
            ax.annotate(
                f"{peak:.3g}",
                (0.5, peak),
                xycoords=("axes fraction", "data"),
                ha="center",
                xytext=(0, 3),
                textcoords="offset points",
                fontsize=9,
            )
            ax.set_xticks([])
            if result is row[0]:
                ax.set_ylabel(f"{gb_or_mb} on the device")
            else:
                ax.set_yticklabels([])
    _legend(figure, [record for record, _ in results])
    record = results[0][0]
    figure.suptitle(
        f"One update of every script: {setting(record)}, on each {record['device']}.\nFrom left to"
        " right: allocations and releases in order, not time. White: forward, grey: backward,"
        " darker: step",
        fontsize=11,
    )
    save(figure, file, [r for r, _ in results])


def _peak_gb(result):
    return result[0]["train"]["device_peak_gb"]


def _area(axes, history, part, largest_gb=None):
    phases, held = history["phases"], history[part]
    gb_or_mb, factor = ("GB", 1) if (largest_gb or held.sum(1).max()) >= 1 else ("MB", 1000)
    x = np.array(history.get("at", range(len(held))))  # numbers of the events, all of them or some
    used = [label for label, column in zip(CATEGORIES, held.T) if column.any()]
    shares = [held[:, CATEGORIES.index(label)] * factor for label in used]
    axes.stackplot(
        x, shares, labels=used, colors=[COLORS[label] for label in used], step="post", linewidth=0
    )
    starts = [0, *(i for i in range(1, len(phases)) if phases[i] != phases[i - 1]), len(phases)]
    for begin, end in zip(starts, starts[1:]):
        axes.axvspan(
            x[begin], x[min(end, len(x) - 1)], color=SHADES[phases[begin]], zorder=0, linewidth=0
        )
        if (end - begin) > 0.04 * len(phases) and largest_gb is None:
            axes.annotate(
                phases[begin],
                ((x[begin] + x[end - 1]) / 2, 0.985),
                xycoords=("data", "axes fraction"),
                ha="center",
                va="top",
                fontsize=9,
            )
    axes.set_xlim(x[0], x[-1])
    axes.set_ylim(0, (largest_gb or held.sum(1).max()) * factor * (1.12 if largest_gb else 1.3))
    axes.spines[["top", "right"]].set_visible(False)
    return gb_or_mb, factor


def _mark_peak(axes, history, part, factor, gb_or_mb, place):
    total = history[part].sum(1) * factor
    at = int(total.argmax())
    x, y = history.get("at", range(len(total)))[at], total[at]
    axes.plot([x], [y], **MARK)
    side = "right" if at > len(total) / 2 else "left"  # so that the text stays inside
    axes.annotate(
        f"{y:.3g} {gb_or_mb}" + (f", {place}" if place else ""),
        (x, y),
        xytext=(0, 8),
        textcoords="offset points",
        ha=side,
        fontsize=9,
        fontweight="bold",
    )


def _legend(figure, records, *marks):
    used = set()
    for r in records:
        used.update(r["train"]["breakdown_gb"], r["host_breakdown_gb"]["train"] or {})
    colors = [(label, color) for label, color in COLORS.items() if label in used]
    patches = [matplotlib.patches.Patch(color=color, label=label) for label, color in colors]
    figure.legend(
        handles=[*patches, *marks],
        loc="outside lower center",
        ncols=len(patches) + len(marks) if figure.get_figwidth() > 10 else 4,
        frameon=False,
        fontsize=9,
    )


def _title(record):
    micro = f", {at_once(record)} at a time" if record["micro_batch_size"] else ""
    processes = f" over {record['world_size']} devices" if record["world_size"] > 1 else ""
    return (
        f"{record['script']}: {setting(record)}, {record['batch_size']}"
        f" {unit(record)}{processes}{micro}, {record['precision']}, {record['device']}"
    )
