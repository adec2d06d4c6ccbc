"""Programs of tutorials, of documentation, and of tables of speeds."""

import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from proof.programs.counters import peak, reset, update


def step_in_backward(hooked=False):
    """Train ViT-L/16 with one image; hooked, each gradient is used as soon as it is ready."""
    from torchvision.models import vit_l_16

    model = vit_l_16().cuda()
    if hooked:
        optimizers = {p: torch.optim.Adam([p], foreach=False) for p in model.parameters()}

        def use(p):
            optimizers[p].step()
            optimizers[p].zero_grad()

        for p in model.parameters():
            p.register_post_accumulate_grad_hook(use)
    else:
        optimizer = torch.optim.Adam(model.parameters(), foreach=True)
    for _ in range(3):
        model(torch.rand(1, 3, 224, 224, device="cuda")).sum().backward()
        if not hooked:
            optimizer.step()
            optimizer.zero_grad()


def sharded_states(shared=False):
    """Train twenty layers with DDP and Adam on two GPUs; `shared` shards Adam's states."""
    from torch.distributed.optim import ZeroRedundancyOptimizer

    dist.init_process_group("nccl")
    peaks = {}
    model = nn.Sequential(*[nn.Linear(2000, 2000) for _ in range(20)]).cuda()
    peaks["model"] = peak()
    model = nn.parallel.DistributedDataParallel(model)
    peaks["DDP"] = peak()
    options = {"lr": 0.01, "foreach": False}  # as in PyTorch 1.8
    if shared:
        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, **options)
    else:
        optimizer = torch.optim.Adam(model.parameters(), **options)
    outputs = model(torch.rand(20, 2000, device="cuda"))
    F.mse_loss(outputs, torch.rand(20, 2000, device="cuda")).backward()
    peaks["before the step"] = peak()
    optimizer.step()
    peaks["after the step"] = peak()
    return peaks


def mixed_precision(precision):
    """Train three layers in fp32 or fp16; gradients are zeroed and not freed.

    The recipe trains in fp32 first. When it begins anew, the last loss of that run keeps its model
    and gradients alive until the next loss is computed.
    """
    half = precision == "fp16"
    data = [torch.rand(512, 4096, device="cuda") for _ in range(100)]  # 50 batches, their targets
    for amp, updates in [(False, 1 if half else 4), (True, 4)][: 1 + half]:
        layers = [nn.Linear(4096, 4096) for _ in range(3)]
        model = nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2]).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.001, foreach=False)
        scaler = torch.amp.GradScaler("cuda", enabled=amp)
        reset()
        for x, y in [*zip(data, data[50:])][:updates]:
            with torch.autocast("cuda", torch.float16, enabled=amp):
                output = model(x)
                loss = F.mse_loss(output, y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad(set_to_none=False)
    return peak()


class FeedForward(nn.Module):
    """The three matrices of Lightning's page about tensor parallelism."""

    def __init__(self, width):
        super().__init__()
        self.w1, self.w2, self.w3 = (nn.Linear(width, width, bias=False) for _ in range(3))

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


def tensor_parallel():
    """Train FeedForward on one GPU or several, which get the whole matrices at first."""
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    model = FeedForward(8192)
    if "WORLD_SIZE" in os.environ:
        mesh = dist.init_device_mesh("cuda", (int(os.environ["WORLD_SIZE"]),))
        plan = {"w1": ColwiseParallel(), "w2": RowwiseParallel(), "w3": ColwiseParallel()}
        parallelize_module(model, mesh, plan)
    model.cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, foreach=True)
    for _ in range(3):
        model(torch.rand(8, 8192, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return peak()


def transformer_with_ddp():
    """Train the Transformer of a billion weights on Lightning's page about FSDP."""
    from lightning.pytorch.demos import Transformer

    dist.init_process_group("nccl")
    model = Transformer(vocab_size=33278, nlayers=32, nhid=4096, ninp=1024, nhead=64)
    model = nn.parallel.DistributedDataParallel(model.cuda())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    for _ in range(3):
        tokens = torch.zeros(1, 35, dtype=torch.long, device="cuda")
        loss = F.nll_loss(model(tokens, tokens), tokens.view(-1))
        update(loss, optimizer)


def low_bit(name):
    """Train ViT-H/14 with AdamW, or an optimizer of torchao's with this name."""
    from torchvision.models import vit_h_14

    model = vit_h_14(num_classes=45).cuda()
    if name == "AdamW":
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    else:
        import torchao.optim

        torch.compiler.set_stance("force_eager")  # compiling a step takes many minutes here
        optimizer = getattr(torchao.optim, name)(model.parameters())
    for _ in range(3):
        images = torch.rand(8, 3, 224, 224, device="cuda")
        labels = torch.zeros(8, dtype=torch.long, device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            loss = F.cross_entropy(model(images), labels)
        update(loss, optimizer)


class UnfusedAttention(nn.Module):
    """The attention that timm had in 2022: it keeps all attention weights in memory."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x, *_, **__):
        batch, length, width = x.shape
        qkv = self.qkv(x).reshape(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        query, key, value = qkv.unbind(0)
        scores = query @ key.transpose(-2, -1) * (width // self.heads) ** -0.5
        weights = torch.softmax(scores, -1)
        return self.proj((weights @ value).transpose(1, 2).reshape(batch, length, width)), None


def speed(name, images, px):
    """Train a model of torchvision with the shapes of timm's; a ViT has UnfusedAttention."""
    from torchvision.models import get_model

    # timm's Inception has no auxiliary classifier.
    model = get_model(name, **({"aux_logits": False} if name == "inception_v3" else {}))
    for block in model.encoder.layers if name.startswith("vit") else ():
        block.self_attention = UnfusedAttention(model.hidden_dim, heads=block.num_heads)
    model = model.cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    inputs = torch.rand(images, 3, px, px, device="cuda")
    for _ in range(3):
        with torch.autocast("cuda", torch.float16):
            labels = torch.zeros(images, dtype=torch.long, device="cuda")
            loss = F.cross_entropy(model(inputs), labels)
        update(loss, optimizer)


def speed_of_inference(name, images):
    """Predict with a model of torchvision with the shapes of timm's, images of 224 pixels."""
    from torchvision.models import get_model

    model = get_model(name).cuda().eval()
    inputs = torch.rand(images, 3, 224, 224, device="cuda")
    # What is timed is from one step to the next, and this one has nothing to do.
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    for _ in range(3):
        with torch.no_grad(), torch.autocast("cuda", torch.float16):
            model(inputs)
        optimizer.step()
