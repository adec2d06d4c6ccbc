"""The judge of `python -m shared check` and of the game: a script beside its original, by aspects.

Each judgement is a row with what the script has and what is expected; sentences.py tells it.
"""

import dataclasses
import math
from typing import NamedTuple

# Relative. The same sums in another order change a loss by 3e-4 of it at most after four updates,
# by 4e-5 after eight; a missing zero_grad() by 8e-4 and 3e-3. The limit lies between.
LOSS_TOLERANCE = 4e-4
# Relative. bf16 gradients that are added up in another order differ by a few percent in norm.
GRADIENT_TOLERANCE = 0.1
PEAK_TOLERANCE = 5e-3  # relative: another order of the same lines moves a peak by less
LEAST_WORK = 0.99  # of the arithmetic of the original


class Row(NamedTuple):
    """A judgement of one aspect of a script."""

    aspect: str  # a key of sentences.WRONG
    mine: object  # the script's own value
    expected: object
    right: bool
    where: object = None  # such as a phase, an update, or the name of a constant
    reasons: tuple = ()  # Rows that explain this one


@dataclasses.dataclass(frozen=True)
class Training:
    """A short training; a field that was not observed keeps its default."""

    batch_size: int
    precision: str
    first_loss: float
    last_loss: float
    num_trained: int | None = None  # weights that get a gradient
    optimizer: str | None = None  # name of its class
    gradient_norms: tuple = ()  # at each step of the optimizer
    curve: tuple = ()  # the values in the script's list of that name

    @classmethod
    def of_record(cls, record, **observed):
        """Return the Training of a record of shared/run/record.py, with further observed fields."""
        names = ("batch_size", "precision", "first_loss", "last_loss")
        return cls(**{name: record[name] for name in names}, **observed)


def wrong(rows):
    """Return the rows that are not right, in order."""
    return tuple(row for row in rows if not row.right)


def equal(aspect, mine, expected, where=None):
    """Return the row of a value that is right only if it equals what is expected."""
    return Row(aspect, mine, expected, mine == expected, where)


def training(mine, expected):
    """Return the rows of two Trainings; causes stand before what follows from them."""
    first = near(mine.first_loss, expected.first_loss, LOSS_TOLERANCE)
    last = near(mine.last_loss, expected.last_loss, LOSS_TOLERANCE)
    # Another implementation of the same optimizer, such as a fused one, has another class and the
    # same losses. So a class counts only where the losses differ.
    optimizer = first and last or mine.optimizer == expected.optimizer
    return [
        equal("batch size", mine.batch_size, expected.batch_size),
        equal("trained weights", mine.num_trained, expected.num_trained),
        equal("precision", mine.precision, expected.precision),
        equal("steps", len(mine.gradient_norms), len(expected.gradient_norms)),
        Row("optimizer", mine.optimizer, expected.optimizer, optimizer),
        gradients(mine, expected),
        Row("first loss", mine, expected, first),
        Row("last loss", mine, expected, last),
        Row("curve", mine.curve, expected.curve, same_curve(mine.curve, expected.curve)),
    ]


def near(value, reference, tolerance):
    """Return whether a number is within a relative tolerance of a reference."""
    return abs(value - reference) <= tolerance * abs(reference)


def gradients(mine, expected):
    """Return the row of the first update whose gradients differ in norm, or of no update."""
    norms = zip(mine.gradient_norms, expected.gradient_norms)
    for update, (norm, reference) in enumerate(norms, start=1):
        if not near(norm, reference, GRADIENT_TOLERANCE):
            return Row("gradients", norm, reference, False, update)
    return Row("gradients", None, None, True)


def same_curve(curve, reference):
    """Return whether two lists of losses are equally long, and near at each place."""
    # zip() would compare only as many as both have.
    if len(curve) != len(reference):
        return False
    return all(near(a, b, LOSS_TOLERANCE) for a, b in zip(curve, reference))


def losses(attempt, reference, where=None):
    """Return one row of the trainings of two records."""
    mine, expected = map(Training.of_record, (attempt, reference))
    reasons = wrong(training(mine, expected))
    return Row("losses", mine, expected, not reasons, where, reasons)


def peak(attempt, reference, parent, phase="train"):
    """Return the row of a phase's peak in three records: of attempt, stage and the stage before.

    Sizes are in GB; expected is {script: peak}, the stage's first, which is the most that is right.
    """
    name = "peak" if phase == "train" else "loading peak"
    mine = attempt[phase]["device_peak_gb"]
    expected = {r["script"]: r[phase]["device_peak_gb"] for r in (reference, parent)}
    most = expected[reference["script"]]
    least = PEAK_TOLERANCE * most  # by which a category has grown
    # One process runs on the learner's own computer; several GPUs are emulated.
    device = attempt["device"] if attempt["world_size"] > 1 else None
    if mine <= (1 + PEAK_TOLERANCE) * most:
        return Row(name, mine, expected, True, device)
    usual = reference[phase]["breakdown_gb"]
    # Categories that the attempt lacks cannot have made its peak larger.
    categories = [
        Row("category", gb, usual.get(label), gb - usual.get(label, 0) <= least, label)
        for label, gb in attempt[phase]["breakdown_gb"].items()
    ]
    larger = sorted(wrong(categories), key=growth, reverse=True)
    return Row(name, mine, expected, False, device, tuple(larger))


def growth(category):
    """Return the size of a category relative to the usual one; infinity if there is none."""
    return category.mine / category.expected if category.expected else math.inf


def at_full_size(record, reference, gpus):
    """Return the rows of an update at full size on at most so many GPUs, from two records."""
    # A learner could pass the check with the small model, and change the full size by a condition.
    rows = [Row("GPUs", record["world_size"], gpus, record["world_size"] <= gpus)]
    # What the small model's run has compared, but as it is at full size.
    for name in ("batch_size", "model", "image_px"):
        rows.append(equal("full size", record[name], reference[name], name))
    # Of all GPUs: more of them would each do less.
    mine, expected = (r["cost"]["tflop"] * r["world_size"] for r in (record, reference))
    # More is allowed: checkpointing computes twice. Less means that a part is left out.
    return [*rows, Row("work", mine, expected, mine >= LEAST_WORK * expected)]


def pace(figures, reference, times):
    """Return the rows of how long a script takes; from figures of verdicts.

    It may take so many times as long as the reference; None: as long as it likes.
    """
    if not times:
        return []
    most = times * reference["ms"]
    ratio = figures["ms"] / reference["ms"]
    return [
        equal("host", figures["on_host"], False),
        Row("ms", figures["ms"], most, figures["ms"] <= most, ratio),
    ]
