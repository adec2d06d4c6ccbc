"""How a stage and the one before it end on a small card, for the top of a stage's page."""

import textwrap

from emulated_gpu.cards import CARDS, CONTEXT_GB, NCCL_GB
from shared.images.cli import TASK as IMAGES
from shared.lab.evidence.on_cards import LARGE, ON, stored_pairs
from shared.lab.records import formats, markdown, scripts


def part(folder):
    """Return the commands of a stage's page, what PyTorch says, and what holds the card."""
    entry = stored_pairs()[f"{folder.name}/train"]
    # 01 has no stage before it.
    runs = [entry[when] for when in ("before", "after") if entry[when]]
    lines = []
    for r in runs:
        # PyTorch says all of it on one line, which a page would cut.
        says = textwrap.wrap(r["message"], 100) if r["message"] else ["(it fits)"]
        lines += [f"$ {r['command']}", *says, ""]
    notes = []
    # The reason why these stages run another model than the rest of their page.
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
        tried = (gb(r["numbers"]["tried"]) if r["numbers"] else formats.NOTHING for r in runs)
        rows.append(("tried to allocate", *tried))
    hosts = [r["load_host_gb"] for r in runs]  # None: the run failed, and has no record
    if None not in hosts and hosts[0] != hosts[-1]:
        rows.append(("while loading, on the host", *map(formats.amount, hosts)))
    return rows


# The numbers of a run that failed are those of PyTorch's message; one that fits has only peaks.


def allocated(run):
    """Return the bytes in tensors when a run failed, or at its peak."""
    return (run["numbers"] or run["peak"])["allocated"]


def reserved(run):
    """Return the bytes that PyTorch's allocator had taken from the card at that moment."""
    if run["numbers"]:
        return run["numbers"]["allocated"] + run["numbers"]["idle"]
    return run["peak"]["reserved"]


def free(run, card):
    """Return the bytes of the card that nothing had taken."""
    if run["numbers"]:
        return run["numbers"]["free"]
    return card.gb * 1e9 - CONTEXT_GB * 1e9 - run["peak"]["reserved"]


def gb(nbytes):
    """Format bytes."""
    return formats.size(nbytes / 1e9)
