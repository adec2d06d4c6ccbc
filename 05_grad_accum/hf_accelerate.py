"""Side road from 05_grad_accum/plain.py, Accelerate: the same stage with Hugging Face's library."""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F

sys.path.append(str(Path(__file__).resolve().parents[1]))  # finds shared/ from any folder
from shared.images import cli, data, models
from shared.metrics import Meter
from shared.saving import Saving
from accelerate import Accelerator

BATCH_SIZE = 16  # images per update
MICRO_BATCH_SIZE = 4  # images per forward and backward pass
DEVICES = 1  # GPUs, or processes on a CPU
PRECISION = "bf16-true"  # what reports call it, in the words of Fabric
accelerator = Accelerator(device_placement=False)  # make_device() says where


def make_device(args):
    return torch.device(args.accelerator)


def build(device, args):
    model = models.vit(args)
    model.load_state_dict(torch.load(models.checkpoint(args), weights_only=True))
    model = model.to(device, torch.bfloat16)
    # the factor is 1; it is larger for the tiny model, which needs larger steps
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-5 * args.adam_lr_factor)
    return accelerator.prepare(model, optimizer)


def train_step(model, optimizer, images, labels):
    losses, outputs = [], []
    for x, y in zip(images.split(MICRO_BATCH_SIZE), labels.split(MICRO_BATCH_SIZE)):
        logits = model(x.bfloat16()).float()  # (micro-batch, classes)
        loss = F.cross_entropy(logits, y) * len(x) / len(images)  # its share of the batch's mean
        accelerator.backward(loss)
        losses.append(loss.detach())
        outputs.append(logits.detach())
    optimizer.step()
    optimizer.zero_grad()  # here, so that no old gradient is alive in the next forward pass
    return sum(losses), torch.cat(outputs)


def main(argv=None):
    args = cli.parse(
        __file__,
        argv,
        batch_size=BATCH_SIZE,
        micro_batch_size=MICRO_BATCH_SIZE,
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
