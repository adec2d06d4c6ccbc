"""An update of Qwen3-0.6B, bf16 mixed precision: 2 texts, one after the other.

Blocks are compiled, and computed again in the backward pass. The argument is the number of tokens.
"""

import sys

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

length = int(sys.argv[1])
config = Qwen3Config(
    vocab_size=151_936,
    hidden_size=1024,
    intermediate_size=3072,
    num_hidden_layers=28,
    num_attention_heads=16,
    num_key_value_heads=8,
    head_dim=128,
    max_position_embeddings=length,
    tie_word_embeddings=True,
    use_cache=False,
)
with torch.device("cuda"):
    model = Qwen3ForCausalLM(config)
model.gradient_checkpointing_enable({"use_reentrant": False})
for block in model.model.layers:
    block.compile()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
tokens = torch.zeros(1, length, dtype=torch.long, device="cuda")
for _ in range(3):
    for _ in range(2):
        with torch.autocast("cuda", torch.bfloat16):
            logits = model(tokens).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())
        (loss / 2).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1)
    optimizer.step()
    optimizer.zero_grad()
