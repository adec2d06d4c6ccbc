"""Answers of the exercises on the pages: two stored records compared, category by category."""

from shared.lab.records import markdown, stored
from shared.lab.records.exercises import of_page
from shared.lab.records.formats import LEAST, amount
from shared.lab.records.reading import setting
from shared.memory.accounting.blocks import CATEGORIES

SMALL = 0.02  # a category that changes by at most this share is not listed on its own,
LARGE = 0.25  # unless it makes up more than this share of the peak


def stored_entries():
    """Return the stored entries, {(folder, number): entry}."""
    return {(e["folder"], e["number"]): e for e in stored.read(stored.EXERCISES)}


# The marker's other options are those of the exercise, and of_page() reads them.
def part(folder, number, **_):
    """Return the generated part of an exercise."""
    return answer(of_page(folder.name)[number - 1])


def changes(record, against, phase, place):
    """Return the categories at a peak, as (category, GB before, GB now).

    The record of a run without a GPU has no figures of the host.
    """
    key = "breakdown_gb" if place == "device" else "host_breakdown_gb"
    breakdowns = [r[phase][key] for r in (against, record)]
    rows = [(label, *(gb.get(label, 0) for gb in breakdowns)) for label in CATEGORIES]
    return [row for row in rows if max(row[1:]) >= LEAST]


def answer(exercise):
    """Return the table of an answer, in Markdown."""
    entry = stored_entries()[exercise.key]
    record = entry["record"]
    against = entry["against"]
    names = [title(against, record, short=True), title(record, against, short=True)]
    rows = []
    totals = []
    for place in exercise.memory:
        of = "" if exercise.memory == ("device",) else f", {place}"
        # A measurement on a CPU has no host besides: its peak is None.
        peaks = [r[exercise.phase][f"{place}_peak_gb"] or 0 for r in (against, record)]
        rest = [0, 0]  # GB before and now of the categories that are not listed
        for label, *sizes in changes(record, against, exercise.phase, place):
            large = max(sizes) > LARGE * max(peaks)
            if abs(sizes[1] - sizes[0]) <= SMALL * max(sizes) and not large:
                # Added up, so that the rows still make the sum below.
                rest = [a + b for a, b in zip(rest, sizes)]
            else:
                rows.append(_cells(label + of, *sizes))
        if any(rest) and rows:  # without rows, it would repeat the sum below
            rows.append(_cells(f"all other categories{of}", *rest))
        totals.append(tuple(f"**{cell}**" for cell in _cells(f"together{of}", *peaks)))
    table = [(f"at the peak while {exercise.phase}ing", *names, "change"), *rows, *totals]
    # After as many updates, and not on noise, accuracies can be compared.
    on = [r.get("dataset") for r in (record, against)]
    tested = record.get("test_accuracy") is not None
    if tested and record["steps"] == against["steps"] and "fake" not in on:
        right = (f"{r['test_accuracy']:.1%}" for r in (against, record))
        table.append(("test accuracy", *right, ""))
    return markdown.text(table)


def _cells(name, before, now):
    # A change of sizes that the table shows as nothing would puzzle.
    before, now = (gb if gb and gb >= LEAST else 0 for gb in (before, now))
    return name, amount(before), amount(now), markdown.compared(before, now)


def title(record, other, short=False):
    """Return the heading of a record's column: its script, and its difference from `other`.

    With `short`, a script that both have in common is left out.
    """
    differs = [setting(record)] if setting(record) != setting(other) else []
    for key, form in (
        ("batch_size", "batch of {}"),
        ("micro_batch_size", "micro-batch of {}"),
        ("world_size", "{} devices"),
        ("steps", "{} updates"),
        ("dataset", "{}"),
        ("pretrained", "pretrained: {}"),
    ):
        value = record.get(key)
        if value != other.get(key) and value is not None:
            if isinstance(value, bool):  # True and False are Python's words
                value = "yes" if value else "no"
            text = form.format(value)
            differs.append(text.removesuffix("s") if value == 1 else text)
    # Without a difference the script is all that there is to say.
    if short and differs and record["script"] == other["script"]:
        return ", ".join(differs)
    return ", ".join([record["script"], *differs])
