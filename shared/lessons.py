"""Fills the generated parts of all README.md: diffs from the scripts, tables from the records in shared/results.

A part stands between `<!-- generated: NAME -->` and `<!-- end -->`. A test fails when one is stale.
"""

import argparse
import difflib
import json
import re
import sys

from shared import stages
from shared.ledger import CATEGORIES
from shared.report import breakdown, size
from shared.stages import RESULTS, ROOT

PREDICTED = RESULTS / "predicted-full.json"  # what `python -m shared.predict --json` printed
LATE = RESULTS / "predicted-full-late-zero-grad.json"  # what `python -m shared.predict 01-04 --late-zero-grad --json` printed
CHECKED = RESULTS / "checked-full-cpu.json"  # what `python -m shared.predict --check ... --json` printed
# GB reserved, from the article of 2023 that the ladder follows; its own names for the stages are the same steps
PUBLISHED = {"01_baseline": 26.84, "02_mixed_precision": 18.21, "03_bf16": 13.82, "04_batchsize": 5.69, "05_grad_accum": 3.91, "06_sgd": 2.02}

PART = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def diff(stage):
    """Returns the diff that leads to a stage's train.py: from the stage before; in the first one, from plain.py."""
    names = stages.names()
    before = names[names.index(stage) - 1] + "/train.py" if stage != names[0] else f"{stage}/plain.py"
    after = f"{stage}/train.py"
    left, right = ((ROOT / p).read_text().splitlines() for p in (before, after))
    changes = list(difflib.unified_diff(left, right, before, after, n=1, lineterm=""))
    body = changes[2:]
    count = {sign: sum(line[0] == sign for line in body) for sign in "-+"}
    return "\n".join([f"`diff -U1 {before} {after}`: {count['-']} lines removed, {count['+']} added.", "", "```diff", *changes, "```"])


def results():
    """Returns the files of records, the tiny preset's first, each with its records by stage."""
    files = sorted(RESULTS.glob("*.jsonl"), key=lambda file: ("tiny" not in file.name, file.name))
    return [(file, {r["stage"]: r for r in stages.records(file)[0]}) for file in files]


def measured(stage):
    """Returns tables that set a stage beside the one before, one for every file of records that has it."""
    names = stages.names()
    parts = []
    for file, records in results():
        rows = [records[n] for n in names[max(0, names.index(stage) - 1) : names.index(stage) + 1] if n in records]
        if rows and rows[-1]["stage"] == stage:
            parts += [origin(file, rows), "", *_markdown([HEADING, *(_row(r) for r in rows)]), ""]
            parts += [f"- {r['stage']} at its peak while training: {breakdown(r['train'])}" for r in rows] + [""]
    return "\n".join(parts).strip()


def predictions():
    """Returns the predictions for a GPU at full size, by stage."""
    return {r["stage"]: r for r in json.loads(PREDICTED.read_text())}


def predicted(stage):
    """Returns a table that sets the prediction for a stage beside the one for the stage before."""
    names, records = stages.names(), predictions()
    rows = [records[n] for n in names[max(0, names.index(stage) - 1) : names.index(stage) + 1]]
    table = [("at the peak while training", *(r["stage"] for r in rows))]
    for label in CATEGORIES:
        if any(label in r["train"]["breakdown_gb"] for r in rows):
            table.append((label, *(_amount(r["train"]["breakdown_gb"].get(label)) for r in rows)))
    table.append(("**together: allocated**", *(f"**{size(r['train']['device_peak_gb'])}**" for r in rows)))
    table.append(("reserved by the caching allocator", *(size(r["train"]["device_reserved_gb"]) for r in rows)))
    table.append(("where", *(_where(r) for r in rows)))
    table.append(("host, at its own peak", *(_amount(r["train"]["host_peak_gb"]) for r in rows)))
    table.append(("peak while loading: device", *(_amount(r["load"]["device_peak_gb"]) for r in rows)))
    table.append(("peak while loading: host", *(_amount(r["load"]["host_peak_gb"]) for r in rows)))
    table = [line for line in table if set(line[1:]) != {NOTHING}]
    return "\n".join([prediction_origin(rows[-1]), "", *_markdown(table)])


NOTHING = "–"


def _where(r):
    at = r["peak_at"]["train"]
    return f"{at['phase']} pass, {at['module']}" if at["module"] else at["phase"]


def _amount(gb):
    return size(gb) if gb and gb >= 5e-5 else NOTHING


def ladder(_):
    """Returns the whole ladder: what is predicted for a GPU, then a table for every file of records."""
    records = [predictions()[n] for n in stages.names()]
    first = records[0]["train"]["device_peak_gb"]
    table = [("stage", "one idea", "GPUs", "images per update", "at once", "allocated, per GPU", "of 01", "reserved, per GPU", "host, per GPU: loading", "training")]
    for r in records:
        amounts = [r["train"]["device_peak_gb"], r["train"]["device_reserved_gb"]]
        host = [r["load"]["host_peak_gb"], r["train"]["host_peak_gb"]]
        sizes = (r["world_size"], r["batch_size"], r["micro_batch_size"] or r["batch_size"])
        amounts = (size(amounts[0]), f"{amounts[0] / first:.1%}", size(amounts[1]), *map(_amount, host))
        table.append((f"[{r['stage']}]({r['stage']}/)", idea(r["stage"]), *map(str, sizes), *amounts))
    note = f"{NOTHING}: no tensors there; a file that is mapped does not count."
    return "\n".join([*_markdown(table), "", prediction_origin(records[0]), note])


def idea(stage):
    """Returns what a stage is about, from its docstring."""
    return stages.idea(ROOT / stage / "train.py").split(", ", 1)[1].split(": ", 1)[1].rstrip(".")


def prediction_origin(r):
    """Tells where predicted figures come from."""
    return (
        f"Predicted with `{r['command']}`: {r['model']} at {r['image_px']} px on a GPU, from 08 on each of {predictions()['08_fsdp']['world_size']} of them; "
        f"torch {r['versions']['torch']}, lightning {r['versions']['lightning']}, {r['date']}, commit {r['git_commit']}; "
        f"records in `{PREDICTED.relative_to(ROOT)}`."
    )


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
    return "\n".join([*_markdown(table), "", f"The last two columns: `{r['command']}`, torch {r['versions']['torch']}, {r['date']}, commit {r['git_commit']}; records in `{LATE.relative_to(ROOT)}`."])


def checked(_):
    """Returns a table that sets predictions for a CPU beside measurements, at full size."""
    records = json.loads(CHECKED.read_text())
    table = [("stage", "measured while training", "predicted", "error", "measured while loading", "predicted", "error")]
    for r in records:
        row = [r["stage"]]
        for phase in ("train", "load"):
            m, p = r["measured"][phase]["device_peak_gb"], r[phase]["device_peak_gb"]
            row += [f"{m:.4f} GB", f"{p:.4f} GB", f"{p / m - 1:+.3%}"]
        table.append(row)
    r = records[0]
    return "\n".join([
        *_markdown(table),
        "",
        f"Measured and predicted with `{r['command']}`: {r['model']} at {r['image_px']} px, {r['measured']['steps']} updates on noise, "
        f"{r['measured']['device']}, torch {r['versions']['torch']}, {r['date']}, commit {r['git_commit']}; records in `{CHECKED.relative_to(ROOT)}`.",
    ])


def measured_ladder(_):
    """Returns the whole ladder as measured, one table for every file of records."""
    parts = []
    for file, records in results():
        rows = [records[n] for n in stages.names() if n in records]
        first = rows[0]["train"]["device_peak_gb"]
        table = [("stage", *HEADING[1:4], f"of {rows[0]['stage'][:2]}")]
        for r in rows:
            table.append((f"[{r['stage']}]({r['stage']}/)", *_row(r)[1:4], f"{r['train']['device_peak_gb'] / first:.1%}"))
        parts += [*_markdown(table), "", origin(file, rows), ""]
    return "\n".join(parts).strip()


HEADING = ("stage", "peak while loading", "peak while training", "test accuracy", "images/s", "loss, first to last")


def _row(r):
    speed = f"{r['images_per_second']:.0f}" if r["images_per_second"] else "not measured"
    accuracy = "noise" if r["dataset"] == "fake" else f"{r['test_accuracy']:.1%}"
    return (r["stage"], size(r["load"]["device_peak_gb"]), size(r["train"]["device_peak_gb"]), accuracy, speed, f"{r['first_loss']:.3f} to {r['last_loss']:.3f}")


def _markdown(rows):
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return [lines[0], "|" + "---|" * len(rows[0]), *lines[1:]]


def origin(file, records):
    """Tells where figures come from: command, machine, versions, date, and the file that has them."""
    r = records[0]
    commits = ", ".join(sorted({str(x["git_commit"]) for x in records}))
    return (
        f"Measured with `{r['ladder']}`: {r['model']} on {r['dataset']} at {r['image_px']} px, {r['device']}, "
        f"torch {r['versions']['torch']}, lightning {r['versions']['lightning']}, {r['date']}, commit {commits}, one run; "
        f"records in `{file.relative_to(ROOT)}`."
    )


PARTS = {"diff": diff, "predicted": predicted, "measured": measured, "ladder": ladder, "measured_ladder": measured_ladder, "published": published, "checked": checked}


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
