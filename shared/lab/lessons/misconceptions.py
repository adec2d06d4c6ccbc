"""Misconceptions about GPU memory for a page, each with a command that shows it.

The sentences of evidence/cases.toml take their figures from stored records.
"""

import types

from emulated_gpu.why.fit import needs
from shared.lab.predict import cases
from shared.lab.records import markdown, reading, stored
from shared.lab.records.formats import size


def figures(record):
    """Return the figures of a record, as texts, for {0.peak} in a sentence."""
    held = record["train"]["breakdown_gb"]
    states = held.get("optimizer states", 0)
    gb = {
        **held,
        "peak": reading.peak(record),
        "reserved": record["train"]["device_reserved_gb"],
        "card": needs(record),  # with the CUDA context and NCCL
        "states": states,
        "after": held["parameters"] + states,  # the step
    }
    return types.SimpleNamespace(**{name: size(value) for name, value in gb.items()})


def part(folder):
    """Return the entries for the page: title, two or three sentences, and the command."""
    records = stored.read(stored.MISCONCEPTIONS)
    printed = reading.grouped(records, lambda r: r["command"])
    ends = stored.read(stored.ON_CARDS)
    pieces = []
    for number, thing in enumerate(cases.tables()["misconceptions"], 1):
        commands = thing.get("commands", [])
        # A sentence counts the records of its commands in order: {0.peak}, {1.peak}.
        shown = [figures(record) for command in commands for record in printed[command]]
        error = None
        # An entry about an error takes its figures from a run that ends with one.
        if stage := thing.get("on_card"):
            before = next(r["before"] for r in ends if r["stage"] == stage)
            sizes = {name: size(n / 1e9) for name, n in before["numbers"].items()}
            error = types.SimpleNamespace(**sizes)  # for {error.free} in a sentence
            commands = [before["command"], *commands]
        says = thing["says"].format(*shown, error=error)
        pieces += [f"**{number}. {thing['title']}.** {says}", ["```text", *commands, "```"]]
    subject = {"what": "their models", "commands": "the commands above"}
    return markdown.text(*pieces, markdown.sources(records, stored.MISCONCEPTIONS, **subject))
