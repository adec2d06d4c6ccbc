"""Where figures come from, in the same words everywhere."""

from shared.records.record import setting
from shared.records.scripts import ROOT
from shared.records.units import listed, one_line


def is_prediction(record):
    """Tells a prediction from a measurement."""
    return record["device"].startswith("simulated")


def origin(records, file, what=None):
    """Returns how, and on what machine, some records were made, in Markdown.

    Args:
        records: all measured, or all predicted.
        file: that holds them.
        what: what they are about; if None, their models.
    """
    commands = [f"`{r.get('ladder') or r['command']}`" for r in records]
    models = what or listed(map(setting, records))
    torch = listed(r["versions"]["torch"] for r in records)
    lightning = listed(r["versions"]["lightning"] for r in records)
    dates, commits = (listed(r[key] for r in records) for key in ("date", "git_commit"))
    where = f"`{file.relative_to(ROOT) if file.is_relative_to(ROOT) else file.name}`"
    made = f"torch {torch}, lightning {lightning}, {dates}, commit {commits}; records in {where}."
    if is_prediction(records[0]):
        most = max(r["world_size"] for r in records)
        device = listed(r["device"] for r in records)
        gpus = f"; scripts that share the work, on each of {most}" if most > 1 else ""
        return f"Predicted with {listed(commands)}: {models}, {device}{gpus}; {made}"
    device = listed(one_line(r["device"]) for r in records)
    data = listed(r["dataset"] and one_line(r["dataset"]) for r in records)
    runs = "one run each" if len(records) > 1 else "one run"
    return f"Measured with {listed(commands)}: {models}, {data}, {device}, {runs}; {made}"
