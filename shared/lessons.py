"""Fills the generated parts of all README.md: diffs from the scripts, tables from the records in shared/results.

A part stands between `<!-- generated: NAME -->` and `<!-- end -->`. A test fails when one is stale.
"""

import argparse
import difflib
import re
import sys

from shared import stages
from shared.report import breakdown, size
from shared.stages import RESULTS, ROOT

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


def ladder(_):
    """Returns the whole ladder, one table for every file of records."""
    parts = []
    for file, records in results():
        rows = [records[n] for n in stages.names() if n in records]
        first = rows[0]["train"]["device_peak_gb"]
        table = [("stage", "one idea", *HEADING[1:4], "of the first")]
        for r in rows:
            idea = stages.idea(ROOT / r["stage"] / "train.py").split(", ", 1)[1].split(": ", 1)[1].rstrip(".")
            table.append((f"[{r['stage']}]({r['stage']}/)", idea, *_row(r)[1:4], f"{r['train']['device_peak_gb'] / first:.1%}"))
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


PARTS = {"diff": diff, "measured": measured, "ladder": ladder}


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
