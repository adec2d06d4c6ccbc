"""Expandable segments together with max_split_size_mb: reserved memory grows without bound.

Report: https://github.com/pytorch/pytorch/pull/193400 (August 2026, RX 9070 XT with 16 GiB,
torch 2.12.0+rocm7.14.0). Each cycle takes 91 and 45.5 MiB, then 2 MiB that stay, and frees the
first two. Reserved after cycles 0, 20, ..., 100: 220, 2980, 5760, 8520, 11300, 14060 MiB;
allocated 66, 106, ..., 266 MiB, so 64 MiB were there before.
Reading: reserved after cycle 100.
"""

import os

for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
    os.environ[name] = "max_split_size_mb:128,expandable_segments:True"

import torch  # noqa: E402


def take(mib):
    return torch.empty(int(mib * 2**20), dtype=torch.uint8, device="cuda")


kept = [take(64)]
for cycle in range(101):
    large, middle = take(91), take(45.5)
    kept.append(take(2))
    del large, middle
    if cycle % 20 == 0:
        print(cycle, torch.cuda.memory_allocated() / 2**20, torch.cuda.memory_reserved() / 2**20)
print("figure:", torch.cuda.memory_reserved() / 2**20, "MiB")
