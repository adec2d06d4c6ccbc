"""The answers to exercises: two records compared, category by category."""

from shared.lessons import costs
from shared.memory.blocks import CATEGORIES
from shared.records import markdown
from shared.records.views import LEAST, amount, setting


def changes(record, against, phase="train", place="device"):
    """Compares what the categories held at a peak.

    Args:
        record, against: what a command printed, and what to compare it with.
        phase: "load" or "train".
        place: "device" or "host"; a training without a GPU has no figures of the host.

    Returns:
        list of (category, GB before, GB now), without those that are never shown.
    """
    if place == "device":
        held = [r[phase]["breakdown_gb"] for r in (against, record)]
    else:
        held = [r["host_breakdown_gb"][phase] for r in (against, record)]
    rows = [(label, *(h.get(label, 0) for h in held)) for label in CATEGORIES]
    return [row for row in rows if max(row[1:]) >= LEAST]


def text(exercise, record, against):
    """Writes an answer as a table in Markdown.

    Args:
        exercise: with phase and memory.
        record, against: what its command printed, and what it is compared with.
    """
    names = [title(r, other) for r, other in ((against, record), (record, against))]
    if exercise.phase == "cost":
        return costs.table([against, record], names)
    rows, totals = [], []
    for place in exercise.memory:
        of = "" if exercise.memory == ("device",) else f", {place}"
        for label, *sizes in changes(record, against, exercise.phase, place):
            rows.append(_cells(label + of, *sizes))
        peaks = (r[exercise.phase][f"{place}_peak_gb"] for r in (against, record))
        totals.append(tuple(f"**{cell}**" for cell in _cells(f"together{of}", *peaks)))
    table = [(f"at the peak while {exercise.phase}ing", *names, ""), *rows, *totals]
    if comparable(record, against):
        table.append(
            ("test accuracy", *(f"{r['test_accuracy']:.1%}" for r in (against, record)), "")
        )
    return markdown.text(table)


def _cells(name, before, now):
    before, now = (gb if gb and gb >= LEAST else 0 for gb in (before, now))
    return name, amount(before), amount(now), markdown.compared(before, now)


def comparable(record, against):
    """Tells whether the accuracies of two records are: after as many updates, of real images."""
    return (
        record["test_accuracy"] is not None
        and record["steps"] == against["steps"]
        and "fake" not in (record["dataset"], against["dataset"])
    )


def title(record, other):
    """Returns the heading of a record's column: its script, and how it differs from the other."""
    differs = [setting(record)] if setting(record) != setting(other) else []
    for key, words in (
        ("batch_size", "batch of {}"),
        ("micro_batch_size", "micro-batch of {}"),
        ("world_size", "{} devices"),
        ("steps", "{} updates"),
        ("dataset", "{}"),
        ("pretrained", "pretrained: {}"),
    ):
        value = record[key]
        if value != other[key] and value is not None:
            if isinstance(value, bool):
                value = "yes" if value else "no"
            said = words.format(value)
            differs.append(said.removesuffix("s") if value == 1 else said)
    return ", ".join([record["script"], *differs])


# The packages whose versions decide which tensors there are, and what cuBLAS keeps.
DECIDE = ("torch", "transformers", "lightning")


def differences(then, now):
    """Returns what differs between two entries of the stored file, as lines.

    Made with the same versions, all memory must be the same to the byte; with others, an update
    must do the same arithmetic. Accuracies may differ by a tenth, as processors round differently.
    """
    found = []
    for which in ("record", "against"):
        a, b = then[which], now[which]
        same = all(a["versions"].get(name) == b["versions"].get(name) for name in DECIDE)
        # A training has no cost, and its simulation has.
        keys = ("load", "train", "host_breakdown_gb", "cost", "bound") if same else ("cost",)
        both = [key for key in keys if a.get(key) and b.get(key)]
        pairs = {key: (a[key], b[key]) for key in both}
        if "cost" in both and not same:
            pairs["cost"] = (a["cost"]["tflop"], b["cost"]["tflop"])
        pairs["test accuracy"] = accuracies = (a["test_accuracy"], b["test_accuracy"])
        if None not in accuracies and abs(accuracies[0] - accuracies[1]) <= 0.1:
            del pairs["test accuracy"]
        for name, (x, y) in pairs.items():
            if x != y:
                where = f"{now['folder']}, exercise {now['number']}, {which}, {name}"
                found.append(f"{where}: stored {x}, now {y}")
    return found
