"""Each stage and the one before it, until PyTorch runs out of memory, on cards that are not there.

`python -m shared on_cards` runs two commands per stage, those at the top of its page, and
stores how they end: the numbers of PyTorch's out-of-memory error, or the peaks.
"""

import json
import re
import subprocess
import sys
import tempfile
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from emulated_gpu.cards import CARDS, CONTEXT_GB
from shared import record
from shared.cli import Parser, UserError
from shared.images.cli import TASK as IMAGES
from shared.lab.evidence import kept
from shared.lab.predict.tables import NCCL_GB
from shared.lab.records import formats, markdown, reading, scripts, stored
from shared.lab.records.oom_message import numbers

LARGE = ("--model", "vit_h_14")  # at 518 px
LLAMA = ("--model", "meta-llama/Meta-Llama-3-8B")
# The card for each stage, and options of both scripts: where possible, the stage before runs out.
ON = {
    "01_baseline/train": ("rtx3090", ()),
    "02_mixed_precision/train": ("rtx3090", ()),
    "03_bf16/train": ("rtx4070tis", ()),
    "04_batchsize/train": ("rtx3060", ()),
    "05_grad_accum/train": ("rtx4080", LARGE),
    "06_sgd/train": ("rtx3060", LARGE),
    "07_init_module/train": ("rtx3060", LARGE),
    "08_fsdp/train": ("rtx3080", LARGE),
    "09_act_ckpt/train": ("rtx3050-laptop", LARGE),
    "10_offload/train": ("rtx3050-laptop", LARGE),
    "11_llm/train": ("rtx3080", LLAMA),
}


def command(name, card, options):
    """Return the words of the command that runs a script on emulated cards, after "python"."""
    devices = scripts.get(name).load().DEVICES
    several = ["--devices", str(devices), "--alone"] if devices > 1 else []
    words = ["-m", "emulated_gpu", "--card", card, *several, f"{name}.py", "--dry-run"]
    return [*words, *options]


def run(name, card, options):
    """Run a script on an emulated card; return how it ended.

    Raises:
        UserError: it failed, but had memory enough.
    """
    words = command(name, card, options)
    with tempfile.TemporaryDirectory() as folder:
        reports, kept_record = Path(folder, "reports.json"), Path(folder, "record.jsonl")
        inside = [*words[:2], "--json", str(reports), *words[2:], "--record", str(kept_record)]
        done = subprocess.run(
            [sys.executable, *inside], cwd=record.ROOT, capture_output=True, text=True
        )
        message = re.search(r"CUDA out of memory\. .* unallocated\.", done.stderr)
        if done.returncode and not message:
            raise UserError(f"{name} on {card}: {done.stderr.strip().splitlines()[-1]}")
        peak = json.loads(reports.read_text())[0]["peaks"]["0"]
        measured = reading.read(kept_record)[0] if kept_record.exists() else []
    return {
        "script": name,
        "command": " ".join(["python", *words]),
        "message": message and message[0],
        "numbers": message and numbers(message[0]),
        "peak": {kind: peak[kind] for kind in ("allocated", "reserved")},
        "load_host_gb": measured[0]["load"]["host_peak_gb"] if measured else None,
    }


def pair(stage):
    """Return a stage's entry: how it and the stage before end."""
    card, options = ON[stage]
    before = scripts.get(stage).parent
    return {
        **record.new(IMAGES, stage=stage, card=card),
        "before": run(before, card, options) if before else None,
        "after": run(stage, card, options),
    }


def part(folder):
    """Return the commands of a stage's page, what PyTorch says, and what holds the card."""
    entry = stored_pairs()[f"{folder.name}/train"]
    runs = [entry[when] for when in ("before", "after") if entry[when]]
    lines = []
    for r in runs:
        says = textwrap.wrap(r["message"], 100) if r["message"] else ["(it fits)"]
        lines += [f"$ {r['command']}", *says, ""]
    notes = []
    if ON[entry["stage"]][1] == LARGE:
        notes.append("ViT-L/16 would fit with both.")
    if scripts.get(entry["stage"]).load().DEVICES > 1:
        notes.append(f"`--alone` runs one process; NCCL would take {NCCL_GB:g} GB more.")
    return markdown.text(["```text", *lines[:-1], "```"], table(entry, runs), " ".join(notes))


def table(entry, runs):
    """Return the rows of a table: what held the card when a run failed, or at its peak."""
    card = CARDS[entry["card"]]
    names = [r["script"].removesuffix("/train").split("/")[-1] for r in runs]
    _, model = ON[entry["stage"]][1] or ("--model", IMAGES.presets["full"]["model"])
    model = model.rpartition("/")[-1]
    rows = [(f"{model} on emulated {card.title}: {card.gb:.2f} GB", *names)]
    rows.append(("allocated by PyTorch", *(gb(allocated(r)) for r in runs)))
    rows.append(("reserved, but unallocated", *(gb(reserved(r) - allocated(r)) for r in runs)))
    rows.append(("CUDA context, about", *(gb(CONTEXT_GB * 1e9) for r in runs)))
    rows.append(("free", *(gb(free(r, card)) for r in runs)))
    if any(r["message"] for r in runs):
        asked = (gb(r["numbers"]["tried"]) if r["numbers"] else formats.NOTHING for r in runs)
        rows.append(("tried to allocate", *asked))
    hosts = [r["load_host_gb"] for r in runs]
    if None not in hosts and hosts[0] != hosts[-1]:
        rows.append(("while loading, on the host", *map(formats.amount, hosts)))
    return rows


def allocated(run):
    return (run["numbers"] or run["peak"])["allocated"]


def reserved(run):
    if run["numbers"]:
        return run["numbers"]["allocated"] + run["numbers"]["idle"]
    return run["peak"]["reserved"]


def free(run, card):
    if run["numbers"]:
        return run["numbers"]["free"]
    return card.gb * 1e9 - CONTEXT_GB * 1e9 - run["peak"]["reserved"]


def gb(size):
    return formats.size(size / 1e9)


def stored_pairs():
    """Return the stored entries, {stage: entry}."""
    return {entry["stage"]: entry for entry in stored.read(stored.ON_CARDS)}


def main(argv=None):
    Parser(description=__doc__.splitlines()[0]).parse_args(argv)
    with ThreadPoolExecutor(2) as pool:
        kept.store(stored.ON_CARDS, "on_cards", [*pool.map(pair, ON)])


if __name__ == "__main__":
    main()
