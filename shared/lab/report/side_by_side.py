"""Two scripts side by side as HTML.

The syntax is colored, matching lines share a row, and words that differ are marked.
"""

import difflib
import functools
import re

from markupsafe import Markup, escape
from pygments import lex
from pygments.lexers import PythonLexer
from pygments.token import STANDARD_TYPES

from shared.lab.records import scripts

ALIKE = 0.4  # two lines share a row if at least this much of them is the same
CONTEXT = 1  # unchanged lines shown around a change
# Pygments' short names for what gets no color: names, punctuation, spaces, operators.
PLAIN = ("", "n", "p", "w", "o")


def rows(before, after):
    """Compare two scripts, without their docstrings.

    Return a list of (kind, number, HTML of a line before, number, HTML of a line after). kind is
    "same", "changed", "removed", "added" or, for lines that are left out, "skipped".
    """
    old = _lines(before)
    new = _lines(after)
    # Colors need the whole script, as a docstring's end alone would begin a text.
    old_start = scripts.get(before).start
    new_start = scripts.get(after).start
    a = ["".join(text for _, text in line) for line in old[old_start:]]
    b = ["".join(text for _, text in line) for line in new[new_start:]]
    rows = []
    for group in difflib.SequenceMatcher(None, a, b, autojunk=False).get_grouped_opcodes(CONTEXT):
        if group[0][1] > 0 or rows:
            rows.append(("skipped", None, "", None, ""))
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                for i, j in zip(range(i1, i2), range(j1, j2)):
                    rows.append(("same", *_cell(old, i + old_start), *_cell(new, j + new_start)))
                continue
            for i, j in together(a[i1:i2], b[j1:j2]):
                kind = "added" if i is None else "removed" if j is None else "changed"
                marks = changed_spans(a[i1 + i], b[j1 + j]) if kind == "changed" else ((), ())
                left = _cell(old, None if i is None else i1 + i + old_start, marks[0])
                right = _cell(new, None if j is None else j1 + j + new_start, marks[1])
                rows.append((kind, *left, *right))
    return rows


def together(old, new):
    """Pair lines so that as much as possible is alike.

    Return a list of (index of an old line or None, index of a new line or None), in order.
    """

    # Recursion is enough: a change of a short script has few lines.
    @functools.cache
    def best(i, j):  # how much is alike from these lines on, and the pairs
        if i == len(old) or j == len(new):
            rest = [(k, None) for k in range(i, len(old))] + [(None, k) for k in range(j, len(new))]
            return 0.0, tuple(rest)
        choices = [(best(i + 1, j), (i, None), 0.0), (best(i, j + 1), (None, j), 0.0)]
        alike = likeness(old[i].strip(), new[j].strip())
        if alike >= ALIKE:
            # In the first place, since max() takes the first of equal choices.
            choices.insert(0, (best(i + 1, j + 1), (i, j), alike))
        (score, rest), pair, gain = max(choices, key=lambda choice: choice[0][0] + choice[2])
        return score + gain, (pair, *rest)

    return list(best(0, 0)[1])


@functools.cache
def likeness(old, new):
    """Return the similarity of two lines, from 0 to 1."""
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    # quick_ratio() is an upper bound of ratio(), and much faster.
    return matcher.ratio() if matcher.quick_ratio() >= ALIKE else 0.0


def changed_spans(old, new):
    """Return the spans, (start, end), of the words that differ, for each of two lines.

    Differences in indentation do not count.
    """
    # Every character is in one of the pieces, so positions can be added up.
    split = [re.findall(r"\w+|\s+|.", line) for line in (old, new)]
    starts = [[sum(map(len, pieces[:n])) for n in range(len(pieces) + 1)] for pieces in split]
    spans = ([], [])
    for tag, i1, i2, j1, j2 in difflib.SequenceMatcher(None, *split, autojunk=False).get_opcodes():
        if tag != "equal":
            for side, (first, last) in enumerate(((i1, i2), (j1, j2))):
                begin, end = starts[side][first], starts[side][last]
                # Words that touch share one mark.
                if spans[side] and spans[side][-1][1] == begin:
                    begin = spans[side].pop()[0]
                if begin < end and (old, new)[side][:end].strip():
                    spans[side].append((begin, end))
    return spans


@functools.cache
def _lines(name):
    """Return the lines of a script, each as a list of (Pygments' name for the color, text)."""
    lines = [[]]
    for token, text in lex(scripts.read_source(scripts.get(name).path), PythonLexer()):
        for n, piece in enumerate(text.split("\n")):
            if n:
                lines.append([])
            if piece:
                lines[-1].append((STANDARD_TYPES.get(token, ""), piece))
    return lines[:-1]  # after the last line break there is nothing


def _cell(lines, n, marks=()):
    """Return the number of a line, from 1 on, and its HTML; None and "" if there is no line."""
    return (None, "") if n is None else (n + 1, _html(lines[n], marks))


def _html(line, marks=()):
    # A marked word may be a part of a token, so tokens are cut at the edges of marks, too.
    cuts = sorted({edge for span in marks for edge in span})
    html = []
    at = 0
    for name, text in line:
        edges = [0, *(cut - at for cut in cuts if at < cut < at + len(text)), len(text)]
        for begin, end in zip(edges, edges[1:]):
            piece = escape(text[begin:end])
            if name not in PLAIN:
                piece = Markup('<span class="{}">{}</span>').format(name, piece)
            if any(first <= at + begin < last for first, last in marks):
                piece = Markup("<mark>{}</mark>").format(piece)
            html.append(piece)
        at += len(text)
    return Markup("").join(html)


def html(name, n):
    """Return the n-th line of a script as colored HTML."""
    return _html(_lines(name)[n - 1])
