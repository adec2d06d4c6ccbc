"""Side road from 05_grad_accum/train.py, Adam on the host: states and step leave the GPU.

Adam with SGD's memory, on one GPU. `model.cpu()` takes weights and gradients to the host, and the
step is made there. Adam creates its states where the weights are, so the GPU never holds them. With
N weights, the host needs 8N bytes, 2.44 GB. In every update 4N bytes go down and 2N come up, and
the GPU computes nothing meanwhile.

Stage 10 does this block by block, and its weights stay on the host, too. DeepSpeed calls it
ZeRO-Offload (`offload_optimizer`), torchao `CPUOffloadOptimizer`; both copy while the backward pass
still runs.

Cost: copies in every update; a step at the host's speed, not in the emulated time

Losses: the same
Memory: about 4N bytes less, about 8N bytes more on the host

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
    optimizer = torch.optim.Adam(model.parameters(), lr=LR[args.preset])
    model, optimizer = fabric.setup(model, optimizer)
    return model, optimizer


def train_step(fabric, model, optimizer, images, labels, meter):
    for x, y in zip(images.split(MICRO_BATCH_SIZE), labels.split(MICRO_BATCH_SIZE)):
        logits = model(x)  # (micro-batch, classes)
        loss = F.cross_entropy(logits, y) * len(x) / len(images)  # its share of the batch's mean
        fabric.backward(loss)
        meter.add(loss, logits, y)
    model.cpu()  # the weights, and their gradients with them
    optimizer.load_state_dict(optimizer.state_dict())  # after --resume, states follow the weights
    optimizer.step()  # the first makes the states where the weights are, and there they stay
    optimizer.zero_grad()  # frees the gradients, before the next forward pass needs the memory
    model.to(fabric.device)


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
