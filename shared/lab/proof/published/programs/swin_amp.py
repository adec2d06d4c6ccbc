"""Swin-T with mixed precision, 128 images of 224 pixels.

Report: https://github.com/ziplab/Mesa, table "Train Memory": Swin-Ti 11812 (MB, torch.cuda's
max_memory_allocated() in MiB, PyTorch 1.7.1, one GPU, an RTX 3090 by issue 2). Swin's recipe:
AdamW, mixup, drop path 0.2, no moving average; mixed precision by apex O1 in Swin's own code, which
is taken to be as autocast. Attention is written out.
Reading: peak of allocated memory.
"""

import timm
import torch
from torch.nn import functional as F

timm.layers.set_fused_attn(False)
model = timm.create_model("swin_tiny_patch4_window7_224", drop_path_rate=0.2).cuda()
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
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    scaler.step(optimizer)
    scaler.update()
print("figure:", torch.cuda.max_memory_allocated() / 2**20, "MiB")
