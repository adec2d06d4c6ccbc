"""The quiz "Which line is wrong?": the mistakes of shared/memory/README.md, as code."""

import ast
import difflib

from shared.lab.evidence import groups
from shared.lab.records import formats, markdown, reading


def questions():
    """Return the questions.

    A question is a dictionary: "code", the function with the mistake as (line, whether
    it is wrong); the mistake as "title", its predicted "peak", "tiny" as measured, and the "mend".
    """
    full = groups.variants()
    measured = groups.every()["variants"]
    tiny = {v.title: record for v, record in measured.records}
    entries = []
    for v in measured.cases:
        if not v.mend:
            continue  # it is correct: what the mistakes are compared with
        right = next(other for other in measured.cases if other.title == v.against)
        entries.append(
            {
                "title": v.title,
                "mend": v.mend,
                "peak": grown(full, right, v),
                "tiny": grown(tiny, right, v),
                "code": wrong(right.changed_script.source, v.changed_script.source),
            }
        )
    return entries


def grown(records, before, after):
    """Return the peaks of two variants, and their difference, as text."""
    peaks = [reading.peak(records[v.title]) for v in (before, after)]
    return f"{formats.size(peaks[0])}, then {formats.size(peaks[1])}: {markdown.compared(*peaks)}"


def wrong(before, after):
    """Return the function that contains a change, as a list of (line, whether it is new)."""
    delta = difflib.ndiff(before.splitlines(), after.splitlines())
    lines = [(line[2:], line[0] == "+") for line in delta if line[0] in " +"]  # those of `after`
    # A change may add lines in two places, such as a list and its use: the function with the last.
    last = max(n for n, (_, new) in enumerate(lines, 1) if new)
    functions = [node for node in ast.parse(after).body if isinstance(node, ast.FunctionDef)]
    (changed,) = (node for node in functions if node.lineno <= last <= node.end_lineno)
    return lines[changed.lineno - 1 : changed.end_lineno]
