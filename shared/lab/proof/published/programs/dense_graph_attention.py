"""Graph attention that writes down every pair of nodes: 10,242 nodes do not fit in 32 GB.

Report: https://github.com/diegoantognini/pyGAT/issues/50 (32 GB, PyTorch of 2020): "Tried to
allocate 6.25 GiB (GPU 0; 31.75 GiB total capacity; 25.01 GiB already allocated; ...)", 8 heads.
Reading: the amount that the error names; 6.25 GiB are 10242**2 pairs * 16 values * 4 bytes.
"""

import re

import torch
from torch import nn
from torch.nn import functional as F

NODES = 10_242


class Head(nn.Module):
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
    def __init__(self):
        super().__init__()
        self.heads = nn.ModuleList(Head(3, 8) for _ in range(8))
        self.out = Head(64, 7, last=True)

    def forward(self, x, linked):
        x = F.dropout(x, 0.6)
        x = F.dropout(torch.cat([head(x, linked) for head in self.heads], dim=1), 0.6)
        return F.log_softmax(F.elu(self.out(x, linked)), dim=1)


model = GAT().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, weight_decay=5e-4)
x = torch.randn(NODES, 3).cuda()
linked = (torch.rand(NODES, NODES) < 6 / NODES).float().cuda()
labels = torch.randint(0, 7, (NODES,)).cuda()
asked = 0.0
try:
    for _ in range(2):
        optimizer.zero_grad()
        F.nll_loss(model(x, linked), labels).backward()
        optimizer.step()
except torch.OutOfMemoryError as error:
    asked = float(re.search(r"allocate ([\d.]+) GiB", str(error))[1])
print("figure:", asked, "GiB")
