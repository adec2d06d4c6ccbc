"""Side road from 11_llm/causal.py, loss in chunks: the logits of one text at a time.

`checkpoint` discards a text's logits after its loss and computes them again in the backward pass,
so those of one text exist at a time, and the loss is equal up to the last digits of fp32. Chunks do
not touch the activations of the blocks; these remain.

Since PyTorch 2.14, `torch.nn.functional.linear_cross_entropy` does the same without further code if
it gets `options=torch.nn.LinearCrossEntropyOptions()`. Without these options it computes all logits
at once.

Some models, such as Gemma 2, change the logits after the last layer. For those `causal.head` ends
in one line that says so.

Cost: the head is computed twice

Losses: nearly the same
Memory: less

On a GPU, a model from the hub on IMDb; with --preset tiny, a small one on made-up reviews.
"""

import sys
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
LR = {"full": 5e-5, "tiny": 2e-3}  # the tiny preset makes few updates, so a larger rate
DEVICES = 1  # GPUs, or processes on a CPU


def make_fabric(args):
    return Fabric(
        accelerator=args.accelerator,
        devices=args.devices,
        precision="32-true",  # fp32 for weights, gradients, optimizer states and computation
    )


def build(fabric, args, loaders):
    model = models.language_model(args, loaders)
    model.load_state_dict(torch.load(models.weights(args, loaders), weights_only=True))
    optimizer = torch.optim.Adam(model.parameters(), lr=LR[args.preset])
    model, optimizer = fabric.setup(model, optimizer)
    return model, optimizer


def loss_of(head, hidden, labels):
    return F.cross_entropy(head(hidden).float(), labels, reduction="sum")  # logits in fp32


def train_step(fabric, model, optimizer, tokens, labels, meter):
    hidden = model.base_model(**tokens).last_hidden_state  # (batch, tokens, width)
    parts, head = zip(hidden, labels), causal.head(model)  # of one text each
    loss = sum(checkpoint(loss_of, head, h, y, use_reentrant=False) for h, y in parts)
    loss = loss / labels.numel()
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
