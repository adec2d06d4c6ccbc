"""The generated part of a page that sets emulated GPUs beside measurements on real ones."""

from shared.evidence.calibrate import command
from shared.records import markdown, stored
from shared.records.views import by_model, by_script, listed, setting


def part(folder):
    """Return the tables of the stored results of evidence.calibrate."""
    pieces = []
    for file, results in stored.on_gpus():
        emulated = by_script(results["emulated"])
        for group in by_model(results["measured"]):
            on = listed(r["device"] for r in group)
            pieces += [f"{setting(group[0])}, on {on}, while training:"]
            rows = command.rows(by_script(group), emulated)
            pieces += [[command.HEADING, *rows], markdown.sources(group, file)]
        for name, (equal, on_gpu, on_emulated) in results["events"].items():
            pieces += [f"{name}: {equal:,} of {on_gpu:,} events equal, {on_emulated:,} emulated."]
    return markdown.text(*pieces) or "There is no measurement on a GPU yet."
