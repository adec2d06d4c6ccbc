"""DeiT with automatic mixed precision, 128 images: "max mem" in its own log.

Report: https://github.com/ziplab/Mesa (table "Train Memory") and its issue 2, where the authors say
how it is measured: PyTorch AMP, batch 128, 224 pixels, one RTX 3090, torch.cuda's
max_memory_allocated() in MiB; PyTorch 1.7.1: DeiT-Ti 4171, DeiT-S 8459, DeiT-B 17691.
Models of timm 0.3.2, whose attention is written out; DeiT's recipe: AdamW, mixup, drop path 0.1,
a copy of the weights for the moving average, gradients scaled.
Reading: peak of allocated memory. First argument: tiny (default), small or base.
"""

import copy
import sys

import timm
import torch
from torch.nn import functional as F

size = sys.argv[1] if len(sys.argv) > 1 else "tiny"
timm.layers.set_fused_attn(False)
model = timm.create_model(f"deit_{size}_patch16_224", drop_path_rate=0.1).cuda()
average = copy.deepcopy(model).eval()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
scaler = torch.amp.GradScaler("cuda")
for _ in range(3):
    images = torch.randn(128, 3, 224, 224).cuda()
    labels = torch.rand(128, 1000).softmax(1).cuda()
    images.mul_(0.8).add_(images.flip(0).mul_(0.2))  # mixup
    with torch.autocast("cuda", dtype=torch.float16):
        loss = torch.sum(-labels * F.log_softmax(model(images), dim=-1), dim=-1).mean()
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    with torch.no_grad():
        for a, w in zip(average.state_dict().values(), model.state_dict().values()):
            a.copy_(a * 0.99996 + 0.00004 * w)
print("figure:", torch.cuda.max_memory_allocated() / 2**20, "MiB")
