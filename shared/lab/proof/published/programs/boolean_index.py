"""Reading a tensor through a boolean mask needs the indices of the elements: 16 bytes for each.

Report: https://github.com/pytorch/pytorch/issues/30246 (Titan XP, PyTorch 1.4): peaks after each
line 1,600,126,976; 2,401,239,040; 10,001,317,888 bytes.
Reading: the last of them, the peak of allocated memory.
"""

import torch


def peak(what):
    print(what, torch.cuda.max_memory_allocated())


n = 20_000
matrix = torch.randn(n, n, device="cuda")
peak("matrix")
off_diagonal = ~torch.eye(n, dtype=torch.bool, device="cuda")
peak("mask")
picked = matrix[off_diagonal]
peak("picked")
print("figure:", torch.cuda.max_memory_allocated(), "bytes")
