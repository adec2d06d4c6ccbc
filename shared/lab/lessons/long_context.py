"""The tables of long texts: each technique's part, and the longest that were published."""

from emulated_gpu.cards import CARDS, set_aside
from shared.lab.evidence.long_context import MODEL, PUBLISHED, SHARDS, runs, steps
from shared.lab.records import markdown, stored
from shared.lab.records.formats import number


def part(folder):
    """Return the table of the stored runs, and one of the published lengths."""
    records = stored.read(stored.LONG_CONTEXT)
    found = dict(zip(runs(), records, strict=True))
    columns = steps(8)
    added = [[t for t in step if t not in before] for before, step in zip(columns, columns[1:])]
    rows = [("GPUs", "tokens", "GB on each", *(f"+ {', '.join(titles)}" for titles in added))]
    for gpus, tokens in dict.fromkeys(run[:2] for run in runs() if run not in PUBLISHED):
        cells = (_marked(found[gpus, tokens, step]) for step in steps(gpus))
        rows.append((f"{gpus}, {SHARDS}" if gpus == 1 else str(gpus), f"{tokens:,}", *cells))
    sources = markdown.sources(records, stored.LONG_CONTEXT, what=MODEL)
    return markdown.text(rows, published(found), sources)


def _marked(record):
    """Return the GB allocated at the peak, in bold if the card has them beside the context."""
    peak = record["train"]["device_peak_gb"]
    fits = peak + set_aside(record["world_size"]) <= CARDS["h100"].gb
    return f"**{number(peak)}**" if fits else number(peak)


def published(found):
    """Return the rows of a table: what the longest texts of others take here."""
    rows = [("GPUs", "longest text, published", "with", "GB on each, emulated", "host")]
    for gpus, tokens, techniques in PUBLISHED:
        record = found[gpus, tokens, techniques]
        host = number(record["train"]["host_peak_gb"])
        shown = ", ".join(t for t in techniques if t != SHARDS)
        rows.append((str(gpus), f"{tokens:,}", shown, _marked(record), host))
    return rows
