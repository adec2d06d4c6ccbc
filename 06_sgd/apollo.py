"""Side road from 05_grad_accum/train.py, APOLLO: the states of eight rows for each matrix.

Adam finds a step size for every weight, APOLLO one for each column of a matrix. Eight rows of
random numbers times the gradient leave eight sums of each column, and Adam runs on these. Each
column of the gradient is scaled by the ratio of Adam's step to these sums, and by the root of the
number of rows, so that the step is about as long as Adam's.

A matrix has states for 8 rows, not for 1,024 to 4,096: 5.5 MB in all. The 1.3 million weights
outside of matrices keep Adam's states, 5.2 MB. Adam would take 1.21 GB. The random numbers take 0.1
MB. The page of 06 says what the authors add.

Cost: one step size per column; past gradients change the step's size, not its direction

Losses: other
Memory: about 4N bytes less

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


class Apollo(torch.optim.Adam):
    def step(self, closure=None):
        kept = [(p, p.data, p.grad) for p in self.param_groups[0]["params"] if p.ndim == 2]
        for p, old, grad in kept:  # Adam sees eight random sums of each column, and starts from 0
            p.data, p.grad = torch.zeros_like(old[:8]), self.random[:, : len(grad)].to(grad) @ grad
        super().step(closure)
        for p, old, grad in kept:  # each column is scaled as Adam has scaled its sums
            scale = len(grad) ** 0.5 * p.data.norm(dim=0) / (p.grad.norm(dim=0) + 1e-8)
            p.data, p.grad = old.sub_(grad * scale), grad


def build(fabric, args, loaders):
    model = models.vit(args, loaders)  # from torchvision, with random weights
    model.load_state_dict(torch.load(models.weights(args, loaders), weights_only=True))
    optimizer = Apollo(model.parameters(), lr=LR[args.preset])
    optimizer.random = torch.randn(8, max(map(len, model.parameters())), device=fabric.device)
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
