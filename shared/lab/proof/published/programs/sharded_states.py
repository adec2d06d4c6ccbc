"""Twenty layers with DDP and Adam on two GPUs; with --shared, Adam's states are sharded."""

import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel


def read(name):
    print(f"figure {name}: {torch.cuda.max_memory_allocated()} bytes")


dist.init_process_group("nccl")
model = nn.Sequential(*[nn.Linear(2000, 2000) for _ in range(20)]).cuda()
read("model")
model = DistributedDataParallel(model)
read("DDP")
options = {"lr": 0.01, "foreach": False}  # as in PyTorch 1.8
if "--shared" in sys.argv:
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, **options)
else:
    optimizer = torch.optim.Adam(model.parameters(), **options)
outputs = model(torch.rand(20, 2000, device="cuda"))
F.mse_loss(outputs, torch.rand(20, 2000, device="cuda")).backward()
read("before the step")
optimizer.step()
read("after the step")
