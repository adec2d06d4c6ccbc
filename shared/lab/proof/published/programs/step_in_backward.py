"""ViT-L/16 and Adam, one image; with --hooked, each gradient is used as soon as it is ready."""

import sys

import torch
from torchvision.models import vit_l_16

model = vit_l_16().cuda()
if "--hooked" in sys.argv:
    optimizers = {p: torch.optim.Adam([p], foreach=False) for p in model.parameters()}

    def use(p):
        optimizers[p].step()
        optimizers[p].zero_grad()

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(use)
else:
    optimizer = torch.optim.Adam(model.parameters(), foreach=True)
for _ in range(3):
    model(torch.rand(1, 3, 224, 224, device="cuda")).sum().backward()
    if "--hooked" not in sys.argv:
        optimizer.step()
        optimizer.zero_grad()
