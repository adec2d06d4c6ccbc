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

from shared.evidence.published.source import Row, Source
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
        micro_batches: forward passes in an update.
        sgd: SGD instead of Adam.
        name: "vit_l_16", or "vit_h_14" at 518 px.
        units: of FSDP2, in place of FSDP1: "one", "blocks", or "2M" for modules of at least two
            million weights; None for one GPU.
        checkpointing: whether blocks are computed a second time.
        offload: whether shards live on the host.
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
    torch.set_default_dtype(dtype)
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

    Args:
        here: pretend.Pretended.
        model: a name that text.models knows.
        length: of a text, in tokens.
        micro_batch_size: texts in a forward pass.
        micro_batches: of an update.
        wrapped: whether each block is a unit, or the model one.
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


def _row(words, gb, minutes=None, *, program=train, devices=1, samples=45_000, **options):
    """Returns a row; minutes are those of an epoch of so many images or texts."""
    at_once = options.get("batch_size") or options.get("micro_batch_size")
    ms = None
    if minutes:
        ms = minutes * 60e3 / (samples // (at_once * options.get("micro_batches", 1) * devices))
    return Row(words, gb, partial(program, **options), "reserved", devices=devices, ms=ms)


BF16, MIXED = "bf16-true", "16-mixed"
HALVES = {"batch_size": 64, "precision": MIXED}
FOUR = {"batch_size": 4, "micro_batches": 4, "precision": BF16}
ALONE = {"name": "vit_h_14", "batch_size": 4, "precision": MIXED}
VIT_H, VIT_L = {**ALONE, "devices": 4}, {"batch_size": 64, "devices": 4}
RECOMPUTED = {"checkpointing": True, "units": "blocks"}
OFFLOADED = {"offload": True, **RECOMPUTED}
TEXT = {"program": text, "devices": 4, "samples": 35_000}
DISTILBERT = {**TEXT, "model": "distilbert-base-uncased", "length": 512, "wrapped": True}
DISTILBERT |= {"micro_batch_size": 3, "micro_batches": 4}
BIGBIRD = {**TEXT, "model": "google/bigbird-roberta-base", "length": 4096, "wrapped": False}
BIGBIRD |= {"micro_batch_size": 1, "micro_batches": 12}
UNITS = "ViT-H/14, FSDP, units of two million weights"
WITH_HOST = "ViT-L/16, FSDP, fp32, checkpointing, offload"
ARTICLE = "https://github.com/rasbt/pytorch-memory-optim"

SOURCES = (
    Source(
        "Raschka 2023, one GPU",
        ARTICLE,
        "The article that the ladder follows, with PyTorch 2.1.0.dev20230623. The GPU is not "
        "named; an A100 is assumed. Adam needed one temporary of the size of all weights more "
        "than today, and `zero_grad()` came between forward and backward pass.",
        (
            _row("ViT-L/16, fp32, 64 images, Adam", 26.79, 17.94, batch_size=64),
            _row("ViT-L/16, fp16 mixed, 64 images, Adam", 18.21, 3.45, **HALVES),
            _row("ViT-L/16, bf16, 64 images, Adam", 13.82, 2.88, batch_size=64, precision=BF16),
            _row("ViT-L/16, bf16, 16 images, Adam", 5.69, 3.96, batch_size=16, precision=BF16),
            _row("ViT-L/16, bf16, 4 x 4 images, Adam", 3.91, 12.91, **FOUR),
            _row("ViT-L/16, bf16, 4 x 4 images, SGD", 2.02, 12.89, **FOUR, sgd=True),
            _row("the model alone, fp32", 1.24, program=load, dtype=torch.float32),
            _row("the model alone, fp16", 0.65, program=load, dtype=torch.float16),
        ),
        times="An epoch of 45,000 images and the validation with 5,000, whose forward passes are "
        "in the bound too. Not in it: loading and resizing the images, and counting right answers. "
        "The GPU, an A100 with 80 GB, is assumed.",
    ),
    Source(
        "Raschka 2023, ViT-H/14 and FSDP",
        ARTICLE,
        "The figures are FSDP1's, the predictions those of the FSDP2 equivalents, which mostly "
        "need less: FSDP1 leaves it to the CUDA streams when gathered weights can be used again, "
        "and in this version gathered as far ahead as it could. (BigBird needs more, which is not "
        "explained; its code in transformers is another today.) The first row has no FSDP. Its "
        "GPU is not named. On one with 24 GB the allocator would have given back what it held "
        "idle before 23 GB were reserved; the predictor assumes that there is enough memory.",
        (
            _row("ViT-H/14 at 518 px, fp16 mixed, 4 images", 22.63, **ALONE),
            _row("on 4 GPUs, FSDP, one unit", 19.83, **VIT_H, units="one"),
            _row("one unit per block", 17.63, **VIT_H, units="blocks"),
            _row(UNITS, 17.23, 18.95, **VIT_H, units="2M"),
            _row("ViT-H/14, FSDP, checkpointing", 9.03, 22.58, **VIT_H, **RECOMPUTED),
            _row("ViT-H/14, FSDP, checkpointing, offload", 6.68, 101.53, **VIT_H, **OFFLOADED),
            _row("ViT-L/16, FSDP, fp32, checkpointing", 6.59, 5.53, **VIT_L, **RECOMPUTED),
            _row(WITH_HOST, 6.03, 8.34, **VIT_L, **OFFLOADED),
            _row("DistilBERT, bf16, 4 x 3 texts, offload", 1.15, 5.55, **DISTILBERT),
            _row("BigBird, 4096 tokens, one unit, offload", 4.03, 75.94, **BIGBIRD),
        ),
        complete=False,
        times="As in the rows for one GPU, with 35,000 texts and 5,000 for validation. How the "
        "GPUs are connected is not known either; NVLink is assumed. Not in the bound: Adam's step "
        "on the host, where there is offloading.",
    ),
)
