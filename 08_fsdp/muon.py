"""Side road from 08_fsdp/train.py, Muon: a matrix is whole while it is made orthogonal.

Muon steps along an orthogonal version of the average gradient (06_sgd/muon.py), which needs the
whole matrix. Each device keeps a shard of the average, gathers one matrix at a time, 8 MB at most,
and takes its rows of the result: to the last bit what torch.optim.Muon computes on one device from
the same gradients. Of the peak, 151 MB are a quarter of one state; Adam's two would be 303 MB.

torch.optim.Muon takes shards of more than one row, and is right up to rounding. DTensor divides
each product among the devices, but gathers 1.0 GB and adds up 1.5 GB; this file gathers 0.6 GB.

Every device here computes all matrices. If each had some matrices as a whole, in place of a part of
all, it would compute only these, and the step would send nothing; but FSDP shards every matrix.
https://github.com/pytorch/torchtitan/pull/3719 compares such ways.

Cost: one state, 2N bytes over all devices; each gathers all matrices, and computes all of them

Losses: other
Memory: more

On a GPU, ViT-L/16 on CIFAR-10; with --preset tiny, a small ViT on digits, on any laptop.
"""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from lightning.fabric import Fabric
from lightning.fabric.strategies import ModelParallelStrategy
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import distribute_tensor

sys.path.append(str(Path(__file__).resolve().parents[1]))  # for shared/, from any folder
from shared.images import cli, data, models
from shared.metrics import Meter

BATCH_SIZE = 16  # images per update
MICRO_BATCH_SIZE = 4  # images per forward and backward pass; more are faster
LR = {"full": 5e-5, "tiny": 6e-4}  # the tiny preset makes few updates, so a larger rate
DEVICES = 4  # GPUs, or processes on a CPU


def parallelize(model, mesh):
    for unit in [*model.encoder.layers, model]:  # the root last, for parameters outside the blocks
        fully_shard(unit, mesh=mesh["data_parallel"])
    return model.to_empty(device=mesh.device_type)  # memory for the shards of this process


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


def orthogonalize(matrix):
    tall = len(matrix) > matrix.shape[1]
    x = matrix.bfloat16().T if tall else matrix.bfloat16()
    x = x / x.norm().clamp(min=1e-7)
    for _ in range(5):  # Newton-Schulz, as in torch.optim.Muon: all singular values come near 1
        gram = x @ x.T
        gram = torch.addmm(gram, gram, gram, beta=-4.775, alpha=2.0315)
        x = torch.addmm(x, gram, x, beta=3.4445)
    return x.T if tall else x


class ShardedMuon(torch.optim.SGD):
    @torch.no_grad()
    def step(self, closure=None):
        for p in (p for p in self.param_groups[0]["params"] if p.grad is not None):
            average = self.state[p].setdefault("average", torch.zeros_like(p))
            average.lerp_(p.grad, 0.05)  # shards
            update = orthogonalize(p.grad.lerp(average, 0.95).full_tensor())  # gathers the matrix
            update = distribute_tensor(update, p.device_mesh, p.placements, src_data_rank=None)
            p.add_(update, alpha=-self.param_groups[0]["lr"] * 0.2 * max(p.shape) ** 0.5)


def build(fabric, args, loaders):
    with fabric.init_module(empty_init=True):  # no random weights: the file has them all
        model = models.vit(args, loaders)  # from torchvision
    model = fabric.setup_module(model)  # calls parallelize(): so far, nothing has memory
    fabric.load_raw(models.weights(args, loaders), model, weights_only=True)  # mmap, into shards
    for p in model.parameters():
        p.requires_grad_(p.ndim == 2)  # the others stay as they are
    # created after sharding, so that it holds shards
    optimizer = ShardedMuon(model.parameters(), lr=LR[args.preset])
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
    args = cli.parse(__file__, argv, BATCH_SIZE, DEVICES, MICRO_BATCH_SIZE)
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
