"""Stage 10, CPU offload, in plain PyTorch: the shards live on the host.

On a GPU, ViT-L/16 on CIFAR-10; with --preset tiny, a small ViT on digits, on any laptop.
"""

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

sys.path.append(str(Path(__file__).resolve().parents[1]))  # for shared/, from any folder
from shared.images import cli, data, models
from shared.metrics import Meter

BATCH_SIZE = 16  # images per update
MICRO_BATCH_SIZE = 4  # images per forward and backward pass; more are faster
LR = {"full": 0.01, "tiny": 0.05}  # the tiny preset makes few updates, so a larger rate
DEVICES = 4  # GPUs, or processes on a CPU
REPORTED_AS = "bf16-true"  # what the record calls it; the computation does not depend on it


def parallelize(model, mesh):
    offload = CPUOffloadPolicy(pin_memory=torch.cuda.is_available())  # pinned: faster copies
    # Keep only the input of each block, and run the block again in the backward pass.
    for block in model.encoder.layers:
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)
    for unit in [*model.encoder.layers, model]:  # the root last, for parameters outside the blocks
        fully_shard(unit, mesh=mesh["data_parallel"], offload_policy=offload)
    return model.to_empty(device="cpu")  # shards on the host, where the optimizer works, too


def make_device(args):
    if args.accelerator == "cuda":
        torch.cuda.set_device(dist.get_node_local_rank())
    dist.init_process_group("nccl" if args.accelerator == "cuda" else "gloo")  # joins the others
    atexit.register(dist.destroy_process_group)
    return torch.device(args.accelerator)


def build(device, args, loaders):
    with torch.device("meta"):  # shapes and types, no memory
        model = models.vit(args, loaders).to(torch.bfloat16)
    mesh = dist.init_device_mesh(device.type, (args.world_size,), mesh_dim_names=("data_parallel",))
    model = parallelize(model, mesh)
    weights = torch.load(models.weights(args, loaders), weights_only=True, mmap=True)
    whole = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)  # which sends shards
    set_model_state_dict(model, weights, options=whole)
    optimizer = torch.optim.SGD(model.parameters(), lr=LR[args.preset])
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=loaders.updates)
    return model, optimizer, scheduler


def train_step(model, optimizer, images, labels, meter):
    for x, y in zip(images.split(MICRO_BATCH_SIZE), labels.split(MICRO_BATCH_SIZE)):
        logits = model(x.bfloat16()).float()  # (micro-batch, classes)
        loss = F.cross_entropy(logits, y) * len(x) / len(images)  # its share of the batch's mean
        loss.backward()
        meter.add(loss, logits, y)
    optimizer.step()
    optimizer.zero_grad()  # frees the gradients, before the next forward pass needs the memory


def main(argv=None):
    args = cli.parse(__file__, argv, BATCH_SIZE, DEVICES, MICRO_BATCH_SIZE, launcher="torchrun")
    device = make_device(args)
    torch.manual_seed(args.seed)
    meter = Meter(args, device, REPORTED_AS)

    loaders = data.loaders(args)
    train_loader, val_loader, test_loader = loaders.parts
    with meter.loading(loaders):
        model, optimizer, scheduler = build(device, args, loaders)
    with meter.training(model, optimizer, scheduler):  # measures the updates; --save keeps these
        for epoch in range(loaders.epochs):
            for images, labels in meter.progress(train_loader, epoch):
                images = images.to(device, non_blocking=True)
                labels = labels.to(device, non_blocking=True)
                train_step(model, optimizer, images, labels, meter)
                scheduler.step()
            meter.validate(model, val_loader)
    return meter.test(model, test_loader)


if __name__ == "__main__":
    main()
