"""Tables of records for the pages, in Markdown, and where their figures come from."""

import difflib

from shared import stages
from shared.figures import counted, setting, size, speed

NOTHING = "–"


def diff(before, after):
    """Returns what changes between two scripts as lines: the command that shows it, how much it is, and the diff itself."""
    names = [str(path.relative_to(stages.ROOT)) for path in (before, after)]
    changes = list(difflib.unified_diff(*(path.read_text().splitlines() for path in (before, after)), *names, n=1, lineterm=""))
    count = {sign: sum(line[0] == sign for line in changes[2:]) for sign in "-+"}
    return [f"`diff -U1 {names[0]} {names[1]}`: {count['-']} lines removed, {count['+']} added.", "", "```diff", *changes, "```"]


def side_by_side(parts):
    """Returns parts, {heading: lines}, as lines of a table with one column for each; where HTML is not shown, one below the other."""
    cells = [line for lines in parts.values() for line in ('<td valign="top">', "", *lines, "", "</td>")]
    return ["<table>", "<tr>" + "".join(f"<th>{heading}</th>" for heading in parts) + "</tr>", "<tr>", *cells, "</tr>", "</table>"]


def where(r):
    """Tells where in the update a prediction has its peak."""
    at = r["peak_at"]["train"]
    return f"{at['phase']} pass, {at['module']}" if at["module"] else at["phase"]


def amount(gb):
    """Writes a size for people, NOTHING for what is below 0.05 MB."""
    return size(gb) if gb and gb >= 5e-5 else NOTHING


def heading(record):
    """Returns the heading of a table of measurements like this one."""
    return ("stage", "peak while loading", "peak while training", "test accuracy", f"{counted(record)}/s", "loss, first to last")


def row(r):
    """Returns the cells of a measurement, as heading() calls them."""
    per_second = f"{speed(r):.0f}" if speed(r) else "not measured"
    accuracy = "noise" if r["dataset"] == "fake" else f"{r['test_accuracy']:.1%}"
    return (stages.run_of(r), size(r["load"]["device_peak_gb"]), size(r["train"]["device_peak_gb"]), accuracy, per_second, f"{r['first_loss']:.3f} to {r['last_loss']:.3f}")


def table(rows):
    """Returns rows of texts as lines of Markdown; the first is the heading."""
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return [lines[0], "|" + "---|" * len(rows[0]), *lines[1:]]


def origin(file, records):
    """Tells where figures come from: command, machine, versions, date, and the file that has them."""
    r = records[0]
    commits = ", ".join(sorted({str(x["git_commit"]) for x in records}))
    return (
        f"Measured with `{r.get('ladder') or r['command']}`: {setting(r)}, {r['dataset']}, {r['device']}, "
        f"torch {r['versions']['torch']}, lightning {r['versions']['lightning']}, {r['date']}, commit {commits}, one run; "
        f"records in `{file.relative_to(stages.ROOT) if file.is_relative_to(stages.ROOT) else file.name}`."
    )


def prediction_origin(records, file, what=None):
    """Tells where predicted figures come from; what they are of, if their models need not be named."""
    r = records[0]
    several = max(r["world_size"] for r in records)
    where = f"a GPU; scripts that share the work, on each of {several}" if several > 1 else "a GPU"
    return (
        f"Predicted with {listed(command(r) for r in records)}: {what or listed(map(setting, records))}, on {where}; "
        f"torch {r['versions']['torch']}, lightning {r['versions']['lightning']}, {r['date']}, commit {listed(r['git_commit'] for r in records)}; "
        f"records in `{file.relative_to(stages.ROOT)}`."
    )


def command(record):
    """Returns the command that made a record."""
    return f"`{record['command']}`"


def listed(texts):
    """Returns different texts with commas between them."""
    return ", ".join(dict.fromkeys(map(str, texts)))
