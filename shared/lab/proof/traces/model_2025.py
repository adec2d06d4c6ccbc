"""The transformer and Adam behind traces of PyTorch 2.6, of a course of 2025.

They are those of NiuHuangxiaozi/assignment2-systems @ 9d868b9.

The same tensor operations in the same order, in our own code. A block is freed with the last
reference to its tensor. Keep the local variables exactly as in the original: inlining one changes
the trace.
"""

import math

import torch
from torch import nn

VOCAB, DIM, LAYERS, HEADS, HIDDEN, BATCH, ROOM = 10_000, 512, 4, 16, 1344, 10, 256
full_slice = (
    torch.ops.aten.slice.Tensor
)  # `x[:]` is this in 2.6 (its backward takes zeros), and nothing in 2.15


class Linear(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        # Filled in place, as trunc_normal_ does in 2.6; in 2.15 it has temporaries and a loop.
        self.weight = nn.Parameter(
            torch.empty(outputs, inputs, device="cuda").uniform_(-0.03, 0.03)
        )

    def forward(self, x):
        return torch.einsum(
            "...i,oi->...o", x, self.weight
        )  # a bmm: its backward differs from F.linear's


class Norm(nn.Module):  # RMSNorm
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(DIM, device="cuda"))

    def forward(self, x):
        kind = x.dtype
        x = x.to(torch.float32)  # a copy under autocast only
        root = torch.sqrt(torch.mean(x**2, dim=-1, keepdim=True) + 1e-5)
        y = x / root * self.weight
        return y.to(kind)


class Rope:
    def __init__(self, width):
        angle = torch.outer(torch.arange(ROOM), 1 / 10_000 ** (torch.arange(0, width, 2) / width))
        self.sin, self.cos = torch.sin(angle), torch.cos(angle)  # stay on the host

    def __call__(self, x):
        at = torch.arange(x.shape[-2])
        sin = self.sin[at].to("cuda")[:, :, None]  # two blocks for each call, kept for backward
        cos = self.cos[at].to("cuda")[:, :, None]
        x = x.unflatten(-1, (-1, 2))
        first = cos * x[..., :1] - sin * x[..., 1:]
        second = sin * x[..., :1] + cos * x[..., 1:]
        return torch.cat([first, second], dim=-1).flatten(-2)


def softmax(x):
    top, _ = torch.max(x, dim=-1, keepdim=True)
    return torch.exp(x - top) / torch.sum(torch.exp(x - top), dim=-1, keepdim=True)  # exp twice


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2, self.rope = Norm(), Norm(), Rope(DIM // HEADS)
        self.q, self.k, self.v, self.o = (Linear(DIM, DIM) for _ in range(4))
        self.w1, self.w2, self.w3 = Linear(DIM, HIDDEN), Linear(HIDDEN, DIM), Linear(DIM, HIDDEN)

    def mix(self, q, k, v, mask):
        mask = mask.to("cuda")
        product = torch.einsum("...qd,...kd->...qk", q, k)
        score = product / torch.sqrt(
            torch.tensor(q.shape[-1], device="cuda")
        )  # the width is a tensor of 8 bytes
        score = score.masked_fill_(~mask.bool(), -math.inf)
        share = softmax(score)
        return torch.einsum("...qk,...kd->...qd", share, v)

    def attend(self, x):
        q, k, v = self.q(x), self.k(x), self.v(x)
        q, k, v = (t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in (q, k, v))
        q = self.rope(q)
        k = self.rope(k)
        y = self.mix(q, k, v, torch.tril(torch.ones(x.shape[1], x.shape[1])))
        y = y.transpose(1, 2).reshape(x.shape)  # a copy
        return self.o(y)

    def feed(self, x):
        a = self.w1(x)
        b = a * torch.sigmoid(a)
        c = self.w3(x)
        bc = b * c
        return self.w2(bc)

    def forward(self, x):
        normed = self.norm1(x)
        seen = self.attend(normed)
        x1 = seen + x
        normed2 = self.norm2(x1)
        fed = self.feed(normed2)
        return fed + x1


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = Linear(DIM, VOCAB).weight
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = Norm(), Linear(DIM, VOCAB)

    def forward(self, x):
        x = self.table[x]  # its backward is index_put with sorted indices, which has buffers
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        return self.head(x)


def cross_entropy(x, target):
    top, _ = torch.max(x, dim=-1, keepdim=True)
    log_share = x - top - torch.log(torch.sum(torch.exp(x - top), dim=-1, keepdim=True))
    one_hot = torch.zeros_like(log_share)
    one_hot.scatter_(-1, target.unsqueeze(-1), 1)
    return -torch.sum(one_hot * log_share) / x.shape[0]
