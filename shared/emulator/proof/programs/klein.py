"""The blocks of FLUX.2 Klein 9B with 8-bit weights, as OneTrainer trains them, with LoRA.

What lies outside of the 32 blocks, such as modulation and embeddings, 0.35 billion weights, is left
out. https://github.com/Nerogar/OneTrainer
"""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

WIDTH, HEADS, HIDDEN = 4096, 32, 12288
HEAD = WIDTH // HEADS
DOUBLE, SINGLE = 8, 24  # blocks
TEXT, IMAGE = 512, 1024  # tokens
RANK = 16


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


def train(compiled=True):
    """Train with a picture of 512 pixels; return what the process has taken of the card.

    That is as nvitop counts: with CUDA's context.
    """
    torch.set_default_device("cuda")
    blocks = nn.ModuleList(Checkpointed(DoubleBlock()) for _ in range(DOUBLE))
    blocks.extend(Checkpointed(SingleBlock()) for _ in range(SINGLE))
    if compiled:
        for block in blocks:
            block.compile(fullgraph=True)
    optimizer = torch.optim.AdamW(p for p in blocks.parameters() if p.requires_grad)
    made = {"dtype": torch.bfloat16}
    for _ in range(3):
        mod = torch.randn(6, WIDTH, **made)
        rope = torch.randn(2, TEXT + IMAGE, HEAD, **made)
        sizes = TEXT, IMAGE
        text, image = (torch.randn(1, n, WIDTH, **made, requires_grad=True) for n in sizes)
        with torch.autocast("cuda", torch.bfloat16):
            for block in blocks[:DOUBLE]:
                text, image = block(text, image, mod, rope)
            x = torch.cat((text, image), 1)
            for block in blocks[DOUBLE:]:
                x = block(x, mod, rope)
        x.float().square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    free, total = torch.cuda.mem_get_info()
    return total - free
