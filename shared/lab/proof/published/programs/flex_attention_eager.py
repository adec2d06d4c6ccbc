"""flex_attention without torch.compile computes every score.

Report: https://github.com/pytorch/pytorch/issues/152528 (2025, GPU not named): 16 x 3 heads, 25,000
tokens of 32, fp32, a window of 5: out of memory. The report has no size; the scores alone are
16 * 3 * 25000**2 * 4 bytes = 111.76 GiB.
Reading: the amount that the error names.
"""

import argparse
import re

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

parser = argparse.ArgumentParser()
parser.add_argument("--compile", action="store_true")
args = parser.parse_args()

tokens = 25_000
q, k, v = (torch.randn(16, 3, tokens, 32, device="cuda") for _ in range(3))


def near(batch, head, query, key):
    return (query - key).abs() <= 5


window = create_block_mask(near, None, None, tokens, tokens, device="cuda")
attention = torch.compile(flex_attention) if args.compile else flex_attention
asked = 0.0
try:
    output = attention(q, k, v, block_mask=window)
except torch.OutOfMemoryError as error:
    asked = float(re.search(r"allocate ([\d.]+) GiB", str(error))[1])
print("figure:", asked, "GiB")
