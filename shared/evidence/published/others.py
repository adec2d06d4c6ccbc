"""What users and libraries of PyTorch have measured, beside the article."""

from functools import partial

import torch
import torch.nn.functional as F
from torch import nn
from torchvision.models import vit_h_14
from transformers import RobertaConfig, RobertaForSequenceClassification


class Norm(nn.Module):
    """A layer norm, step by step."""

    def __init__(self, width):
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x):
        centre, spread = x.mean(-1, keepdim=True), x.var(-1, keepdim=True, unbiased=False)
        return self.scale * ((x - centre) / torch.sqrt(spread + 1e-5)) + self.shift


class Gelu(nn.Module):
    """GELU, step by step."""

    def forward(self, x):
        cubic = x + 0.044715 * torch.pow(x, 3)
        root = torch.sqrt(torch.tensor(2.0 / torch.pi, device=x.device))
        return 0.5 * x * (1 + torch.tanh(root * cubic))


class Attention(nn.Module):
    """Attention with all weights in memory."""

    def __init__(self, width, heads, mask_at_once):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.out, self.dropout = nn.Linear(width, width), nn.Dropout(0.1)
        mask = torch.triu(torch.ones(1024, 1024), diagonal=1) if mask_at_once else None
        self.register_buffer("mask", mask)

    def forward(self, x):
        batch, length, width = x.shape
        key, query, value = (
            layer(x).view(batch, length, self.heads, -1).transpose(1, 2)
            for layer in (self.key, self.query, self.value)
        )
        scores = query @ key.transpose(2, 3)
        mask = self.mask
        if mask is None:
            mask = torch.triu(torch.ones(length, length, device=x.device), diagonal=1)
        scores.masked_fill_(mask.bool()[:length, :length], -torch.inf)
        weights = self.dropout(torch.softmax(scores / key.shape[-1] ** 0.5, -1))
        return self.out((weights @ value).transpose(1, 2).reshape(batch, length, width))


class FusedAttention(nn.Module):
    """The same with PyTorch's own function."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        qkv = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        dropout = 0.1 if self.training else 0.0
        y = F.scaled_dot_product_attention(*qkv, dropout_p=dropout, is_causal=True)
        return self.out(y.transpose(1, 2).contiguous().view(batch, length, width))


class Block(nn.Module):
    """A block of GPT-2, of the parts that it is given."""

    def __init__(self, width, norm, gelu, attention):
        super().__init__()
        self.attention = attention(width, 12)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), gelu, nn.Linear(4 * width, width))
        self.norm1, self.norm2, self.dropout = norm(width), norm(width), nn.Dropout(0.1)

    def forward(self, x):
        x = self.dropout(self.attention(self.norm1(x))) + x
        return self.dropout(self.mlp(self.norm2(x))) + x


class GPT(nn.Module):
    """GPT-2 with 124 million weights and a head of its own, as Raschka's book builds it."""

    def __init__(self, norm, gelu, attention, vocabulary=50257, width=768):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(1024, width)
        self.dropout = nn.Dropout(0.1)
        self.blocks = nn.Sequential(*[Block(width, norm, gelu(), attention) for _ in range(12)])
        self.norm, self.head = norm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        positions = self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        return self.head(self.norm(self.blocks(self.dropout(self.tokens(tokens) + positions))))


def book(here, tf32=False, fused_step=False, bf16=False, own_parts=True, fused_attention=False):
    """The training loop of Raschka's book, 8 texts of 1024 tokens, AdamW.

    With TF32, masks are made when needed; own parts are norms and GELU, computed step by step.
    """
    if tf32:
        torch.set_float32_matmul_precision("high")
    attention = FusedAttention if fused_attention else partial(Attention, mask_at_once=not tf32)
    parts = (Norm, Gelu) if own_parts else (nn.LayerNorm, lambda: nn.GELU(approximate="tanh"))
    model = GPT(*parts, attention).to(here.device, torch.bfloat16 if bf16 else None)
    here.training()
    options = {"lr": 5e-4, "weight_decay": 0.1, "fused": fused_step}
    optimizer = torch.optim.AdamW(model.parameters(), **options)

    def loss_of_batch():
        logits = model(here.tokens(8, 1024))
        return F.cross_entropy(logits.flatten(0, 1), here.tokens(8 * 1024))

    for _ in range(3):
        with here.counted():
            optimizer.zero_grad()
            loss = loss_of_batch()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad(), here.counted("evaluation", 1 / 15):
            loss_of_batch(), loss_of_batch()
        model.train()
    here.read("peak")


def trainer(here):
    """RoBERTa that classifies 2 texts of 16 tokens, as the Trainer does: clipped, AdamW."""
    model = RobertaForSequenceClassification(RobertaConfig()).to(here.device).train()
    here.training()
    here.reset()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5)
    for _ in range(3):
        tokens, labels, mask = here.tokens(2, 16), here.tokens(2), here.tokens(2, 16)
        model(input_ids=tokens, attention_mask=mask, labels=labels).loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        model.zero_grad()
    here.read("peak")


def low_bit(here, optimizer):
    """ViT-H/14 with 45 classes, bf16 mixed precision, 8 images; AdamW, or one of torchao."""
    model = vit_h_14(num_classes=45).to(here.device)
    here.training()
    if optimizer == "fused AdamW":
        steps = torch.optim.AdamW(model.parameters(), fused=True)
    else:
        import torchao.optim  # here, because it takes seconds

        torch.compiler.set_stance("force_eager")
        steps = getattr(torchao.optim, optimizer)(model.parameters())
    images = labels = None

    def forward():
        nonlocal images, labels
        images, labels = here.noise(8, 3, 224, 224), here.tokens(8)
        with torch.autocast(here.device.type, torch.bfloat16):
            return F.cross_entropy(model(images), labels)

    here.train(forward, steps)
