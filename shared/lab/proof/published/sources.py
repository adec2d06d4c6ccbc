"""The rows of sources.toml and reports.toml: programs, and what others have measured of them.

No setting is chosen to make a figure match. The note of a source says what it leaves open, and what
was assumed.
"""

import json
import tomllib
from pathlib import Path

from shared.lab.proof.published import run_row

HERE = Path(__file__).parent
SOURCES = tomllib.loads((HERE / "sources.toml").read_text("utf-8"))["sources"]
REPORTS = tomllib.loads((HERE / "reports.toml").read_text("utf-8"))
# Reports have one file, and are one source among the others.
SOURCES.append(REPORTS)
DEFAULTS = {
    "counter": "allocated",
    "card": "a100",
    "devices": 1,
    "read": "",  # the name of the figure, if a program prints only one
    "args": [],
    "packages": [],
    "env": {},
    "cudnn": False,
}


def rows(source):
    """Return the rows of a source, each with the settings that they share."""
    return [{**DEFAULTS, **source, **row} for row in source["rows"]]


def needs_folder(row):
    """Return whether a row needs scripts of others, or another PyTorch than the installed one."""
    return "script" in row or "torch" in row


def run_key(row):
    """Return a text that rows have in common if they read figures of one and the same run."""
    # What decides about a run: a counter only reads it.
    settings = [row.get(key) for key in ("card", "devices", "torch", "old_adam", "env")]
    return json.dumps([run_row.name(row), *settings])


def published_gb(row):
    """Return the published size of a row in GB, None if it has none."""
    for unit, in_gb in run_row.UNITS.items():
        if unit in row:
            return row[unit] * in_gb
    return None


def published_ms(row):
    """Return the published time of an update in ms, None if there is none."""
    return row["seconds"] * 1e3 / row["updates"] if "seconds" in row else None
