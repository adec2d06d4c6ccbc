"""An update of a language model of 8 billion parameters, in bf16: 4 x 2 texts of 4,096 tokens.

Blocks are compiled, and computed again in the backward pass; AdamW is fused.
"""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

config = LlamaConfig(
    vocab_size=128_256,
    hidden_size=4096,
    intermediate_size=14_336,
    num_hidden_layers=32,
    num_attention_heads=32,
    num_key_value_heads=8,
    max_position_embeddings=4096,
    use_cache=False,
)
torch.set_default_dtype(torch.bfloat16)
with torch.device("cuda"):
    model = LlamaForCausalLM(config)
model.gradient_checkpointing_enable({"use_reentrant": False})
for block in model.model.layers:
    block.compile()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
tokens = torch.zeros(2, 4096, dtype=torch.long, device="cuda")
for _ in range(3):
    for _ in range(4):
        logits = model(tokens).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())
        (loss / 4).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1)
    optimizer.step()
    optimizer.zero_grad()
