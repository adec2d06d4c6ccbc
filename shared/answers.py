"""The answers to exercises: two records compared, category by category, in figures and words, and in Markdown for a page."""

import dataclasses
import math

from shared import markdown, stages
from shared.figures import setting
from shared.ledger import CATEGORIES

# What to say of a ratio that is one of these within half a percent; any other is told in percent, or as a multiple.
FACTORS = {1: "nearly the same", 2: "doubles", 3: "3 times as much", 4: "4 times as much", 8: "8 times as much", 16: "16 times as much", 1 / 2: "halves", 1 / 4: "falls to a quarter", 1 / 8: "falls to an eighth", 1 / 16: "falls to a sixteenth"}


@dataclasses.dataclass(frozen=True)
class Row:
    """What one category, or all of them together, held before and now, in GB, and how that changes, in words."""

    name: str
    before_gb: float
    now_gb: float

    @property
    def words(self):
        before, now = (gb if gb and gb >= 5e-5 else 0 for gb in (self.before_gb, self.now_gb))  # as markdown.amount() does
        if not before or not now:
            return "new" if now else "nothing" if not before else "hardly any left" if self.now_gb else "gone"
        ratio = now / before
        if now == before:
            return "the same"
        for factor, words in FACTORS.items():
            if math.isclose(ratio, factor, rel_tol=0.005):
                return words
        if ratio < 1:
            return f"falls to {ratio:.0%}" if ratio >= 0.01 else "falls to less than 1%"
        return f"grows by {ratio - 1:.0%}" if ratio < 2 else f"{ratio:.1f} times as much"


@dataclasses.dataclass(frozen=True)
class Answer:
    """rows: a Row for each category; totals: one for each memory, the device's, the host's; test_accuracy: before and
    now, None if the two records cannot be compared in it."""

    rows: list
    totals: list
    test_accuracy: tuple | None


def answer(record, against, phase="train", memory=("device",)):
    """Compares two records.

    Args:
        record, against: what the command printed, and what to compare it with.
        phase: "load" or "train".
        memory: "device", "host", or both; a record of a training without a GPU has no figures of the host.
    """
    rows, totals = [], []
    for place in memory:
        held = [r[phase]["breakdown_gb"] if place == "device" else r["host_breakdown_gb"][phase] for r in (against, record)]
        of = f", {place}" if len(memory) > 1 or place == "host" else ""
        found = [Row(label + of, *(h.get(label, 0) for h in held)) for label in CATEGORIES]
        rows += [row for row in found if row.words != "nothing"]
        totals.append(Row(f"together{of}", *(r[phase][f"{place}_peak_gb"] for r in (against, record))))
    compared = record["test_accuracy"] is not None and record["steps"] == against["steps"] and "fake" not in (record["dataset"], against["dataset"])
    return Answer(rows, totals, (against["test_accuracy"], record["test_accuracy"]) if compared else None)


def text(exercise, record, against, file):
    """Writes an answer in Markdown: a table, why it is so, and where the figures come from.

    Args:
        exercise: an Exercise.
        record, against: what its command printed, and what it is compared with.
        file: that has both.
    """
    found = answer(record, against, exercise.phase, exercise.memory)
    names = [title(r, other) for r, other in ((against, record), (record, against))]
    table = [(f"at the peak while {exercise.phase}ing", *names, "")]
    table += [(row.name, markdown.amount(row.before_gb), markdown.amount(row.now_gb), row.words) for row in found.rows]
    table += [tuple(f"**{cell}**" for cell in (row.name, markdown.amount(row.before_gb), markdown.amount(row.now_gb), row.words)) for row in found.totals]
    if found.test_accuracy:
        table.append(("test accuracy", *(f"{x:.1%}" for x in found.test_accuracy), ""))
    return "\n".join([*markdown.table(table), "", exercise.why, "", origin(record, against, file)])


def title(record, other):
    """Returns the heading of a record's column: which run it is, and in what it differs from the other one."""
    differs = [setting(record)] if setting(record) != setting(other) else []
    for key, words in (("batch_size", "batch of {}"), ("micro_batch_size", "micro-batch of {}"), ("world_size", "{} devices"), ("steps", "{} updates"), ("dataset", "{}"), ("pretrained", "pretrained: {}")):
        if record[key] != other[key] and record[key] is not None:
            text = words.format({True: "yes", False: "no"}[record[key]] if isinstance(record[key], bool) else record[key])
            differs.append(text.removesuffix("s") if text.startswith("1 ") else text)
    return ", ".join([stages.run_of(record), *differs])


def origin(record, against, file):
    """Tells where an answer's figures come from."""
    both = (record, against)
    how = "Predicted" if "simulated" in record["device"] else "Measured"
    versions = markdown.listed(r["versions"]["torch"] for r in both)
    where, when, commits = (markdown.listed(r[key] for r in both) for key in ("device", "date", "git_commit"))
    return f"{how} with {markdown.listed(map(markdown.command, both))}: {where}, torch {versions}, {when}, commit {commits}; records in `{file.relative_to(stages.ROOT)}`."
