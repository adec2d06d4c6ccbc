"""Stage 11, before: a language model learns to classify text as a first script would do it: fp32, Adam, all of it on one device."""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from lightning.fabric import Fabric

sys.path.append(str(Path(__file__).resolve().parents[1]))  # finds shared/ from any folder
from shared import cli, text
from shared.metrics import Meter

BATCH_SIZE = 12  # texts per update


def make_fabric(args):
    return Fabric(
        accelerator=args.accelerator,
        devices=args.devices,
        precision="32-true",
    )


def build(fabric, args):
    model = text.classifier(args)
    model.load_state_dict(torch.load(text.checkpoint(args), weights_only=True))
    optimizer = torch.optim.Adam(model.parameters(), lr=args.adam_lr)
    model, optimizer = fabric.setup(model, optimizer)
    return model, optimizer


def train_step(fabric, model, optimizer, tokens, labels):
    logits = model(**tokens).logits  # (batch, classes)
    loss = F.cross_entropy(logits, labels)
    fabric.backward(loss)
    optimizer.step()
    optimizer.zero_grad()  # here, so that no old gradient is alive in the next forward pass
    return loss.detach(), logits.detach()


def main(argv=None):
    args = cli.parse(
        __file__,
        argv,
        task=text,
        batch_size=BATCH_SIZE,
        devices=1,
    )
    fabric = make_fabric(args)
    fabric.launch()
    fabric.seed_everything(args.seed, verbose=False)
    meter = Meter(args, fabric.device, fabric.strategy.precision.precision)

    train_loader, val_loader, test_loader = fabric.setup_dataloaders(
        *text.loaders(args),  # this process' share of every batch
        use_distributed_sampler=False,
    )
    with meter.phase("load"):
        model, optimizer = build(fabric, args)
    with meter.phase("train"):
        for epoch in range(args.epochs):
            for tokens, labels in meter.progress(train_loader, epoch):
                loss, logits = train_step(fabric, model, optimizer, tokens, labels)
                meter.update(loss, logits, labels)
            meter.end_epoch(meter.evaluate(model, val_loader))
    record = meter.report(meter.evaluate(model, test_loader))
    text.save(fabric, model, args)
    return record


if __name__ == "__main__":
    cli.run(main)
