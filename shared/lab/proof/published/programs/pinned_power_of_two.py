"""Pinned memory is taken in powers of two: 8.1 GiB become 16.

Report: https://github.com/pytorch/pytorch/issues/95823 (PyTorch 1.13.1, GPU not named): 8.1 GiB of
halves pinned; the host then shows 16,406 MB in use (8,314 with PyTorch 1.10).
Reading: the pinned memory that PyTorch holds, in MiB. The process itself is in the report only.
"""

import torch

torch.cuda.init()
weights = torch.empty(4_347_592_704, dtype=torch.float16, pin_memory=True)
stats = torch.cuda.host_memory_stats()
print("figure:", stats["allocated_bytes.peak"] / 2**20, "MiB")
