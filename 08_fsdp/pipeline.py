"""Side road from 08_fsdp/train.py, Pipeline: some of the blocks on each device.

FSDP divides every block over all devices and gathers it when it is needed. A pipeline leaves blocks
whole: each device has a quarter of them, its stage, and sends only what its last block returns to
the next device, in the backward pass a gradient to the one before. So that all have work, the
batch is cut into micro-batches that follow each other.

The first device starts most micro-batches before the gradient of the first comes back, so it needs
most memory. With 1F1B (one forward, one backward pass) it holds as many as there are devices; the
second holds one fewer, the last a single one. `ScheduleGPipe` in place of `Schedule1F1B` runs all
forward passes first: each device holds every micro-batch. PyTorch has memory for what a device
receives of every micro-batch, from the start.

Blocks return tensors that are laid out in another order, hence the copies in `Part`. A stage is
made anew in each update, as the last batch may be smaller.

Cost: with 4 devices and 8 micro-batches, each device waits 3 of 11 turns

Losses: nearly the same
Memory: less

On a GPU, ViT-L/16 on CIFAR-10; with --preset tiny, a small ViT on digits, on any laptop.
"""

import math
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import torch
import torch.distributed as dist
import torch.nn.functional as F
from lightning.fabric import Fabric
from lightning.fabric.strategies import ModelParallelStrategy
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

sys.path.append(str(Path(__file__).resolve().parents[1]))  # for shared/, from any folder
from shared.images import cli, data, models
from shared.metrics import Meter
from shared.run.errors import UserError

# Silence NCCL's warning about single messages: here, there are few of them.
os.environ.setdefault("TORCH_NCCL_SHOW_EAGER_INIT_P2P_SERIALIZATION_WARNING", "false")

BATCH_SIZE = 16  # images per update
MICRO_BATCH_SIZE = 2  # images per forward and backward pass
LR = {"full": 0.01, "tiny": 0.05}  # the tiny preset makes few updates, so a larger rate
DEVICES = 4  # GPUs, or processes on a CPU


class Part(nn.Module):
    """Some of the blocks of a vision transformer, with the names that its parameters have there.

    The first of `parts` also has what comes before the blocks, the last one what comes after them.
    Of n images, a part returns (n, tokens, features), the last one logits, (n, classes) in fp32.
    While training, `forward` computes this part alone, for a PipelineStage. In evaluation, all
    processes call it with the same images, pass results on, and return the logits of the last one.
    """

    def __init__(self, vit, index, parts):
        super().__init__()
        self.index, self.parts = index, parts
        self.first, self.last = index == 0, index == parts - 1
        self.tokens = vit.seq_length, vit.hidden_dim
        self.images = 3, vit.image_size, vit.image_size
        self.classes = vit.num_classes
        blocks = vit.encoder.layers
        start, end = (len(blocks) * i // parts for i in (index, index + 1))
        self.encoder = nn.Module()
        self.encoder.layers = blocks[start:end]
        if self.first:
            self.conv_proj, self.class_token = vit.conv_proj, vit.class_token
            self.encoder.pos_embedding = vit.encoder.pos_embedding
        if self.last:
            self.encoder.ln, self.heads = vit.encoder.ln, vit.heads

    @property
    def dtype(self):
        return next(self.parameters()).dtype

    def forward(self, x):
        if self.training:
            return self._compute(x)
        here = torch.empty(len(x), *self.tokens, dtype=self.dtype, device=x.device)
        if self.first:
            here = x
        else:
            dist.recv(here, self.index - 1)
        here = self._compute(here)
        if not self.last:
            dist.send(here, self.index + 1)
        return self.last_logits(here if self.last else None, x)

    def _compute(self, x):
        if self.first:  # as in torchvision
            x = self.conv_proj(x.to(self.dtype)).flatten(2).transpose(1, 2)
            x = torch.cat([self.class_token.expand(len(x), -1, -1), x], dim=1)
            x = x + self.encoder.pos_embedding
        x = self.encoder.layers(x)
        if not self.last:
            return x.contiguous()  # it is sent
        return self.heads(self.encoder.ln(x)[:, 0]).float()

    def inputs_and_outputs(self, n):
        """Return what this part takes and returns for n images, as tensors without memory."""
        between = torch.empty(n, *self.tokens, dtype=self.dtype, device="meta", requires_grad=True)
        images = torch.empty(n, *self.images, device="meta")
        logits = torch.empty(n, self.classes, device="meta", requires_grad=True)
        return images if self.first else between, logits if self.last else between

    def micro_batch(self, images, most):
        """Return a size up to `most` that divides the batch, into no fewer parts than devices."""
        return math.gcd(len(images), len(images) // self.parts, most)

    def last_logits(self, logits, images):
        """Return the logits of the last part, which the other processes do not have."""
        if not self.last:
            size = len(images), self.classes
            logits = torch.empty(size, dtype=torch.float32, device=images.device)
        logits = logits.detach()
        if self.parts > 1:
            dist.broadcast(logits, self.parts - 1)
        return logits

    def whole_state(self):
        """Return the state_dict() of the whole model on the host, in the first process."""
        state = {name: tensor.cpu() for name, tensor in self.state_dict().items()}
        everyone = [state] * self.parts
        if self.parts > 1:
            dist.gather_object(state, everyone if self.first else None)
        return {name: tensor for part in everyone for name, tensor in part.items()}


def parallelize(model, mesh):
    return model.to_empty(device=mesh.device_type)  # memory for the blocks of this process


def make_fabric(args):
    with torch.device("meta"):  # without memory: to count its blocks before processes start
        n = len(models.vit(args, SimpleNamespace(classes=["any"])).encoder.layers)
    if args.world_size > n:
        raise UserError(f"--devices {args.devices}: {args.model} has only {n} blocks to divide")
    return Fabric(
        accelerator=args.accelerator,
        devices=args.devices,
        num_nodes=args.num_nodes,
        precision="bf16-true",  # bf16 for weights, gradients, optimizer states and computation
        strategy=ModelParallelStrategy(  # calls parallelize(); FSDPStrategy is the older FSDP1
            parallelize,
            data_parallel_size=args.world_size,
            tensor_parallel_size=1,
        ),
    )


def build(fabric, args, loaders):
    with fabric.init_module(empty_init=True):  # no random weights: the file has them all
        model = Part(models.vit(args, loaders), fabric.global_rank, fabric.world_size)
    model = fabric.setup_module(model)  # calls parallelize(): so far, nothing has memory
    weights = torch.load(models.weights(args, loaders), weights_only=True, mmap=True)
    model.load_state_dict(weights, strict=False)  # the file has all parts
    optimizer = torch.optim.SGD(model.parameters(), lr=LR[args.preset])
    optimizer = fabric.setup_optimizers(optimizer)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=loaders.updates)
    return model, optimizer, scheduler


def train_step(fabric, model, optimizer, images, labels, meter):
    part = model.module  # the blocks of this device
    size = part.micro_batch(images, MICRO_BATCH_SIZE)
    stage = PipelineStage(
        part, part.index, part.parts, fabric.device, *part.inputs_and_outputs(size)
    )
    schedule = Schedule1F1B(stage, len(images) // size, F.cross_entropy)
    logits = part.last_logits(schedule.step(images, target=labels), images)  # trains, and sends
    optimizer.step()
    optimizer.zero_grad()  # frees the gradients, before the next forward pass needs the memory
    meter.add(F.cross_entropy(logits, labels), logits, labels)


def main(argv=None):
    args = cli.parse(__file__, argv, BATCH_SIZE, DEVICES, MICRO_BATCH_SIZE, shares=1)
    fabric = make_fabric(args)
    fabric.launch()
    fabric.seed_everything(args.seed)
    meter = Meter(args, fabric)

    loaders = data.loaders(args)
    train_loader, val_loader, test_loader = fabric.setup_dataloaders(*loaders.parts)
    with meter.loading(loaders):
        model, optimizer, scheduler = build(fabric, args, loaders)
    with meter.training(model, optimizer, scheduler):  # measures the updates; --save keeps these
        for epoch in range(loaders.epochs):
            for images, labels in meter.progress(train_loader, epoch):
                train_step(fabric, model, optimizer, images, labels, meter)
                scheduler.step()
            meter.validate(model, val_loader)
    return meter.test(model, test_loader)


if __name__ == "__main__":
    main()
