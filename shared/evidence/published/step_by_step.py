"""Runs from the time of unfused attention, which keeps all attention weights in memory."""

import torch
import torch.nn.functional as F
from torch import nn
from torchvision.models import get_model
from transformers import AttentionInterface, DistilBertConfig, DistilBertForSequenceClassification

from shared.evidence.published.old_adam import adam_of_2023

HALF = {"16-mixed": torch.float16, "bf16-mixed": torch.bfloat16, "bf16-true": torch.bfloat16}


def distilbert(gpu, precision="32-true", tf32=False):
    """DistilBERT classifying 12 texts of 512 tokens, Adam; precision is Lightning's name."""

    def attention(module, query, key, value, attention_mask, dropout=0.0, **_):
        scores = query / query.shape[-1] ** 0.5 @ key.transpose(2, 3)
        hidden = (tokens == 0).view(len(tokens), 1, 1, -1).expand_as(scores)
        scores = scores.masked_fill(hidden, torch.finfo(scores.dtype).min)
        weights = F.dropout(torch.softmax(scores, -1), dropout, module.training)
        return (weights @ value).transpose(1, 2).contiguous(), None

    AttentionInterface.register("4.28", attention)
    if tf32:
        torch.set_float32_matmul_precision("high")
    config = DistilBertConfig(attn_implementation="4.28")
    model = DistilBertForSequenceClassification(config)
    model = model.to(gpu.device, HALF.get(precision) if precision.endswith("true") else None)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-5)
    tokens = outputs = None
    half = HALF[precision] if precision.endswith("mixed") else None

    def forward():
        nonlocal tokens, outputs
        tokens, labels = gpu.tokens(12, 512), gpu.tokens(12)
        with torch.autocast(gpu.device.type, half, enabled=bool(half)):
            outputs = model(tokens, labels=labels)
        return outputs["loss"]

    with adam_of_2023():
        gpu.train(forward, optimizer, late=True)


class Attention(nn.Module):
    """Attention as in timm's vision transformers of 2022."""

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


def timm(gpu, name, batch_size):
    """A vision transformer of torchvision with timm's attention, fp16 mixed precision, SGD."""
    model = get_model(name)
    for block in model.encoder.layers:
        block.self_attention = Attention(model.hidden_dim, heads=16)
    model = model.to(gpu.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    images = gpu.noise(batch_size, 3, 224, 224)

    def forward():
        with torch.autocast(gpu.device.type, torch.float16):
            return F.cross_entropy(model(images), gpu.tokens(batch_size))

    gpu.train(forward, optimizer)
