"""The ends of a stage and of the one before it on a small card, as a part of its page."""

import textwrap

from emulated_gpu.cards import CARDS, NCCL_GB
from shared.lab.records import formats, markdown, scripts, stored


def part(folder, stage=None):
    """Return the commands of a stage's page, and what PyTorch says; figures of a run that fits.

    On another page than the stage's, an option names the stage's folder.
    """
    name = f"{stage or folder.name}/train"
    entry = next(r for r in stored.read(stored.ON_CARDS) if r["stage"] == name)
    # 01 has no stage before it.
    runs = [entry[when] for when in ("before", "after") if entry[when]]
    lines = []
    for r in runs:
        # PyTorch says all of it on one line, which a page would cut.
        says = textwrap.wrap(r["message"], 100) if r["message"] else [fits(r, entry["card"])]
        lines += [f"$ {r['command']}", *says, ""]
    notes = []
    # The reason why these stages run another model than the rest of their page.
    if "vit_h_14" in runs[0]["command"]:
        notes.append("At 518 px; ViT-L/16 would fit with both.")
    if scripts.get(name).load().DEVICES > 1:
        notes.append(f"`--alone` runs one process; NCCL would take {NCCL_GB:g} GB more.")
    return markdown.text(["```text", *lines[:-1], "```"], " ".join(notes))


def fits(run, card):
    """Return a line on a run that did not fail: the peak, and the size of the card."""
    allocated = formats.size(run["peak"]["allocated"] / 1e9)
    return f"# it fits: PyTorch allocates {allocated}, the card has {CARDS[card].gb:.2f} GB"
