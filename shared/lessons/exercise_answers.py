"""The answers to exercises: two records compared, category by category."""

from shared.lessons import costs
from shared.memory.blocks import CATEGORIES
from shared.records import markdown
from shared.records.views import LEAST, amount, setting


def changes(record, against, phase="train", place="device"):
    """Returns what the categories held at a peak, as (category, GB before, GB now).

    A training without a GPU has no figures of the host.
    """
    if place == "device":
        held = [r[phase]["breakdown_gb"] for r in (against, record)]
    else:
        held = [r["host_breakdown_gb"][phase] for r in (against, record)]
    rows = [(label, *(h.get(label, 0) for h in held)) for label in CATEGORIES]
    return [row for row in rows if max(row[1:]) >= LEAST]


def text(exercise, record, against):
    """Writes an answer as a table in Markdown."""
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
        right = (f"{r['test_accuracy']:.1%}" for r in (against, record))
        table.append(("test accuracy", *right, ""))
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
