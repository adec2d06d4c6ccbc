"""Update matrices by 08_fsdp/muon.py on two processes, and by torch.optim.Muon on one process.

Usage: python tests/helpers/sharded_muon.py OUT.json
"""

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import distribute_tensor

from shared.lab.records import scripts
from shared.lab.records.running import side_by_side

PROCESSES = 2
STEPS = 3
LR = 0.01
# Rows and columns; torch.optim.Muon refuses shards of the last.
SIZES = ((96, 32), (32, 96), (32, 32), (7, 32), (1, 32))


def matrices(dtype, sizes=SIZES):
    torch.manual_seed(1)
    layers = [torch.nn.Linear(columns, rows, dtype=dtype) for rows, columns in sizes]
    return torch.nn.Sequential(*layers).requires_grad_(False)


def trained(dtype, make_optimizer, is_sharded, sizes=SIZES):
    """Return the matrices after some updates with gradients that do not depend on shards."""
    model = matrices(dtype, sizes)
    if is_sharded:
        fully_shard(model)
    weights = [layer.weight.requires_grad_() for layer in model]
    optimizer = make_optimizer(weights)
    for step in range(STEPS):
        torch.manual_seed(step + 2)
        for p in weights:
            grad = torch.randn(p.shape).to(dtype)
            p.grad = distribute_tensor(grad, p.device_mesh, p.placements) if is_sharded else grad
        optimizer.step()
    return [(p.full_tensor() if is_sharded else p).detach().float() for p in weights]


def pytorch_muon(weights):
    return torch.optim.Muon(weights, LR, weight_decay=0, adjust_lr_fn="match_rms_adamw")


def sharded_muon(weights):
    return scripts.get("08_fsdp/muon").load().ShardedMuon(weights, lr=LR)


def compare(dtype):
    before = [layer.weight.float() for layer in matrices(dtype)]
    wanted = trained(dtype, pytorch_muon, is_sharded=False)
    found = trained(dtype, sharded_muon, is_sharded=True)
    of_shards = trained(dtype, pytorch_muon, is_sharded=True, sizes=SIZES[:-1])
    change = [(a - b).abs().max().item() for a, b in zip(wanted, before)]
    return {
        "equal": [torch.equal(a, b) for a, b in zip(found, wanted)],
        "change": change,
        "of shards": [(a - b).abs().max().item() for a, b in zip(of_shards, wanted)],
    }


def work(out):
    dist.init_process_group("gloo")
    results = {str(dtype): compare(dtype) for dtype in (torch.bfloat16, torch.float32)}
    if dist.get_rank() == 0:
        Path(out).write_text(json.dumps(results))
    dist.destroy_process_group()


if __name__ == "__main__":
    side_by_side(PROCESSES, work, sys.argv[1])
