"""The training of the small model by a level's script, observed from outside."""

import dataclasses
import json
import tempfile
from pathlib import Path

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from shared import metrics
from shared.lab.grading.aspects import Training
from shared.lab.records.running import side_by_side
from shared.memory.accounting.torch_private import wrapped

# Eight updates: enough for a missing zero_grad() to move the loss well beyond its tolerance.
OPTIONS = ["--preset", "tiny", "--max-steps", "8"]


def observe(script, processes):
    """Train the small model on a CPU, in so many processes; return its Training."""
    with tempfile.TemporaryDirectory() as folder:
        # Through a file: with several processes a fork of this one makes the Training.
        file = Path(folder, "training.json")
        if processes > 1:
            side_by_side(processes, observe_here, script, file)
        else:
            torch.set_num_threads(1)
            observe_here(script, file)
        fields = json.loads(file.read_text())
    # JSON has lists in place of tuples.
    fields["gradient_norms"] = tuple(fields["gradient_norms"])
    fields["curve"] = tuple(fields["curve"])
    return Training(**fields)


def observe_here(script, file):
    """Train the small model in this process; rank 0 writes the Training into a file."""
    optimizer_name = None
    num_trained = None
    gradient_norms = []

    def count_weights(original, meter, model, *others):
        nonlocal num_trained
        num_trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
        return original(meter, model, *others)

    def before_step(optimizer, *_):
        nonlocal optimizer_name
        optimizer_name = type(optimizer).__name__
        # Before the step, as a script may free gradients right after it.
        gradient_norms.append(gradient_norm(optimizer))

    # A hook on all optimizers, since a learner's script may make another one, or several.
    module = script.load()
    hook = register_optimizer_step_pre_hook(before_step)
    with wrapped(metrics.Meter, "training", count_weights):
        record = module.main(OPTIONS)
    hook.remove()
    training = Training.of_record(
        record,
        num_trained=num_trained,
        optimizer=optimizer_name,
        gradient_norms=gradient_norms,
        curve=[float(value) for value in getattr(module, "curve", [])],
    )
    if torch.distributed.is_initialized() and torch.distributed.get_rank():
        return  # all ranks have the same gradients and losses
    file.write_text(json.dumps(dataclasses.asdict(training)))


def gradient_norm(optimizer):
    """Return the norm of all gradients that an optimizer is about to use; of shards, of all."""
    gradients = [p.grad for group in optimizer.param_groups for p in group["params"]]
    squares = sum(grad.float().square().sum() for grad in gradients if grad is not None)
    if hasattr(squares, "full_tensor"):  # a DTensor
        # Each rank has the squares of its shard; this adds them up.
        squares = squares.full_tensor()
    return float(squares) ** 0.5
