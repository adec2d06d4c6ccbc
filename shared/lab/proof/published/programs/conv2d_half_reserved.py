"""A convolution in fp16 over ever wider images: reserved memory shows cuDNN's copies.

Report: https://github.com/pytorch/pytorch/issues/123533 (April 2024, GPU not in the excerpt): 256
to 256 channels, 3 x 3, padding 1, input 1 x 256 x 2048 x width. Allocated and reserved at width
1024: 1.00 and 4.02 GB, at 1152: 1.13 and 5.52, at 2048: 2.00 and 9.90 (GB are GiB). In the report
the layer comes from diffusers; without an adapter it is nn.Conv2d.
Reading: reserved after the call at the width given (1024, or the first argument).
"""

import sys

import torch

last = int(sys.argv[1]) if len(sys.argv) > 1 else 1024
layer = torch.nn.Conv2d(256, 256, 3, padding=1).half().cuda()
for width in range(1024, last + 1, 128):
    images = torch.zeros(1, 256, 2048, width).half().cuda()
    layer(images)
    now = torch.cuda.memory_allocated() / 2**30, torch.cuda.memory_reserved() / 2**30
    print(width, "allocated", now[0], "reserved", now[1])
    torch.cuda.empty_cache()
print("figure:", now[1], "GiB")
