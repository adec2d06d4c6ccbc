"""Stage 04, batch size, in plain PyTorch: a quarter of the images at once."""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F

sys.path.append(str(Path(__file__).resolve().parents[1]))  # finds shared/ from any folder
from shared.images import cli, data, models
from shared.metrics import Meter
from shared.saving import Saving

BATCH_SIZE = 16  # images per update
DEVICES = 1  # GPUs, or processes on a CPU
PRECISION = "bf16-true"  # what reports call it, in the words of Fabric


def make_device(args):
    return torch.device(args.accelerator)


def build(device, args):
    model = models.vit(args)
    model.load_state_dict(torch.load(models.checkpoint(args), weights_only=True))
    model = model.to(device, torch.bfloat16)
    # the factor is 1; it is larger for the tiny model, which needs larger steps
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-5 * args.adam_lr_factor)
    return model, optimizer


def train_step(model, optimizer, images, labels):
    logits = model(images.bfloat16()).float()  # (batch, classes)
    loss = F.cross_entropy(logits, labels)
    loss.backward()
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
    device = make_device(args)
    torch.manual_seed(args.seed)
    meter = Meter(args, device, PRECISION)

    train_loader, val_loader, test_loader = data.loaders(args)
    with meter.phase("load"):
        model, optimizer = built = build(device, args)
    saving = Saving(args, meter, *built)  # for --save and --resume
    with meter.phase("train"):
        for epoch in range(saving.epoch, args.epochs):
            train_loader.sampler.set_epoch(epoch)  # another order in every epoch
            for images, labels in meter.progress(train_loader, epoch):
                images = images.to(device, non_blocking=True)
                labels = labels.to(device, non_blocking=True)
                loss, logits = train_step(model, optimizer, images, labels)
                meter.update(loss, logits, labels)
                saving.checkpoint()  # sometimes, if --save asks for it
            meter.end_epoch(meter.evaluate(model, val_loader))
    saving.save()
    return meter.report(meter.evaluate(model, test_loader))


if __name__ == "__main__":
    cli.run(main)
