"""What the game says about a script."""

from shared.lab.evidence.on_cards import numbers
from shared.lab.predict.stage import UPDATES
from shared.lab.predict.tables import set_aside
from shared.lab.records.views import size


def lines(verdict, path):
    """Return a verdict as lines of text."""
    shown = [f"changed lines: {verdict['lines']}, removed or added"]
    if "failed" in verdict:
        shown.append(f"error: {verdict['failed']}")
    elif verdict["refused"]:
        shown.append(f"refused: {verdict['refused']}")
    elif "said" in verdict:
        shown += ran_out(verdict, path)
    else:
        left = size(verdict["card_gb"] - verdict["needs_gb"])
        shown.append(f"fits: it needs {verdict['needs_gb']:.2f} GB, {left} are left")
        if verdict["on_host"]:
            shown.append("the host does a part of the update; the time leaves that out")
    return shown


def ran_out(verdict, path):
    """Return where a file ran out of memory, what PyTorch said, and how far it is, as lines."""
    gb = {name: size(n / 1e9) for name, n in numbers(verdict["said"]).items()}
    devices, where = verdict["world_size"], f"in update {verdict['update']}"
    if line := verdict["line"]:
        text = path.read_text().splitlines()[line - 1].partition("  #")[0].strip()
        where = f"{where}, in line {line}: {text}"
    aside = f"{size(set_aside(devices))} are set aside for CUDA{' and NCCL' * (devices > 1)}"
    needs = verdict["needs_gb"], size(verdict["needs_gb"] - verdict["card_gb"])
    return [
        f"out of memory {where}",
        f"PyTorch asked for {gb['tried']}; {gb['free']} of the card's {gb['capacity']} were free",
        f"{gb['allocated']} were in tensors, {gb['idle']} reserved but idle; {aside}",
        f"with room for all of it, {UPDATES} updates need {needs[0]:.2f} GB, {needs[1]} more",
    ]
