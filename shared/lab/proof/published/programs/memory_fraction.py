"""A limit of 100 MiB: ResNet-18 fits under it, a tensor of 100 MiB beside it does not.

Report: https://github.com/pytorch/pytorch/issues/107667 (PyTorch 2.0, GPU not named): no error for
ResNet-18, an error for a larger tensor.
Reading: the amount that the error names, here that of the tensor.
"""

import re

import torch
from torchvision.models import resnet18

limit = 100 * 2**20
torch.cuda.set_per_process_memory_fraction(limit / torch.cuda.get_device_properties(0).total_memory)
model = resnet18(weights=None).cuda()
asked = 0.0
try:
    torch.zeros(limit, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError as error:
    asked = float(re.search(r"allocate ([\d.]+) MiB", str(error))[1])
print("figure:", asked, "MiB")
