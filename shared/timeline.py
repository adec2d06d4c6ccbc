"""Pictures of one update: who holds the memory, from event to event."""

import json

import matplotlib
import numpy as np

from shared.ledger import CATEGORIES
from shared.figures import by_model, counted, png_text, setting
from shared.stages import run_of

matplotlib.use("Agg")  # draws into files, needs no screen
import matplotlib.pyplot as plt

COLORS = dict(zip(CATEGORIES, plt.get_cmap("tab10").colors))
POINTS = 300  # of a condensed history: as many as can be told apart on a page
SHADES = {"forward": "#ffffff", "backward": "#eeeeee", "step": "#dcdcdc"}


def draw_all(results, folder):
    """Draws a picture per script, such as 06_sgd.png, and timeline.png, all scripts of one model on a common scale; if there
    is a second model, timeline_STAGE.png too. What they show, condensed, is in timelines.json.

    Args:
        results: list of (record, history), from simulation.predict.
        folder: pathlib.Path; it must be there.
    """
    for record, history in results:
        parts = [("device", "simulated GPU" if history["host"] is not None else "computer")]
        if history["host"] is not None and record["train"]["host_peak_gb"] > 0.01 * record["train"]["device_peak_gb"]:
            parts.append(("host", "host"))
        figure, axes = plt.subplots(len(parts), 1, figsize=(11, 4.8 * len(parts)), layout="constrained", squeeze=False)
        for ax, (part, name) in zip(axes[:, 0], parts):
            unit, factor = _area(ax, history["phases"], history[part])
            ax.set_ylabel(f"{unit} on the {name}")
            ax.set_xlabel("allocations and releases during one update, in order")
            _mark_peak(ax, history[part].sum(1) * factor, unit)
        _legend(figure, axes[0][0], [(record, history)])
        figure.suptitle(_title(record))
        _save(figure, folder / f"{run_of(record).replace('/', '_')}.png", [record])
    (folder / "timelines.json").write_text(json.dumps([condensed(*result) for result in results]) + "\n")
    groups = by_model([record for record, _ in results])
    for group in groups:
        if len(group) > 1:
            name = "timeline" if group is groups[0] else f"timeline_{group[0]['stage']}"
            _draw_together([result for result in results if result[0] in group], folder / f"{name}.png")


def condensed(record, history):
    """Returns at most POINTS moments of an update, as JSON can hold them: of each stretch of events, the fullest one.

    Returns:
        {"run", "git_commit", "events": how many there were, "at": the number of each moment's event, "phases": of each
        moment, "device": {category: MB at each moment}, "host": the same, None on a CPU}.
    """
    total = history["device"].sum(1)
    stretches = np.array_split(np.arange(len(total)), min(POINTS, len(total)))
    at = [int(stretch[total[stretch].argmax()]) for stretch in stretches]

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
            unit, factor = _area(ax, history["phases"], history["device"], largest)
            gpus = f", {record['world_size']} devices" if record["world_size"] > 1 else ""
            ax.set_title(run_of(record).replace("_", "\n", 1).replace("_", " ") + f"\n{record['batch_size']} {counted(record)}{gpus}", fontsize=9)
            peak = history["device"].sum(1).max() * factor
            ax.annotate(f"{peak:.3g}", (0.5, peak), xycoords=("axes fraction", "data"), ha="center", xytext=(0, 3), textcoords="offset points", fontsize=9)
            ax.set_xticks([])
            if result is row[0]:
                ax.set_ylabel(f"{unit} on the device")
            else:
                ax.set_yticklabels([])
    _legend(figure, axes[0][0], results)
    record = results[0][0]
    figure.suptitle(
        f"One update of every script: {setting(record)}, on each {record['device']}.\n"
        "From left to right: allocations and releases in order, not time. White: forward, grey: backward, darker: step",
        fontsize=11,
    )
    _save(figure, file, [r for r, _ in results])


def _peak_gb(result):
    return result[0]["train"]["device_peak_gb"]


def _area(axes, phases, held, largest_gb=None):
    unit, factor = ("GB", 1) if (largest_gb or held.sum(1).max()) >= 1 else ("MB", 1000)
    x = np.arange(len(held))
    axes.stackplot(x, held.T * factor, labels=CATEGORIES, colors=COLORS.values(), step="post", linewidth=0)
    starts = [0, *(i for i in range(1, len(phases)) if phases[i] != phases[i - 1]), len(phases)]
    for begin, end in zip(starts, starts[1:]):
        axes.axvspan(begin, end, color=SHADES[phases[begin]], zorder=0, linewidth=0)
        if (end - begin) > 0.04 * len(phases) and largest_gb is None:
            axes.annotate(phases[begin], ((begin + end) / 2, 0.985), xycoords=("data", "axes fraction"), ha="center", va="top", fontsize=9, color="#555555")
    axes.set_xlim(0, len(held) - 1)
    axes.set_ylim(0, (largest_gb or held.sum(1).max()) * factor * 1.12)
    axes.spines[["top", "right"]].set_visible(False)
    return unit, factor


def _mark_peak(axes, total, unit):
    at = int(total.argmax())
    axes.plot(at, total[at], "kv", ms=6)
    axes.annotate(f"{total[at]:.3g} {unit}", (at, total[at]), xytext=(0, 8), textcoords="offset points", ha="center", fontsize=9, fontweight="bold")


def _legend(figure, axes, results):
    used = {label for record, _ in results for part in (record["train"]["breakdown_gb"], record["host_breakdown_gb"]["train"] or {}) for label in part}
    handles = [(handle, label) for handle, label in zip(*axes.get_legend_handles_labels()) if label in used]
    figure.legend(*zip(*handles), loc="outside lower center", ncols=len(handles) if figure.get_figwidth() > 10 else 4, frameon=False, fontsize=9)


def _title(record):
    micro = f", {record['micro_batch_size']} at a time" if record["micro_batch_size"] else ""
    processes = f" over {record['world_size']} devices" if record["world_size"] > 1 else ""
    return f"{run_of(record)}: {setting(record)}, {record['batch_size']} {counted(record)}{processes}{micro}, {record['precision']}, {record['device']}"


def _save(figure, file, records):
    figure.savefig(file, dpi=130, metadata=png_text(records))
    plt.close(figure)
