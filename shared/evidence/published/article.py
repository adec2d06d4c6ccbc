"""The programs of the article of 2023 that the ladder follows, in plain PyTorch.

Source: https://github.com/rasbt/pytorch-memory-optim
"""

import contextlib
from functools import partial

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from torch.utils.checkpoint import checkpoint
from torchvision.models import vit_h_14, vit_l_16
from transformers import AutoConfig, AutoModelForSequenceClassification

from shared.memory.torch_private import wrapped
from shared.text import models as texts
from shared.text.models import KNOWN

HALF = {"16-mixed": torch.float16, "16-true": torch.float16}
HALF |= {"bf16-mixed": torch.bfloat16, "bf16-true": torch.bfloat16}
EPS = 1e-8  # of Adam


def train(
    here,
    batch_size,
    precision="32-true",
    micro_batches=1,
    sgd=False,
    name="vit_l_16",
    units=None,
    checkpointing=False,
    offload=False,
):
    """A vision transformer: three updates, and a batch of the validation after them.

    Args:
        here: pretend.Pretended.
        batch_size: images in a forward pass, per GPU.
        precision: as Lightning calls it.
        name: "vit_l_16", or "vit_h_14" at 518 px.
        units: of FSDP2, in place of FSDP1: "one", "blocks", or "2M" for modules of at least two
            million weights; None for one GPU.
    """
    model = vit_l_16() if name == "vit_l_16" else vit_h_14(image_size=518)
    model.heads.head = nn.Linear(model.hidden_dim, 10)
    half = HALF.get(precision)
    if units:
        blocks = list(model.encoder.layers)
        parts = {"one": [], "blocks": blocks}
        parts["2M"] = [m for b in blocks for m in (b.self_attention, b.mlp[0], b.mlp[3])]
        _shard(here, model, parts[units], blocks * checkpointing, half, offload)
    else:
        model = model.to(here.device, half if precision.endswith("true") else None)
    here.training()
    kind, rate = (torch.optim.SGD, 0.01) if sgd else (torch.optim.Adam, 5e-5)
    optimizer = kind(model.parameters(), lr=rate)
    images = labels = logits = None

    def predict():
        nonlocal images, labels, logits
        px = model.image_size
        images, labels = here.noise(batch_size, 3, px, px), here.tokens(batch_size)
        if precision.endswith("mixed"):
            with torch.autocast(here.device.type, half):
                logits = model(images).float()
        else:
            logits = model(images.to(half) if half else images)

    def forward():
        predict()
        return F.cross_entropy(logits, labels) / micro_batches

    late, per = micro_batches == 1, micro_batches / 9  # 5,000 images for every 45,000
    with adam_of_2023():
        here.train(forward, optimizer, micro_batches, late, validation=(model, predict), per=per)


@contextlib.contextmanager
def adam_of_2023():
    """Gives Adam one temporary of the size of all weights more, while the context is active.

    Until July 2023 it added epsilon to a copy: https://github.com/pytorch/pytorch/pull/104780
    """
    copies = []

    def add(original, tensors, other, **options):
        if other == EPS:
            copies.append(torch._foreach_add(tensors, other))
        return original(tensors, other, **options)

    def divide(original, *args, **options):
        original(*args, **options)
        copies.clear()

    with wrapped(torch, "_foreach_add_", add), wrapped(torch, "_foreach_addcdiv_", divide):
        yield


def load(here, dtype):
    """ViT-L/16, made on the GPU."""
    torch.set_default_dtype(getattr(torch, dtype))
    with here.device:
        model = vit_l_16()
        here.read("peak")
        return model


def _shard(here, model, parts, checkpointed, half, offload):
    """Shards a model over four GPUs as FSDP2 does."""
    for block in checkpointed:
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)
    if not offload:
        model.to(here.device)
    options = {"mesh": dist.init_device_mesh(here.device.type, (4,))}
    if half:
        options["mp_policy"] = MixedPrecisionPolicy(param_dtype=half, reduce_dtype=half)
    if offload:
        options["offload_policy"] = CPUOffloadPolicy(pin_memory=False)
    for module in (*parts, model):
        fully_shard(module, **options)
    for name, buffer in model.named_buffers():
        owner, _, name = name.rpartition(".")
        setattr(model.get_submodule(owner), name, buffer.to(here.device))


def text(here, model, length, micro_batch_size, micro_batches, wrapped):
    """A language model that classifies, in bf16 on each of four GPUs, shards on the host.

    Each block is a unit if they are wrapped, else the model is one.
    """
    config = AutoConfig.from_pretrained(KNOWN[model])
    model = AutoModelForSequenceClassification.from_config(config).to(torch.bfloat16)
    _shard(here, model, texts.blocks(model) if wrapped else [], [], None, True)
    here.training()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-5)
    outputs = None

    def forward():
        nonlocal outputs
        tokens, mask = (here.tokens(micro_batch_size, length) for _ in range(2))
        labels = here.tokens(micro_batch_size)
        outputs = model(tokens, attention_mask=mask, labels=labels)
        return outputs["loss"]

    validation, per = (model, forward), micro_batches / 7  # 5,000 texts for every 35,000
    with adam_of_2023():
        here.train(forward, optimizer, micro_batches, updates=2, validation=validation, per=per)
