"""Faster R-CNN with a ResNet-50 FPN, two images of COCO's size.

Report: https://github.com/pytorch/vision/issues/962 and torchvision's table of run-time
characteristics (8 V100, two images on each, 2019): 5.2 GB for training.
Reading: peak of allocated memory. Sizes depend on what the network proposes, and cuDNN's workspaces
are in the reported figure only.
"""

import torch
from torchvision.models.detection import fasterrcnn_resnet50_fpn

model = (
    fasterrcnn_resnet50_fpn(
        weights=None, weights_backbone=None, num_classes=91, trainable_backbone_layers=3
    )
    .cuda()
    .train()
)
optimizer = torch.optim.SGD(
    [p for p in model.parameters() if p.requires_grad], lr=0.02, momentum=0.9, weight_decay=1e-4
)
for _ in range(3):
    images = [torch.rand(3, 480, 640).cuda() for _ in range(2)]  # becomes 800 x 1066
    targets = []
    for _ in images:
        corner = torch.rand(7, 2) * 200
        boxes = torch.cat([corner, corner + 20 + torch.rand(7, 2) * 200], dim=1)
        targets.append({"boxes": boxes.cuda(), "labels": torch.randint(1, 91, (7,)).cuda()})
    loss = sum(model(images, targets).values())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("figure:", torch.cuda.max_memory_allocated() / 2**30, "GB")
