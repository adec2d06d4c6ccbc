"""Side road from 11_llm/causal.py, loss in chunks: the logits of one text at a time."""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

sys.path.append(str(Path(__file__).resolve().parents[1]))  # finds shared/ from any folder
from shared.saving import Saving
from shared.metrics import Meter
from shared.causal import cli, data, models
from lightning.fabric import Fabric

BATCH_SIZE = 12  # texts per update
DEVICES = 1  # GPUs, or processes on a CPU


def make_fabric(args):
    return Fabric(
        accelerator=args.accelerator,
        devices=args.devices,
        precision="32-true",  # fp32 for weights, gradients, optimizer states and computation
    )


def build(fabric, args):
    model = models.language_model(args)
    model.load_state_dict(torch.load(models.checkpoint(args), weights_only=True))
    # the factor is 1; it is larger for the tiny model, which needs larger steps
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-5 * args.adam_lr_factor)
    model, optimizer = fabric.setup(model, optimizer)
    return model, optimizer


def loss_of(head, hidden, labels):
    return F.cross_entropy(head(hidden).float(), labels, reduction="sum")  # logits in fp32


def train_step(fabric, model, optimizer, tokens, labels):
    hidden = model.base_model(**tokens).last_hidden_state  # (batch, tokens, width)
    parts, head = zip(hidden, labels), models.head(model)  # of one text each
    loss = sum(checkpoint(loss_of, head, h, y, use_reentrant=False) for h, y in parts)
    loss = loss / labels.numel()
    fabric.backward(loss)
    optimizer.step()
    optimizer.zero_grad()  # here, so that no old gradient is alive in the next forward pass
    return loss.detach(), None  # the logits are too large to be kept


def main(argv=None):
    args = cli.parse(
        __file__,
        argv,
        batch_size=BATCH_SIZE,
        devices=DEVICES,
    )
    fabric = make_fabric(args)
    fabric.launch()
    fabric.seed_everything(args.seed, verbose=False)
    meter = Meter(args, fabric)

    train_loader, val_loader, test_loader = fabric.setup_dataloaders(
        *data.loaders(args),
        use_distributed_sampler=False,  # these loaders yield this process' share already
    )
    with meter.phase("load"):
        model, optimizer = built = build(fabric, args)
    saving = Saving(args, meter, *built)  # for --save and --resume
    with meter.phase("train"):
        for epoch in range(saving.epoch, args.epochs):
            for tokens, labels in meter.progress(train_loader, epoch):
                loss, logits = train_step(fabric, model, optimizer, tokens, labels)
                meter.update(loss, logits, labels)
                saving.checkpoint()  # sometimes, if --save asks for it
            meter.end_epoch(meter.evaluate(model, val_loader))
    saving.save()
    return meter.report(meter.evaluate(model, test_loader))


if __name__ == "__main__":
    cli.run(main)
