"""Side road from 08_fsdp/train.py, Tensor parallel: a part of every MLP on each device."""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

sys.path.append(str(Path(__file__).resolve().parents[1]))  # finds shared/ from any folder
from shared.images import cli, data, models
from shared.metrics import Meter
from shared.saving import Saving
from lightning.fabric import Fabric
from lightning.fabric.strategies import ModelParallelStrategy

BATCH_SIZE = 16  # images per update
MICRO_BATCH_SIZE = 4  # images per forward and backward pass
DEVICES = 4  # GPUs, or processes on a CPU
SHARES = 1  # of a batch: every device computes with all of it


def parallelize(model, mesh):
    plan = {"layers.*.mlp.0": ColwiseParallel(), "layers.*.mlp.3": RowwiseParallel()}
    parallelize_module(model.encoder, mesh["tensor_parallel"], plan)
    return model.to_empty(device=mesh.device_type)  # memory for this process' shards


def make_fabric(args):
    return Fabric(
        accelerator=args.accelerator,
        devices=args.devices,
        num_nodes=args.num_nodes,
        precision="bf16-true",  # bf16 for weights, gradients, optimizer states and computation
        strategy=ModelParallelStrategy(
            parallelize,
            data_parallel_size=SHARES,
            tensor_parallel_size=args.world_size // SHARES,
        ),
    )


def build(fabric, args):
    with fabric.init_module(empty_init=True):
        model = models.vit(args)
    model = fabric.setup_module(model)
    fabric.load_raw(models.checkpoint(args), model, weights_only=True)
    # the factor is 1; it is larger for the tiny model, which needs larger steps
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01 * args.sgd_lr_factor, foreach=False)
    optimizer = fabric.setup_optimizers(optimizer)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.updates)
    return model, optimizer, scheduler


def train_step(fabric, model, optimizer, images, labels):
    losses, outputs = [], []
    for x, y in zip(images.split(MICRO_BATCH_SIZE), labels.split(MICRO_BATCH_SIZE)):
        logits = model(x)  # (micro-batch, classes)
        loss = F.cross_entropy(logits, y) * len(x) / len(images)  # its share of the batch's mean
        fabric.backward(loss)
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
        shares=SHARES,
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
        model, optimizer, scheduler = built = build(fabric, args)
    saving = Saving(args, meter, *built)  # for --save and --resume
    with meter.phase("train"):
        for epoch in range(saving.epoch, args.epochs):
            for images, labels in meter.progress(train_loader, epoch):
                loss, logits = train_step(fabric, model, optimizer, images, labels)
                scheduler.step()
                meter.update(loss, logits, labels)
                saving.checkpoint()  # sometimes, if --save asks for it
            meter.end_epoch(meter.evaluate(model, val_loader))
    saving.save()
    return meter.report(meter.evaluate(model, test_loader))


if __name__ == "__main__":
    cli.run(main)
