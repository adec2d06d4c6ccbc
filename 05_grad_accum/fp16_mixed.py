"""Side road from 05_grad_accum/train.py, fp16 mixed precision: for a GPU without bf16.

A T4, V100 or P100 has no bf16 instructions. It computes bf16 in fp32, while in fp16 a T4 or V100 is
up to 8 times as fast. But fp16 alone fails, as in 03_bf16/fp16_true.py. So the weights are in fp32,
and the loss is scaled, as in 02. For N weights that takes 4N bytes, for Adam's states 8N, for the
gradients 4N and for the fp16 copies of the weights, while a micro-batch is computed, 2N: 18N and
the activations of 4 images, where stage 05 has 8N.

On a T4 it is worth that as long as it fits: ViT-L/16 takes 6.3 of its 15.6 GB. Products take an
eighth of the time, but converting and updating fp32 weights takes longer, so an image takes at
least 20 ms instead of 55. Attention keeps less: its memory-efficient kernel computes fp16 on these
GPUs, but bf16 only on later ones. If 18N is too much, bf16 remains, slowly.

On a CPU, Fabric computes it in bf16 mixed precision, without a scaler. Not tried on a T4.

Cost: 10N bytes more, and loss scaling

Losses: other
Memory: about 10N bytes more

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

BATCH_SIZE = 16  # images per update
MICRO_BATCH_SIZE = 4  # images per forward and backward pass; more are faster
LR = {"full": 5e-5, "tiny": 6e-4}  # the tiny preset makes few updates, so a larger rate
DEVICES = 1  # GPUs, or processes on a CPU


def make_fabric(args):
    return Fabric(
        accelerator=args.accelerator,
        devices=args.devices,
        precision="16-mixed",  # weights in fp32, computation in fp16 (in bf16 on a CPU)
    )


def build(fabric, args, loaders):
    model = models.vit(args, loaders)  # from torchvision, with random weights
    model.load_state_dict(torch.load(models.weights(args, loaders), weights_only=True))
    optimizer = torch.optim.Adam(model.parameters(), lr=LR[args.preset])
    model, optimizer = fabric.setup(model, optimizer)
    return model, optimizer


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
        model, optimizer = build(fabric, args, loaders)
    with meter.training(model, optimizer):  # measures the updates; --save keeps these
        for epoch in range(loaders.epochs):
            for images, labels in meter.progress(train_loader, epoch):
                train_step(fabric, model, optimizer, images, labels, meter)
            meter.validate(model, val_loader)
    return meter.test(model, test_loader)


if __name__ == "__main__":
    main()
