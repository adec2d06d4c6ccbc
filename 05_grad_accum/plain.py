"""Stage 05, gradient accumulation, in plain PyTorch: the same batch, a few images at a time.

On a GPU, ViT-L/16 on CIFAR-10; with --preset tiny, a small ViT on digits, on any laptop.
"""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F

sys.path.append(str(Path(__file__).resolve().parents[1]))  # for shared/, from any folder
from shared.images import cli, data, models
from shared.metrics import Meter

BATCH_SIZE = 16  # images per update
MICRO_BATCH_SIZE = 4  # images per forward and backward pass; more are faster
LR = {"full": 5e-5, "tiny": 6e-4}  # the tiny preset makes few updates, so a larger rate
DEVICES = 1  # GPUs, or processes on a CPU
REPORTED_AS = "bf16-true"  # what the record calls it; the computation does not depend on it


def make_device(args):
    return torch.device(args.accelerator)


def build(device, args, loaders):
    model = models.vit(args, loaders)  # from torchvision, with random weights
    model.load_state_dict(torch.load(models.weights(args, loaders), weights_only=True))
    model = model.to(device, torch.bfloat16)
    optimizer = torch.optim.Adam(model.parameters(), lr=LR[args.preset])
    return model, optimizer


def train_step(model, optimizer, images, labels, meter):
    for x, y in zip(images.split(MICRO_BATCH_SIZE), labels.split(MICRO_BATCH_SIZE)):
        logits = model(x.bfloat16()).float()  # (micro-batch, classes)
        loss = F.cross_entropy(logits, y) * len(x) / len(images)  # its share of the batch's mean
        loss.backward()
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
