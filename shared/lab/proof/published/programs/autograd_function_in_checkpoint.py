"""LoRA of FLUX.2 Klein 9B with 8-bit weights, a batch of 1, compiled with checkpointing.

The report trains with OneTrainer (https://github.com/Nerogar/OneTrainer), a picture of 512 pixels.
Here are the 32 blocks with their widths and random weights; what lies outside of them, such as
modulation and embeddings, 0.35 billion weights, is left out. --eager does not compile.
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

WIDTH, HEADS, HIDDEN = 4096, 32, 12288
HEAD = WIDTH // HEADS
DOUBLE, SINGLE = 8, 24  # blocks
TEXT, IMAGE = 512, 1024  # tokens
RANK = 16
torch.set_default_device("cuda")


def quantize(x):
    scale = (x.abs().amax(dim=-1, keepdim=True).float() / 127).clamp(min=1e-30)
    return x.float().mul(1 / scale).round_().clamp_(-128, 127).to(torch.int8), scale


class Int8Product(torch.autograd.Function):
    """The product with a frozen weight in 8 bits; OneTrainer has such a function, too."""

    @staticmethod
    def forward(ctx, x, weight, weight_scale):
        ctx.save_for_backward(weight, weight_scale)
        x8, scale = quantize(x)
        return torch._int_mm(x8, weight.T).float().mul_(weight_scale * scale).to(torch.bfloat16)

    @staticmethod
    def backward(ctx, grad):
        weight, weight_scale = ctx.saved_tensors
        g8, scale = quantize(grad)
        product = torch._int_mm(g8.contiguous(), weight).float()
        return product.mul_(weight_scale * scale).to(grad.dtype), None, None


class Linear(nn.Module):
    """A frozen weight, and a LoRA in 32 bits, of which autocast makes 16."""

    def __init__(self, inputs, outputs):
        super().__init__()
        weight = torch.empty(outputs, inputs, dtype=torch.int8)
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.register_buffer("scale", torch.tensor(1e-3))
        self.down = nn.Linear(inputs, RANK, bias=False)
        self.up = nn.Linear(RANK, outputs, bias=False)

    def forward(self, x):
        y = Int8Product.apply(x.reshape(-1, x.shape[-1]), self.weight, self.scale)
        return y.reshape(*x.shape[:-1], -1) + self.up(self.down(x)) * (1 / RANK)


def norm(x):
    return F.layer_norm(x, (WIDTH,), eps=1e-6)


def gated(x):
    return F.silu(x[..., :HIDDEN]) * x[..., HIDDEN:]


def rotate(x, rope):
    half = HEAD // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), -1)
    return (x * rope[0] + turned * rope[1]).to(x.dtype)


def attend(qkv, rope):
    q, k, v = (t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in qkv.chunk(3, -1))
    q, k = (rotate(F.rms_norm(t, (HEAD,)), rope) for t in (q, k))
    return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)


class DoubleBlock(nn.Module):
    """Text and image have weights of their own, and attend to each other."""

    def __init__(self):
        super().__init__()
        shapes = {
            "qkv": (WIDTH, 3 * WIDTH),
            "out": (WIDTH, WIDTH),
            "up": (WIDTH, 2 * HIDDEN),
            "down": (HIDDEN, WIDTH),
        }
        layers = [nn.ModuleDict({k: Linear(*s) for k, s in shapes.items()}) for _ in range(2)]
        self.text, self.image = layers

    def forward(self, text, image, mod, rope):
        parts = (self.text, text), (self.image, image)
        qkv = torch.cat([part["qkv"](norm(x) * mod[0] + mod[1]) for part, x in parts], 1)
        attended = attend(qkv, rope).split((TEXT, IMAGE), 1)
        between = [x + mod[2] * part["out"](y) for (part, x), y in zip(parts, attended)]
        both = zip((self.text, self.image), between)
        return [
            x + mod[5] * part["down"](gated(part["up"](norm(x) * mod[3] + mod[4])))
            for part, x in both
        ]


class SingleBlock(nn.Module):
    """One layer makes queries, keys, values and the MLP's input."""

    def __init__(self):
        super().__init__()
        self.proj = Linear(WIDTH, 3 * WIDTH + 2 * HIDDEN)
        self.out = Linear(WIDTH + HIDDEN, WIDTH)

    def forward(self, x, mod, rope):
        qkv, up = self.proj(norm(x) * mod[0] + mod[1]).split((3 * WIDTH, 2 * HIDDEN), -1)
        return x + mod[2] * self.out(torch.cat((attend(qkv, rope), gated(up)), -1))


class Checkpointed(nn.Sequential):
    """A block that is computed again in the backward pass; the whole of it is compiled."""

    def forward(self, *inputs):
        return checkpoint(self[0], *inputs, use_reentrant=False)


blocks = nn.ModuleList(
    Checkpointed(DoubleBlock() if i < DOUBLE else SingleBlock()) for i in range(DOUBLE + SINGLE)
)
if "--eager" not in sys.argv:
    for block in blocks:
        block.compile(fullgraph=True)
optimizer = torch.optim.AdamW(p for p in blocks.parameters() if p.requires_grad)
for step in range(3):
    mod = torch.randn(6, WIDTH, dtype=torch.bfloat16)
    rope = torch.randn(2, TEXT + IMAGE, HEAD, dtype=torch.bfloat16)
    text, image = (
        torch.randn(1, n, WIDTH, dtype=torch.bfloat16, requires_grad=True) for n in (TEXT, IMAGE)
    )
    with torch.autocast("cuda", torch.bfloat16):
        for block in blocks[:DOUBLE]:
            text, image = block(text, image, mod, rope)
        x = torch.cat((text, image), 1)
        for block in blocks[DOUBLE:]:
            x = block(x, mod, rope)
    x.float().square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
# As nvitop counts: all that the process has taken of the card, with CUDA's context.
free, total = torch.cuda.mem_get_info()
print(f"figure: {total - free} bytes")
