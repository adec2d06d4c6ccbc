"""Side road from 11_llm/causal.py, Context parallel: a part of every text on each device.

Every device has all weights, and a quarter of the tokens of each text, which it takes through all
layers. Only in attention does a token see others. There the devices exchange: each gives away three
quarters of the heads and gets the other tokens of its own quarter; afterwards, all goes back. So
every device has a quarter of the activations and of the logits, whatever the length of the texts.

This is Ulysses (https://arxiv.org/abs/2309.14509); the devices have to divide the heads, those of
keys, too. Ring attention (https://arxiv.org/abs/2310.01889) passes keys and values on in a circle
instead, on as many devices as one likes; PyTorch's `context_parallel` does that, on GPUs only.

Positions count from the start of a text, not of a part. DDP averages the gradients. In validation
each device has whole texts.

Cost: computation waits for eight exchanges per block; all weights on every device

On a GPU, a model from the hub on IMDb; with --preset tiny, a small one on made-up reviews.
"""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from lightning.fabric import Fabric
from lightning.fabric.strategies import DDPStrategy
from transformers import AttentionInterface

sys.path.append(str(Path(__file__).resolve().parents[1]))  # for shared/, from any folder
from shared.metrics import Meter
from shared.text import causal, context, data, models

BATCH_SIZE = 12  # texts per update
LR = {"full": 5e-5, "tiny": 2e-3}  # the tiny preset makes few updates, so larger ones
DEVICES = 4  # GPUs, or processes on a CPU


def attention(module, query, key, value, mask, **options):
    if module.training:  # else each device has all tokens
        query, key, value = map(context.exchanged, (query, key, value))  # all tokens, some heads
    output, weights = AttentionInterface()["sdpa"](module, query, key, value, mask, **options)
    return context.exchanged(output) if module.training else output, weights


def make_fabric(args):
    return Fabric(
        accelerator=args.accelerator,
        devices=args.devices,
        num_nodes=args.num_nodes,
        precision="32-true",  # fp32 for weights, gradients, optimizer states and computation
        strategy=DDPStrategy(gradient_as_bucket_view=True),  # gradients live in DDP's buffers
    )


def build(fabric, args):
    model = models.language_model(args)
    model.load_state_dict(torch.load(models.weights(args), weights_only=True))
    optimizer = torch.optim.Adam(model.parameters(), lr=LR[args.preset])
    AttentionInterface.register("exchanged", attention)
    model.set_attn_implementation("exchanged")
    model, optimizer = fabric.setup(model, optimizer)
    return model, optimizer


def train_step(fabric, model, optimizer, tokens, labels, meter):
    tokens, labels = context.own(tokens, labels)  # a part of each text
    logits = model(**tokens).logits  # (batch, tokens, vocabulary)
    loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
    fabric.backward(loss)
    meter.add(loss, None, labels)
    optimizer.step()
    optimizer.zero_grad()  # frees the gradients, before the next forward pass needs the memory


def main(argv=None):
    args = causal.parse(__file__, argv, BATCH_SIZE, DEVICES, shares=1)
    fabric = make_fabric(args)
    fabric.launch()
    fabric.seed_everything(args.seed)
    meter = Meter(args, fabric)

    train_loader, val_loader, test_loader = fabric.setup_dataloaders(*data.loaders(args))
    with meter.loading():
        model, optimizer = build(fabric, args)
    with meter.training(model, optimizer):  # --save keeps these
        for epoch in range(args.epochs):
            for tokens, labels in meter.progress(train_loader, epoch):
                train_step(fabric, model, optimizer, tokens, labels, meter)
            meter.validate(model, val_loader)
    return meter.test(model, test_loader)


if __name__ == "__main__":
    main()
