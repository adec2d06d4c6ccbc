"""Side road from 03_bf16/train.py, fp16 for everything: why it is not done.

fp16 takes two bytes for each value, as bf16 does, and has more digits. But its range is small:
above 65,504 a value is infinite, and below about 6e-8 it is 0. Adam divides by the root of its
second average plus 1e-8, and 1e-8 is 0 in fp16. The head starts at 0, so in the first update no
gradient reaches the blocks, and Adam divides 0 by 0. After one update the weights are NaN.

The file shows why fp16 needs fp32 weights beside it, as in 02.

Cost: training fails

Losses: not a number after one update
Memory: the same

On a GPU, ViT-L/16 on CIFAR-10; with --preset tiny, a small ViT on digits, on any laptop.
"""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from lightning.fabric import Fabric

sys.path.append(str(Path(__file__).resolve().parents[1]))  # for shared/, from any folder
from shared.images import cli, data, models
from shared.metrics import Meter

BATCH_SIZE = 64  # images per update
LR = {"full": 5e-5, "tiny": 6e-4}  # the tiny preset makes few updates, so a larger rate
DEVICES = 1  # GPUs, or processes on a CPU


def make_fabric(args):
    return Fabric(
        accelerator=args.accelerator,
        devices=args.devices,
        precision="16-true",  # fp16 for weights, gradients, optimizer states and computation
    )


def build(fabric, args, loaders):
    model = models.vit(args, loaders)  # from torchvision, with random weights
    model.load_state_dict(torch.load(models.weights(args, loaders), weights_only=True))
    optimizer = torch.optim.Adam(model.parameters(), lr=LR[args.preset])
    model, optimizer = fabric.setup(model, optimizer)
    return model, optimizer


def train_step(fabric, model, optimizer, images, labels, meter):
    logits = model(images)  # (batch, classes)
    loss = F.cross_entropy(logits, labels)
    fabric.backward(loss)
    optimizer.step()
    optimizer.zero_grad()  # frees the gradients, before the next forward pass needs the memory
    meter.add(loss, logits, labels)


def main(argv=None):
    args = cli.parse(__file__, argv, BATCH_SIZE, DEVICES)
    fabric = make_fabric(args)
    fabric.launch()
    fabric.seed_everything(args.seed)
    meter = Meter(args, fabric)

    loaders = data.loaders(args)
    train_loader, val_loader, test_loader = fabric.setup_dataloaders(*loaders.parts)
    with meter.loading(loaders):
        model, optimizer = build(fabric, args, loaders)
    with meter.training(model, optimizer):  # measures the updates; --save keeps these
        for epoch in range(loaders.epochs):
            for images, labels in meter.progress(train_loader, epoch):
                train_step(fabric, model, optimizer, images, labels, meter)
            meter.validate(model, val_loader)
    return meter.test(model, test_loader)


if __name__ == "__main__":
    main()
