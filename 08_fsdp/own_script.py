"""Lines to copy: FSDP in a script of your own, without this repository and without Fabric.

Weights, gradients and Adam's states are shards in fp32, a block computes in bf16, and gradients are
averaged and clipped. After each epoch all processes save a checkpoint; started again, the script
continues from the last one, with the same losses; on another number of GPUs, up to rounding.

    torchrun --nproc-per-node 4 08_fsdp/own_script.py

It runs on GPUs or on a CPU. Yours are the model, with its blocks in `blocks`, and the examples.
"""

from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_state_dict,
    set_model_state_dict,
    set_state_dict,
)
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.utils import clip_grad_norm_
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

EPOCHS = 3
BATCH_SIZE = 12  # examples per update, over all processes
LR = 0.01
WEIGHTS = "weights.pt"  # a state dict to begin with; without this file, weights are random
CHECKPOINTS = Path("checkpoints")


class Model(nn.Module):  # yours; this one is small
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(64, 33), nn.Linear(33, 10)
        self.blocks = nn.ModuleList(nn.Linear(33, 33) for _ in range(3))

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = x + block(x).relu()
        return self.last(x)


def make_examples():  # yours, the same in every process; here noise, with labels of 10 classes
    numbers = torch.Generator().manual_seed(0)
    labels = torch.randint(10, (36,), generator=numbers)
    return TensorDataset(torch.randn(36, 64, generator=numbers), labels)


def build(device):
    with torch.device("meta"):
        model = Model()  # in fp32, without memory
    policy = MixedPrecisionPolicy(torch.bfloat16, reduce_dtype=torch.float32)
    for unit in [*model.blocks, model]:  # the model last
        fully_shard(unit, mp_policy=policy)
    model.to_empty(device=device)
    torch.manual_seed(0)  # random weights have to be the same in every process
    weights = Model().state_dict()
    if Path(WEIGHTS).exists():
        weights = torch.load(WEIGHTS, weights_only=True, mmap=True)
    set_model_state_dict(model, weights, options=StateDictOptions(full_state_dict=True))
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR)  # after sharding
    return model, optimizer


def state(model, optimizer, epoch):
    weights, moments = get_state_dict(model, optimizer)  # shards of this process
    return {"model": weights, "optimizer": moments, "epoch": epoch}


def resume(model, optimizer):
    """Load the last complete checkpoint, if there is one; return the epoch to begin with."""
    complete = sorted(CHECKPOINTS.glob("*/.metadata"))  # this file is written last
    if not complete:
        return 0
    last = state(model, optimizer, 0)
    dcp.load(last, checkpoint_id=complete[-1].parent)
    parts = {"model_state_dict": last["model"], "optim_state_dict": last["optimizer"]}
    set_state_dict(model, optimizer, **parts)
    return last["epoch"]


def main():
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda":
        torch.cuda.set_device(dist.get_node_local_rank())
    dist.init_process_group()
    model, optimizer = build(device)
    examples = make_examples()
    sampler = DistributedSampler(examples)  # one share for each process
    loader = DataLoader(examples, BATCH_SIZE // dist.get_world_size(), sampler=sampler)
    for epoch in range(resume(model, optimizer), EPOCHS):
        sampler.set_epoch(epoch)  # another order in each epoch
        for x, y in loader:
            loss = F.cross_entropy(model(x.to(device)).float(), y.to(device))
            loss.backward()
            clip_grad_norm_(model.parameters(), 1.0)  # the norm over all shards
            optimizer.step()
            optimizer.zero_grad()
        if dist.get_rank() == 0:
            print(f"epoch {epoch + 1}: loss {loss.item():.3f}")  # of this process's last batch
        dcp.save(state(model, optimizer, epoch + 1), checkpoint_id=CHECKPOINTS / f"{epoch + 1:04}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
