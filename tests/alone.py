"""Runs scripts that need one process in this one, for a few updates, and keeps their losses."""

import functools

import torch
from conftest import in_fp32
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
