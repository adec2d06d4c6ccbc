"""A training step of Pythia-410M in fp16, with PyTorch's fused attention.

Report: https://github.com/huggingface/transformers/pull/31031 and the page of GPT-NeoX in
transformers' documentation (RTX 3080 Ti of 16 GB, PyTorch 2.2.1): peaks in MB of 1e6 bytes, for
1 x 2048 tokens 3882.01, for 4 x 512 3877.29, for 1 x 128 1789.95. With --eager, attention is
written out: 1 x 1024 4772.36, 4 x 512 6290.58. The loop is that of
huggingface/optimum's benchmark: five steps, peak reset, then more steps; loss is the sum of logits,
no optimizer.
Reading: peak of allocated memory.
"""

import argparse

import torch
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=1)
parser.add_argument("--tokens", type=int, default=2048)
parser.add_argument("--eager", action="store_true")
args = parser.parse_args()

config = GPTNeoXConfig(
    vocab_size=50_304, hidden_size=1024, num_hidden_layers=24, num_attention_heads=16
)
config.intermediate_size = 4096
config._attn_implementation = "eager" if args.eager else "sdpa"
torch.set_default_dtype(torch.float16)
with torch.device("cuda"):
    model = GPTNeoXForCausalLM(config).train()
    tokens = torch.randint(config.vocab_size - 1, (args.batch, args.tokens))
inputs = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
for step in range(10):
    if step == 5:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    if step >= 5:
        model.zero_grad()
    output = model(**inputs)
    output.logits.sum().backward()
print("figure:", torch.cuda.max_memory_allocated() / 1e6, "MB")
