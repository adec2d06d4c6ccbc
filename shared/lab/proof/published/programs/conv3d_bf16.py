"""One 3D convolution over a video in bf16, without gradients.

Report: https://github.com/pytorch/pytorch/issues/132300 (July 2024; GPU and version not in the
excerpt): 3 to 128 channels, 3 x 3 x 3, input 1 x 3 x 24 x 740 x 1316: max_memory_allocated() is
about 9.26 GB (its script divides by 1024 three times). The output has 5.57 GiB.
Reading: peak of allocated memory.
"""

import torch

with torch.no_grad():
    layer = torch.nn.Conv3d(3, 128, 3, padding=1).to("cuda", torch.bfloat16)
    video = torch.rand([1, 3, 24, 740, 1316], dtype=torch.bfloat16).to("cuda")
    result = layer(video)
print("figure:", torch.cuda.max_memory_allocated() / 2**30, "GiB")
