"""The generated part of a page that sets predictions beside measurements on GPUs."""

from shared.evidence.calibrate import report
from shared.lessons import parts
from shared.records import markdown, stored
from shared.records.views import by_model, listed, setting


def part(folder):
    """Returns tables of what evidence.calibrate has stored, two for every GPU."""
    lines = []
    for file, checked, about in stored.on_gpus():
        for group in by_model(checked):
            measured = [p["measured"] for p in group]
            on = listed(m["device"] for m in measured)
            lines += [f"{setting(group[0])}, on {on}, while training:", ""]
            lines += markdown.table(report.trainings(group))
            lines += ["", *parts.sources(measured, file), ""]
        lines += _operations(about) if about.get("operations") else []
        if about.get("context"):
            lines += [f"{about['context']['name']}, {report.context(about['context'])}.", ""]
    if not lines:
        return "There is no measurement on a GPU yet."
    return "\n".join(lines).strip()


def _operations(about):
    """Returns what was found about operations: those without a right formula, and how many."""
    operations = about["operations"]
    lines = [f"What operations allocate besides their results; {report.formulas(operations)}.", ""]
    if pairs := report.wrong(operations):
        lines += [*markdown.table(report.table(pairs)), ""]
    return lines
