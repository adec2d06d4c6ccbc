"""Side road from 03_bf16/train.py, Kahan summation: keep what rounding cuts off."""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F

sys.path.append(str(Path(__file__).resolve().parents[1]))  # finds shared/ from any folder
from shared.images import cli, data, models
from shared.metrics import Meter
from shared.saving import Saving
from lightning.fabric import Fabric

BATCH_SIZE = 64  # images per update
DEVICES = 1  # GPUs, or processes on a CPU


def make_fabric(args):
    return Fabric(
        accelerator=args.accelerator,
        devices=args.devices,
        precision="bf16-true",  # bf16 for weights, gradients, optimizer states and computation
    )


class KahanAdam(torch.optim.Adam):
    @torch.no_grad()
    def step(self, closure=None):
        params = [p for group in self.param_groups for p in group["params"] if p.grad is not None]
        before = [p.clone() for p in params]
        torch._foreach_zero_(params)
        super().step(closure)  # from 0, so that it leaves the update, with all its digits
        for p, old in zip(params, before):
            if "rest" not in self.state[p]:
                self.state[p]["rest"] = torch.zeros_like(p)
            rest = self.state[p]["rest"]
            rest += p  # the update, and what was left of those before
            p.copy_(old + rest)
            rest -= p - old  # what has arrived


def build(fabric, args):
    model = models.vit(args)
    model.load_state_dict(torch.load(models.checkpoint(args), weights_only=True))
    # the factor is 1; it is larger for the tiny model, which needs larger steps
    optimizer = KahanAdam(model.parameters(), lr=5e-5 * args.adam_lr_factor)
    model, optimizer = fabric.setup(model, optimizer)
    return model, optimizer


def train_step(fabric, model, optimizer, images, labels):
    logits = model(images)  # (batch, classes)
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
            for images, labels in meter.progress(train_loader, epoch):
                loss, logits = train_step(fabric, model, optimizer, images, labels)
                meter.update(loss, logits, labels)
                saving.checkpoint()  # sometimes, if --save asks for it
            meter.end_epoch(meter.evaluate(model, val_loader))
    saving.save()
    return meter.report(meter.evaluate(model, test_loader))


if __name__ == "__main__":
    cli.run(main)
