"""What PyTorch's own tutorials and recipes have measured."""

from functools import partial

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel
from torchvision.models import vit_l_16
from transformers import GPT2Config, GPT2LMHeadModel

from shared.evidence.published.source import Row, Source
from shared.predict.cards import GIB


def sharded_states(here, shared):
    """Twenty layers with DDP and Adam on two GPUs; with the states shared out, or not."""
    model = nn.Sequential(*[nn.Linear(2000, 2000) for _ in range(20)]).to(here.device)
    here.read("model")
    here.training()
    model = DistributedDataParallel(model)
    here.read("DDP")
    options = {"lr": 0.01, "foreach": False}  # as PyTorch 1.8 did it
    if shared:
        optimizer = ZeroRedundancyOptimizer(
            model.parameters(), optimizer_class=torch.optim.Adam, **options
        )
    else:
        optimizer = torch.optim.Adam(model.parameters(), **options)
    outputs = model(here.noise(20, 2000))
    F.mse_loss(outputs, here.noise(20, 2000)).backward()
    here.read("before the step")
    optimizer.step()
    here.read("after the step")


def mixed_precision(here):
    """Three layers, SGD without foreach, gradients set to zero and not freed; twice, as there.

    In the second training, in mixed precision, the last loss of the first one keeps its model and
    gradients alive until the next loss is there.
    """
    data = [here.noise(512, 4096) for _ in range(100)]  # 50 batches, and their targets
    for name in ("fp32", "fp16"):
        layers = [nn.Linear(4096, 4096) for _ in range(3)]
        model = nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2])
        model = model.to(here.device)
        here.training()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.001, foreach=False)
        here.reset()
        for x, y in [*zip(data, data[50:])][:4]:
            with here.counted():
                with torch.autocast(here.device.type, torch.float16, enabled=name == "fp16"):
                    output = model(x)
                    squares = torch.empty_like(y)  # what mse_loss allocates for itself
                    loss = F.mse_loss(output.float(), y)  # as autocast computes it on CUDA
                    del squares
                loss.backward()
                for p in model.parameters() if name == "fp16" else ():
                    p.grad.mul_(1.0)  # GradScaler divides gradients by the scale of the loss
                optimizer.step()
                optimizer.zero_grad(set_to_none=False)
        here.read(name)


def step_in_backward(here, hooked):
    """ViT-L/16 and Adam, one image; each gradient is used as soon as it is there, or not."""
    model = vit_l_16().to(here.device)
    here.training()
    groups = [[p] for p in model.parameters()] if hooked else [model.parameters()]
    optimizers = [torch.optim.Adam(group, foreach=not hooked) for group in groups]

    def use(optimizer, *_):
        optimizer.step()
        optimizer.zero_grad()

    for p, optimizer in zip(model.parameters(), optimizers) if hooked else ():
        p.register_post_accumulate_grad_hook(partial(use, optimizer))
    for _ in range(3):
        loss = model(here.noise(1, 3, 224, 224))
        loss.sum().backward()
        if not hooked:
            use(*optimizers)
    here.read("peak")


def gpt2(here, checkpointing):
    """GPT-2 in fp32, 4 texts of 512 tokens, AdamW."""
    model = GPT2LMHeadModel(GPT2Config()).to(here.device).train()
    if checkpointing:
        model.gradient_checkpointing_enable()
    here.training()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    tokens = outputs = None

    def forward():
        nonlocal tokens, outputs
        tokens = here.tokens(4, 512)
        outputs = model(input_ids=tokens, labels=tokens)
        return outputs.loss

    here.record()
    here.train(forward, optimizer)


T4 = {"card": "t4", "torch": (1, 11)}

SOURCES = (
    Source(
        "PyTorch: optimizer step in backward",
        "https://docs.pytorch.org/tutorials/intermediate/optimizer_step_in_backward_tutorial.html",
        "Read from a picture, and said with one digit. GPU and PyTorch unknown; an A100 and 2.1 "
        "are assumed.",
        (
            Row("ViT-L/16, fp32, 1 image, Adam", 6, partial(step_in_backward, hooked=False)),
            Row("with the step in the backward pass", 4, partial(step_in_backward, hooked=True)),
        ),
    ),
    Source(
        "PyTorch: ZeroRedundancyOptimizer",
        "https://docs.pytorch.org/tutorials/recipes/zero_redundancy_optimizer.html",
        "Printed as whole MB. PyTorch was about 1.8, which did not let the allocator count "
        "cuBLAS's workspaces. The weights have 16.0 MB each, and 16.8 MB of the allocator.",
        tuple(
            Row(words, gb, partial(sharded_states, shared=out), torch=(1, 8), devices=2, read=read)
            for words, gb, out, read in (
                ("20 layers of 2000 x 2000: the model", 0.335, False, "model"),
                ("with DDP, on 2 GPUs", 0.656, False, "DDP"),
                ("before Adam's step", 0.992, False, "before the step"),
                ("after it", 1.697, False, "after the step"),
                ("after it, states shared out", 1.361, True, "after the step"),
            )
        ),
    ),
    Source(
        "PyTorch: automatic mixed precision, on a T4",
        "https://docs.pytorch.org/tutorials/recipes/recipes/amp_recipe.html",
        "The recipe, run by a reader with PyTorch 1.11, who printed bytes: 1,350,681,600 and "
        "1,577,232,384.",
        tuple(
            Row(words, gb, partial(mixed_precision), **T4, read=read, ms=seconds * 1e3 / 150)
            for words, gb, seconds, read in (
                ("3 layers of 4096 x 4096, fp32, SGD", 1.350_681_6, 7.020, "fp32"),
                ("3 layers of 4096 x 4096, fp16 mixed, SGD", 1.577_232_384, 2.524, "fp16"),
            )
        ),
        times="The seconds of 150 updates, 3 epochs of 50; the data is on the GPU before.",
    ),
    Source(
        "PyTorch: Mosaic",
        "https://docs.pytorch.org/tutorials/beginner/mosaic_memory_profiling_tutorial.html",
        "In GiB, from a recording that begins when the model is on the GPU; what was there before "
        "is in neither figure. GPU unknown, an A100 is assumed; PyTorch about 2.9.",
        tuple(
            Row(words, gib * GIB, partial(gpt2, checkpointing=checkpointing), torch=(2, 9))
            for words, gib, checkpointing in (
                ("GPT-2, fp32, 4 texts of 512 tokens, AdamW", 4.62, False),
                ("with checkpointing", 2.55, True),
            )
        ),
    ),
)
