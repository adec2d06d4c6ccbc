"""A batched product under autocast: a view of one matrix becomes 1,024 copies of it in fp16.

Report: https://github.com/pytorch/pytorch/issues/85698 (September 2022, GPU not named): a buffer
of 41,292 x 64 is expanded to 1,024 and multiplied. torch.cuda.memory_allocated() prints
5508148224 bytes with autocast, 180702208 without. Run with --fp32 for the second.
Reading: allocated, while output and its graph are held, after ten rounds.
"""

import sys

import torch

half = "--fp32" not in sys.argv
rows, width, batch = 41_292, 64, 1_024
base = torch.randn(rows, width, device="cuda")
for _ in range(10):
    vectors = torch.randn(batch, width, requires_grad=True, device="cuda")
    with torch.autocast("cuda", dtype=torch.float16, enabled=half):
        product = base.expand(batch, -1, -1).bmm(vectors.unsqueeze(-1))
    del vectors
    torch.cuda.empty_cache()
print("figure:", torch.cuda.memory_allocated(), "bytes")
