"""Names and memory of the techniques in Hugging Face's Trainer and in Accelerate.

`python -m shared hugging_face` trains the tiny model for a few updates with each, in hf_trainer.py
beside this file, and in 11_llm/before.py with the same change, and stores both records.
"""

import dataclasses
import sys

import torch

from shared.cli import Parser
from shared.lab.predict.jobs import run_jobs
from shared.lab.records import scripts, stored

BEFORE = "11_llm/before"
UPDATES = ["--preset", "tiny", "--data", "fake", "--max-steps", "3"]  # texts of 512 tokens
# Texts of before.py: scripts.changed() fails as soon as one is no longer there.
IMPORTS = "import torch.nn.functional as F\n"
LOADED = "    optimizer = torch.optim.Adam("
IN_BF16 = ('"32-true"', '"bf16-mixed"')
MIXED = 'mixed_precision="bf16"'
ADAFACTOR = ("torch.optim.Adam(", "torch.optim.Adafactor(")
UPDATE = """    optimizer.step()
    optimizer.zero_grad()  # frees the gradients, before the next forward pass needs the memory
"""
STEP = f"""    logits = model(**tokens).logits  # (batch, classes)
    loss = F.cross_entropy(logits, labels)
    fabric.backward(loss)
{UPDATE}    meter.add(loss, logits, labels)
"""
IN_PARTS = f"""    for x, y in data.micro_batches(tokens, labels, 3):
        logits = model(**x).logits
        loss = F.cross_entropy(logits, y) * len(y) / len(labels)
        fabric.backward(loss)
        meter.add(loss, logits, y)
{UPDATE}"""
CHECKPOINTED = """    for block in models.blocks(model):
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)
"""
NEEDED = "from functools import partial\nfrom torch.utils.checkpoint import checkpoint\n"


@dataclasses.dataclass(frozen=True)
class Technique:
    """A technique as written for the Trainer, for Accelerate and in before.py."""

    title: str
    trainer: tuple = ()  # option of TrainingArguments, as on a command line
    accelerate: str = ""  # its name in Accelerate
    replaced: tuple = ()  # (text, its replacement) in before.py


TECHNIQUES = (
    Technique("as it is: fp32, Adam", accelerate="`prepare(model, optimizer)`, `backward(loss)`"),
    Technique("mixed precision", ("--bf16",), f"`Accelerator({MIXED})`", (IN_BF16,)),
    Technique(
        "4 micro-batches of 3",
        ("--gradient-accumulation-steps", "4"),
        "`Accelerator(gradient_accumulation_steps=4)`, `accumulate(model)`",
        ((STEP, IN_PARTS),),
    ),
    Technique(
        "checkpoint every block",
        ("--activation-checkpointing",),
        "none: `model.gradient_checkpointing_enable()`",
        ((IMPORTS, IMPORTS + NEEDED), (LOADED, CHECKPOINTED + LOADED)),
    ),
    Technique("Adafactor", ("--optim", "adafactor"), "none: any optimizer", (ADAFACTOR,)),
)


def trainer_record(technique, *options):
    """Return the record of a few updates by the Trainer; run it in a process of its own."""
    from shared.lab.evidence import hf_trainer  # here: the Trainer takes seconds to import

    return _quiet(hf_trainer.main, [*UPDATES, *options, *technique.trainer])


def script_record(technique, *options):
    """Return the record of before.py with the same change; run it in a process of its own."""
    module = scripts.changed(BEFORE, technique.replaced).load()
    return _quiet(module.main, [*UPDATES, *options])


def _quiet(main, argv):
    torch.set_num_threads(1)  # two processes run at once; more threads would mostly wait
    shown, sys.stdout = sys.stdout, sys.stderr  # stdout belongs to the calling command
    try:
        return main(argv)
    finally:
        sys.stdout = shown


def measured(techniques=TECHNIQUES, *options):
    """Return [(record of the Trainer, record of before.py)]; both get the further options."""
    jobs = [(run, t, *options) for t in techniques for run in (trainer_record, script_record)]
    records = run_jobs(jobs, emulated=False)
    return list(zip(records[::2], records[1::2]))


def main(argv=None):
    Parser(description=__doc__.splitlines()[0]).parse_args(argv)
    stored.write_made_by(
        "hugging_face", stored.HUGGING_FACE, [r for pair in measured() for r in pair]
    )
