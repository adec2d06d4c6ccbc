"""cuDNN's workspace for a transposed convolution of one channel in fp16.

Report: https://github.com/pytorch/pytorch/issues/31500 (December 2019, 15.78 GiB, a V100): "Tried
to allocate 48.01 GiB (GPU 0; 15.78 GiB total capacity; 4.00 GiB already allocated; ...)".
Output and input have 2 GiB each; the rest is cuDNN's.
Reading: the amount that the error names; 0 if there is no error.
"""

import re

import torch

torch.backends.cudnn.deterministic = True
layer = torch.nn.ConvTranspose2d(1, 1, 1, bias=False).cuda().half()
images = torch.randn(1_024, 1, 1_024, 1_024, dtype=torch.half, device="cuda")
asked = 0.0
try:
    result = layer(images)
except torch.OutOfMemoryError as error:
    asked = float(re.search(r"allocate ([\d.]+) GiB", str(error))[1])
print("allocated", torch.cuda.memory_allocated() / 2**30, "GiB")
print("figure:", asked, "GiB")
