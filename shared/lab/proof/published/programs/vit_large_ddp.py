"""ViT-L/16 in fp32, 64 images per GPU, DDP, dropout 0.1; with checkpoints around ten of 24 layers.

Report: https://github.com/open-mmlab/mmengine/pull/1319 (two GPUs, September 2023, mmpretrain's
vit-large-p16_64xb64_in1k): 26012 MiB; 17842 with the first ten layers checkpointed.
Reading: peak of allocated memory. Run with --devices 2 --alone [--checkpoint 10].
"""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

checkpoints = int(sys.argv[-1]) if "--checkpoint" in sys.argv else 0


class Layer(nn.Module):
    def __init__(self, width=1024, hidden=4096):
        super().__init__()
        self.norm1, self.norm2 = (nn.LayerNorm(width, eps=1e-6) for _ in range(2))
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.widen, self.narrow = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).view(*x.shape[:2], 3, 16, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape)
        x = x + F.dropout(self.project(y), 0.1)
        return x + F.dropout(self.narrow(F.dropout(F.gelu(self.widen(self.norm2(x))), 0.1)), 0.1)


class ViT(nn.Module):
    def __init__(self, width=1024):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.first, self.places = (nn.Parameter(torch.zeros(1, n, width)) for n in (1, 197))
        self.layers = nn.ModuleList(Layer() for _ in range(24))
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.head = nn.Sequential(nn.Linear(width, 3072), nn.Tanh(), nn.Linear(3072, 1000))

    def forward(self, images):
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = F.dropout(torch.cat([self.first.expand(len(x), -1, -1), x], dim=1) + self.places, 0.1)
        for i, layer in enumerate(self.layers):
            x = checkpoint(layer, x, use_reentrant=False) if i < checkpoints else layer(x)
        return self.head(self.norm(x)[:, 0])


dist.init_process_group("nccl")
model = nn.parallel.DistributedDataParallel(ViT().cuda(), device_ids=[0])
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.3)
for _ in range(3):
    images = torch.randn(64, 3, 224, 224, device="cuda")
    F.cross_entropy(model(images), torch.rand(64, 1000).softmax(1).cuda()).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
print("figure:", torch.cuda.max_memory_allocated() / 2**20, "MiB")
dist.destroy_process_group()
