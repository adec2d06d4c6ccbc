"""Attention written out in fp32: the memory of the forward pass while gradients are allocated.

Report: https://github.com/MarkMrLi/assignment2-systems, results/profile_attention/pytorch.md
(2026; a GPU of 98 GB, not named; its cuBLAS workspaces of 64 MB are those of Hopper): batch 8, one
head of 16 to 128, MiB after the forward pass for 16 and 256, 1024, 4096, 8192 tokens: 72.7739,
195.094, 2124.38, 8280.75; for 128 and 4096 tokens 2208.38.
Reading: peak of allocated memory from the start of a later forward pass to its end.
"""

import argparse
import math

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--width", type=int, default=16)
parser.add_argument("--tokens", type=int, default=4096)
args = parser.parse_args()


def softmax(scores):
    lowered = scores - scores.max(dim=-1, keepdim=True)[0]
    powers = torch.exp(lowered)  # both names live on, as in the course's own function
    return powers / powers.sum(dim=-1, keepdim=True)


def attention(q, k, v):
    scores = torch.einsum("bqd,bkd->bqk", q, k) / math.sqrt(args.width)
    weights = softmax(scores)
    return torch.einsum("bqk,bkd->bqd", weights, v)


shape = 8, args.tokens, args.width
q, k, v = (torch.randn(shape, requires_grad=True, device="cuda") for _ in range(3))
for step in range(7):
    for x in (q, k, v):
        if x.grad is not None and step >= 5:
            x.grad.zero_()
    torch.cuda.reset_peak_memory_stats()
    total = attention(q, k, v).sum()
    peak = torch.cuda.max_memory_allocated()
    total.backward()
print("figure:", peak / 2**20, "MiB")
