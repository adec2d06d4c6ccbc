"""The memory in use before a linear layer gets an input of the wrong shape.

Report: https://github.com/pytorch/pytorch/issues/67839 (November 2021, 10.76 GiB, torch 1.9.1):
"Tried to allocate 56.00 GiB (GPU 0; 10.76 GiB total capacity; 242.02 MiB already allocated;
9.51 GiB free; 244.00 MiB reserved in total by PyTorch)". Since 1.10 the shape is checked first.
Reading: reserved when the call fails.
"""

import torch

pictures = torch.rand(2048, 256, 7, 7).cuda()
weight, bias = torch.rand(4096, 9216).cuda(), torch.rand(4096).cuda()
try:
    torch.nn.functional.linear(pictures, weight, bias)
except RuntimeError as error:
    print(type(error).__name__, str(error)[:60])
print("allocated", torch.cuda.memory_allocated() / 2**20)
print("figure:", torch.cuda.memory_reserved() / 2**20, "MiB")
