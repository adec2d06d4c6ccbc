"""Side road from 05_grad_accum/train.py, Muon: one state, and only for matrices.

Muon keeps one average, of the gradient, and steps along an orthogonal version of it: all directions
of the matrix change by about the same amount. With `match_rms_adamw` its updates are as large as
Adam's, so Adam's learning rate suits.

It is meant for matrices. In practice, AdamW trains biases, norms, embeddings and the last layer
beside it. Here Muon trains the last layer too, and what is not a matrix stays as it is, so that the
diff is about one thing.

Cost: one state: 2N bytes; several matrix products per matrix and step

Losses: other
Memory: about 2N bytes less

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
        precision="bf16-true",  # bf16 for weights, gradients, optimizer states and computation
    )


def build(fabric, args, loaders):
    model = models.vit(args, loaders)  # from torchvision, with random weights
    model.load_state_dict(torch.load(models.weights(args, loaders), weights_only=True))
    for p in model.parameters():
        p.requires_grad_(p.ndim == 2)  # the others stay as they are
    optimizer = torch.optim.Muon(
        [p for p in model.parameters() if p.requires_grad],
        lr=LR[args.preset],
        weight_decay=0,
        adjust_lr_fn="match_rms_adamw",  # so that Adam's rate suits
    )
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
