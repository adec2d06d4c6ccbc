"""Programs measured on Lightning's pages."""

import contextlib

import torch
import torch.distributed as dist
import torch.nn.functional as F
from lightning.pytorch.demos import Transformer
from torch import nn
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

from shared.evidence.published.old_adam import adam_of_2023


class FeedForward(nn.Module):
    """The model of Lightning's page about tensor parallelism."""

    def __init__(self, width):
        super().__init__()
        self.w1, self.w2, self.w3 = (nn.Linear(width, width, bias=False) for _ in range(3))

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


def tensor_parallel(gpu, devices):
    """Lightning's page about tensor parallelism: three matrices, AdamW, on one GPU or several."""
    model = FeedForward(8192)  # on the host: devices get the whole matrices, one by one
    if devices > 1:
        mesh = dist.init_device_mesh(gpu.device.type, (devices,))
        plan = {"w1": ColwiseParallel(), "w2": RowwiseParallel(), "w3": ColwiseParallel()}
        parallelize_module(model, mesh, plan)
    model.to(gpu.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, foreach=True)
    for _ in range(3):
        output = model(gpu.noise(8, 8192))
        output.sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    gpu.read("peak")


def data_parallel(gpu, old_adam=False):
    """Lightning's page about FSDP: its Transformer of a billion weights, with DDP and Adam."""
    model = Transformer(vocab_size=33278, nlayers=32, nhid=4096, ninp=1024, nhead=64)
    model = DistributedDataParallel(model.to(gpu.device))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)

    def forward():
        tokens = gpu.tokens(1, 35)
        return F.nll_loss(model(tokens, tokens), tokens.view(-1))

    with adam_of_2023() if old_adam else contextlib.nullcontext():
        gpu.train(forward, optimizer)
