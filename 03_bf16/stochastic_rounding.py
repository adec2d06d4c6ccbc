"""Side road from 03_bf16/train.py, stochastic rounding: keep small updates on average.

Rounding to the nearest bf16 number loses every update that is smaller than half the distance to the
next number. Stochastic rounding rounds up or down at random, with the probability that makes the
result right on average: an update of a tenth of the distance changes the weight once in ten times.
It keeps no further state, so the memory is that of train.py.

The optimizer is torchao's. It compiles its steps, and the ledger sees nothing of what is compiled;
set_stance("force_eager") runs them uncompiled. In your own project, leave that line out.

Cost: noise in every update, and random numbers for every weight

Losses: other
Memory: the same

On a GPU, ViT-L/16 on CIFAR-10; with --preset tiny, a small ViT on digits, on any laptop.
"""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from lightning.fabric import Fabric

sys.path.append(str(Path(__file__).resolve().parents[1]))  # for shared/, from any folder
from torchao.optim import _AdamW  # with an underscore, but in torchao's documentation

from shared.images import cli, data, models
from shared.metrics import Meter

BATCH_SIZE = 64  # images per update
LR = {"full": 5e-5, "tiny": 6e-4}  # the tiny preset makes few updates, so a larger rate
DEVICES = 1  # GPUs, or processes on a CPU


def make_fabric(args):
    return Fabric(
        accelerator=args.accelerator,
        devices=args.devices,
        precision="bf16-true",  # bf16 for weights, gradients, optimizer states and computation
    )


def build(fabric, args, loaders):
    model = models.vit(args, loaders)  # from torchvision, with random weights
    model.load_state_dict(torch.load(models.weights(args, loaders), weights_only=True))
    torch.compiler.set_stance("force_eager")  # the ledger sees nothing of compiled steps
    optimizer = _AdamW(
        model.parameters(),
        lr=LR[args.preset],
        weight_decay=0,  # as Adam
        bf16_stochastic_round=True,
    )
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
