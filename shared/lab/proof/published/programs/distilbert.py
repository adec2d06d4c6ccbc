"""DistilBERT classifying 12 texts of 512 tokens with Adam; the precision, or tf32, is the argument.

Attention is not fused, as in transformers of 2023. Gradients are freed before the backward pass.
"""

import sys

import torch
from transformers import DistilBertConfig, DistilBertForSequenceClassification

precision = sys.argv[1]
half = torch.float16 if "16-" in precision and not precision.startswith("b") else torch.bfloat16
if precision == "tf32":
    torch.set_float32_matmul_precision("high")
config = DistilBertConfig(attn_implementation="eager")
model = DistilBertForSequenceClassification(config).cuda()
if precision.endswith("true"):
    model = model.to(half)
optimizer = torch.optim.Adam(model.parameters(), lr=5e-5)
for _ in range(3):
    tokens = torch.ones(12, 512, dtype=torch.long, device="cuda")
    labels = torch.zeros(12, dtype=torch.long, device="cuda")
    with torch.autocast("cuda", half, enabled=precision.endswith("mixed")):
        outputs = model(tokens, attention_mask=tokens, labels=labels)
    optimizer.zero_grad()
    outputs["loss"].backward()
    optimizer.step()
