"""Sentences about the judge's rows, by aspect, and the line that ends a check."""

from shared.lab.grading.aspects import growth, wrong
from shared.lab.records.formats import size

# What may have made a category larger.
HINTS = {
    "gradients": "is zero_grad() missing, or only after the forward pass?",
    "optimizer states": "another optimizer, such as Adam, or precision?",
    "activations": "micro-batches, precision, or a graph that is kept?",
    "gathered": "is fully_shard called for each block first?",
    "recomputed": "is each block checkpointed, or the whole model?",
}


def sentence(row):
    """Return the sentence about a row, of a table below."""
    says = (RIGHT if row.right else WRONG)[row.aspect]
    return says(row) if callable(says) else says.format(**row._asdict())


def first_wrong(rows):
    """Return the sentence about the first row that is not right, None if all are.

    The first alone, since most of the others follow from it.
    """
    return next(map(sentence, wrong(rows)), None)


def conclusion(number, rows):
    """Return the last line of a check of a stage, by its number."""
    if num_wrong := len(wrong(rows)):
        return f"this is not stage {number} yet: {num_wrong} of {len(rows)} checks failed"
    # A row of a place of its own repeats what another says.
    told = [row for row in rows if row.aspect in SHORT and not row.where]
    return f"this is stage {number}: {', '.join(SHORT[row.aspect](row) for row in told)}"


def names(row):
    """Return the functions and constants that are missing, or those with other values."""
    if row.mine:
        return f"functions and constants: no {', no '.join(row.mine)}"
    return ", but ".join(["functions and constants are there", *map(sentence, row.reasons)])


def losses(row):
    """Return the losses of a short training, beside those that are expected."""
    where = f"{row.where}, " if row.where else ""
    if row.right:
        return f"{where}losses agree, {losses_of(row.mine)} in {row.mine.precision}"
    both = (f"{losses_of(run)} in {run.precision}" for run in (row.mine, row.expected))
    return f"{where}losses {' instead of '.join(both)}: {hint(row)}"


def losses_of(training):
    return f"{training.first_loss:.4f} to {training.last_loss:.4f}"


def hint(row):
    """Return a question about the probable reason for different losses."""
    # Before the first step weights are equal, so the loss itself is computed in another way.
    if any(reason.aspect == "first loss" for reason in row.reasons):
        return "is each loss, in fp32, its share of the batch's, and is there one step per batch?"
    # Equal to the last digit: no weight of the model has changed.
    if row.mine.first_loss == row.mine.last_loss:
        return "nothing is learned; does the optimizer hold the model's own parameters?"
    return "precision, optimizer, step(), learning rate, schedule, zero_grad(), or batch size?"


def other_losses(row):
    both = " instead of ".join(map(losses_of, (row.mine, row.expected)))
    return f"losses {both}: it does not learn the same"


def gradients(row):
    times = f"{row.mine / row.expected:.2f} times as large as the level's"
    return f"gradients: in update {row.where}, their norm is {times}"


def curve(row):
    """Return the first three values of two curves."""
    both = (", ".join(f"{x:.4f}" for x in run[:3]) or "none" for run in (row.mine, row.expected))
    return f"curve: its values are {' instead of '.join(both)}, and so on"


def peak(row):
    """Return a peak, those that are expected, and the categories that have grown."""
    usual = ", ".join(f"{name} {size(gb)}" for name, gb in row.expected.items())
    return "; ".join([f"{short_peak(row)}, {usual}", *map(sentence, row.reasons)])


def short_peak(row):
    place = f" on {row.where}" if row.where else ""
    return f"{row.aspect} {size(row.mine)}{place}{' as expected' if row.right else ''}"


def category(row):
    """Return the growth of a category, and a question about the reason."""
    grown = "new"
    if row.expected is not None:
        grown = f"{size(row.mine - row.expected)} more, {growth(row):.1f} times"
    reason = HINTS.get(row.where, "precision, batch size, or a second copy?")
    return f"{row.where} {size(row.mine)}, {grown}: {reason}"


# With the fields of a row, or by a function of it.
LINES = (
    "{mine} lines changed, {expected[lines]} in {expected[script]}, at most {expected[most]}, "
    "from {expected[parent]}"
)
RIGHT = {"names": names, "lines": LINES, "losses": losses, "peak": peak, "loading peak": peak}
WRONG = {
    **RIGHT,
    "constant": "{where} {mine} instead of {expected}",
    "category": category,
    "error": "{mine}",
    # Of the training with the small model:
    "batch size": "{mine} images per update instead of {expected}: the batch has to stay",
    "trained weights": (
        "in the small model, {mine:,} instead of {expected:,} weights are trained: the model has "
        "to stay, and all of it to learn"
    ),
    "precision": (
        "precision {mine} instead of {expected}: weights and computation have to keep theirs"
    ),
    "steps": "{mine} steps of the optimizer instead of {expected}: one for each update",
    "optimizer": "{mine} instead of {expected}: the optimizer has to stay",
    "gradients": gradients,
    "first loss": other_losses,
    "last loss": other_losses,
    "curve": curve,
    # At full size:
    "GPUs": "{mine} GPUs: this level has {expected}",
    "full size": "at full size, {where} is {mine} instead of {expected}",
    "work": ("an update takes {mine:.3g} TFLOP instead of {expected:.3g}: something is left out"),
    "host": "the host does a part of the update, and the emulated time leaves that out",
    "ms": (
        "{mine:.3g} ms per image, {where:.2g} times what it takes with room for everything; the "
        "goal is {expected:.3g} ms"
    ),
}
SHORT = {  # in the conclusion; that the names are there is no news
    "lines": lambda row: f"{row.mine} lines changed",
    "losses": lambda row: "losses agree",
    "peak": short_peak,
}
