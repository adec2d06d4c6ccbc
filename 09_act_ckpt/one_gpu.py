"""Side road from 07_init_module/train.py, one GPU: activation checkpointing without sharding.

Checkpointing needs no sharding: this is the loop of 09 in 07, without FSDP. On a single GPU it is,
for most people, the first technique of 08 to 10 to try.

Activations fall as in 09, from about 384 to 40 times the input of a block. What is left are mostly
the weights and the gradients, 2 bytes each for 303 million parameters, 1.21 GB.

Cost: one more forward pass per block; twice the time if the GPU waits for the host

Losses: the same
Memory: less

On a GPU, ViT-L/16 on CIFAR-10; with --preset tiny, a small ViT on digits, on any laptop.
"""

import sys
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from lightning.fabric import Fabric
from torch.utils.checkpoint import checkpoint

sys.path.append(str(Path(__file__).resolve().parents[1]))  # for shared/, from any folder
from shared.images import cli, data, models
from shared.metrics import Meter

BATCH_SIZE = 16  # images per update
MICRO_BATCH_SIZE = 4  # images per forward and backward pass; more are faster
LR = {"full": 0.01, "tiny": 0.05}  # the tiny preset makes few updates, so a larger rate
DEVICES = 1  # GPUs, or processes on a CPU


def make_fabric(args):
    return Fabric(
        accelerator=args.accelerator,
        devices=args.devices,
        precision="bf16-true",  # bf16 for weights, gradients, optimizer states and computation
    )


def build(fabric, args, loaders):
    with fabric.init_module(empty_init=True):  # no random weights: the file has them all
        model = models.vit(args, loaders)  # from torchvision
    model.load_state_dict(torch.load(models.weights(args, loaders), weights_only=True, mmap=True))
    # Keep only the input of each block, and run the block again in the backward pass.
    for block in model.encoder.layers:
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=LR[args.preset])
    model, optimizer = fabric.setup(model, optimizer)
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
