"""Programs measured in PyTorch's own tutorials and recipes."""

from functools import partial

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel
from torchvision.models import vit_l_16
from transformers import GPT2Config, GPT2LMHeadModel


def sharded_states(gpu, shared):
    """Twenty layers with DDP and Adam on two GPUs; with or without sharded optimizer states."""
    model = nn.Sequential(*[nn.Linear(2000, 2000) for _ in range(20)]).to(gpu.device)
    gpu.read("model")
    model = DistributedDataParallel(model)
    gpu.read("DDP")
    options = {"lr": 0.01, "foreach": False}  # as in PyTorch 1.8
    if shared:
        optimizer = ZeroRedundancyOptimizer(
            model.parameters(), optimizer_class=torch.optim.Adam, **options
        )
    else:
        optimizer = torch.optim.Adam(model.parameters(), **options)
    outputs = model(gpu.noise(20, 2000))
    F.mse_loss(outputs, gpu.noise(20, 2000)).backward()
    gpu.read("before the step")
    optimizer.step()
    gpu.read("after the step")


def mixed_precision(gpu):
    """Three layers, SGD without foreach, gradients zeroed and not freed; two runs in a row.

    In the second run, in mixed precision, the last loss of the first one keeps its model and
    gradients alive until the next loss is computed.
    """
    data = [gpu.noise(512, 4096) for _ in range(100)]  # 50 batches, and their targets
    for name in ("fp32", "fp16"):
        layers = [nn.Linear(4096, 4096) for _ in range(3)]
        model = nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2])
        model = model.to(gpu.device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.001, foreach=False)
        scaler = torch.amp.GradScaler(gpu.device.type, enabled=name == "fp16")
        gpu.reset()
        for x, y in [*zip(data, data[50:])][:4]:
            gpu.update()
            with torch.autocast(gpu.device.type, torch.float16, enabled=name == "fp16"):
                output = model(x)
                loss = F.mse_loss(output, y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad(set_to_none=False)
        gpu.read(name)


def step_in_backward(gpu, hooked):
    """ViT-L/16 and Adam, one image; with hooks, each gradient is used as soon as it is ready."""
    model = vit_l_16().to(gpu.device)
    groups = [[p] for p in model.parameters()] if hooked else [model.parameters()]
    optimizers = [torch.optim.Adam(group, foreach=not hooked) for group in groups]

    def use(optimizer, *_):
        optimizer.step()
        optimizer.zero_grad()

    for p, optimizer in zip(model.parameters(), optimizers) if hooked else ():
        p.register_post_accumulate_grad_hook(partial(use, optimizer))
    for _ in range(3):
        loss = model(gpu.noise(1, 3, 224, 224))
        loss.sum().backward()
        if not hooked:
            use(*optimizers)
    gpu.read("peak")


def gpt2(gpu, checkpointing):
    """GPT-2 in fp32, 4 texts of 512 tokens, AdamW."""
    model = GPT2LMHeadModel(GPT2Config()).to(gpu.device).train()
    if checkpointing:
        model.gradient_checkpointing_enable()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    tokens = outputs = None

    def forward():
        nonlocal tokens, outputs
        tokens = gpu.tokens(4, 512)
        outputs = model(input_ids=tokens, labels=tokens)
        return outputs.loss

    gpu.record()
    gpu.train(forward, optimizer)
