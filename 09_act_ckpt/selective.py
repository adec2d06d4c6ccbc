"""Side road from 09_act_ckpt/train.py, selective checkpointing: keep matrix products.

Matrix products and attention take most of the time. What lies between them (norms, activation
functions, additions) is quick to compute again, and is about half of the activations. `checkpoint`
asks `policy` about each operation: the results of products and attention are kept, only the rest is
computed again.

The policy keeps even two products per block whose results the backward pass does not need, so it
saves less than half.

Cost: memory for the products; little time

Losses: the same
Memory: more

On a GPU, ViT-L/16 on CIFAR-10; with --preset tiny, a small ViT on digits, on any laptop.
"""

import sys
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from lightning.fabric import Fabric
from lightning.fabric.strategies import ModelParallelStrategy
from torch.distributed.fsdp import fully_shard
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

sys.path.append(str(Path(__file__).resolve().parents[1]))  # for shared/, from any folder
from shared.images import cli, data, models
from shared.metrics import Meter

BATCH_SIZE = 16  # images per update
MICRO_BATCH_SIZE = 4  # images per forward and backward pass; more are faster
LR = {"full": 0.01, "tiny": 0.05}  # the tiny preset makes few updates, so a larger rate
DEVICES = 4  # GPUs, or processes on a CPU


def policy(context, operation, *args, **kwargs):
    kept = "mm" in str(operation) or "attention" in str(operation)  # mm, addmm, ...
    return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE


def parallelize(model, mesh):
    # Keep only the input of each block, and run the block again in the backward pass.
    contexts = partial(create_selective_checkpoint_contexts, policy)
    for block in model.encoder.layers:
        block.forward = partial(checkpoint, block.forward, use_reentrant=False, context_fn=contexts)
    for unit in [*model.encoder.layers, model]:  # the root last, for parameters outside the blocks
        fully_shard(unit, mesh=mesh["data_parallel"])
    return model.to_empty(device=mesh.device_type)  # memory for the shards of this process


def make_fabric(args):
    return Fabric(
        accelerator=args.accelerator,
        devices=args.devices,
        num_nodes=args.num_nodes,
        precision="bf16-true",  # bf16 for weights, gradients, optimizer states and computation
        strategy=ModelParallelStrategy(  # calls parallelize(); FSDPStrategy is the older FSDP1
            parallelize,
            data_parallel_size=args.world_size,  # one shard for each process
            tensor_parallel_size=1,
        ),
    )


def build(fabric, args, loaders):
    with fabric.init_module(empty_init=True):  # no random weights: the file has them all
        model = models.vit(args, loaders)  # from torchvision
    model = fabric.setup_module(model)  # calls parallelize(): so far, nothing has memory
    fabric.load_raw(models.weights(args, loaders), model, weights_only=True)  # mmap, into shards
    # created after sharding, so that it holds shards
    optimizer = torch.optim.SGD(model.parameters(), lr=LR[args.preset])
    optimizer = fabric.setup_optimizers(optimizer)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=loaders.updates)
    return model, optimizer, scheduler


def train_step(fabric, model, optimizer, images, labels, meter):
    for x, y in zip(images.split(MICRO_BATCH_SIZE), labels.split(MICRO_BATCH_SIZE)):
        logits = model(x)  # (micro-batch, classes)
        loss = F.cross_entropy(logits, y) * len(x) / len(images)  # its share of the batch's mean
        fabric.backward(loss)
        meter.add(loss, logits, y)
    optimizer.step()
    optimizer.zero_grad()  # frees the gradients, before the next forward pass needs the memory


def main(argv=None):
    args = cli.parse(__file__, argv, BATCH_SIZE, DEVICES, MICRO_BATCH_SIZE)
    fabric = make_fabric(args)
    fabric.launch()
    fabric.seed_everything(args.seed)
    meter = Meter(args, fabric)

    loaders = data.loaders(args)
    train_loader, val_loader, test_loader = fabric.setup_dataloaders(*loaders.parts)
    with meter.loading(loaders):
        model, optimizer, scheduler = build(fabric, args, loaders)
    with meter.training(model, optimizer, scheduler):  # measures the updates; --save keeps these
        for epoch in range(loaders.epochs):
            for images, labels in meter.progress(train_loader, epoch):
                train_step(fabric, model, optimizer, images, labels, meter)
                scheduler.step()
            meter.validate(model, val_loader)
    return meter.test(model, test_loader)


if __name__ == "__main__":
    main()
