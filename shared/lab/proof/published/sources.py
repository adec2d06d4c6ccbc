"""The rows of sources.toml and reports.toml: programs, and published measurements of them.

No setting is chosen to make a figure match. The note of a source names the settings that it leaves
open, and the assumptions about them.
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
    """Return the rows of a source, each with the defaults and with the settings of the source."""
    return [{**DEFAULTS, **source, **row} for row in source["rows"]]


def needs_folder(row):
    """Return whether a row needs a third-party script, or another version of PyTorch."""
    return "script" in row or "torch" in row


def run_key(row):
    """Return a text that is the same for rows which read figures of the same run."""
    # All settings of a run; the counter of a row only reads a figure of it.
    settings = [
        row.get(key)
        for key in (
            "card",
            "devices",
            "torch",
            "packages",
            "commit",
            "old_adam",
            "old_fsdp",
            "host",
            "env",
        )
    ]
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
