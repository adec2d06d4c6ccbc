"""Programs measured by libraries of the PyTorch ecosystem."""

import torch
import torch.nn.functional as F
from torch import nn
from torchvision.models import vit_h_14
from transformers import RobertaConfig, RobertaForSequenceClassification


def trainer(gpu):
    """RoBERTa classifying 2 texts of 16 tokens as in the Trainer: AdamW, clipped gradients."""
    model = RobertaForSequenceClassification(RobertaConfig()).to(gpu.device).train()
    gpu.reset()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5)
    for _ in range(3):
        tokens, labels, mask = gpu.tokens(2, 16), gpu.tokens(2), gpu.tokens(2, 16)
        model(input_ids=tokens, attention_mask=mask, labels=labels).loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        model.zero_grad()
    gpu.read("peak")


def low_bit(gpu, optimizer):
    """ViT-H/14 with 45 classes, bf16 mixed precision, 8 images; AdamW, or one of torchao's."""
    model = vit_h_14(num_classes=45).to(gpu.device)
    if optimizer == "fused AdamW":
        steps = torch.optim.AdamW(model.parameters(), fused=True)
    else:
        import torchao.optim  # imported here: it takes seconds

        torch.compiler.set_stance("force_eager")  # compiling a step takes many minutes here
        steps = getattr(torchao.optim, optimizer)(model.parameters())
    images = labels = None

    def forward():
        nonlocal images, labels
        images, labels = gpu.noise(8, 3, 224, 224), gpu.tokens(8)
        with torch.autocast(gpu.device.type, torch.bfloat16):
            return F.cross_entropy(model(images), labels)

    gpu.train(forward, steps)
