"""The gradient of a sparse matrix is computed as a dense one: 110,000 squared.

Report: https://github.com/pytorch/pytorch/issues/41128 (11 GB, PyTorch 1.5): "Tried to allocate
45.08 GiB (GPU 0; 10.73 GiB total capacity; 202.00 MiB already allocated; ...)".
Reading: the amount that the error names.
"""

import re

import torch

n, entries = 110_000, 860_000
places = torch.randint(0, n, (2, entries))
sparse = torch.sparse_coo_tensor(places, torch.randn(entries), (n, n)).cuda().requires_grad_()
dense = torch.randn(n, 200).cuda().requires_grad_()
total = torch.sparse.mm(sparse, dense).sum()
asked = 0.0
try:
    total.backward()
except torch.OutOfMemoryError as error:
    asked = float(re.search(r"allocate ([\d.]+) GiB", str(error))[1])
print("figure:", asked, "GiB")
