"""Side road from 04_batchsize/train.py, Adam in backward: use and free each gradient at once.

Every tensor of weights gets an Adam of its own. A hook makes its step as soon as the backward pass
has computed the gradient, then frees the gradient, so hardly any gradients exist at the same time.
Gradient accumulation (05) would have to keep them.

It helps only if the peak is where the gradients are. With 16 images the peak is where the forward
pass ends, with hardly any gradients. With one image it saves nearly all of them, 2N bytes for N
weights, and the temporaries of `foreach`, another 2N, because each Adam has only one tensor.
shared/lab/evidence/variants.md compares 16 images, 4 and 1.

Cost: no accumulation, no clipping of all gradients together

Losses: the same
Memory: nearly the same

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
    model = fabric.setup(model)
    rate = LR[args.preset]
    optimizers = {p: torch.optim.Adam([p], lr=rate) for p in model.parameters()}

    def step(p):
        optimizers[p].step()
        optimizers[p].zero_grad()

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(step)
    return model, list(optimizers.values())


def train_step(fabric, model, optimizer, images, labels, meter):
    logits = model(images)  # (batch, classes)
    loss = F.cross_entropy(logits, labels)
    fabric.backward(loss)  # with the steps of all optimizers
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
