"""The generated part of a page that sets predictions beside measurements on GPUs."""

from shared.evidence.calibrate import report
from shared.records import markdown, stored
from shared.records.views import by_model, listed, setting


def part(folder):
    """Return tables of the stored results of evidence.calibrate, two for every GPU."""
    pieces = []
    for file, checked, about in stored.on_gpus():
        for group in by_model(checked):
            measured = [p["measured"] for p in group]
            on = listed(m["device"] for m in measured)
            pieces += [f"{setting(group[0])}, on {on}, while training:"]
            pieces += [report.runs(group), markdown.sources(measured, file)]
        if operations := about.get("operations"):
            formulas = report.formulas(operations)
            pieces += [f"What operations allocate besides their results; {formulas}."]
            wrong = report.wrong(operations)
            pieces += [report.table(wrong)] if wrong else []
        if context := about.get("context"):
            pieces += [f"{context['name']}, {report.context(context)}."]
    return markdown.text(*pieces) or "There is no measurement on a GPU yet."
