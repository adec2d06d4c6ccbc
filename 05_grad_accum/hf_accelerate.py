"""Side road from 05_grad_accum/plain.py, Accelerate: the same stage with Hugging Face's library.

Hugging Face's Trainer is built on Accelerate, which has the same parts as Fabric: `prepare` takes
the place of `fabric.setup`, `accelerator.backward` that of `fabric.backward`. All its precisions
are kinds of mixed precision, so converting to bf16 and moving to the device stay in the script.

Losses are those of plain.py, and so are the bytes, but for 4: Accelerate divides the loss by its
own number of accumulation steps, 1 here, and the quotient is another tensor. The file is not named
accelerate.py because Python would import it in place of the library.

Cost: another dependency

Losses: the same
Memory: nearly the same

On a GPU, ViT-L/16 on CIFAR-10; with --preset tiny, a small ViT on digits, on any laptop.
"""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F

sys.path.append(str(Path(__file__).resolve().parents[1]))  # for shared/, from any folder
from accelerate import Accelerator

from shared.images import cli, data, models
from shared.metrics import Meter

BATCH_SIZE = 16  # images per update
MICRO_BATCH_SIZE = 4  # images per forward and backward pass; more are faster
LR = {"full": 5e-5, "tiny": 6e-4}  # the tiny preset makes few updates, so a larger rate
DEVICES = 1  # GPUs, or processes on a CPU
REPORTED_AS = "bf16-true"  # what the record calls it; the computation does not depend on it
accelerator = Accelerator(device_placement=False)  # make_device() says where


def make_device(args):
    return torch.device(args.accelerator)


def build(device, args, loaders):
    model = models.vit(args, loaders)  # from torchvision, with random weights
    model.load_state_dict(torch.load(models.weights(args, loaders), weights_only=True))
    model = model.to(device, torch.bfloat16)
    optimizer = torch.optim.Adam(model.parameters(), lr=LR[args.preset])
    return accelerator.prepare(model, optimizer)


def train_step(model, optimizer, images, labels, meter):
    for x, y in zip(images.split(MICRO_BATCH_SIZE), labels.split(MICRO_BATCH_SIZE)):
        logits = model(x.bfloat16()).float()  # (micro-batch, classes)
        loss = F.cross_entropy(logits, y) * len(x) / len(images)  # its share of the batch's mean
        accelerator.backward(loss)
        meter.add(loss, logits, y)
    optimizer.step()
    optimizer.zero_grad()  # frees the gradients, before the next forward pass needs the memory


def main(argv=None):
    args = cli.parse(__file__, argv, BATCH_SIZE, DEVICES, MICRO_BATCH_SIZE)
    device = make_device(args)
    torch.manual_seed(args.seed)
    meter = Meter(args, device, REPORTED_AS)

    loaders = data.loaders(args)
    train_loader, val_loader, test_loader = loaders.parts
    with meter.loading(loaders):
        model, optimizer = build(device, args, loaders)
    with meter.training(model, optimizer):  # measures the updates; --save keeps these
        for epoch in range(loaders.epochs):
            for images, labels in meter.progress(train_loader, epoch):
                images = images.to(device, non_blocking=True)
                labels = labels.to(device, non_blocking=True)
                train_step(model, optimizer, images, labels, meter)
            meter.validate(model, val_loader)
    return meter.test(model, test_loader)


if __name__ == "__main__":
    main()
