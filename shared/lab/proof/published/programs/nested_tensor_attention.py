"""Compiled attention over 512 sentences of uneven length: nested (jagged) against padded.

Report: https://docs.pytorch.org/tutorials/intermediate/transformer_building_blocks.html, the page
as built by PyTorch (commit 01146ff of gh-pages, a CI machine, an A10G is assumed): 10,436 tokens,
the longest sentence 128, width 512, 8 heads, fp32. Peaks in GB of 1e9 bytes: nested 0.92, padded
3.87 (forward); backward 3.04 and 4.68. The lengths are random; here they add up to the same.
Reading: peak of allocated memory of the call. First argument: nested, padded, nested_backward.
"""

import sys

import torch
from torch import nn
from torch.nn import functional as F

lengths = [128] + [21] * 88 + [20] * 423
make = dict(device="cuda")


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.packed, self.out = nn.Linear(512, 1536, **make), nn.Linear(512, 512, **make)

    def forward(self, x):
        q, k, v = (
            t.unflatten(-1, [8, 64]).transpose(1, 2) for t in self.packed(x).chunk(3, dim=-1)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).flatten(-2))


nested = []
for _ in range(3):
    parts = (torch.randn(n, 512, **make) for n in lengths)
    nested.append(torch.nested.nested_tensor(list(parts), layout=torch.jagged))
padded = [t.to_padded_tensor(0.0) for t in nested]
ours, theirs = Attention(), nn.MultiheadAttention(512, 8, batch_first=True, **make)
compiled = torch.compile(ours)
keep = compiled(nested[0])
torch.cuda.reset_peak_memory_stats()
result = compiled(nested[0])
peaks = {"nested": torch.cuda.max_memory_allocated()}
result = result.to_padded_tensor(0.0)
ignore = torch.where(padded[0] == 0.0, -torch.inf, 0)[:, :, 0]
causal = torch.full((512, 128, 128), -torch.inf, **make)
causal = causal.unsqueeze(1).expand(512, 8, 128, 128).reshape(-1, 128, 128)
compiled = torch.compile(theirs)
options = dict(attn_mask=causal, key_padding_mask=ignore, need_weights=False, is_causal=True)
keep_2 = compiled(*[padded[0]] * 3, **options)
torch.cuda.reset_peak_memory_stats()
answer = compiled(*[padded[0]] * 3, **options)[0]
peaks["padded"] = torch.cuda.max_memory_allocated()
torch.cuda.reset_peak_memory_stats()
answer.sum().backward()
peaks["padded_backward"] = torch.cuda.max_memory_allocated()
torch.cuda.reset_peak_memory_stats()
result.sum().backward()
peaks["nested_backward"] = torch.cuda.max_memory_allocated()
print("figure:", peaks[sys.argv[1] if len(sys.argv) > 1 else "nested"] / 1e9, "GB")
