"""A transformer and AdamW of a course of 2026, and the events of the allocator as they train.

They are those of Wedsonlin/assignment2-systems @ 87b0864, whose snapshots of PyTorch 2.11 are in
the folder events. A module's argument lives until the call is over, so modules stay modules.
"""

import contextlib

import torch
from torch import nn

VOCAB, DIM, LAYERS, HEADS, HIDDEN, BATCH = 10_000, 1024, 24, 16, 4096, 4
# An event is a line: one of these letters, and the size in bytes.
LETTER = {"alloc": "a", "free_completed": "f", "segment_alloc": "S", "segment_free": "R"}


class Linear(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(
            torch.empty(outputs, inputs, device="cuda").uniform_(-0.03, 0.03)
        )

    def forward(self, x):
        return torch.einsum("...i,oi->...o", x, self.weight)


class Norm(nn.Module):  # RMSNorm
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(DIM, device="cuda"))

    def forward(self, x):
        kind, x = x.dtype, x.to(torch.float32)
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)
        x = x * scale
        return (self.weight * x).to(kind)


class Rope:
    def __init__(self, tokens, width):
        angle = torch.outer(torch.arange(tokens), 10_000.0 ** -(torch.arange(0, width, 2) / width))
        self.table = torch.stack((torch.cos(angle), torch.sin(angle))).to("cuda")

    def __call__(self, x):
        x1, x2 = (
            x.unflatten(-1, (-1, 2)).movedim(-1, 0).unbind(0)
        )  # unbind(-1) copies less in backward
        cos, sin = self.table[:, : x.size(-2)].unbind(0)
        return torch.concat((cos * x1 - sin * x2, sin * x1 + cos * x2), dim=-1)


def softmax(x):
    moved = x - torch.max(x, dim=-1, keepdim=True)[0]
    power = torch.exp(moved)
    return power / torch.sum(power, dim=-1, keepdim=True)


def mix(q, k, v, mask):
    score = torch.einsum("...qd,...kd->...qk", q, k) / k.shape[-1] ** 0.5
    score = torch.where(mask, score, float("-inf"))  # the scalar is a block of its own
    share = softmax(score)
    return torch.einsum("...qk,...kd->...qd", share, v)


class Attention(nn.Module):
    def __init__(self, rope):
        super().__init__()
        self.q, self.k, self.v, self.o = (Linear(DIM, DIM) for _ in range(4))
        self.rope = rope

    def forward(self, x):
        q, k, v = self.q(x), self.k(x), self.v(x)
        q, k, v = (t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in (q, k, v))
        q = self.rope(q)  # frees the old q before k is turned
        k = self.rope(k)
        at = torch.arange(x.size(1), device="cuda")
        mask = (at[:, None] >= at[None, :])[None]
        y = mix(q, k, v, mask)
        y = y.transpose(1, 2).reshape(x.shape)  # a copy
        return self.o(y)


class Feed(nn.Module):
    silu = staticmethod(lambda x: x * torch.sigmoid(x))  # a call: its argument goes when it returns

    def __init__(self):
        super().__init__()
        self.w1, self.w2, self.w3 = Linear(DIM, HIDDEN), Linear(HIDDEN, DIM), Linear(DIM, HIDDEN)

    def forward(self, x):
        return self.w2(self.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    def __init__(self, rope):
        super().__init__()
        self.attention, self.feed, self.norm1, self.norm2 = Attention(rope), Feed(), Norm(), Norm()

    def forward(self, x):
        seen = self.attention(self.norm1(x))
        x1 = x + seen
        fed = self.feed(self.norm2(x1))
        return x1 + fed


class Model(nn.Module):
    def __init__(self, tokens):
        super().__init__()
        self.table = Linear(DIM, VOCAB).weight
        rope = Rope(tokens, DIM // HEADS)
        self.blocks = nn.ModuleList(Block(rope) for _ in range(LAYERS))
        self.norm, self.head = Norm(), Linear(DIM, VOCAB)

    def forward(self, x):
        x = embedded = self.table[x]  # noqa: F841, the second name holds it until the end
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        return self.head(x)


def cross_entropy(x, target):
    def log_softmax(x):
        top = torch.max(x, dim=-1, keepdim=True)[0]
        x = x - top
        return x - torch.log(torch.sum(torch.exp(x), dim=-1, keepdim=True))

    loss = -log_softmax(x)
    return torch.mean(torch.gather(loss, -1, target.unsqueeze(-1)))


def adam(states):
    """Update the parameters, the keys of `states`."""
    for p, state in states.items():
        grad = p.grad.data
        p.data -= 1e-5 * p.data
        old_m = state.get("m", torch.zeros_like(grad))  # the default is made each time
        old_v = state.get("v", torch.zeros_like(grad))
        m = 0.9 * old_m + 0.1 * grad
        v = 0.999 * old_v + 0.001 * torch.square(grad)
        p.data -= 1e-3 * m / (torch.sqrt(v) + 1e-8)
        state["m"], state["v"] = m, v


def train(tokens, bf16=False):
    """Train for six updates, and print the events of the last."""
    cast = torch.autocast("cuda", torch.bfloat16) if bf16 else contextlib.nullcontext()
    model = Model(tokens)
    states = {p: {} for p in model.parameters()}

    def make(n):
        return torch.randint(0, VOCAB, (n, BATCH, tokens), device="cuda")

    inputs, labels = ([*make(5), *make(1)] for _ in range(2))
    for i in range(6):
        if i == 5:
            del output, loss  # noqa: F821, of the update before
            torch.cuda.memory._record_memory_history(context=None, max_entries=1_000_000)
        with cast:
            output = model(inputs[i])
            loss = cross_entropy(output, labels[i])
        loss.backward()
        adam(states)
        if i < 5:
            for p in states:
                p.grad = None
    for event in torch.cuda.memory._snapshot()["device_traces"][0]:
        if event["action"] in LETTER:
            print(LETTER[event["action"]], event["size"])
