"""Training of models of images, and of a graph, as others have reported it."""

import copy

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from proof.programs.counters import asked, peak


def deit(size):
    """Train a DeiT of timm with mixed precision, 128 images, and a moving average of its weights.

    PyTorch AMP, AdamW, mixup, drop path 0.1; the attention of timm 0.3.2 is written out. Issue 2 of
    the repository says how memory is measured.
    """
    return mesa(f"deit_{size}_patch16_224", drop_path=0.1, averages=True)


def swin():
    """Train Swin-T as DeiT, with gradients clipped, without a moving average.

    Swin's own code has mixed precision by apex O1, which is taken to be as autocast.
    """
    return mesa("swin_tiny_patch4_window7_224", drop_path=0.2, averages=False)


def mesa(name, drop_path, averages):
    """Train a model of timm as the table "Train Memory" says; return the peak."""
    import timm

    timm.layers.set_fused_attn(False)
    model = timm.create_model(name, drop_path_rate=drop_path).cuda()
    average = copy.deepcopy(model).eval() if averages else None
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
    scaler = torch.amp.GradScaler("cuda")
    for _ in range(3):
        images = torch.randn(128, 3, 224, 224).cuda()
        labels = torch.rand(128, 1000).softmax(1).cuda()
        images.mul_(0.8).add_(images.flip(0).mul_(0.2))  # mixup
        with torch.autocast("cuda", dtype=torch.float16):
            loss = torch.sum(-labels * F.log_softmax(model(images), dim=-1), dim=-1).mean()
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        if not averages:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        scaler.step(optimizer)
        scaler.update()
        if averages:
            with torch.no_grad():
                for a, w in zip(average.state_dict().values(), model.state_dict().values()):
                    a.copy_(a * 0.99996 + 0.00004 * w)
    return peak()


def faster_rcnn():
    """Train Faster R-CNN with two images of COCO's size.

    How much it needs depends on what it proposes, and that on values. The GB of torchvision's table
    are taken for GiB.
    """
    from torchvision.models.detection import fasterrcnn_resnet50_fpn

    weights = {"weights": None, "weights_backbone": None}
    model = fasterrcnn_resnet50_fpn(**weights, num_classes=91, trainable_backbone_layers=3)
    model = model.cuda().train()
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=0.02, momentum=0.9, weight_decay=1e-4)
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
    return peak() / 2**30 * 1e9


def convolution(inputs, outputs, kernel=3, stride=1):
    """Return a convolution with batch norm and ReLU."""
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))


class FCN(nn.Module):
    """MMSegmentation's FCN with a dilated ResNet-50-v1c: three convolutions are its stem."""

    def __init__(self, classes=19):
        from torchvision.models import resnet50

        super().__init__()
        body = resnet50(replace_stride_with_dilation=[False, True, True])
        stem = convolution(3, 32, 3, 2), convolution(32, 32), convolution(32, 64)
        self.stem = nn.Sequential(*stem, body.maxpool)
        self.stages = nn.ModuleList([body.layer1, body.layer2, body.layer3, body.layer4])
        self.head = nn.Sequential(convolution(2048, 512), convolution(512, 512))
        self.joined = convolution(2560, 512)
        self.last = nn.Sequential(nn.Dropout2d(0.1), nn.Conv2d(512, classes, 1))
        extra = convolution(1024, 256), nn.Dropout2d(0.1), nn.Conv2d(256, classes, 1)
        self.extra = nn.Sequential(*extra)

    def forward(self, x):
        x = self.stem(x)
        stages = []
        for stage in self.stages:
            x = stage(x)
            stages.append(x)
        y = self.joined(torch.cat([x, self.head(x)], dim=1))
        return self.last(y), self.extra(stages[2])


def fcn():
    """Train FCN with two images of Cityscapes; MMCV prints MiB, and GB are 1024 of them."""
    torch.backends.cudnn.benchmark = True
    model = FCN().cuda().train()
    options = {"lr": 0.01, "momentum": 0.9, "weight_decay": 5e-4}
    optimizer = torch.optim.SGD(model.parameters(), **options)
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
    return peak()


class Bottleneck(nn.Module):
    """A block of ResNet-164, with batch norm and ReLU before each convolution."""

    def __init__(self, inputs, width, stride=1, first=False):
        super().__init__()
        parts = []
        channels = inputs
        for outputs, kernel, step in (width, 1, 1), (width, 3, stride), (4 * width, 1, 1):
            parts += [nn.BatchNorm2d(channels), nn.ReLU(inplace=True)]
            parts.append(nn.Conv2d(channels, outputs, kernel, step, kernel // 2, bias=False))
            channels = outputs
        self.parts = nn.Sequential(*parts[2 if first else 0 :])
        self.shortcut = None
        if stride != 1 or inputs != 4 * width:
            linear = nn.Conv2d(inputs, 4 * width, 1, stride, bias=False)
            self.shortcut = nn.Sequential(linear, nn.BatchNorm2d(4 * width))

    def forward(self, x):
        y = self.parts(x)
        y += x if self.shortcut is None else self.shortcut(x)
        return y


def resnet164():
    """Train ResNet-164 with 100 images; return what is allocated after two of its steps."""
    blocks = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(inplace=True)]
    inputs = 16
    for width in (16, 32, 64):
        for i in range(18):
            stride = 2 if i == 0 and width > 16 else 1
            blocks.append(Bottleneck(inputs, width, stride, i == 0 and width == 16))
            inputs = 4 * width
    blocks += [nn.BatchNorm2d(inputs), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1)]
    model = nn.Sequential(*blocks, nn.Flatten(), nn.Linear(inputs, 10)).cuda()
    options = {"lr": 0.1, "momentum": 0.9, "weight_decay": 2e-4}
    optimizer = torch.optim.SGD(model.parameters(), **options)
    allocated = {}
    for _ in range(3):
        images = torch.randn(100, 3, 32, 32).cuda()
        labels = torch.randint(0, 10, (100,)).cuda()
        optimizer.zero_grad()
        output = model(images)
        loss = F.cross_entropy(output, labels)
        allocated.setdefault("first forward pass", torch.cuda.memory_allocated())
        loss.backward()
        optimizer.step()
    allocated["last update"] = torch.cuda.memory_allocated()
    return allocated


class Layer(nn.Module):
    """A layer of a vision transformer, with dropout."""

    def __init__(self, width=1024, hidden=4096):
        super().__init__()
        self.norm1, self.norm2 = (nn.LayerNorm(width, eps=1e-6) for _ in range(2))
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.widen, self.narrow = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).view(*x.shape[:2], 3, 16, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape)
        x = x + F.dropout(self.project(y), 0.1)
        return x + F.dropout(self.narrow(F.dropout(F.gelu(self.widen(self.norm2(x))), 0.1)), 0.1)


class ViT(nn.Module):
    """ViT-L/16 as in mmpretrain; its first layers may be checkpointed."""

    def __init__(self, checkpoints, width=1024):
        super().__init__()
        self.checkpoints = checkpoints
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.first, self.places = (nn.Parameter(torch.zeros(1, n, width)) for n in (1, 197))
        self.layers = nn.ModuleList(Layer() for _ in range(24))
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.head = nn.Sequential(nn.Linear(width, 3072), nn.Tanh(), nn.Linear(3072, 1000))

    def forward(self, images):
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = F.dropout(torch.cat([self.first.expand(len(x), -1, -1), x], dim=1) + self.places, 0.1)
        for i, layer in enumerate(self.layers):
            again = i < self.checkpoints
            x = checkpoint(layer, x, use_reentrant=False) if again else layer(x)
        return self.head(self.norm(x)[:, 0])


def vit_with_ddp(checkpoints=0):
    """Train ViT-L/16 with 64 images per GPU; return the peak of a rank."""
    import torch.distributed as dist

    dist.init_process_group("nccl")
    model = nn.parallel.DistributedDataParallel(ViT(checkpoints).cuda(), device_ids=[0])
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.3)
    for _ in range(3):
        images = torch.randn(64, 3, 224, 224, device="cuda")
        F.cross_entropy(model(images), torch.rand(64, 1000).softmax(1).cuda()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    of_training = peak()
    dist.destroy_process_group()
    return of_training


class Head(nn.Module):
    """A head of graph attention that writes down every pair of nodes."""

    def __init__(self, inputs, outputs, last=False):
        super().__init__()
        self.project = nn.Parameter(torch.randn(inputs, outputs) * 0.1)
        self.score = nn.Parameter(torch.randn(2 * outputs, 1) * 0.1)
        self.last = last

    def forward(self, x, linked):
        nodes = x @ self.project
        n, width = nodes.shape
        pairs = torch.cat([nodes.repeat(1, n).view(n * n, width), nodes.repeat(n, 1)], dim=1)
        pairs = pairs.view(n, n, 2 * width)
        scores = F.leaky_relu((pairs @ self.score).squeeze(2), 0.2)
        scores = torch.where(linked > 0, scores, torch.full_like(scores, -9e15))
        result = F.dropout(F.softmax(scores, dim=1), 0.6) @ nodes
        return result if self.last else F.elu(result)


class GAT(nn.Module):
    """Graph attention of 8 heads of 8 channels, and a last head."""

    def __init__(self):
        super().__init__()
        self.heads = nn.ModuleList(Head(3, 8) for _ in range(8))
        self.out = Head(64, 7, last=True)

    def forward(self, x, linked):
        x = F.dropout(x, 0.6)
        x = F.dropout(torch.cat([head(x, linked) for head in self.heads], dim=1), 0.6)
        return F.log_softmax(F.elu(self.out(x, linked)), dim=1)


def graph_attention(nodes=10_242):
    """Train GAT; 6.25 GiB, as reported, are nodes**2 pairs * 16 values * 4 bytes."""
    model = GAT().cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, weight_decay=5e-4)
    x = torch.randn(nodes, 3).cuda()
    linked = (torch.rand(nodes, nodes) < 6 / nodes).float().cuda()
    labels = torch.randint(0, 7, (nodes,)).cuda()

    def train():
        for _ in range(2):
            optimizer.zero_grad()
            F.nll_loss(model(x, linked), labels).backward()
            optimizer.step()

    return asked(train)
