"""FCN with a dilated ResNet-50-v1c on Cityscapes, in MMSegmentation.

Report: https://github.com/open-mmlab/mmsegmentation/tree/main/configs/fcn, R-50-D8, 512x1024, 40k:
"Mem (GB)" 5.7, on V100 (June 2020, two images on each of four GPUs). MMCV's logger
prints max_memory_allocated() in MiB; GB are 1024 of them. fp32, SGD with momentum, SyncBN,
cudnn.benchmark on. The stem has three convolutions, the auxiliary head sits on the third stage.
Reading: peak of allocated memory. cuDNN's workspaces are in the reported figure only.
"""

import torch
from torch import nn
from torch.nn import functional as F
from torchvision.models import resnet50

torch.backends.cudnn.benchmark = True


def unit(i, o, kernel=3, stride=1):
    conv = nn.Conv2d(i, o, kernel, stride, kernel // 2, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(o), nn.ReLU(inplace=True))


class FCN(nn.Module):
    def __init__(self, classes=19):
        super().__init__()
        body = resnet50(replace_stride_with_dilation=[False, True, True])
        self.stem = nn.Sequential(unit(3, 32, 3, 2), unit(32, 32), unit(32, 64), body.maxpool)
        self.stages = nn.ModuleList([body.layer1, body.layer2, body.layer3, body.layer4])
        self.head = nn.Sequential(unit(2048, 512), unit(512, 512))
        self.joined = unit(2560, 512)
        self.last = nn.Sequential(nn.Dropout2d(0.1), nn.Conv2d(512, classes, 1))
        self.extra = nn.Sequential(unit(1024, 256), nn.Dropout2d(0.1), nn.Conv2d(256, classes, 1))

    def forward(self, x):
        x, found = self.stem(x), []
        for stage in self.stages:
            x = stage(x)
            found.append(x)
        y = self.joined(torch.cat([x, self.head(x)], dim=1))
        return self.last(y), self.extra(found[2])


model = FCN().cuda().train()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
for _ in range(3):
    images = torch.randn(2, 3, 512, 1024).cuda()
    labels = torch.randint(0, 19, (2, 512, 1024)).cuda()
    loss = 0
    for scores, weight in zip(model(images), (1.0, 0.4)):
        scores = F.interpolate(scores, size=(512, 1024), mode="bilinear", align_corners=False)
        loss = loss + weight * F.cross_entropy(scores, labels, reduction="none").mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("figure:", torch.cuda.max_memory_allocated() / 2**30, "GiB")
