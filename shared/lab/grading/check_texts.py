"""Sentences about the results of a check: a line for each, and a conclusion."""

import functools

from shared.lab.grading.check_results import Diff, Error, Form, Losses, Peak
from shared.lab.grading.same_training import Aspect
from shared.lab.records.formats import size

# What may have made a category larger.
HINTS = {
    "gradients": "is zero_grad() missing, or only after the forward pass?",
    "optimizer states": "another optimizer, such as Adam, or precision?",
    "activations": "micro-batches, precision, or a graph that is kept?",
    "gathered": "is fully_shard called for each block first?",
    "recomputed": "is each block checkpointed, or the whole model?",
}


@functools.singledispatch
def line(result):
    """Return the line that is printed about a result."""
    # A new kind of result needs its own sentence.
    raise TypeError(type(result))


@functools.singledispatch
def summary(result):
    """Return a few words about a right result for the conclusion, None if it leaves them out.

    The result of the form says nothing that the learner does not know.
    """
    return None


@line.register
def _(form: Form):
    if form.missing:
        return f"functions and constants: no {', no '.join(form.missing)}"
    texts = ["functions and constants are there"]
    texts += [f"{name} {code} instead of {value}" for name, (code, value) in form.values.items()]
    return ", but ".join(texts)


@line.register
def _(diff: Diff):
    expected = f"{diff.expected} in {diff.script}, at most {diff.limit}, from {diff.parent}"
    return f"{summary(diff)}, {expected}"


@summary.register
def _(diff: Diff):
    return f"{diff.actual} lines changed"


@line.register
def _(losses: Losses):
    where = "with a smaller last micro-batch, " if losses.uneven else ""
    attempt, reference = map(curve, (losses.comparison.attempt, losses.comparison.reference))
    if losses.right:
        return f"{where}losses agree, {attempt}"
    return f"{where}losses {attempt} instead of {reference}: {hint(losses.comparison)}"


@summary.register
def _(losses: Losses):
    return None if losses.uneven else "losses agree"


def curve(training):
    """Return the losses of a training, and its precision."""
    return f"{training.first_loss:.4f} to {training.last_loss:.4f} in {training.precision}"


def hint(comparison):
    """Return a question about the probable reason for different losses."""
    # Before the first step weights are equal, so the loss itself is computed in another way.
    if Aspect.FIRST_LOSS in comparison.differences:
        return "is each loss, in fp32, its share of the batch's, and is there one step per batch?"
    # Equal to the last digit: no weight of the model has changed.
    if comparison.attempt.first_loss == comparison.attempt.last_loss:
        return "nothing is learned; does the optimizer hold the model's own parameters?"
    return "precision, optimizer, step(), learning rate, schedule, zero_grad(), or batch size?"


@line.register
def _(peak: Peak):
    beside = f"{peak.script} {size(peak.expected_gb)}, {peak.parent} {size(peak.parent_gb)}"
    if peak.right:
        return f"{peak_text(peak)} as expected, {beside}"
    return "; ".join([f"{peak_text(peak)}, {beside}", *map(category_text, peak.larger)])


@summary.register
def _(peak: Peak):
    if peak.phase == "load" or peak.device:
        return None
    return f"{peak_text(peak)} as expected"


def peak_text(peak):
    """Return the name and the size of a peak."""
    kind = "loading peak" if peak.phase == "load" else "peak"
    place = f" on {peak.device}" if peak.device else ""
    return f"{kind} {size(peak.gb)}{place}"


def category_text(category):
    """Return the growth of a category over the stage's, and a question about the reason."""
    growth = "new"
    if category.expected_gb is not None:
        growth = f"{size(category.more_gb)} more, {category.times:.1f} times"
    reason = HINTS.get(category.name, "precision, batch size, or a second copy?")
    return f"{category.name} {size(category.gb)}, {growth}: {reason}"


@line.register
def _(error: Error):
    return error.message


def conclusion(number, results):
    """Return the last line of a check of a stage, by its number."""
    num_wrong = sum(not result.right for result in results)
    if num_wrong:
        return f"this is not stage {number} yet: {num_wrong} of {len(results)} checks failed"
    return f"this is stage {number}: {', '.join(filter(None, map(summary, results)))}"
