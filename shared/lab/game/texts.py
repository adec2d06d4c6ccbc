"""Sentences of the game about a script: why it is refused, where it ran out, how well it fits."""

from emulated_gpu.cards import set_aside
from shared.lab.grading.same_training import Aspect
from shared.lab.predict.stage import UPDATES
from shared.lab.records.formats import size
from shared.lab.records.oom_message import numbers
from shared.lab.records.scripts import read_source

LEAST_WORK = 0.99  # of the arithmetic of the level's script


def refusal(comparison):
    """Return why the training of the small model is not the level's, None if it is.

    It is about the first difference, since most of the others follow from that one.
    """
    if comparison.same:
        return None
    attempt = comparison.attempt
    level = comparison.reference
    # Differences are in the order of Aspect, causes before what follows from them.
    match comparison.differences[0]:
        case Aspect.BATCH_SIZE:
            batch = f"{attempt.batch_size} images per update instead of {level.batch_size}"
            return f"{batch}: the batch has to stay"
        case Aspect.NUM_TRAINED:
            weights = (
                f"{attempt.num_trained:,} instead of {level.num_trained:,} weights are trained"
            )
            rule = "the model has to stay, and all of it to learn"
            return f"in the small model, {weights}: {rule}"
        case Aspect.PRECISION:
            precision = f"precision {attempt.precision} instead of {level.precision}"
            return f"{precision}: weights and computation have to keep theirs"
        case Aspect.NUM_STEPS:
            steps = f"{len(attempt.gradient_norms)} steps of the optimizer"
            return f"{steps} instead of {len(level.gradient_norms)}: one for each update"
        case Aspect.OPTIMIZER:
            optimizer = f"{attempt.optimizer} instead of {level.optimizer}"
            return f"{optimizer}: the optimizer has to stay"
        case Aspect.GRADIENTS:
            return gradients(comparison)
        case Aspect.FIRST_LOSS | Aspect.LAST_LOSS:
            losses = f"losses {losses_of(attempt)} instead of {losses_of(level)}"
            return f"{losses}: it does not learn the same"
        case Aspect.CURVE:
            values = f"{first_values(attempt.curve)} instead of {first_values(level.curve)}"
            return f"curve: its values are {values}, and so on"


def gradients(comparison):
    """Return in which update the gradients differ, and by how much."""
    index = comparison.update - 1
    ratio = comparison.attempt.gradient_norms[index] / comparison.reference.gradient_norms[index]
    times = f"{ratio:.2f} times as large as the level's"
    return f"gradients: in update {comparison.update}, their norm is {times}"


def losses_of(training):
    return f"{training.first_loss:.4f} to {training.last_loss:.4f}"


def first_values(curve):
    """Return the first three values of a curve as text."""
    return ", ".join(f"{value:.4f}" for value in curve[:3]) or "none"


def refusal_at_full_size(record, reference, level):
    """Return why an update at full size is not the level's, None if it is; from two records."""
    # A learner could pass the check with the small model, and change the full size by a condition.
    if record["world_size"] > level.gpus:
        return f"{record['world_size']} GPUs: this level has {level.gpus}"
    # What the small model's run has compared, but as it is at full size.
    for name in ("batch_size", "model", "image_px"):
        if record[name] != reference[name]:
            return f"at full size, {name} is {record[name]} instead of {reference[name]}"
    # Of all GPUs: more of them would each do less.
    work = tflop(record)
    # More is allowed: checkpointing computes twice. Less means that a part is left out.
    expected = tflop(reference)
    if work < LEAST_WORK * expected:
        left_out = f"{work:.3g} TFLOP instead of {expected:.3g}: something is left out"
        return f"an update takes {left_out}"
    return None


def slow(figures, reference, level):
    """Return why a script is too slow for a level, None if it is not; from figures of verdicts."""
    if not level.times_as_long:
        return None
    if figures["on_host"]:
        return "the host does a part of the update, and the emulated time leaves that out"
    goal = level.times_as_long * reference["ms"]
    if figures["ms"] <= goal:
        return None
    times = f"{figures['ms'] / reference['ms']:.2g} times what it takes with room for everything"
    return f"{figures['ms']:.3g} ms per image, {times}; the goal is {goal:.3g} ms"


def tflop(record):
    """Return the arithmetic of an update on all GPUs."""
    return record["cost"]["tflop"] * record["world_size"]


def lines(verdict, path):
    """Return a verdict on the script in a file as lines of text."""
    shown = [f"changed lines: {verdict['lines']}"]
    if "failed" in verdict:
        shown.append(f"error: {verdict['failed']}")
    elif verdict["refused"]:
        shown.append(f"refused: {verdict['refused']}")
    elif "said" in verdict:
        shown += ran_out(verdict, path)
    else:
        if verdict["slow"]:
            shown.append(f"too slow: {verdict['slow']}")
        left = size(verdict["card_gb"] - verdict["needs_gb"])
        shown.append(f"fits: it needs {verdict['needs_gb']:.2f} GB, {left} are left")
        if verdict["on_host"] and not verdict["slow"]:
            shown.append("the host does a part of the update; the time leaves that out")
    return shown


def ran_out(verdict, path):
    """Return where a file ran out of memory, what PyTorch said, and how far it is, as lines."""
    gb = {name: size(nbytes / 1e9) for name, nbytes in numbers(verdict["said"]).items()}
    devices = verdict["world_size"]
    where = f"in update {verdict['update']}"
    if line := verdict["line"]:
        code = read_source(path).splitlines()[line - 1].partition("  #")[0].strip()
        where = f"{where}, in line {line}: {code}"
    libraries = "CUDA and NCCL" if devices > 1 else "CUDA"
    # The CUDA context and NCCL's buffers take a share of the card that PyTorch does not count.
    aside = f"{size(set_aside(devices))} are set aside for {libraries}"
    needs = f"{verdict['needs_gb']:.2f} GB"
    missing = size(verdict["needs_gb"] - verdict["card_gb"])
    return [
        f"out of memory {where}",
        f"PyTorch asked for {gb['tried']}; {gb['free']} of the card's {gb['capacity']} were free",
        f"{gb['allocated']} were in tensors, {gb['idle']} reserved but idle; {aside}",
        f"with room for all of it, {UPDATES} updates need {needs}, {missing} more",
    ]
