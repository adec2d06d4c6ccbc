"""Figures for people: GB (1e9 bytes), MB, shares, and tables of text."""

NOTHING = "–"  # in place of a figure that is 0 or missing
LEAST = 5e-5  # GB; smaller sizes are shown as NOTHING


def size(gb):
    """Writes a size in GB (1e9 bytes) for people: in GB if it is 1 or more, else in MB."""
    return f"{gb:.2f} GB" if gb >= 1 else f"{gb * 1e3:.1f} MB"


def duration(ms):
    """Writes a time in ms for people."""
    return f"{ms:,.0f} ms" if ms >= 100 else f"{ms:.3g} ms"


def amount(gb):
    """Writes a size for people, NOTHING for what is below 0.05 MB or missing."""
    return size(gb) if gb and gb >= LEAST else NOTHING


def less(before, now):
    """Writes by what factor a size has fallen."""
    return f"{before / now:.1f}x less"


def change(before, now):
    """Writes by how much a size has changed."""
    return f"{now / before - 1:+.1%}"


def quality(name, value):
    """Writes how good a model is, for people, by "accuracy" (from 0 to 1) or "perplexity"."""
    if value is None:
        return NOTHING
    return f"{value:.1%}" if name == "accuracy" else f"{value:.2f}"


def aligned(heading, rows):
    """Returns a table of texts as lines, without columns that are empty in all rows.

    The first column is aligned on the left, the others on the right.
    """
    used = [any(column) for column in zip(*rows)]
    rows = [[cell for cell, use in zip(row, used) if use] for row in [heading, *rows]]
    widths = [max(map(len, column)) for column in zip(*rows)]
    return [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip()
        for row in rows
    ]


def one_line(text, most=80):
    """Returns a name from outside as it can be shown: in one line, printable, and not too long."""
    text = text if text.isprintable() else ascii(text)[1:-1]
    return text if len(text) <= most else f"{text[: most - 20]}...{text[-17:]}"


def listed(texts):
    """Returns different texts with commas between them."""
    return ", ".join(dict.fromkeys(map(str, texts)))
