"""The steps from before.py to train.py, one technique at a time.

For `python -m shared predict 11 --one-by-one`. On one device, where there is nothing to shard, they
end with checkpointing, without FSDP. With `--card`, other combinations are tried, too. Each step is
one of the two scripts with functions of the other, or with one of those below, which are those of
07 to 10.
"""

import sys
from functools import partial
from pathlib import Path

import torch
from lightning.fabric import Fabric
from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard
from torch.utils.checkpoint import checkpoint

sys.path.append(str(Path(__file__).resolve().parents[1]))  # for shared/, from any folder
from shared.cli import UserError
from shared.lab.records import scripts
from shared.text import models

BF16, FEW, ONCE = "everything in bf16", "a few texts at a time", "load without a second copy"
SHARD, CHECKPOINT = "shard over the devices", "checkpoint every block"
OFFLOAD = "offload shards to the host"
LR = {"full": 5e-5, "tiny": 3e-4}  # as in before.py
ALONE = (BF16, FEW, ONCE, CHECKPOINT)
TOGETHER = (BF16, FEW, ONCE, SHARD, CHECKPOINT, OFFLOAD)


def techniques(devices):
    """Return the names of the techniques for a number of devices, in order."""
    return ALONE if devices == 1 else TOGETHER


def combinations(devices, bf16):
    """Return the combinations of techniques to try, those that cost least first.

    The first three techniques cost next to nothing, so all contain those that devices support.

    Args:
        devices: number of devices.
        bf16: true if they support bf16, which shards need.
    """
    first = TOGETHER[:3]
    if not bf16:
        return [(FEW, ONCE), (FEW, ONCE, CHECKPOINT)] if devices == 1 else []
    if devices == 1:
        return [first, (*first, CHECKPOINT), TOGETHER]
    further = ((), (CHECKPOINT,), (OFFLOAD,), (CHECKPOINT, OFFLOAD))
    return [(*first, SHARD, *more) for more in further]


def script(chosen):
    """Return before.py with the chosen techniques, as a module.

    That is before.py itself for none, and train.py for all. Shards are in bf16, and loaded without
    a second copy.
    """
    before, train = (scripts.get(f"11_llm/{file}").load() for file in ("before", "train"))
    if SHARD in chosen:
        options = {"checkpointing": CHECKPOINT in chosen, "offloading": OFFLOAD in chosen}
        if not all(options.values()):
            train.parallelize = partial(_parallelize, **options)
        return train
    if BF16 in chosen:
        before.Fabric = lambda **options: Fabric(**{**options, "precision": "bf16-true"})
        before.build = _exact(before.build)
    if FEW not in chosen:
        return before
    train.make_fabric, train.DEVICES, train.build = before.make_fabric, 1, before.build
    if ONCE in chosen:
        train.build = _exact(partial(_build, checkpointing=CHECKPOINT in chosen))
    return train


def _build(fabric, args, loaders, checkpointing):
    with fabric.init_module(empty_init=True):  # no random weights: the file has all of them
        model = models.classifier(args, loaders)
    model.load_state_dict(torch.load(models.weights(args, loaders), weights_only=True, mmap=True))
    if checkpointing:
        _checkpoint(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=LR[args.preset])
    return fabric.setup(model, optimizer)


def _exact(build):
    """Return build(), with exact buffers, which conversion to bf16 would round, as in train.py."""

    def exact(fabric, args, loaders):
        model, optimizer = build(fabric, args, loaders)
        models.restore_buffers(model, fabric.device)
        return model, optimizer

    return exact


def _checkpoint(model):
    for block in models.blocks(model):
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)


def _parallelize(model, mesh, checkpointing, offloading):
    if checkpointing:
        _checkpoint(model)
    options = {"offload_policy": CPUOffloadPolicy(pin_memory=False)} if offloading else {}
    for unit in [*models.blocks(model), model]:
        fully_shard(unit, mesh=mesh["data_parallel"], **options)
    return model.to_empty(device="cpu" if offloading else mesh.device_type)


if __name__ == "__main__":
    raise UserError("this file only lists techniques; run python -m shared predict 11 --one-by-one")
