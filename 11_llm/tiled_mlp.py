"""Side road from 11_llm/causal.py, tiled MLP: each MLP takes the tokens in tiles.

An MLP computes every token by itself, in layers three to four times as wide as its block. Models
such as Qwen3 and Llama keep four tensors of that width for the backward pass. Here `checkpoint`
keeps the input of each tile alone; the rest exists one tile at a time, and once more in the
backward pass. ALST (https://arxiv.org/abs/2506.13996) and Liger call this a tiled MLP.

With Qwen3-0.6B, 28 blocks × 4 × 3,072 numbers of each token are no longer kept, 1.4 MB in fp32: of
one text of 32,768 tokens, 45 GB of 200. Logits are most of the rest. With the loss of liger.py
alone 122 GB are left, with both 77. In Llama-3-8B, MLPs need more than logits, so tiles save more:
of 8,192 tokens 45 GB of 210, and then Adam's step is the peak. Where whole blocks are checkpointed,
as in 09, a single MLP is there at a time. Tiles save little then: with Qwen3, 1.2 GB of 17.

A tile with dropout, as in GPT-2, draws random numbers of its own; the tiny model's 12 texts are one
tile. Models without an MLP in each block end in one line that says so: OPT, mixtures of experts.

Cost: the MLPs are computed twice

Losses: nearly the same
Memory: less

On a GPU, a model from the hub on IMDb; with --preset tiny, a small one on made-up reviews.
"""

import sys
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from lightning.fabric import Fabric
from torch.utils.checkpoint import checkpoint

sys.path.append(str(Path(__file__).resolve().parents[1]))  # for shared/, from any folder
from shared.metrics import Meter
from shared.text import data, models
from shared.text.roads import causal

BATCH_SIZE = 12  # texts per update
TILE = 2048  # tokens that an MLP computes at a time
LR = {"full": 5e-5, "tiny": 2e-3}  # the tiny preset makes few updates, so a larger rate
DEVICES = 1  # GPUs, or processes on a CPU


def make_fabric(args):
    return Fabric(
        accelerator=args.accelerator,
        devices=args.devices,
        precision="32-true",  # fp32 for weights, gradients, optimizer states and computation
    )


def tiled(mlp, *inputs):  # (batch, tokens, width) each
    tiles = zip(*(x.flatten(0, 1).split(TILE) for x in inputs))
    outputs = [checkpoint(mlp, *tile, use_reentrant=False) for tile in tiles]
    return torch.cat(outputs).view_as(inputs[0])


def build(fabric, args, loaders):
    model = models.language_model(args, loaders)
    model.load_state_dict(torch.load(models.weights(args, loaders), weights_only=True))
    for mlp in causal.mlps(model):
        mlp.forward = partial(tiled, mlp.forward)
    optimizer = torch.optim.Adam(model.parameters(), lr=LR[args.preset])
    model, optimizer = fabric.setup(model, optimizer)
    return model, optimizer


def train_step(fabric, model, optimizer, tokens, labels, meter):
    logits = model(**tokens).logits  # (batch, tokens, vocabulary)
    loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
    fabric.backward(loss)
    optimizer.step()
    optimizer.zero_grad()  # frees the gradients, before the next forward pass needs the memory
    meter.add(loss, None, labels)


def main(argv=None):
    args = causal.parse(__file__, argv, BATCH_SIZE, DEVICES)
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
            for tokens, labels in meter.progress(train_loader, epoch):
                train_step(fabric, model, optimizer, tokens, labels, meter)
            meter.validate(model, val_loader)
    return meter.test(model, test_loader)


if __name__ == "__main__":
    main()
