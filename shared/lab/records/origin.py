"""The origin of figures: the command, the machine, the versions and the commit behind them."""

from shared.lab.records.formats import listed, one_line
from shared.lab.records.reading import is_prediction, setting
from shared.run.record import ROOT


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
