"""The way from before.py to train.py, one technique at a time.

For `python -m shared.predict 11 --one-by-one`. Each step is one of the two scripts with functions
of the other, or with one of those below, which are those of 07 to 09.
"""

from functools import partial

import torch
from lightning.fabric import Fabric
from torch.distributed.fsdp import fully_shard
from torch.utils.checkpoint import checkpoint

from shared.common import scripts
from shared.text import models

TECHNIQUES = (
    "everything in bf16",
    "a few texts at a time",
    "load without a second copy",
    "shard over the devices",
    "checkpoint every block",
    "offload shards to the host",
)


def script(n):
    """Returns before.py with the first n techniques, as a module.

    That is before.py itself for 0, and train.py for all.
    """
    before, train = (scripts.get(f"11_llm/{file}").load() for file in ("before", "train"))
    if 0 < n < 4:
        before.Fabric = lambda **options: Fabric(**{**options, "precision": "bf16-true"})
    if n < 2:
        return before
    if n < 4:  # on one device
        train.make_fabric, train.build = before.make_fabric, before.build if n == 2 else _build
        train.DEVICES = 1
    elif n < 6:
        train.parallelize = partial(_parallelize, checkpointing=n == 5)
    return train


def _build(fabric, args):
    with fabric.init_module(empty_init=True):
        model = models.classifier(args)
    model.load_state_dict(torch.load(models.checkpoint(args), weights_only=True, mmap=True))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-5 * args.adam_lr_factor)
    return fabric.setup(model, optimizer)


def _parallelize(model, mesh, checkpointing):
    for block in models.blocks(model) if checkpointing else []:
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)
    for unit in [*models.blocks(model), model]:
        fully_shard(unit, mesh=mesh["data_parallel"])
    return model.to_empty(device=mesh.device_type)
