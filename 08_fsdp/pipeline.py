"""Side road from 08_fsdp/train.py, Pipeline: some of the blocks on each device.

FSDP divides every block over all devices and gathers it when it is needed. A pipeline leaves blocks
whole: each device has a quarter of them, its stage, and sends only what its last block returns to
the next device, in the backward pass a gradient to the one before. So that all have work, the
batch is cut into micro-batches that follow each other.

The first device starts most micro-batches before the gradient of the first comes back, so it needs
most memory. With 1F1B (one forward, one backward pass) it holds as many as there are devices; the
second one fewer, the last one. `ScheduleGPipe` in place of `Schedule1F1B` runs all forward passes
first: each device holds every micro-batch. PyTorch has memory for what a device receives of every
micro-batch, from the start.

Blocks return tensors that are laid out in another order, hence the copies in `Part`. A stage is
made anew in each update, as the last batch may be smaller.

Cost: with 4 devices and 8 micro-batches, each device waits 3 of 11 turns

On a GPU, ViT-L/16 on CIFAR-10; with --preset tiny, a small ViT on digits, on any laptop.
"""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from lightning.fabric import Fabric
from lightning.fabric.strategies import ModelParallelStrategy
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

sys.path.append(str(Path(__file__).resolve().parents[1]))  # for shared/, from any folder
from shared.images import cli, data, models, parts
from shared.metrics import Meter

BATCH_SIZE = 16  # images per update
MICRO_BATCH_SIZE = 2  # images per forward and backward pass
LR = {"full": 0.01, "tiny": 0.05}  # the tiny preset makes few updates, so larger ones
DEVICES = 4  # GPUs, or processes on a CPU


def parallelize(model, mesh):
    return model.to_empty(device=mesh.device_type)  # memory for the shards of this process


def make_fabric(args):
    return Fabric(
        accelerator=args.accelerator,
        devices=args.devices,
        num_nodes=args.num_nodes,
        precision="bf16-true",  # bf16 for weights, gradients, optimizer states and computation
        strategy=ModelParallelStrategy(
            parallelize,
            data_parallel_size=args.world_size,  # one shard for each process
            tensor_parallel_size=1,
        ),
    )


def build(fabric, args):
    with fabric.init_module(empty_init=True):  # no random weights: the file has them all
        model = parts.Part(models.vit(args), fabric.global_rank, fabric.world_size)
    model = fabric.setup_module(model)  # calls parallelize()
    weights = torch.load(models.weights(args), weights_only=True, mmap=True)
    model.load_state_dict(weights, strict=False)  # the file has all parts
    # created after sharding, so that it holds shards
    optimizer = torch.optim.SGD(model.parameters(), lr=LR[args.preset])
    optimizer = fabric.setup_optimizers(optimizer)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.updates)
    return model, optimizer, scheduler


def train_step(fabric, model, optimizer, images, labels, meter):
    part = model.module  # the blocks of this device
    size = part.micro_batch(images, MICRO_BATCH_SIZE)
    stage = PipelineStage(part, part.index, part.parts, fabric.device, *part.ends(size))
    schedule = Schedule1F1B(stage, len(images) // size, F.cross_entropy)
    logits = part.of_last(schedule.step(images, target=labels), images)  # trains, and sends
    meter.add(F.cross_entropy(logits, labels), logits, labels)
    optimizer.step()
    optimizer.zero_grad()  # frees the gradients, before the next forward pass needs the memory


def main(argv=None):
    args = cli.parse(__file__, argv, BATCH_SIZE, DEVICES, MICRO_BATCH_SIZE, shares=1)
    fabric = make_fabric(args)
    fabric.launch()
    fabric.seed_everything(args.seed)
    meter = Meter(args, fabric)

    train_loader, val_loader, test_loader = fabric.setup_dataloaders(*data.loaders(args))
    with meter.loading():
        model, optimizer, scheduler = build(fabric, args)
    with meter.training(model, optimizer, scheduler):  # --save keeps these
        for epoch in range(args.epochs):
            for images, labels in meter.progress(train_loader, epoch):
                train_step(fabric, model, optimizer, images, labels, meter)
                scheduler.step()
            meter.validate(model, val_loader)
    return meter.test(model, test_loader)


if __name__ == "__main__":
    main()
