"""Side road from 08_fsdp/train.py, Tensor parallel: a part of every MLP on each device.

FSDP divides what is stored; tensor parallelism divides the computation too, and gathers nothing.
`ColwiseParallel` gives each device a quarter of the outputs of an MLP's first layer, so a quarter
of the activations behind it, `RowwiseParallel` the weights of the second layer that belong to
these. Each device then has a part of every sum; the parts are added up over all devices.

Every device needs the whole batch (`SHARES`) and works through four micro-batches, as in 07.
Torchvision's attention stays whole: it has queries, keys and values in one tensor, and does not
call its `out_proj`. Separate layers can be divided by heads. On a GPU, a grouped step refuses to
mix whole weights and shards, hence `foreach=False`.

Cost: computation waits twice per block for a sum over all devices; attention stays whole

Losses: nearly the same
Memory: more

On a GPU, ViT-L/16 on CIFAR-10; with --preset tiny, a small ViT on digits, on any laptop.
"""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from lightning.fabric import Fabric
from lightning.fabric.strategies import ModelParallelStrategy
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

sys.path.append(str(Path(__file__).resolve().parents[1]))  # for shared/, from any folder
from shared.images import cli, data, models
from shared.metrics import Meter

BATCH_SIZE = 16  # images per update
MICRO_BATCH_SIZE = 4  # images per forward and backward pass; more are faster
LR = {"full": 0.01, "tiny": 0.05}  # the tiny preset makes few updates, so a larger rate
DEVICES = 4  # GPUs, or processes on a CPU
SHARES = 1  # of a batch: every device computes with all of it


def parallelize(model, mesh):
    plan = {"layers.*.mlp.0": ColwiseParallel(), "layers.*.mlp.3": RowwiseParallel()}
    parallelize_module(model.encoder, mesh["tensor_parallel"], plan)
    return model.to_empty(device=mesh.device_type)  # memory for the shards of this process


def make_fabric(args):
    return Fabric(
        accelerator=args.accelerator,
        devices=args.devices,
        num_nodes=args.num_nodes,
        precision="bf16-true",  # bf16 for weights, gradients, optimizer states and computation
        strategy=ModelParallelStrategy(  # calls parallelize(); FSDPStrategy is the older FSDP1
            parallelize,
            data_parallel_size=SHARES,
            tensor_parallel_size=args.world_size // SHARES,
        ),
    )


def build(fabric, args, loaders):
    with fabric.init_module(empty_init=True):  # no random weights: the file has them all
        model = models.vit(args, loaders)  # from torchvision
    model = fabric.setup_module(model)  # calls parallelize(): so far, nothing has memory
    fabric.load_raw(models.weights(args, loaders), model, weights_only=True)  # mmap, into shards
    # created after sharding, so that it holds shards
    optimizer = torch.optim.SGD(model.parameters(), lr=LR[args.preset], foreach=False)
    optimizer = fabric.setup_optimizers(optimizer)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=loaders.updates)
    return model, optimizer, scheduler


def train_step(fabric, model, optimizer, images, labels, meter):
    for x, y in zip(images.split(MICRO_BATCH_SIZE), labels.split(MICRO_BATCH_SIZE)):
        logits = model(x)  # (micro-batch, classes)
        loss = F.cross_entropy(logits, y) * len(x) / len(images)  # its share of the batch's mean
        fabric.backward(loss)
        meter.add(loss, logits, y)
    optimizer.step()
    optimizer.zero_grad()  # frees the gradients, before the next forward pass needs the memory


def main(argv=None):
    args = cli.parse(__file__, argv, BATCH_SIZE, DEVICES, MICRO_BATCH_SIZE, shares=SHARES)
    fabric = make_fabric(args)
    fabric.launch()
    fabric.seed_everything(args.seed)
    meter = Meter(args, fabric)

    loaders = data.loaders(args)
    train_loader, val_loader, test_loader = fabric.setup_dataloaders(*loaders.parts)
    with meter.loading(loaders):
        model, optimizer, scheduler = build(fabric, args, loaders)
    with meter.training(model, optimizer, scheduler):  # measures the updates; --save keeps these
        for epoch in range(loaders.epochs):
            for images, labels in meter.progress(train_loader, epoch):
                train_step(fabric, model, optimizer, images, labels, meter)
                scheduler.step()
            meter.validate(model, val_loader)
    return meter.test(model, test_loader)


if __name__ == "__main__":
    main()
