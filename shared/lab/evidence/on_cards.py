"""The ends of a stage, and of the stage before it, on an emulated card with little memory.

They are those of the commands on its page: the numbers of PyTorch's out-of-memory error, or the
peaks.
"""

import re
import sys
import tempfile

import emulated_gpu
from emulated_gpu.cards import CARDS
from shared.images.cli import TASK as IMAGES
from shared.lab.records import scripts
from shared.lab.records.oom_message import numbers
from shared.run import record
from shared.run.errors import UserError


def card_of(case):
    """Return the name in CARDS of the card of a case."""
    return next(key for key, card in CARDS.items() if card == case.settings.card)


def program(case, name):
    """Return the words of the "python" that runs a script with the settings of a case."""
    model = ["--model", case.settings.model] if case.settings.model else []
    return [f"{name}.py", "--dry-run", *model]


def command(case, name):
    """Return the words of the "python" that does so on emulated cards, for the page."""
    devices = scripts.get(name).load().DEVICES
    # --alone runs one of the ranks, which needs no memory of the host for the others.
    several = ["--devices", str(devices), "--alone"] if devices > 1 else []
    return ["-m", "emulated_gpu", "--card", card_of(case), *several, *program(case, name)]


def run(case, name):
    """Run a script on the card of a case; return its peaks, and its out-of-memory error, if any.

    Raises:
        UserError: it failed for another reason.
    """
    card = case.settings.card
    devices = scripts.get(name).load().DEVICES
    with tempfile.TemporaryFile("w+") as log:
        how = {"alone": devices > 1, "memory_gb": card.gb, "cwd": record.ROOT}
        words = [sys.executable, *program(case, name)]
        done = emulated_gpu.run(words, card_of(case), devices, **how, stdout=log, stderr=log)
        log.seek(0)
        printed = log.read()
    # Without the advice at its end, which is the same on every card.
    message = re.search(r"CUDA out of memory\. .* unallocated\.", printed)
    if done.code and not message:
        said = printed.strip().splitlines() or [f"exit code {done.code}"]
        raise UserError(f"{name} on {card.title}: {said[-1]}")
    peak = done.peaks[0]  # of the first GPU of the only process
    return {
        "script": name,
        "command": " ".join(["python", *command(case, name)]),
        "message": message and message[0],
        "numbers": message and numbers(message[0]),
        "peak": {"allocated": peak.allocated, "reserved": peak.reserved},
    }


def pair(case):
    """Return a stage's entry: the results of run() for it, and for the stage before it."""
    before = scripts.get(case.script).parent
    return {
        **record.new(IMAGES, stage=case.script, card=card_of(case)),
        "before": run(case, before) if before else None,
        "after": run(case, case.script),
    }
