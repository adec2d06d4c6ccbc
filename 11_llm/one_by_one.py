"""The way from before.py to train.py, one technique at a time.

For `python -m shared.predict 11 --one-by-one`. On one device, where there is nothing to shard, it
ends with checkpointing and does without FSDP. Each step is one of the two scripts with functions of
the other, or with one of those below, which are those of 07 to 09.
"""

from functools import partial

import torch
from lightning.fabric import Fabric
from torch.distributed.fsdp import fully_shard
from torch.utils.checkpoint import checkpoint

from shared.common import scripts
from shared.text import models

ALONE = (
    "everything in bf16",
    "a few texts at a time",
    "load without a second copy",
    "checkpoint every block",
)
TOGETHER = (*ALONE[:3], "shard over the devices", *ALONE[3:], "offload shards to the host")


def techniques(devices):
    """Returns the names of the techniques for a number of devices, in order."""
    return ALONE if devices == 1 else TOGETHER


def script(n, devices):
    """Returns before.py with the first n techniques, as a module.

    That is before.py itself for 0, and train.py for all on several devices.
    """
    before, train = (scripts.get(f"11_llm/{file}").load() for file in ("before", "train"))
    if n and (n < 4 or devices == 1):
        before.Fabric = lambda **options: Fabric(**{**options, "precision": "bf16-true"})
        before.build = _exact(before.build)
    if n < 2:
        return before
    if n < 4 or devices == 1:
        train.make_fabric, train.DEVICES = before.make_fabric, 1
        train.build = before.build if n == 2 else _exact(partial(_build, checkpointing=n == 4))
    elif n < 6:
        train.parallelize = partial(_parallelize, checkpointing=n == 5)
    return train


def _build(fabric, args, checkpointing):
    with fabric.init_module(empty_init=True):
        model = models.classifier(args)
    model.load_state_dict(torch.load(models.checkpoint(args), weights_only=True, mmap=True))
    if checkpointing:
        _checkpoint(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-5 * args.adam_lr_factor)
    return fabric.setup(model, optimizer)


def _exact(build):
    """Returns build(), but with the buffers that conversion to bf16 would round, as in train.py."""

    def exact(fabric, args):
        model, optimizer = build(fabric, args)
        models.restore_buffers(model, fabric.device)
        return model, optimizer

    return exact


def _checkpoint(model):
    for block in models.blocks(model):
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)


def _parallelize(model, mesh, checkpointing):
    if checkpointing:
        _checkpoint(model)
    for unit in [*models.blocks(model), model]:
        fully_shard(unit, mesh=mesh["data_parallel"])
    return model.to_empty(device=mesh.device_type)
