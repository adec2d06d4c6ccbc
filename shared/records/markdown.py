"""Pieces of pages in Markdown: tables, diffs, and what is folded up."""

import difflib

from shared.records import scripts
from shared.records.views import change, learned, less, origin, size, speed, unit

ORIGIN = "Where these figures come from"


def table(rows):
    """Returns rows of texts as lines of Markdown; the first is the heading."""
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return [lines[0], "|" + "---|" * len(rows[0]), *lines[1:]]


def folded(summary, lines):
    """Returns lines that a reader sees after opening them."""
    return [f"<details><summary>{summary}</summary>", "", *lines, "", "</details>"]


def sources(records, file, what=None):
    """Returns where figures come from, folded up, as lines; what they are about as in origin()."""
    return folded(ORIGIN, [origin(records, file, what)])


def text(*pieces):
    """Joins pieces with a blank line: texts, lines, and tables as rows of tuples."""
    shown = []
    for piece in filter(None, pieces):
        lines = [piece] if isinstance(piece, str) else piece
        shown.append("\n".join(table(lines) if isinstance(lines[0], tuple) else lines))
    return "\n\n".join(shown)


def diff(before, after):
    """Returns what changes between two scripts, as lines: the command that shows it, and the diff.

    It returns besides how much that is, in words.
    """
    names = [f"{name}.py" for name in (before, after)]
    texts = [scripts.get(name).lines for name in (before, after)]
    changes = list(difflib.unified_diff(*texts, *names, n=1, lineterm=""))
    removed, added = (sum(line[0] == sign for line in changes[2:]) for sign in "-+")
    how_much = f"{removed} lines removed, {added} added"
    return [f"`diff -U1 {' '.join(names)}`", "", "```diff", *changes, "```"], how_much


def changed(before, after):
    """Returns how many lines are removed and added between two scripts."""
    delta = difflib.ndiff(scripts.get(before).lines, scripts.get(after).lines)
    return sum(line[0] in "+-" for line in delta)


def against(before, now):
    """Writes by how much a size has changed, in a table."""
    said = "the same" if now == before else change(before, now)
    return "nearly the same" if said in ("+0.0%", "-0.0%") else said


def compared(before, now):
    """Writes a figure beside the one before it: "new", "gone", "the same", "+1.3%", "2.4x less"."""
    if not before or not now:
        return "new" if now else "gone"
    if now >= 2 * before:
        return f"{now / before:.1f}x more"
    return less(before, now) if before >= 2 * now else against(before, now)


def heading(record):
    """Returns the heading of a table of measurements like this one."""
    peaks = ("peak while loading", "peak while training")
    return ("script", *peaks, "test accuracy", f"{unit(record)}/s", "loss, first to last")


def row(record):
    """Returns the cells of a measurement, as heading() calls them."""
    return (
        record["script"],
        *(size(record[phase]["device_peak_gb"]) for phase in ("load", "train")),
        learned(record),
        f"{speed(record):.0f}" if speed(record) else "not measured",
        f"{record['first_loss']:.3f} to {record['last_loss']:.3f}",
    )


def device(record):
    """Writes what a record was measured on, with the number of GPUs."""
    several = record["world_size"] > 1 and record["train"]["device_reserved_gb"] is not None
    return f"{record['world_size']} x {record['device']}" if several else record["device"]
