"""The fields of a record, which fields.toml describes."""

import tomllib
from pathlib import Path

FIELDS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))


def unknown(task):
    """Return the fields of a measurement, all None: what was not measured is null, never 0."""
    parts = ("measured", task.unit, task.learned)
    return dict.fromkeys(name for part in parts for name in FIELDS.get(part, ()))
