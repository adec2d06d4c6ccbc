"""Stage 10, CPU offload, in plain PyTorch: the shards live on the host."""

import atexit
import sys
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard
from torch.utils.checkpoint import checkpoint

sys.path.append(str(Path(__file__).resolve().parents[1]))  # finds shared/ from any folder
from shared.images import cli, data, models
from shared.metrics import Meter
from shared.saving import Saving

BATCH_SIZE = 16  # images per update
MICRO_BATCH_SIZE = 4  # images per forward and backward pass
DEVICES = 4  # GPUs, or processes on a CPU
PRECISION = "bf16-true"  # what reports call it, in the words of Fabric


def parallelize(model, mesh):
    offload = CPUOffloadPolicy(pin_memory=torch.cuda.is_available())  # pinned is copied faster
    # Keep a block's input, and run the block again in the backward pass. This replaces forward():
    # a wrapper around the block would rename its parameters, and the file would not fit them.
    for block in model.encoder.layers:
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)
    for unit in [*model.encoder.layers, model]:  # the model last, for what is in no block
        fully_shard(unit, mesh=mesh["data_parallel"], offload_policy=offload)
    return model.to_empty(device="cpu")  # memory for this process' shards, on the host


def make_device(args):
    if args.accelerator == "cuda":
        torch.cuda.set_device(dist.get_node_local_rank())
    dist.init_process_group("nccl" if args.accelerator == "cuda" else "gloo")  # joins the others
    atexit.register(dist.destroy_process_group)
    return torch.device(args.accelerator)


def build(device, args):
    with torch.device("meta"):  # shapes and types, no memory
        model = models.vit(args).to(torch.bfloat16)
    mesh = dist.init_device_mesh(device.type, (args.world_size,), mesh_dim_names=("data_parallel",))
    model = parallelize(model, mesh)
    weights = torch.load(models.checkpoint(args), weights_only=True, mmap=True)
    whole = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)  # its file has all
    set_model_state_dict(model, weights, options=whole)
    # the factor is 1; it is larger for the tiny model, which needs larger steps
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01 * args.sgd_lr_factor)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.updates)
    return model, optimizer, scheduler


def train_step(model, optimizer, images, labels):
    losses, outputs = [], []
    for x, y in zip(images.split(MICRO_BATCH_SIZE), labels.split(MICRO_BATCH_SIZE)):
        logits = model(x.bfloat16()).float()  # (micro-batch, classes)
        loss = F.cross_entropy(logits, y) * len(x) / len(images)  # its share of the batch's mean
        loss.backward()
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
        launcher="torchrun",
    )
    device = make_device(args)
    torch.manual_seed(args.seed)
    meter = Meter(args, device, PRECISION)

    train_loader, val_loader, test_loader = data.loaders(args)
    with meter.phase("load"):
        model, optimizer, scheduler = built = build(device, args)
    saving = Saving(args, meter, *built)  # for --save and --resume
    with meter.phase("train"):
        for epoch in range(saving.epoch, args.epochs):
            train_loader.sampler.set_epoch(epoch)  # another order in every epoch
            for images, labels in meter.progress(train_loader, epoch):
                images = images.to(device, non_blocking=True)
                labels = labels.to(device, non_blocking=True)
                loss, logits = train_step(model, optimizer, images, labels)
                scheduler.step()
                meter.update(loss, logits, labels)
                saving.checkpoint()  # sometimes, if --save asks for it
            meter.end_epoch(meter.evaluate(model, val_loader))
    saving.save()
    return meter.report(meter.evaluate(model, test_loader))


if __name__ == "__main__":
    cli.run(main)
