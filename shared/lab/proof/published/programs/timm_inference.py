"""Predictions of a model of torchvision with the shapes of timm's, fp16 mixed precision.

The arguments are the name of the model and the number of images of 224 pixels.
"""

import sys

import torch
from torchvision.models import get_model

name, images = sys.argv[1], int(sys.argv[2])
model = get_model(name).cuda().eval()
inputs = torch.rand(images, 3, 224, 224, device="cuda")
# What is timed is from one step to the next, and this one has nothing to do.
optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
for _ in range(3):
    with torch.no_grad(), torch.autocast("cuda", torch.float16):
        model(inputs)
    optimizer.step()
