"""Three matrices as on Lightning's page about tensor parallelism, AdamW, on one GPU or several."""

import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


class FeedForward(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.w1, self.w2, self.w3 = (nn.Linear(width, width, bias=False) for _ in range(3))

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


model = FeedForward(8192)  # on the host: devices get the whole matrices, one by one
if "WORLD_SIZE" in os.environ:
    mesh = dist.init_device_mesh("cuda", (int(os.environ["WORLD_SIZE"]),))
    plan = {"w1": ColwiseParallel(), "w2": RowwiseParallel(), "w3": ColwiseParallel()}
    parallelize_module(model, mesh, plan)
model.cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, foreach=True)
for _ in range(3):
    model(torch.rand(8, 8192, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
print(f"figure: {torch.cuda.max_memory_allocated()} bytes")
