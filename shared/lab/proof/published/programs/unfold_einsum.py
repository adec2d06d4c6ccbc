"""A view of 901 x 901 windows of 100 x 100 costs nothing until einsum copies it.

Report: https://github.com/pytorch/pytorch/issues/31655 (2 GB, PyTorch 1.2.0): "Tried to allocate
90.73 GiB (GPU 0; 1.96 GiB total capacity; 12.11 MiB already allocated; ...)".
Reading: the amount that the error names.
"""

import re

import torch

image = torch.randn(1, 3, 1000, 1000, device="cuda")
kernel = torch.randn(3, 100, 100, device="cuda")
windows = image.unfold(2, 100, 1).unfold(3, 100, 1)
asked = 0.0
try:
    response = torch.einsum("bchwij,cij->bhw", windows, kernel)
except torch.OutOfMemoryError as error:
    asked = float(re.search(r"allocate ([\d.]+) GiB", str(error))[1])
print("figure:", asked, "GiB")
