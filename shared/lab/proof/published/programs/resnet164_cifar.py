"""ResNet-164 for CIFAR-10, 100 images: memory after the forward pass and after the update.

Report: https://github.com/silvandeleemput/memcnn/issues/37 (PyTorch 1.4.0, GPU not named),
memory_allocated in MiB: after the first forward pass 2491.67; after the update 21.198.
Reading: allocated after the first forward pass; with --update after the last update.
"""

import sys

import torch
from torch import nn


def units(inputs, *convolutions):
    parts = []
    for outputs, kernel, stride in convolutions:
        parts += [nn.BatchNorm2d(inputs), nn.ReLU(inplace=True)]
        parts.append(nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False))
        inputs = outputs
    return parts


class Bottleneck(nn.Module):
    def __init__(self, inputs, width, stride=1, first=False):
        super().__init__()
        parts = units(inputs, (width, 1, 1), (width, 3, stride), (4 * width, 1, 1))
        self.parts = nn.Sequential(*parts[2 if first else 0 :])
        self.shortcut = None
        if stride != 1 or inputs != 4 * width:
            linear = nn.Conv2d(inputs, 4 * width, 1, stride, bias=False)
            self.shortcut = nn.Sequential(linear, nn.BatchNorm2d(4 * width))

    def forward(self, x):
        y = self.parts(x)
        y += x if self.shortcut is None else self.shortcut(x)
        return y


blocks = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(inplace=True)]
inputs = 16
for width in (16, 32, 64):
    for i in range(18):
        stride = 2 if i == 0 and width > 16 else 1
        blocks.append(Bottleneck(inputs, width, stride, i == 0 and width == 16))
        inputs = 4 * width
blocks += [nn.BatchNorm2d(inputs), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
model = nn.Sequential(*blocks, nn.Linear(inputs, 10)).cuda()
forward = None
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=2e-4)
for step in range(3):
    images = torch.randn(100, 3, 32, 32).cuda()
    labels = torch.randint(0, 10, (100,)).cuda()
    optimizer.zero_grad()
    output = model(images)
    loss = nn.functional.cross_entropy(output, labels)
    forward = forward or torch.cuda.memory_allocated()
    loss.backward()
    optimizer.step()
bytes_held = torch.cuda.memory_allocated() if "--update" in sys.argv else forward
print("figure:", bytes_held / 2**20, "MiB")
