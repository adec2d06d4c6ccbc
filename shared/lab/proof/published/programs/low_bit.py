"""ViT-H/14 with 45 classes, bf16 mixed, 8 images; AdamW, or one of torchao's (argument)."""

import sys

import torch
import torch.nn.functional as F
from torchvision.models import vit_h_14

model = vit_h_14(num_classes=45).cuda()
if sys.argv[1] == "AdamW":
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
else:
    import torchao.optim  # imported here: it takes seconds

    torch.compiler.set_stance("force_eager")  # compiling a step takes many minutes here
    optimizer = getattr(torchao.optim, sys.argv[1])(model.parameters())
for _ in range(3):
    images = torch.rand(8, 3, 224, 224, device="cuda")
    labels = torch.zeros(8, dtype=torch.long, device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        loss = F.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
