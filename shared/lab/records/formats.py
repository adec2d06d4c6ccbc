"""Figures and names as text: sizes, times, changes, and tables of text."""

from shared.run.record import NOTHING, quality, size

# A page and a running script print a size alike, so both are the heart's.
__all__ = ["NOTHING", "size"]  # besides the names defined here

LEAST = 5e-5  # GB; smaller sizes are shown as NOTHING


def learned(record):
    """Format the test accuracy, perplexity or reward."""
    # The accuracy on noise would look like a result.
    if record.get("dataset") == "fake":
        return "noise"
    for name in ("perplexity", "reward"):
        if f"test_{name}" in record:
            return f"{name} {quality(name, record[f'test_{name}'])}"
    return quality("accuracy", record["test_accuracy"])


def where(record):
    """Return the place of a prediction's peak: "backward pass, encoder.layers.23.mlp.3".

    Of a pipeline, "rank 0, " comes first.
    """
    at = record["peak_at"]["train"]
    place = f"{at['phase']} pass, {at['module']}" if at["module"] else at["phase"]
    return f"rank {record['rank']}, {place}" if "rank" in record else place


def scale(records):
    """Return the unit that suits the records' peaks, GB or MB, and the number of these per GB."""
    return ("GB", 1) if max(r["train"]["device_peak_gb"] for r in records) >= 1 else ("MB", 1000)


def amount(gb):
    """Format a size in GB; return NOTHING if it is missing or below 0.05 MB."""
    return size(gb) if gb and gb >= LEAST else NOTHING


def number(gb):
    """Format a size in GB without its unit, for a table that names it; NOTHING as in amount()."""
    if not gb or gb < LEAST:
        return NOTHING
    # Below 1 GB the third decimal is a MB, which matters there.
    return f"{gb:,.2f}" if gb >= 1 else f"{gb:.3f}"


def less(before, now):
    """Format the factor by which a size has fallen, or grown: "2.4x less", "2.8x as much"."""
    return f"{before / now:.1f}x less" if now <= before else f"{now / before:.1f}x as much"


def change(before, now):
    """Format the relative change of a size: "+1.3%"."""
    return f"{now / before - 1:+.1%}"


def one_line(text):
    """Return a name from outside in a form that can be shown: one line, printable, not too long."""
    # A terminal would carry out the escape sequences in a file of somebody else.
    text = text if text.isprintable() else ascii(text)[1:-1]
    # 60 + 3 + 17 characters; the end stays, as names of one family often differ there.
    return text if len(text) <= 80 else f"{text[:60]}...{text[-17:]}"


def listed(texts):
    """Return the distinct texts, joined with commas."""
    return ", ".join(dict.fromkeys(map(str, texts)))


def aligned(heading, rows):
    """Return a table of texts as lines, without columns that are empty in all rows.

    The first column is left-aligned, the others are right-aligned.
    """
    used = [any(column) for column in zip(*rows)]
    rows = [[cell for cell, use in zip(row, used) if use] for row in [heading, *rows]]
    widths = [max(map(len, column)) for column in zip(*rows)]
    return [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip()
        for row in rows
    ]
