"""Side road from 05_grad_accum/train.py, a CUDA graph: the host starts a micro-batch at once.

A small micro-batch has as many kernels as a large one, and the host needs longer to start them than
the GPU to run them. A graph has them all: captured once, while nothing is computed, then replayed.
A replay reads and writes where the captured kernels did: so inputs are copied there, and gradients
are set to zero where they are. Only the optimizer step still starts its kernels one by one.

Everything in a pass has to be the same each time: shapes, addresses, the way through the code. What
it held stays reserved, in a pool of the graph. On a CPU, which starts no kernels, this runs as 05.

Cost: what a pass holds is reserved for it alone; what a graph computes is not in the emulated time

Losses: the same
Memory: less

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


class Graph:
    """The forward and backward pass of a micro-batch, captured once, replayed with other images."""

    def __init__(self, fabric, model, x, y, share):
        self.x, self.y, self.share = x.clone(), y.clone(), share
        self.graph = torch.cuda.CUDAGraph()
        # As by default, the loader's thread, which pins memory, would end the capture.
        with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
            self.loss, self.logits = passes(fabric, model, self.x, self.y, share)

    def takes(self, x, share):
        return x.shape == self.x.shape and share == self.share

    def replay(self, x, y):
        self.x.copy_(x)
        self.y.copy_(y)
        self.graph.replay()
        return self.loss.clone(), self.logits  # the meter adds losses up, and the next is put there


def build(fabric, args, loaders):
    model = models.vit(args, loaders)  # from torchvision, with random weights
    model.load_state_dict(torch.load(models.weights(args, loaders), weights_only=True))
    model.graph = None  # of the passes, captured when there are gradients to add to
    if fabric.device.type == "cpu":
        fabric.print("A CUDA graph needs a GPU: this runs as 05_grad_accum/train.py.")
    optimizer = torch.optim.Adam(model.parameters(), lr=LR[args.preset])
    model, optimizer = fabric.setup(model, optimizer)
    return model, optimizer


def passes(fabric, model, x, y, share):
    logits = model(x)  # (micro-batch, classes)
    loss = F.cross_entropy(logits, y) * share  # of the batch's mean
    fabric.backward(loss)
    return loss.detach(), logits.detach()


def train_step(fabric, model, optimizer, images, labels, meter):
    for x, y in zip(images.split(MICRO_BATCH_SIZE), labels.split(MICRO_BATCH_SIZE)):
        share = len(x) / len(images)
        if not model.graph and x.is_cuda and next(model.parameters()).grad is not None:
            model.graph = Graph(fabric, model, x, y, share)
        if model.graph and model.graph.takes(x, share):
            loss, logits = model.graph.replay(x, y)
        else:
            loss, logits = passes(fabric, model, x, y, share)
        meter.add(loss, logits, y)
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)  # zeros where they are, since the graph adds to them


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
