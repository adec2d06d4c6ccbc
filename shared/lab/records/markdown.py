"""Parts of Markdown pages: tables, diffs, collapsible sections, and where figures come from."""

import difflib

from shared.lab.records import scripts
from shared.lab.records.formats import change, less, listed, one_line
from shared.lab.records.reading import is_prediction, on_gpu, setting
from shared.run.record import ROOT

ORIGIN = "Where these figures come from"


def table(rows):
    """Return rows of texts as the lines of a Markdown table; the first is the heading."""
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    # Without a line of dashes below it, Markdown recognizes no heading, and no table.
    return [lines[0], "|" + "---|" * len(rows[0]), *lines[1:]]


def folded(summary, lines):
    """Return lines as a collapsible section, which is closed at first."""
    return [f"<details><summary>{summary}</summary>", "", *lines, "", "</details>"]


def origin(records, file, what=None, commands=None):
    """Return the commands and the machine that made the records in a file, in Markdown.

    All are measured, or all predicted. `what` is the subject, by default their models; `commands`
    replaces the list of commands where a page shows them.
    """
    # The ladder's own command, where there was one: it repeats all of its records.
    commands = commands or listed(f"`{r.get('ladder') or r['command']}`" for r in records)
    models = what or listed(map(setting, records))
    torch = listed(r["versions"]["torch"] for r in records)
    lightning = listed(r["versions"]["lightning"] for r in records)
    dates, commits = (listed(r[key] for r in records) for key in ("date", "git_commit"))
    # Of a user's file only the name: its folders exist on one computer.
    where = f"`{file.relative_to(ROOT) if file.is_relative_to(ROOT) else file.name}`"
    made = f"torch {torch}, lightning {lightning}, {dates}, commit {commits}; records in {where}."
    if is_prediction(records[0]):
        most = max(r["world_size"] for r in records)  # before 08, stages use one GPU
        device = listed(r["device"] for r in records)
        gpus = f"; where GPUs share the work, on each of {most}" if most > 1 else ""
        return f"Predicted with {commands}: {models}, {device}{gpus}; {made}"
    device = listed(one_line(r["device"]) for r in records)
    data = listed(r["dataset"] and one_line(r["dataset"]) for r in records)
    runs = "one run each" if len(records) > 1 else "one run"
    return f"Measured with {commands}: {models}, {data}, {device}, {runs}; {made}"


def sources(records, file, **about):
    """Return the origin of figures as a collapsible section; the arguments are origin()'s."""
    return folded(ORIGIN, [origin(records, file, **about)])


def text(*pieces):
    """Join pieces with blank lines: texts, lists of lines, and tables as lists of tuples."""
    shown = []
    for piece in filter(None, pieces):  # an empty one would leave two blank lines
        lines = [piece] if isinstance(piece, str) else piece
        shown.append("\n".join(table(lines) if isinstance(lines[0], tuple) else lines))
    return "\n\n".join(shown)


def diff(before, after):
    """Return the diff between two scripts, as lines below its command, and its size in words."""
    names = [f"{name}.py" for name in (before, after)]
    texts = [scripts.get(name).lines for name in (before, after)]
    # One line of context is enough to find the place in a short script.
    changes = list(difflib.unified_diff(*texts, *names, n=1, lineterm=""))
    lines = changed(before, after)
    how_much = f"{lines} line{'' if lines == 1 else 's'} of code"
    return [f"`diff -U1 {' '.join(names)}`", "", "```diff", *changes, "```"], how_much


def changed(before, after):
    """Return the number of lines of code that change between two scripts."""
    return num_changed(scripts.get(before).code, scripts.get(after).code)


def num_changed(before, after):
    """Return the number of lines that change between two lists; a replaced line counts once."""
    steps = difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    return sum(max(b - a, d - c) for tag, a, b, c, d in steps if tag != "equal")


def against(before, now):
    """Return the change of a size for a table: "+1.3%", "the same" or "nearly the same"."""
    if now == before:
        return "the same"
    # "the same" promises equality to the byte, so a difference that rounds to nothing has a name.
    percent = change(before, now)
    return "nearly the same" if percent in ("+0.0%", "-0.0%") else percent


def compared(before, now):
    """Return the change of a figure: "new", "gone", "the same", "+1.3%", "2.4x less"."""
    if not before or not now:
        return "new" if now else "gone"
    # From a factor of two on, a factor is easier to read than "+230.4%" or "-71.2%".
    if now >= 2 * before:
        return f"{now / before:.1f}x as much"
    return less(before, now) if before >= 2 * now else against(before, now)


def device(record):
    """Return the device of a record, with the number of GPUs if there are several."""
    # Several processes on one CPU share it; only GPUs are counted.
    several = record["world_size"] > 1 and on_gpu(record)
    return f"{record['world_size']} x {record['device']}" if several else record["device"]
