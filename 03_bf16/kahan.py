"""Side road from 03_bf16/train.py, Kahan summation: keep what rounding cuts off.

Kahan summation keeps what rounding cuts off. A further state, `rest`, in bf16 and as large as the
weights, holds the part of the updates that has not arrived in the weight yet. Each update is added
to it first; what reaches the weight is subtracted. Together, many updates change a weight for which
each alone is too small.

KahanAdam computes Adam's update on weights that are 0 for the moment, because there the update has
all its digits. That needs a copy of the weights during the step, which does not raise the peak:
with 64 images the peak is in the backward pass.

Cost: 2N bytes for what rounding cut off, and 2N more during the step

Losses: other
Memory: 2N bytes more

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
        precision="bf16-true",  # bf16 for weights, gradients, optimizer states and computation
    )


class KahanAdam(torch.optim.Adam):
    @torch.no_grad()
    def step(self, closure=None):
        params = [p for group in self.param_groups for p in group["params"] if p.grad is not None]
        before = [p.clone() for p in params]
        torch._foreach_zero_(params)
        super().step(closure)  # from 0, so that it leaves the update, with all its digits
        for p, old in zip(params, before):
            if "rest" not in self.state[p]:
                self.state[p]["rest"] = torch.zeros_like(p)
            rest = self.state[p]["rest"]
            rest += p  # the update, and what was left of those before
            p.copy_(old + rest)
            rest -= p - old  # what has arrived


def build(fabric, args, loaders):
    model = models.vit(args, loaders)  # from torchvision, with random weights
    model.load_state_dict(torch.load(models.weights(args, loaders), weights_only=True))
    optimizer = KahanAdam(model.parameters(), lr=LR[args.preset])
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
