"""The tables of long texts: each technique's part, and the longest that were published."""

from emulated_gpu.cards import CARDS, set_aside
from shared.lab.records import markdown, reading, stored
from shared.lab.records.formats import number

SHARDS = "shards on the host"  # a technique that one GPU needs


def part(folder):
    """Return the table of the stored runs, and one of the published lengths."""
    records = stored.read(stored.LONG_CONTEXT)
    by_size = reading.grouped(records, lambda r: (r["world_size"], r["max_length"]))
    columns = [r["techniques"] for r in by_size[8, 8_192]]
    added = [[t for t in step if t not in before] for before, step in zip(columns, columns[1:])]
    rows = [("GPUs", "tokens", "GB on each", *(f"+ {', '.join(titles)}" for titles in added))]
    longest = [steps[0] for steps in by_size.values() if len(steps) == 1]  # of those published
    for (gpus, tokens), steps in by_size.items():
        where = f"{gpus}, {SHARDS}" if gpus == 1 else str(gpus)
        if len(steps) > 1:
            rows.append((where, f"{tokens:,}", *map(_marked, steps)))
    sources = markdown.sources(records, stored.LONG_CONTEXT, what=records[0]["model"])
    return markdown.text(rows, published(longest), sources)


def _marked(record):
    """Return the GB allocated at the peak, in bold if the card has them beside the context."""
    peak = record["train"]["device_peak_gb"]
    fits = peak + set_aside(record["world_size"]) <= CARDS["h100"].gb
    return f"**{number(peak)}**" if fits else number(peak)


def published(records):
    """Return the rows of a table: what the longest texts of others take here."""
    rows = [("GPUs", "longest text, published", "with", "GB on each, emulated", "host")]
    for r in records:
        host = number(r["train"]["host_peak_gb"])
        shown = ", ".join(t for t in r["techniques"] if t != SHARDS)
        rows.append((str(r["world_size"]), f"{r['max_length']:,}", shown, _marked(r), host))
    return rows
