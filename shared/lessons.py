"""Fills the generated parts of all README.md: diffs from the scripts, tables and exercises from the records in shared/results.

A part stands between `<!-- generated: NAME -->` and `<!-- end -->`. A test fails when one is stale.
"""

import argparse
import json
import re
import sys

from shared import markdown, stages
from shared.exercises import part as exercises
from shared.ledger import CATEGORIES
from shared.figures import breakdown, by_model, setting, size
from shared.stages import RESULTS, ROOT

PREDICTED = RESULTS / "predicted-full.json"  # what `python -m shared.predict --json` printed
TEXT = RESULTS / "predicted-text.json"  # the same for language models: the lists that several commands printed, in one
LATE = RESULTS / "predicted-full-late-zero-grad.json"  # what `python -m shared.predict 01-04 --late-zero-grad --json` printed
CHECKED = RESULTS / "checked-full-cpu.json"  # what `python -m shared.predict --check ... --json` printed
# GB reserved, from the article of 2023 that the ladder follows; its own names for the stages are the same steps
PUBLISHED = {"01_baseline": 26.84, "02_mixed_precision": 18.21, "03_bf16": 13.82, "04_batchsize": 5.69, "05_grad_accum": 3.91, "06_sgd": 2.02}

PART = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def beside(stage):
    """Returns which of stages.runs() a page compares: the stage before and this one; or a folder's own before and after."""
    names = stages.chain()
    return names[max(0, names.index(stage) - 1) : names.index(stage) + 1] if stage in names else stages.runs([stage])


def diff(stage):
    """Returns the diff that leads to a stage's train.py, and beside it the one that leads to its plain.py.

    They are from the folder before; in the first folder there is one, from plain.py to train.py; in a folder with its own
    before.py, one from there.
    """
    runs = beside(stage)
    if len(runs) == 1:
        return "\n".join(markdown.diff(stages.path(f"{stage}/plain"), stages.path(stage)))
    fabric = markdown.diff(*map(stages.path, runs))
    if stage not in stages.chain():
        return "\n".join(fabric)
    plain = markdown.diff(*map(stages.path, stages.plain(runs)))
    return "\n".join(markdown.side_by_side({"with Fabric": fabric, "in plain PyTorch": plain}))


def results():
    """Returns the files of records, the tiny preset's first, each with its records by run."""
    files = sorted(RESULTS.glob("*.jsonl"), key=lambda file: ("tiny" not in file.name, file.name))
    return [(file, {stages.run_of(r): r for r in stages.records(file)[0]}) for file in files]


def measured(stage):
    """Returns tables that set a stage beside the one before, one for every file of records that has it."""
    parts = []
    for file, records in results():
        rows = [records[run] for run in beside(stage) if run in records]
        if rows and rows[-1]["stage"] == stage:
            parts += [markdown.origin(file, rows), "", *markdown.table([markdown.heading(rows[0]), *(markdown.row(r) for r in rows)]), ""]
            parts += [f"- {stages.run_of(r)} at its peak while training: {breakdown(r['train'])}" for r in rows] + [""]
    return "\n".join(parts).strip()


def predictions():
    """Returns the predictions for a GPU at full size, by run."""
    return {stages.run_of(r): r for r in json.loads(PREDICTED.read_text())}


def predicted(stage):
    """Returns a table that sets the prediction for a stage beside the one for the stage before."""
    records = predictions()
    rows = [records[run] for run in beside(stage)]
    table = [("at the peak while training", *(stages.run_of(r) for r in rows))]
    for label in CATEGORIES:
        if any(label in r["train"]["breakdown_gb"] for r in rows):
            table.append((label, *(markdown.amount(r["train"]["breakdown_gb"].get(label)) for r in rows)))
    table.append(("**together: allocated**", *(f"**{size(r['train']['device_peak_gb'])}**" for r in rows)))
    table.append(("reserved by the caching allocator", *(size(r["train"]["device_reserved_gb"]) for r in rows)))
    table.append(("where", *(markdown.where(r) for r in rows)))
    table.append(("host, at its own peak", *(markdown.amount(r["train"]["host_peak_gb"]) for r in rows)))
    table.append(("peak while loading: device", *(markdown.amount(r["load"]["device_peak_gb"]) for r in rows)))
    table.append(("peak while loading: host", *(markdown.amount(r["load"]["host_peak_gb"]) for r in rows)))
    table = [line for line in table if set(line[1:]) != {markdown.NOTHING}]
    return "\n".join([markdown.prediction_origin(rows, PREDICTED), "", *markdown.table(table)])


def ladder(_):
    """Returns the whole ladder as predicted for a GPU."""
    records = [predictions()[n] for n in stages.chain()]
    first = records[0]["train"]["device_peak_gb"]
    table = [("stage", "one idea", "GPUs", "images per update", "at once", "allocated, per GPU", "of 01", "reserved, per GPU", "host, per GPU: loading", "training")]
    for r in records:
        amounts = [r["train"]["device_peak_gb"], r["train"]["device_reserved_gb"]]
        host = [r["load"]["host_peak_gb"], r["train"]["host_peak_gb"]]
        sizes = (r["world_size"], r["batch_size"], r["micro_batch_size"] or r["batch_size"])
        amounts = (size(amounts[0]), f"{amounts[0] / first:.1%}", size(amounts[1]), *map(markdown.amount, host))
        table.append((f"[{r['stage']}]({r['stage']}/)", idea(r["stage"]), *map(str, sizes), *amounts))
    note = f"{markdown.NOTHING}: no tensors there; a file that is mapped does not count."
    return "\n".join([*markdown.table(table), "", markdown.prediction_origin(records, PREDICTED), note])


def idea(stage):
    """Returns what a stage is about, from its docstring."""
    return stages.idea(ROOT / stage / "train.py").split(", ", 1)[1].split(": ", 1)[1].rstrip(".")


def text_records():
    """Returns the predictions for language models, {model: list of records}."""
    return {group[0]["model"]: group for group in by_model(json.loads(TEXT.read_text()))}


def language_models(_):
    """Returns what language models need before and after, on four GPUs and on one."""
    table = [("model", "tokens", "before.py: allocated", "reserved", "train.py on 4 GPUs, each: allocated", "reserved", "", "host, per process", "train.py on 1 GPU: allocated", "reserved", "", "host")]
    for model, records in text_records().items():
        before = records[0]["train"]
        row = [model, str(records[0]["max_length"]), size(before["device_peak_gb"]), size(before["device_reserved_gb"])]
        for n in (4, 1):
            r = next(r["train"] for r in reversed(records) if r["script"] == "train" and r["world_size"] == n)
            less = f"{before['device_reserved_gb'] / r['device_reserved_gb']:.1f}x less"
            row += [size(r["device_peak_gb"]), size(r["device_reserved_gb"]), less, size(r["host_peak_gb"])]
        table.append(row)
    everything = [r for records in text_records().values() for r in records]
    note = "Factors are of what is reserved. None of this has been compared with a GPU. A card needs what is reserved and about 1 GB that is not simulated; `--fits` adds it."
    return "\n".join([*markdown.table(table), "", markdown.prediction_origin(everything, TEXT, what="language models"), note])


def one_by_one(_):
    """Returns what each technique on the way from before.py to train.py does to the peak of each language model."""
    columns = {model: [r for r in records if r["technique"] or r["script"] == "before"] for model, records in text_records().items()}
    table = [("allocated", *(f"{model}, {records[0]['max_length']} tokens" for model, records in columns.items()))]
    for rows in zip(*columns.values()):
        cells = []
        for r, records in zip(rows, columns.values()):
            now = r["train"]["device_peak_gb"]
            before = records[records.index(r) - 1]["train"]["device_peak_gb"] if r["technique"] else now
            cells.append(size(now) + ("" if not r["technique"] else " (the same)" if now == before else f" ({before / now:.2f}x less)"))
        table.append((f"+ {rows[0]['technique']}" if rows[0]["technique"] else "before.py", *cells))
    return "\n".join(markdown.table(table))


def published(_):
    """Returns a table that sets the predictions beside the figures published in 2023."""
    records, late = predictions(), {r["stage"]: r for r in json.loads(LATE.read_text())}
    table = [("stage", "published 2023, reserved", "predicted, reserved", "", "predicted with their `zero_grad()`", "")]
    for stage, there in PUBLISHED.items():
        row = [stage, f"{there:.2f} GB"]
        for r in (records[stage], late.get(stage, records[stage])):  # where they accumulate, they do as we do
            row += [f"{r['train']['device_reserved_gb']:.2f} GB", f"{r['train']['device_reserved_gb'] / there - 1:+.1%}"]
        table.append(tuple(row))
    r = late["01_baseline"]
    return "\n".join([*markdown.table(table), "", f"The last two columns: `{r['command']}`, torch {r['versions']['torch']}, {r['date']}, commit {r['git_commit']}; records in `{LATE.relative_to(ROOT)}`."])


def checked(_):
    """Returns a table that sets predictions for a CPU beside measurements, at full size."""
    records = json.loads(CHECKED.read_text())
    table = [("stage", "measured while training", "predicted", "error", "measured while loading", "predicted", "error")]
    for r in records:
        row = [stages.run_of(r)]
        for phase in ("train", "load"):
            m, p = r["measured"][phase]["device_peak_gb"], r[phase]["device_peak_gb"]
            row += [f"{m:.4f} GB", f"{p:.4f} GB", f"{p / m - 1:+.3%}"]
        table.append(row)
    r = records[0]
    return "\n".join([
        *markdown.table(table),
        "",
        f"Measured and predicted with {markdown.listed(map(markdown.command, records))}: {markdown.listed(map(setting, records))}, {r['measured']['steps']} updates on noise, "
        f"{r['measured']['device']}, torch {r['versions']['torch']}, {r['date']}, commit {markdown.listed(r['git_commit'] for r in records)}; records in `{CHECKED.relative_to(ROOT)}`.",
    ])


def measured_ladder(_):
    """Returns the whole ladder as measured, one table for every file of records and model."""
    parts = []
    for file, records in results():
        for rows in by_model([records[run] for run in stages.runs(stages.names()) if run in records]):
            first = rows[0]["train"]["device_peak_gb"]
            table = [(*markdown.heading(rows[0])[:4], f"of {stages.run_of(rows[0])}")]
            for r in rows:
                table.append((f"[{stages.run_of(r)}]({r['stage']}/)", *markdown.row(r)[1:4], f"{r['train']['device_peak_gb'] / first:.1%}"))
            parts += [*markdown.table(table), "", markdown.origin(file, rows), ""]
    return "\n".join(parts).strip()


PARTS = {"exercises": exercises, **{f.__name__: f for f in (diff, predicted, measured, ladder, measured_ladder, published, checked, language_models, one_by_one)}}


def fill(page):
    """Returns a page's text with its generated parts made anew."""
    return PART.sub(lambda m: m[1] + PARTS[m[2]](page.parent.name) + "\n" + m[3], page.read_text())


def pages():
    """Returns the README.md of the repository and of each stage."""
    return [ROOT / "README.md", *(ROOT / name / "README.md" for name in stages.names())]


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing; exit code 1 if a page is stale")
    check = parser.parse_args(argv).check
    stale = [page for page in pages() if fill(page) != page.read_text()]
    for page in stale:
        print(f"{page.relative_to(ROOT)} {'is stale: python -m shared.lessons' if check else 'written'}")
        if not check:
            page.write_text(fill(page))
    sys.exit(1 if check and stale else 0)


if __name__ == "__main__":
    main()
