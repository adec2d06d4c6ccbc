"""Side road from 11_llm/train.py, sharded LoRA: small matrices learn, with all techniques."""

import sys
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard
from torch.utils.checkpoint import checkpoint

sys.path.append(str(Path(__file__).resolve().parents[1]))  # finds shared/ from any folder
from shared.saving import Saving
from shared.metrics import Meter
from shared.text import cli, data, models
from lightning.fabric import Fabric
from lightning.fabric.strategies import ModelParallelStrategy
from peft import LoraConfig, inject_adapter_in_model

BATCH_SIZE = 12  # texts per update
MICRO_BATCH_SIZE = 3  # texts per forward and backward pass
DEVICES = 4  # GPUs, or processes on a CPU


def parallelize(model, mesh):
    offload = CPUOffloadPolicy(pin_memory=torch.cuda.is_available())  # pinned is copied faster
    # Keep a block's input, and run the block again in the backward pass. This replaces forward():
    # a wrapper around the block would rename its parameters, and the file would not fit them.
    for block in models.blocks(model):
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)
    for unit in [*models.blocks(model), model]:  # the model last, for what is in no block
        fully_shard(unit, mesh=mesh["data_parallel"], offload_policy=offload)
    return model


def make_fabric(args):
    return Fabric(
        accelerator=args.accelerator,
        devices=args.devices,
        num_nodes=args.num_nodes,
        precision="bf16-true",  # bf16 for weights, gradients, optimizer states and computation
        strategy=ModelParallelStrategy(
            parallelize,
            data_parallel_size=args.world_size,  # one shard for each process
            tensor_parallel_size=1,
        ),
    )


def build(fabric, args):
    model = models.classifier(args)
    model.load_state_dict(torch.load(models.checkpoint(args), weights_only=True, mmap=True))
    inject_adapter_in_model(LoraConfig(target_modules="all-linear"), model.base_model)
    model = fabric.setup_module(model)
    models.restore_buffers(model, fabric.device)  # what no checkpoint holds, such as positions
    # the factor is 1; it is larger for the tiny model, which needs larger steps
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-5 * args.adam_lr_factor)
    optimizer = fabric.setup_optimizers(optimizer)
    return model, optimizer


def train_step(fabric, model, optimizer, tokens, labels):
    losses, outputs = [], []
    for x, y in data.micro_batches(tokens, labels, MICRO_BATCH_SIZE):
        logits = model(**x).logits  # (micro-batch, classes)
        loss = F.cross_entropy(logits, y) * len(y) / len(labels)  # its share of the batch's mean
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
