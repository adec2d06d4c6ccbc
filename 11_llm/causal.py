"""Side road from 11_llm/before.py, causal language modelling: predict every next token.

The logits are texts × tokens × vocabulary, where a classifier has one row per text. With
Qwen3-0.6B, 12 texts of 512 tokens and a vocabulary of 151,936, they take 3.7 GB in fp32. The loss
keeps their log-softmax, and the backward pass adds their gradient, each as large again.

Texts are joined, with an end token after each, and cut into pieces of equal length (packing),
unpadded; a tenth is for validation and, without a test set, a tenth for testing. The metric is
perplexity, exp of the mean loss per token: as uncertain as a choice among so many tokens. Before
training, the tiny model's is about 4,096, its vocabulary.

Cost: memory for logits: texts × tokens × vocabulary, several times

Losses: of another task
Memory: more

On a GPU, a model from the hub on IMDb; with --preset tiny, a small one on made-up reviews.
"""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from lightning.fabric import Fabric

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
