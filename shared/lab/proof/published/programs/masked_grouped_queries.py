"""Grouped queries with a mask: no fused kernel took both, and the fallback held scores in fp32.

Report: https://github.com/Comfy-Org/ComfyUI/pull/15135 (RTX 5090, PyTorch 2.9.1): one call, 28
query and 4 key heads of 128, fp16, a causal mask of floats; what it adds at its peak, in GiB: 3.99
with 4000 tokens, 15.48 with 8000; with keys repeated 0.03 and 0.05.
Reading: peak of allocated memory less what was allocated before the call.
"""

import argparse

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

parser = argparse.ArgumentParser()
parser.add_argument("--tokens", type=int, default=4000)
parser.add_argument("--repeat", action="store_true")
args = parser.parse_args()

tokens, kind = args.tokens, {"dtype": torch.float16, "device": "cuda"}
queries = torch.randn(1, 28, tokens, 128, **kind)
keys = torch.randn(1, 4, tokens, 128, **kind)
values = torch.randn(1, 4, tokens, 128, **kind)
mask = torch.full((tokens, tokens), float("-inf"), **kind).triu(1)[None, None]
before = torch.cuda.memory_allocated()
torch.cuda.reset_peak_memory_stats()
try:
    # As in the report: without cuDNN's kernel, which takes both where it is allowed.
    with (
        torch.no_grad(),
        sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]),
    ):
        if args.repeat:
            keys, values = (x.repeat_interleave(7, dim=1) for x in (keys, values))
            output = scaled_dot_product_attention(queries, keys, values, attn_mask=mask)
        else:
            output = scaled_dot_product_attention(
                queries, keys, values, attn_mask=mask, enable_gqa=True
            )
except torch.cuda.OutOfMemoryError as error:
    print(error)
print("figure:", (torch.cuda.max_memory_allocated() - before) / 2**30, "GiB")
