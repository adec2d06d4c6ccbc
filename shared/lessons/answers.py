"""The answers to exercises: two records compared, category by category, in figures and words."""

import dataclasses
import math

from shared.lessons import costs
from shared.memory.blocks import CATEGORIES
from shared.records import markdown
from shared.records.views import LEAST, amount, setting

# The words for a ratio that is one of these within half a percent. Any other ratio is written in
# percent, or as a multiple.
FACTORS = {
    1: "nearly the same",
    2: "doubles",
    3: "3 times as much",
    4: "4 times as much",
    8: "8 times as much",
    16: "16 times as much",
    1 / 2: "halves",
    1 / 4: "falls to a quarter",
    1 / 8: "falls to an eighth",
    1 / 16: "falls to a sixteenth",
}


@dataclasses.dataclass(frozen=True)
class Row:
    """What one category, or all of them together, held before and holds now.

    Attributes:
        name: the category, or "together"; if it is needed, also which memory.
        before_gb, now_gb: the sizes.
        words: how the size changes.
    """

    name: str
    before_gb: float
    now_gb: float

    @property
    def words(self):
        # What amount() does not show counts as nothing here, too.
        before, now = (gb if gb and gb >= LEAST else 0 for gb in (self.before_gb, self.now_gb))
        if not before:
            return "new" if now else "nothing"
        if not now:
            return "hardly any left" if self.now_gb else "gone"
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
    """What the comparison of two records shows.

    Attributes:
        rows: a Row for each category.
        totals: a Row for each memory, the device's and the host's.
        test_accuracy: before and now; None if the two cannot be compared.
    """

    rows: list
    totals: list
    test_accuracy: tuple | None


def answer(record, against, phase="train", memory=("device",)):
    """Compares two records.

    Args:
        record, against: what the command printed, and what to compare it with.
        phase: "load" or "train".
        memory: "device", "host", or both; a record of a training without a GPU has no figures of
            the host.
    """
    rows, totals = [], []
    for place in memory:
        if place == "device":
            held = [r[phase]["breakdown_gb"] for r in (against, record)]
        else:
            held = [r["host_breakdown_gb"][phase] for r in (against, record)]
        of = f", {place}" if len(memory) > 1 or place == "host" else ""
        found = [Row(label + of, *(h.get(label, 0) for h in held)) for label in CATEGORIES]
        rows += [row for row in found if row.words != "nothing"]
        peaks = (r[phase][f"{place}_peak_gb"] for r in (against, record))
        totals.append(Row(f"together{of}", *peaks))
    compared = (
        record["test_accuracy"] is not None
        and record["steps"] == against["steps"]
        and "fake" not in (record["dataset"], against["dataset"])
    )
    accuracies = (against["test_accuracy"], record["test_accuracy"])
    return Answer(rows, totals, accuracies if compared else None)


def text(exercise, record, against):
    """Writes an answer as a table in Markdown.

    Args:
        exercise: with phase and memory.
        record, against: what its command printed, and what it is compared with.
    """
    names = [title(r, other) for r, other in ((against, record), (record, against))]
    if exercise.phase == "cost":
        return costs.table([against, record], names)
    found = answer(record, against, exercise.phase, exercise.memory)
    table = [(f"at the peak while {exercise.phase}ing", *names, "")]
    table += [_cells(row) for row in found.rows]
    table += [tuple(f"**{cell}**" for cell in _cells(row)) for row in found.totals]
    if found.test_accuracy:
        table.append(("test accuracy", *(f"{x:.1%}" for x in found.test_accuracy), ""))
    return "\n".join(markdown.table(table))


def _cells(row):
    return row.name, amount(row.before_gb), amount(row.now_gb), row.words


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
        if record[key] != other[key] and record[key] is not None:
            value = record[key]
            if isinstance(value, bool):
                value = "yes" if value else "no"
            text = words.format(value)
            differs.append(text.removesuffix("s") if text.startswith("1 ") else text)
    return ", ".join([record["script"], *differs])


# The packages whose versions decide which tensors there are, and what cuBLAS keeps.
DECIDE = ("torch", "transformers", "lightning")


def differences(then, now):
    """Returns what differs between two entries of the stored file, as lines.

    Memory must be the same to the byte if both were made with the same versions. Other versions
    keep more or less for cuBLAS, and free some tensors earlier or later. There, tensors must change
    the same way: more, fewer, or nearly the same; and an update must do the same arithmetic.
    Accuracies may differ by a tenth, because processors round differently.
    """
    where = f"{now['folder']}, exercise {now['number']}"
    if any(then[key] != now[key] for key in ("command", "folder", "number")):
        return [f"{where}: another exercise is stored"]
    found = []
    same = _made_with(then) == _made_with(now)
    for phase in () if same else ("load", "train"):
        x, y = (_way(entry, phase) for entry in (then, now))
        if x != y:
            found.append(f"{where}, {phase}: what tensors hold {x} in the stored answer, now {y}")
    for which in ("record", "against"):
        a, b = then[which], now[which]
        for name, x, y in _figures(a, b) if same else _arithmetic(a, b):
            if x != y:
                found.append(f"{where}, {which}, {name}: stored {x}, now {y}")
        x, y = a["test_accuracy"], b["test_accuracy"]
        if (x is None) != (y is None) or (x is not None and abs(x - y) > 0.1):
            found.append(f"{where}, {which}, test accuracy: stored {x}, now {y}")
    return found


def _made_with(entry):
    versions = [entry[which]["versions"] for which in ("record", "against")]
    return [v.get(name) for v in versions for name in DECIDE]


def _way(entry, phase):
    """Tells how what tensors hold at the peak changes, cuBLAS's workspaces left out."""
    held = [entry[which][phase]["breakdown_gb"] for which in ("against", "record")]
    before, now = (sum(gb for label, gb in h.items() if label != "workspaces") for h in held)
    if FACTORS[1] in Row("", before, now).words or before == now:
        return "stays"
    return "falls" if now < before else "grows"


def _arithmetic(a, b):
    """Yields what is as in _figures(), but the same in any version."""
    costs = [r.get("cost") or {} for r in (a, b)]
    if all(costs):
        yield "cost tflop", costs[0]["tflop"], costs[1]["tflop"]


def _figures(a, b):
    """Yields (name, figure of a, figure of b).

    Args:
        a, b: records.
    """
    for phase in ("load", "train"):
        for key in ("device_peak_gb", "host_peak_gb"):
            yield f"{phase} {key}", a[phase][key], b[phase][key]
        held = {phase: [r[phase]["breakdown_gb"] for r in (a, b)]}
        if "host_breakdown_gb" in a:
            held[f"{phase}, host"] = [r["host_breakdown_gb"][phase] or {} for r in (a, b)]
        for name, (x, y) in held.items():
            for label in CATEGORIES:
                yield f"{name} {label}", x.get(label), y.get(label)
    for key in ("cost", "bound"):
        figures = [r.get(key) or {} for r in (a, b)]
        for name in figures[0] if all(figures) else ():
            if isinstance(figures[0][name], (int, float)):
                yield f"{key} {name}", figures[0][name], figures[1][name]
