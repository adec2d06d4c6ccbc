"""Runs scripts that need one process in this one, for a few updates, and keeps their losses."""

import functools

import torch
from conftest import in_fp32
from lightning.fabric import Fabric
from sharded import STEPS

from shared.metrics import Losses
from shared.records import scripts

TINY = ["--preset", "tiny"]


class Results:
    """Keeps what train_step() hands to the meter: the loss of an update, and its logits."""

    def __init__(self):
        self.loss, self.parts = 0, []

    def add(self, loss, logits, labels):
        self.loss = self.loss + loss.detach()
        self.parts.append(logits)

    @property
    def logits(self):
        return torch.cat(self.parts).detach()


class Spy(torch.optim.SGD):
    """Keeps the gradients that a step was made with."""

    def step(self, closure=None):
        self.grads = [p.grad.clone() for group in self.param_groups for p in group["params"]]


def one_update(name, model, inputs, labels):
    """Makes an update of a model with a script, in double precision; returns its Results.

    They have grads, too: the gradients of all parameters.
    """
    fabric = Fabric(accelerator="cpu", devices=1, precision="64-true")
    wrapped, optimizer = fabric.setup(model, Spy(model.parameters(), lr=0.1))
    kept = Results()
    scripts.get(name).load().train_step(fabric, wrapped, optimizer, inputs, labels, kept)
    kept.grads = optimizer.optimizer.grads
    return kept


def losses(module, *options):
    """Runs a script's main() in this process; returns the loss of every update and the record."""
    seen, end = [], Losses.end

    def watched(losses):
        seen.append(losses.last.item())
        end(losses)

    Losses.end = watched
    try:
        return seen, module.main([*TINY, *options])
    finally:
        Losses.end = end
        torch.compiler.set_stance("default")  # what some scripts change for their process
        torch.set_float32_matmul_precision("highest")


@functools.cache
def alone(name, fp32=False):
    """The losses and the record of a script that needs one process, over a few updates."""
    return losses(in_fp32(name) if fp32 else scripts.get(name).load(), "--max-steps", str(STEPS))
