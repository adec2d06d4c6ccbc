"""Trainers of packages, which evaluate right after the watched updates, whatever they were told.

A run evaluates after hundreds of updates, and here it is ended before them.
"""

import functools

from emulated_gpu.imports import once_imported
from emulated_gpu.stand_ins.notes import replace


def evaluate_soon(updates):
    """Let trainers evaluate after so many updates, if they evaluate at all."""
    fit, train = (functools.partial(change, updates) for change in (_fit, _train))
    for module in ("lightning.pytorch.trainer.trainer", "pytorch_lightning.trainer.trainer"):
        once_imported(module, lambda module: replace(module.Trainer, "fit", fit))
    once_imported("transformers.trainer", lambda module: replace(module.Trainer, "train", train))


def _fit(updates, original, trainer, *args, **kwargs):
    """Stand for fit() of Lightning's Trainer, which asks a loader for its length."""
    most = updates * trainer.accumulate_grad_batches
    limit = trainer.limit_train_batches
    if not isinstance(limit, int) or limit > most:
        trainer.limit_train_batches = most
        trainer.val_check_interval = 1.0
        trainer.check_val_every_n_epoch = 1
    return original(trainer, *args, **kwargs)


def _train(updates, original, trainer, *args, **kwargs):
    """Stand for train() of transformers' Trainer."""
    settings = trainer.args
    # The option has another name before transformers 4.41.
    name = "eval_strategy" if hasattr(settings, "eval_strategy") else "evaluation_strategy"
    if getattr(settings, name) == "steps":
        settings.eval_steps = updates
    return original(trainer, *args, **kwargs)
