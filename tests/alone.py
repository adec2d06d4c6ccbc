"""Runs scripts that need one process in this one, for a few updates, and keeps their losses."""

import functools

import torch
from conftest import in_fp32
from sharded import STEPS

from shared.metrics import Meter
from shared.records import scripts

TINY = ["--preset", "tiny"]


def losses(module, *options):
    """Runs a script's main() in this process; returns the loss of every update and the record."""
    seen, update = [], Meter.update

    def watched(meter, loss, logits, labels):
        seen.append(loss.item())
        update(meter, loss, logits, labels)

    Meter.update = watched
    try:
        return seen, module.main([*TINY, *options])
    finally:
        Meter.update = update
        torch.compiler.set_stance("default")  # what some scripts change for their process
        torch.set_float32_matmul_precision("highest")


@functools.cache
def alone(name, fp32=False):
    """The losses and the record of a script that needs one process, over a few updates."""
    return losses(in_fp32(name) if fp32 else scripts.get(name).load(), "--max-steps", str(STEPS))
