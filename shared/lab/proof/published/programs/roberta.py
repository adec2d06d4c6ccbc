"""RoBERTa classifying 2 texts of 16 tokens as in the Trainer: AdamW, clipped gradients."""

import torch
from torch import nn
from transformers import RobertaConfig, RobertaForSequenceClassification

model = RobertaForSequenceClassification(RobertaConfig()).cuda().train()
torch.cuda.empty_cache()
torch.cuda.reset_peak_memory_stats()
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5)
for _ in range(3):
    tokens, mask = torch.zeros(2, 2, 16, dtype=torch.long, device="cuda")
    labels = torch.zeros(2, dtype=torch.long, device="cuda")
    model(input_ids=tokens, attention_mask=mask, labels=labels).loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    model.zero_grad()
