"""Reading, grouping and formatting of records, for pages and tables."""

import json

from shared.record import NOTHING, ROOT, quality, size

__all__ = ["NOTHING", "size"]  # besides the names defined here

RESULTS = ROOT / "shared" / "lab" / "evidence" / "results"
TINY_MEASURED = RESULTS / "tiny-cpu.jsonl"  # by `python -m shared ladder --preset tiny`
LEAST = 5e-5  # GB; smaller sizes are shown as NOTHING


def read(file):
    """Return the records in a file of one JSON object per line, and the number of invalid lines."""
    records, broken = [], 0
    for line in file.read_bytes().splitlines() if file.exists() else []:
        try:
            record = json.loads(line)
            record["script"], record["versions"], record["train"]["device_peak_gb"]
            records.append(record)
        except (ValueError, TypeError, KeyError):
            broken += 1  # such as an incomplete last line
    return records, broken


def read_list(file):
    """Return the records in a file of one JSON list, as the predictor prints them."""
    return json.loads(file.read_text())


def by_script(records):
    """Return {script: record}; of several records of a script, the last."""
    return {record["script"]: record for record in records}


def by_model(records):
    """Return the records in groups of one model and input size, which can be compared."""
    names = dict.fromkeys(map(setting, records))
    return [[record for record in records if setting(record) == name] for name in names]


def folder(record):
    """Return the folder of a record's script."""
    return record["script"].partition("/")[0]


def setting(record):
    """Return the model of a record and the size of its inputs, as text."""
    if "inputs" in record:  # of a user's own script
        inputs = f" with inputs of {record['inputs']}" if record["inputs"] else ""
        return f"{record['model']}{inputs}"
    if "max_length" in record:
        return f"{one_line(record['model'])}, {record['max_length']} tokens"
    return f"{one_line(record['model'])} at {record['image_px']} px"


def unit(record):
    """Return what a record counts: "images", "texts", or "inputs" of a user's own script."""
    if "unit" in record:
        return record["unit"]
    return "texts" if "max_length" in record else "images"


def speed(record):
    """Return the images or texts per second, None if they were not measured."""
    return record.get(f"{unit(record)}_per_second")


def most_per_second(record):
    """Return the upper bound of images or texts per second of a prediction, over all devices."""
    return record["batch_size"] / record["bound"]["ms"] * 1e3


def least_ms(record):
    """Return the lower bound of the time of one image or text on a GPU, in milliseconds."""
    return record["bound"]["ms"] * record["world_size"] / record["batch_size"]


def learned(record):
    """Format the test accuracy or perplexity."""
    if record.get("dataset") == "fake":
        return "noise"
    if "test_perplexity" in record:
        return f"perplexity {quality('perplexity', record['test_perplexity'])}"
    return quality("accuracy", record["test_accuracy"])


def name(record):
    """Return the name of a record in a table: its script, or the last technique applied."""
    return f"+ {record['technique']}" if record.get("technique") else record["script"]


def on_host(record):
    """Return whether a run holds more on the host than a few numbers."""
    return (record["train"]["host_peak_gb"] or 0) > 0.01 * record["train"]["device_peak_gb"]


def computes_on_host(record):
    """Return whether the host computes a part of an update, such as the optimizer step.

    The bound does not include the time that this takes.
    """
    return record["cost"]["moved_on_host_gb"] > 0.01 * record["cost"]["moved_gb"]


def where(record):
    """Return the place of a prediction's peak: "backward pass, encoder.layers.23.mlp.3".

    Of a pipeline, "rank 0, " comes first.
    """
    at = record["peak_at"]["train"]
    place = f"{at['phase']} pass, {at['module']}" if at["module"] else at["phase"]
    return f"rank {record['rank']}, {place}" if "rank" in record else place


def at_once(record):
    """Return the number of images or texts per device in one forward pass."""
    share = record["batch_size"] // (record.get("shares") or record["world_size"])
    return min(record["micro_batch_size"] or share, share)


def scale(records):
    """Return the unit that suits the records' peaks, GB or MB, and the number of these per GB."""
    return ("GB", 1) if max(r["train"]["device_peak_gb"] for r in records) >= 1 else ("MB", 1000)


def duration(ms):
    """Format a time in ms."""
    return f"{ms:,.0f} ms" if ms >= 100 else f"{ms:.3g} ms"


def amount(gb):
    """Format a size; NOTHING stands for one that is below 0.05 MB or missing."""
    return size(gb) if gb and gb >= LEAST else NOTHING


def number(gb):
    """Format a size in GB without its unit, for a table that names it; NOTHING as in amount()."""
    if not gb or gb < LEAST:
        return NOTHING
    return f"{gb:,.2f}" if gb >= 1 else f"{gb:.3f}"


def less(before, now):
    """Format the factor by which a size has fallen."""
    return f"{before / now:.1f}x less"


def change(before, now):
    """Format the relative change of a size."""
    return f"{now / before - 1:+.1%}"


def one_line(text, most=80):
    """Return a name from outside in a form that can be shown: one line, printable, not too long."""
    text = text if text.isprintable() else ascii(text)[1:-1]
    return text if len(text) <= most else f"{text[: most - 20]}...{text[-17:]}"


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


def is_prediction(record):
    """Return whether a record is a prediction; else it is a measurement."""
    return record["device"].startswith("emulated")


def origin(records, file, what=None, commands=None):
    """Return the commands and the machine that made the records in a file, in Markdown.

    All are measured, or all predicted. `what` is the subject, by default their models; `commands`
    replaces the list of commands where a page shows them.
    """
    commands = commands or listed(f"`{r.get('ladder') or r['command']}`" for r in records)
    models = what or listed(map(setting, records))
    torch = listed(r["versions"]["torch"] for r in records)
    lightning = listed(r["versions"]["lightning"] for r in records)
    dates, commits = (listed(r[key] for r in records) for key in ("date", "git_commit"))
    where = f"`{file.relative_to(ROOT) if file.is_relative_to(ROOT) else file.name}`"
    made = f"torch {torch}, lightning {lightning}, {dates}, commit {commits}; records in {where}."
    if is_prediction(records[0]):
        most = max(r["world_size"] for r in records)
        device = listed(r["device"] for r in records)
        gpus = f"; where GPUs share the work, on each of {most}" if most > 1 else ""
        return f"Predicted with {commands}: {models}, {device}{gpus}; {made}"
    device = listed(one_line(r["device"]) for r in records)
    data = listed(r["dataset"] and one_line(r["dataset"]) for r in records)
    runs = "one run each" if len(records) > 1 else "one run"
    return f"Measured with {commands}: {models}, {data}, {device}, {runs}; {made}"
