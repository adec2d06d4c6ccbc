"""A model of torchvision with the shapes of timm's, fp16 mixed precision, SGD.

A vision transformer has the attention that timm had in 2022. The arguments are the name of the
model, the number of images, and their width in pixels.
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn
from torchvision.models import get_model


class Attention(nn.Module):
    """Unfused: it keeps all attention weights in memory."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x, *_, **__):
        batch, length, width = x.shape
        qkv = self.qkv(x).reshape(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        query, key, value = qkv.unbind(0)
        scores = query @ key.transpose(-2, -1) * (width // self.heads) ** -0.5
        weights = torch.softmax(scores, -1)
        return self.proj((weights @ value).transpose(1, 2).reshape(batch, length, width)), None


name, images, px = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
# timm's Inception has no auxiliary classifier.
model = get_model(name, **({"aux_logits": False} if name == "inception_v3" else {}))
for block in model.encoder.layers if name.startswith("vit") else ():
    block.self_attention = Attention(model.hidden_dim, heads=block.num_heads)
model = model.cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
inputs = torch.rand(images, 3, px, px, device="cuda")
for _ in range(3):
    with torch.autocast("cuda", torch.float16):
        labels = torch.zeros(images, dtype=torch.long, device="cuda")
        loss = F.cross_entropy(model(inputs), labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
