"""GPT-2 in fp32, 4 texts of 512 tokens, AdamW; --checkpointing recomputes activations.

Memory that is allocated before training does not count, as in a recording that begins then.
"""

import sys

import torch
from transformers import GPT2Config, GPT2LMHeadModel

model = GPT2LMHeadModel(GPT2Config()).cuda().train()
if "--checkpointing" in sys.argv:
    model.gradient_checkpointing_enable()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
before = torch.cuda.memory_allocated()
for _ in range(3):
    tokens = torch.zeros(4, 512, dtype=torch.long, device="cuda")
    outputs = model(input_ids=tokens, labels=tokens)
    outputs.loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(f"figure: {torch.cuda.max_memory_allocated() - before} bytes")
