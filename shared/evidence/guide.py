"""BERT-large trained as in Hugging Face's guide to a single GPU: predictions beside its figures.

`python -m shared.evidence.guide` simulates the guide's nine combinations of techniques with the
functions of 11_llm/before.py and train.py, and stores the records. Each is simulated twice: with
the current PyTorch, and as PyTorch behaved when the guide was measured.
Source of the figures: https://huggingface.co/docs/transformers/v4.21.0/perf_train_gpu_one
"""

import dataclasses
from functools import partial

import torch
import torch.nn.functional as F
from lightning.fabric import Fabric
from torch.utils.checkpoint import checkpoint
from transformers.optimization import Adafactor

from shared.cli import Parser
from shared.emulator.cards import CARDS
from shared.evidence import kept
from shared.predict.jobs import Wanted, run_jobs
from shared.predict.machine import INSTALLED
from shared.predict.simulation import predict
from shared.records import scripts, stored
from shared.records.views import read_list, size
from shared.text import models

MODEL, TOKENS, BATCH_SIZE = "google-bert/bert-large-uncased", 512, 4
MIB = 2**20 / 1e9  # in GB; nvidia-smi prints MiB, which the guide calls MB
KERNELS_MIB = 1343  # in use by nvidia-smi before the guide loaded a model
ADAFACTOR = partial(Adafactor, scale_parameter=False, relative_step=False)  # as in the Trainer


@dataclasses.dataclass(frozen=True)
class Row:
    """A combination of techniques."""

    words: str
    mib: int  # in use by nvidia-smi, on a V100 with 16 GB
    speed: float  # texts per second on that GPU
    micro_batch_size: int = BATCH_SIZE
    checkpointing: bool = False
    precision: str = "32-true"  # Fabric's name for it
    optimizer: str = "AdamW"  # or "Adafactor" or "8-bit"


ALL = {"micro_batch_size": 1, "checkpointing": True, "precision": "16-mixed"}
ROWS = (
    Row("4 texts at once, fp32, AdamW", 14949, 8.86),
    Row("1 text at once, 4 times", 8681, 7.75, micro_batch_size=1),
    Row("1 text at once, checkpointing", 6775, 5.99, micro_batch_size=1, checkpointing=True),
    Row("4 texts at once, fp16 mixed precision", 13939, 18.64, precision="16-mixed"),
    Row("fp16, 1 text at once, checkpointing", 7275, 10.09, **ALL),
    Row("4 texts at once, fp32, Adafactor", 12295, 7.96, optimizer="Adafactor"),
    Row("fp16, 1 text at once, checkpointing, Adafactor", 4847, 9.06, **ALL, optimizer="Adafactor"),
    Row("4 texts at once, fp32, 8-bit Adam", 13085, 9.15, optimizer="8-bit"),
    Row("fp16, 1 text at once, checkpointing, 8-bit Adam", 5363, 10.35, **ALL, optimizer="8-bit"),
)


def script(row, then):
    """Return train.py on one device, with functions of before.py, changed as a row says.

    then: whether to train as in January 2022.
    """
    before, train = (scripts.get(f"11_llm/{file}").load() for file in ("before", "train"))
    before.Fabric = lambda **options: Fabric(**{**options, "precision": row.precision})
    train.make_fabric, train.DEVICES = before.make_fabric, 1
    train.build = partial(_build, row, then)
    return train


def _build(row, then, fabric, args):
    model = models.classifier(args)
    if then:  # unfused attention, with all its weights in memory
        model.set_attn_implementation("eager")
    model.load_state_dict(torch.load(models.weights(args), weights_only=True))
    for block in models.blocks(model) if row.checkpointing else []:
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)
    optimizer = _optimizer(row.optimizer, then)(model.parameters(), lr=5e-5)
    model, optimizer = fabric.setup(model, optimizer)
    if then:  # zero_grad() kept the gradients in memory, filled with zeros
        optimizer.zero_grad = partial(optimizer.zero_grad, set_to_none=False)
    return model, optimizer


def _optimizer(name, then):
    if name == "8-bit":
        from bitsandbytes.optim import Adam8bit  # imported here: it takes seconds

        return Adam8bit
    # The Trainer's AdamW updated the weights one by one; PyTorch now has a fused operation.
    adamw = partial(torch.optim.AdamW, **({"foreach": False} if then else {"fused": True}))
    return {"AdamW": adamw, "Adafactor": ADAFACTOR}[name]


class Softmax(torch.autograd.Function):
    """Softmax that also saves its input for the backward pass, as in PyTorch before 1.11.

    Source: https://github.com/pytorch/pytorch/pull/66018
    """

    @staticmethod
    def forward(ctx, x, dim):
        ctx.dim = dim
        result = torch.ops.aten._softmax(x, dim, False)
        ctx.save_for_backward(x, result)
        return result

    @staticmethod
    def backward(ctx, gradient):
        x, result = ctx.saved_tensors
        return torch.ops.aten._softmax_backward_data(gradient, result, ctx.dim, x.dtype), None


def simulate(row, then):
    """Return the record of a row; run it in a process of its own."""
    changed = script(row, then)
    scripts.Script.load = lambda _: changed
    if then:  # in fp32, as under autocast on CUDA
        F.softmax = lambda x, dim: Softmax.apply(x.float(), dim)
    sizes = {"batch_size": BATCH_SIZE, "micro_batch_size": row.micro_batch_size}
    sizes |= {"card": CARDS["v100"], "torch": (1, 10) if then else INSTALLED}
    return predict("11_llm/train", Wanted("gpu", "full", MODEL, max_length=TOKENS, **sizes))


def records():
    """Return two stored records per row: with the current PyTorch, and as in January 2022."""
    found = read_list(stored.GUIDE)
    return list(zip(found[::2], found[1::2], strict=True))


def theirs(row):
    """Return the memory of the guide's run, less that of the kernels, in GB."""
    return (row.mib - KERNELS_MIB) * MIB


def part(folder):
    """Return the table: the guide's figures, and predictions as in 2022 and as of today."""
    guide = ("guide: texts/s", "`nvidia-smi`", "without kernels")
    lines = [("", *guide, "as in 2022: reserved", "", "today: allocated", "reserved")]
    for row, (today, then) in zip(ROWS, records(), strict=True):
        gb, reserved = theirs(row), then["train"]["device_reserved_gb"]
        now = (size(today["train"][f"device_{peak}_gb"]) for peak in ("peak", "reserved"))
        guide = (f"{row.speed:.2f}", f"{row.mib:,} MiB", size(gb))
        lines.append((row.words, *guide, size(reserved), f"{reserved / gb - 1:+.1%}", *now))
    return kept.table(lines, read_list(stored.GUIDE), stored.GUIDE)


def main(argv=None):
    Parser(description=__doc__.splitlines()[0]).parse_args(argv)
    jobs = [(simulate, row, then) for row in ROWS for then in (False, True)]
    kept.store(stored.GUIDE, "guide", run_jobs(jobs))


if __name__ == "__main__":
    main()
