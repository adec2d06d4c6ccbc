"""Run single-process scripts in this process for a few updates, and keep their losses."""

import functools

import torch
from conftest import in_fp32
from lightning.fabric import Fabric

from helpers.sharded import STEPS
from shared.lab.records import scripts
from shared.metrics import Losses

TINY = ["--preset", "tiny"]


class Results:
    """Stand-in for the meter of train_step(): it keeps the loss of an update, and the logits."""

    def __init__(self):
        self.loss, self.parts = 0, []

    def add(self, loss, logits, labels):
        self.loss = self.loss + loss.detach()
        self.parts.append(logits)

    @property
    def logits(self):
        return torch.cat(self.parts).detach()


class Spy(torch.optim.SGD):
    """Optimizer that keeps the gradients of a step and updates nothing."""

    def step(self, closure=None):
        self.grads = [p.grad.clone() for group in self.param_groups for p in group["params"]]


def one_update(name, model, inputs, labels):
    """Run an update of a model with a script, in double precision; return its Results.

    They also have `grads`, the gradients of all parameters.
    """
    fabric = Fabric(accelerator="cpu", devices=1, precision="64-true")
    wrapped, optimizer = fabric.setup(model, Spy(model.parameters(), lr=0.1))
    kept = Results()
    scripts.get(name).load().train_step(fabric, wrapped, optimizer, inputs, labels, kept)
    kept.grads = optimizer.optimizer.grads
    return kept


def losses(module, *options):
    """Run a script's main() in this process; return the loss of every update and the record."""
    seen, end = [], Losses.end

    def watched(losses):
        seen.append(losses.last.item())
        end(losses)

    Losses.end = watched
    try:
        return seen, module.main([*TINY, *options])
    finally:
        Losses.end = end
        torch.compiler.set_stance("default")  # some scripts change these two for their process
        torch.set_float32_matmul_precision("highest")


@functools.cache
def alone(name, fp32=False):
    """Return the losses and the record of a single-process script over a few updates."""
    return losses(in_fp32(name) if fp32 else scripts.get(name).load(), "--max-steps", str(STEPS))
