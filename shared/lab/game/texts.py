"""Sentences of the game about a verdict: why it is refused, where it ran out, how well it fits."""

from emulated_gpu.cards import set_aside
from shared.lab.predict.stage import UPDATES
from shared.lab.records.formats import size
from shared.lab.records.oom_message import numbers
from shared.lab.records.scripts import read_source


def lines(verdict, path):
    """Return a verdict on the script in a file as lines of text."""
    shown = [f"changed lines: {verdict['lines']}"]
    if "failed" in verdict:
        shown.append(f"error: {verdict['failed']}")
    elif verdict["refused"]:
        shown.append(f"refused: {verdict['refused']}")
    elif "said" in verdict:
        shown += ran_out(verdict, path)
    else:
        if verdict["slow"]:
            shown.append(f"too slow: {verdict['slow']}")
        left = size(verdict["card_gb"] - verdict["needs_gb"])
        shown.append(f"fits: it needs {verdict['needs_gb']:.2f} GB, {left} are left")
        if verdict["on_host"] and not verdict["slow"]:
            shown.append("the host does a part of the update; the time leaves that out")
    return shown


def ran_out(verdict, path):
    """Return where a file ran out of memory, what PyTorch said, and how far it is, as lines."""
    gb = {name: size(nbytes / 1e9) for name, nbytes in numbers(verdict["said"]).items()}
    devices = verdict["world_size"]
    where = f"in update {verdict['update']}"
    if line := verdict["line"]:
        code = read_source(path).splitlines()[line - 1].partition("  #")[0].strip()
        where = f"{where}, in line {line}: {code}"
    libraries = "CUDA and NCCL" if devices > 1 else "CUDA"
    # The CUDA context and NCCL's buffers take a share of the card that PyTorch does not count.
    aside = f"{size(set_aside(devices))} are set aside for {libraries}"
    needs = f"{verdict['needs_gb']:.2f} GB"
    missing = size(verdict["needs_gb"] - verdict["card_gb"])
    return [
        f"out of memory {where}",
        f"PyTorch asked for {gb['tried']}; {gb['free']} of the card's {gb['capacity']} were free",
        f"{gb['allocated']} were in tensors, {gb['idle']} reserved but idle; {aside}",
        f"with room for all of it, {UPDATES} updates need {needs}, {missing} more",
    ]
