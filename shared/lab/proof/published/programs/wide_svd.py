"""Singular values of a 3 x 1,048,576 matrix.

Report: https://github.com/pytorch/pytorch/issues/61949 (24 GB, PyTorch 1.9): "Tried to allocate
4096.00 GiB (GPU 0; 23.70 GiB total capacity; 24.00 MiB already allocated; ...)", although
full_matrices=False. Corrected since: today it must fit.
Reading: the amount that an error names, 0 if it fits.
"""

import re

import torch

wide = torch.randn(3, 1_048_576, device="cuda")
asked = 0.0
try:
    u, s, vh = torch.linalg.svd(wide, full_matrices=False)
except torch.OutOfMemoryError as error:
    asked = float(re.search(r"allocate ([\d.]+) GiB", str(error))[1])
print("figure:", asked, "GiB")
