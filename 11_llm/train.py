"""Stage 11, all of it on text: a language model in bf16, a few texts at a time, sharded, checkpointed and offloaded."""

import sys
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from lightning.fabric import Fabric
from lightning.fabric.strategies import ModelParallelStrategy
from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard
from torch.utils.checkpoint import checkpoint

sys.path.append(str(Path(__file__).resolve().parents[1]))  # finds shared/ from any folder
from shared import cli, text
from shared.metrics import Meter

BATCH_SIZE = 12  # texts per update
MICRO_BATCH_SIZE = 3  # texts per forward and backward pass


def parallelize(model, mesh):
    offload = CPUOffloadPolicy(pin_memory=torch.cuda.is_available())  # pinned, so that the GPU can fetch it in passing
    for block in text.blocks(model):
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)
    for unit in [*text.blocks(model), model]:  # the model last, for what is in no block
        fully_shard(unit, mesh=mesh["data_parallel"], offload_policy=offload)
    return model.to_empty(device="cpu")  # memory for this process' shards


def make_fabric(args):
    return Fabric(
        accelerator=args.accelerator,
        devices=args.devices,
        num_nodes=args.num_nodes,
        precision="bf16-true",
        strategy=ModelParallelStrategy(
            parallelize,
            data_parallel_size=args.world_size,
            tensor_parallel_size=1,
        ),
    )


def build(fabric, args):
    with fabric.init_module(empty_init=True):
        model = text.classifier(args)
    model = fabric.setup_module(model)
    fabric.load_raw(text.checkpoint(args), model)
    text.restore_buffers(model, fabric.device)  # what no checkpoint holds, such as positions
    optimizer = fabric.setup_optimizers(torch.optim.Adam(model.parameters(), lr=args.adam_lr))
    return model, optimizer


def train_step(fabric, model, optimizer, tokens, labels):
    losses, outputs = [], []
    for x, y in text.micro_batches(tokens, labels, MICRO_BATCH_SIZE):
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
        task=text,
        batch_size=BATCH_SIZE,
        micro_batch_size=MICRO_BATCH_SIZE,
        devices=4,
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
