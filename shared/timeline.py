"""Pictures of one update: who holds the memory, from event to event."""

import io
import json
import re

import matplotlib
import numpy as np

from shared.ledger import CATEGORIES
from shared.figures import by_model, counted, png_text, setting
from shared.stages import run_of
from shared.tables import on_host, where

matplotlib.use("Agg")  # draws into files, needs no screen
import matplotlib.pyplot as plt

COLORS = dict(zip(CATEGORIES, plt.get_cmap("tab10").colors))
INK = "#010203"  # stands for the text's colour until the page has one
POINTS = 200  # of a condensed history: as many as can be told apart on a page
SHADES = {"forward": "#ffffff", "backward": "#eeeeee", "step": "#dcdcdc"}


def draw_all(results, folder):
    """Draws a picture per script, such as 06_sgd.png, and timeline.png, all scripts of one model on a common scale; if there
    is a second model, timeline_STAGE.png too. What they show, condensed, is in timelines.json.

    Args:
        results: list of (record, history), from simulation.predict.
        folder: pathlib.Path; it must be there.
    """
    for record, history in results:
        figure = _draw(record, history, (11, 4.8))
        _save(figure, folder / f"{run_of(record).replace('/', '_')}.png", [record])
    (folder / "timelines.json").write_text(json.dumps([condensed(*result) for result in results]) + "\n")
    groups = by_model([record for record, _ in results])
    for group in groups:
        if len(group) > 1:
            name = "timeline" if group is groups[0] else f"timeline_{group[0]['stage']}"
            _draw_together([result for result in results if result[0] in group], folder / f"{name}.png")


def slide(record, moments, file):
    """Draws a picture of 16:9; moments, from condensed()."""
    _save(_draw(record, _history(moments), (13, 7.3 / (1 + on_host(record)))), file, [record])


def svg(record, moments):
    """Returns the picture as SVG to stand in an HTML page, which sets the colours: --COLOR of each category as variable()
    calls it, --backward and --step for the background, and its own text colour; moments, from condensed().
    """
    ink = dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK)
    with plt.rc_context({**ink, "svg.fonttype": "none", "svg.hashsalt": "", "font.family": "sans-serif", "font.size": 9}):
        figure = _draw(record, _history(moments), (8, 3), ink=INK, titles=False)
        text = io.StringIO()
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
        plt.close(figure)
    drawing = text.getvalue()
    drawing = re.sub(r"<metadata>.*?</metadata>\s*", "", drawing[drawing.index("<svg") :], flags=re.DOTALL)
    drawing = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{run_of(record).replace('/', '-')}-", drawing)  # once per page
    drawing = re.sub(r' d="[^"]*"', lambda path: re.sub(r"(\.\d)\d+", r"\1", path[0]), drawing)  # tenths of a point are enough
    replaced = {INK: "currentColor", SHADES["forward"]: "none", SHADES["backward"]: "var(--backward)", SHADES["step"]: "var(--step)"}
    for color, by in (*replaced.items(), *((hex_color(label), f"var({variable(label)})") for label in CATEGORIES)):
        drawing = drawing.replace(color, by)
    return re.sub(r'width="[\d.]+pt" height="[\d.]+pt"', 'aria-hidden="true"', re.sub(r"\n\s*", "\n", drawing), count=1)


def variable(label):
    """Returns the name of a category's colour in CSS."""
    return f"--{label.replace(' ', '-')}"


def hex_color(label):
    """Returns a category's colour, such as #1f77b4."""
    return matplotlib.colors.to_hex(COLORS[label])


def _history(moments):
    """Returns what condensed() has left of a history."""
    arrays = {part: moments[part] and np.array([moments[part].get(label, [0] * len(moments["at"])) for label in CATEGORIES]).T / 1e3 for part in ("device", "host")}
    return {"phases": moments["phases"], "at": moments["at"], **arrays}


def _draw(record, history, figsize, ink="black", titles=True):
    """Draws one script; where it keeps something on the host, a second picture of that below. figsize: inches, of each."""
    parts = [("device", "simulated GPU" if history["host"] is not None else "computer")]
    parts += [("host", "host")] if on_host(record) else []
    figure, axes = plt.subplots(len(parts), 1, figsize=(figsize[0], figsize[1] * len(parts)), layout="constrained", squeeze=False)
    for ax, (part, name) in zip(axes[:, 0], parts):
        unit, factor = _area(ax, history, part)
        ax.set_ylabel(f"{unit} on the {name}")
        ax.set_xlabel("allocations and releases during one update, in order")
        _mark_peak(ax, history, part, factor, unit, ink, where(record) if part == "device" else None)
    if titles:
        _legend(figure, [record])
        figure.suptitle(_title(record))
    return figure


def condensed(record, history):
    """Returns about POINTS moments of an update, as JSON can hold them: of each stretch of events the one with most on the
    device, and the one with most on the host.

    Returns:
        {"run", "git_commit", "events": how many there were, "at": the number of each moment's event, "phases": of each
        moment, "device": {category: MB at each moment}, "host": the same, None on a CPU}.
    """
    total = history["device"].sum(1)
    stretches = np.array_split(np.arange(len(total)), min(POINTS, len(total)))
    at = {int(stretch[total[stretch].argmax()]) for stretch in stretches}
    at = sorted(at if history["host"] is None else at | {int(history["host"].sum(1).argmax())})

    def held(part):
        if history[part] is None:
            return None
        return {label: [round(float(gb) * 1e3, 2) for gb in column] for label, column in zip(CATEGORIES, history[part][at].T) if column.any()}

    phases = [history["phases"][i] for i in at]
    return {"run": run_of(record), "git_commit": record["git_commit"], "events": len(total), "at": at, "phases": phases, "device": held("device"), "host": held("host")}


def _draw_together(results, file):
    """Draws a row with all stages on one scale, and below it, magnified, those that are too small there."""
    rows = [results]
    while len(small := [r for r in rows[-1] if _peak_gb(r) < max(map(_peak_gb, rows[-1])) / 5]) > 1:
        rows.append(small)
    columns = [run_of(record) for record, _ in results]
    figure, axes = plt.subplots(len(rows), len(columns), figsize=(max(1.6 * len(columns) + 1, 9), 3.4 * len(rows) + 1), layout="constrained", squeeze=False)
    for ax in axes.flat:
        ax.set_visible(False)
    for line, row in zip(axes, rows):
        largest = max(map(_peak_gb, row))
        for result in row:
            record, history = result
            ax = line[columns.index(run_of(record))]
            ax.set_visible(True)
            unit, factor = _area(ax, history, "device", largest)
            gpus = f", {record['world_size']} devices" if record["world_size"] > 1 else ""
            ax.set_title(run_of(record).replace("_", "\n", 1).replace("_", " ") + f"\n{record['batch_size']} {counted(record)}{gpus}", fontsize=9)
            peak = history["device"].sum(1).max() * factor
            ax.annotate(f"{peak:.3g}", (0.5, peak), xycoords=("axes fraction", "data"), ha="center", xytext=(0, 3), textcoords="offset points", fontsize=9)
            ax.set_xticks([])
            if result is row[0]:
                ax.set_ylabel(f"{unit} on the device")
            else:
                ax.set_yticklabels([])
    _legend(figure, [record for record, _ in results])
    record = results[0][0]
    figure.suptitle(
        f"One update of every script: {setting(record)}, on each {record['device']}.\n"
        "From left to right: allocations and releases in order, not time. White: forward, grey: backward, darker: step",
        fontsize=11,
    )
    _save(figure, file, [r for r, _ in results])


def _peak_gb(result):
    return result[0]["train"]["device_peak_gb"]


def _area(axes, history, part, largest_gb=None):
    phases, held = history["phases"], history[part]
    unit, factor = ("GB", 1) if (largest_gb or held.sum(1).max()) >= 1 else ("MB", 1000)
    x = np.array(history.get("at", range(len(held))))  # numbers of the events, all of them or some
    used = [label for label, column in zip(CATEGORIES, held.T) if column.any()]
    shares = [held[:, CATEGORIES.index(label)] * factor for label in used]
    axes.stackplot(x, shares, labels=used, colors=[COLORS[label] for label in used], step="post", linewidth=0)
    starts = [0, *(i for i in range(1, len(phases)) if phases[i] != phases[i - 1]), len(phases)]
    for begin, end in zip(starts, starts[1:]):
        axes.axvspan(x[begin], x[min(end, len(x) - 1)], color=SHADES[phases[begin]], zorder=0, linewidth=0)
        if (end - begin) > 0.04 * len(phases) and largest_gb is None:
            axes.annotate(phases[begin], ((x[begin] + x[end - 1]) / 2, 0.985), xycoords=("data", "axes fraction"), ha="center", va="top", fontsize=9)
    axes.set_xlim(x[0], x[-1])
    axes.set_ylim(0, (largest_gb or held.sum(1).max()) * factor * (1.12 if largest_gb else 1.3))
    axes.spines[["top", "right"]].set_visible(False)
    return unit, factor


def _mark_peak(axes, history, part, factor, unit, ink, place):
    total = history[part].sum(1) * factor
    at = int(total.argmax())
    x, y = history.get("at", range(len(total)))[at], total[at]
    axes.plot(x, y, "v", color=ink, ms=6)
    side = "right" if at > len(total) / 2 else "left"  # so that the text stays inside
    axes.annotate(f"{y:.3g} {unit}" + (f", {place}" if place else ""), (x, y), xytext=(0, 8), textcoords="offset points", ha=side, fontsize=9, fontweight="bold")


def _legend(figure, records):
    used = {label for r in records for part in (r["train"]["breakdown_gb"], r["host_breakdown_gb"]["train"] or {}) for label in part}
    patches = [matplotlib.patches.Patch(color=color, label=label) for label, color in COLORS.items() if label in used]
    figure.legend(handles=patches, loc="outside lower center", ncols=len(patches) if figure.get_figwidth() > 10 else 4, frameon=False, fontsize=9)


def _title(record):
    micro = f", {record['micro_batch_size']} at a time" if record["micro_batch_size"] else ""
    processes = f" over {record['world_size']} devices" if record["world_size"] > 1 else ""
    return f"{run_of(record)}: {setting(record)}, {record['batch_size']} {counted(record)}{processes}{micro}, {record['precision']}, {record['device']}"


def _save(figure, file, records):
    figure.savefig(file, dpi=130, metadata=png_text(records))
    plt.close(figure)
