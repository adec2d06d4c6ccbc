"""Runs of each stage, and of the stage before it, on an emulated card with little memory.

`python -m shared records on_cards` runs two commands per stage, those of its page, and
stores their results: the numbers of PyTorch's out-of-memory error, or the peaks.
"""

import json
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from shared.images.cli import TASK as IMAGES
from shared.lab.records import scripts, stored
from shared.lab.records.oom_message import numbers
from shared.run import record
from shared.run.cli import Parser
from shared.run.errors import UserError

LARGE = ("--model", "vit_h_14")  # at 518 px
LLAMA = ("--model", "meta-llama/Meta-Llama-3-8B")
# The card for each stage, and options of both scripts: the stage before runs out of memory there.
# 07 saves memory of the host, and 10 fits wherever 09 does on cards of today, so they have none.
ON = {
    "01_baseline/train": ("rtx3090", ()),
    "02_mixed_precision/train": ("rtx3090", ()),
    "03_bf16/train": ("rtx4070tis", ()),
    "04_batchsize/train": ("rtx3060", ()),
    "05_grad_accum/train": ("rtx4080", LARGE),
    "06_sgd/train": ("rtx3060", LARGE),
    "08_fsdp/train": ("rtx3080", LARGE),
    "09_act_ckpt/train": ("rtx3050-laptop", LARGE),
    "11_llm/train": ("rtx3080", LLAMA),
}


def command(name, card, options):
    """Return the arguments of the "python" that runs a script on emulated cards."""
    devices = scripts.get(name).load().DEVICES
    # --alone runs one of the ranks, which needs no memory of the host for the others.
    several = ["--devices", str(devices), "--alone"] if devices > 1 else []
    return ["-m", "emulated_gpu", "--card", card, *several, f"{name}.py", "--dry-run", *options]


def run(name, card, options):
    """Run a script on an emulated card; return its peaks, and its out-of-memory error, if any.

    Raises:
        UserError: it failed for another reason.
    """
    arguments = command(name, card, options)
    with tempfile.TemporaryDirectory() as folder:
        reports = Path(folder, "reports.json")
        # The page shows the command without this option, which only writes a file.
        to_run = [*arguments[:2], "--json", str(reports), *arguments[2:]]
        done = subprocess.run(
            [sys.executable, *to_run], cwd=record.ROOT, capture_output=True, text=True
        )
        # Without the advice at its end, which is the same on every card.
        message = re.search(r"CUDA out of memory\. .* unallocated\.", done.stderr)
        if done.returncode and not message:
            said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
            raise UserError(f"{name} on {card}: {said[-1]}")
        # The first GPU of the only process.
        peak = json.loads(reports.read_text())[0]["peaks"]["0"]
    return {
        "script": name,
        "command": " ".join(["python", *arguments]),
        "message": message and message[0],
        "numbers": message and numbers(message[0]),
        "peak": {kind: peak[kind] for kind in ("allocated", "reserved")},
    }


def pair(stage):
    """Return a stage's entry: the results of run() for it, and for the stage before it."""
    card, options = ON[stage]
    before = scripts.get(stage).parent
    return {
        **record.new(IMAGES, stage=stage, card=card),
        "before": run(before, card, options) if before else None,
        "after": run(stage, card, options),
    }


def stored_pairs():
    """Return the stored entries, {stage: entry}."""
    return {entry["stage"]: entry for entry in stored.read(stored.ON_CARDS)}


def main(argv=None):
    Parser(description=__doc__.splitlines()[0]).parse_args(argv)
    with ThreadPoolExecutor(2) as pool:
        stored.write_made_by("on_cards", stored.ON_CARDS, [*pool.map(pair, ON)])
