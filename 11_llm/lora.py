"""Side road from 11_llm/before.py, LoRA: weights stay, two small matrices beside each learn."""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F

sys.path.append(str(Path(__file__).resolve().parents[1]))  # finds shared/ from any folder
from shared.saving import Saving
from shared.metrics import Meter
from shared.text import cli, data, models
from lightning.fabric import Fabric
from peft import LoraConfig, inject_adapter_in_model

BATCH_SIZE = 12  # texts per update
DEVICES = 1  # GPUs, or processes on a CPU


def make_fabric(args):
    return Fabric(
        accelerator=args.accelerator,
        devices=args.devices,
        precision="32-true",  # fp32 for weights, gradients, optimizer states and computation
    )


def build(fabric, args):
    model = models.classifier(args)
    model.load_state_dict(torch.load(models.checkpoint(args), weights_only=True))
    inject_adapter_in_model(LoraConfig(target_modules="all-linear"), model.base_model)
    # the factor is 1; it is larger for the tiny model, which needs larger steps
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-5 * args.adam_lr_factor)
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
