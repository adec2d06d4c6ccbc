"""Stage 11 from 11_llm/before.py, all of it on text: the techniques of 03, 05 and 07 to 10.

On a GPU, a model from the hub on IMDb; with --preset tiny, a small one on made-up reviews.
"""

import sys
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from lightning.fabric import Fabric
from lightning.fabric.strategies import ModelParallelStrategy
from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard
from torch.utils.checkpoint import checkpoint

sys.path.append(str(Path(__file__).resolve().parents[1]))  # for shared/, from any folder
from shared.metrics import Meter
from shared.text import cli, data, models

BATCH_SIZE = 12  # texts per update
MICRO_BATCH_SIZE = 3  # texts per forward and backward pass; more are faster
LR = {"full": 5e-5, "tiny": 3e-4}  # the tiny preset makes few updates, so a larger rate
DEVICES = 4  # GPUs, or processes on a CPU


def parallelize(model, mesh):
    offload = CPUOffloadPolicy(pin_memory=torch.cuda.is_available())  # pinned: faster copies
    # Keep only the input of each block, and run the block again in the backward pass.
    for block in models.blocks(model):
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)
    for unit in [*models.blocks(model), model]:  # the root last, for parameters outside the blocks
        fully_shard(unit, mesh=mesh["data_parallel"], offload_policy=offload)
    return model.to_empty(device="cpu")  # shards on the host, where the optimizer works, too


def make_fabric(args):
    return Fabric(
        accelerator=args.accelerator,
        devices=args.devices,
        num_nodes=args.num_nodes,
        precision="bf16-true",  # bf16 for weights, gradients, optimizer states and computation
        strategy=ModelParallelStrategy(  # calls parallelize(); FSDPStrategy is the older FSDP1
            parallelize,
            data_parallel_size=args.world_size,  # one shard for each process
            tensor_parallel_size=1,
        ),
    )


def build(fabric, args, loaders):
    with fabric.init_module(empty_init=True):  # no random weights: the file has them all
        model = models.classifier(args, loaders)
    model = fabric.setup_module(model)  # calls parallelize(): so far, nothing has memory
    fabric.load_raw(models.weights(args, loaders), model, weights_only=True)  # mmap, into shards
    models.restore_buffers(model, fabric.device)  # what the file lacks, such as positions
    # created after sharding, so that it holds shards
    optimizer = torch.optim.Adam(model.parameters(), lr=LR[args.preset])
    optimizer = fabric.setup_optimizers(optimizer)
    return model, optimizer


def train_step(fabric, model, optimizer, tokens, labels, meter):
    for x, y in data.micro_batches(tokens, labels, MICRO_BATCH_SIZE):
        logits = model(**x).logits  # (micro-batch, classes)
        loss = F.cross_entropy(logits, y) * len(y) / len(labels)  # its share of the batch's mean
        fabric.backward(loss)
        meter.add(loss, logits, y)
    optimizer.step()
    optimizer.zero_grad()  # frees the gradients, before the next forward pass needs the memory


def main(argv=None):
    args = cli.parse(__file__, argv, BATCH_SIZE, DEVICES, MICRO_BATCH_SIZE)
    fabric = make_fabric(args)
    fabric.launch()
    fabric.seed_everything(args.seed)
    meter = Meter(args, fabric)

    loaders = data.loaders(args)
    train_loader, val_loader, test_loader = fabric.setup_dataloaders(*loaders.parts)
    with meter.loading(loaders):
        model, optimizer = build(fabric, args, loaders)
    with meter.training(model, optimizer):  # measures the updates; --save keeps these
        for epoch in range(loaders.epochs):
            for tokens, labels in meter.progress(train_loader, epoch):
                train_step(fabric, model, optimizer, tokens, labels, meter)
            meter.validate(model, val_loader)
    return meter.test(model, test_loader)


if __name__ == "__main__":
    main()
