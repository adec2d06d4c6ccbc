"""The rows of the tables: what is run, with which settings, and what was measured of it.

No setting is chosen to make a figure match. The note of a source names the settings that it leaves
open, and the assumptions about them.
"""

import json
import shlex
import tomllib
from pathlib import Path

HERE = Path(__file__).parent
GIB = 2**30 / 1e9
UNITS = {"gb": 1, "gib": GIB, "mib": 2**20 / 1e9, "mb": 1e-3, "bytes": 1e-9}  # in GB
DEFAULTS = {
    "counter": "allocated",
    "card": "a100",
    "devices": 1,
    "read": "",  # the name of the figure, if a program prints only one
    "cudnn": False,
    "torch": None,  # the installed one
    "env": {},
    **dict.fromkeys(("args", "packages", "prepare", "path", "make", "also", "distributions"), []),
}


def table(name):
    """Return the content of a TOML file of this folder."""
    return tomllib.loads((HERE / f"{name}.toml").read_text("utf-8"))


REPORTS = table("reports")
# Reports have one file, and are one source among the others.
SOURCES = [*table("sources")["sources"], REPORTS]
TRACES = table("scripts")["sources"]


def rows(source):
    """Return the rows of a source, each with the defaults and with the settings of the source."""
    common = {**DEFAULTS, "source": source.get("title"), **source}
    return [{**common, **row} for row in source["rows"]]


def key(row):
    """Return what tells a row from others, and a record likewise."""
    return row.get("name") or (row["source"], row["what"])


def needs_folder(row):
    """Return whether a row needs a repository of others, or another version of PyTorch."""
    return "repository" in row or row["torch"] is not None


def run_key(row):
    """Return a text that is the same for rows which read figures of the same run."""
    # All settings of a run. The counter of a row only reads a figure of it, as does the snapshot.
    settings = ("program", "repository", "commit", "script", "command", "folder", "args", "card")
    settings += ("devices", "torch", "packages", "old_adam", "old_fsdp", "host", "env")
    return json.dumps([row.get(setting) for setting in settings])


def script(row):
    """Return the name of a row's script, None of a program: its folder, file and arguments."""
    if "script" not in row:
        return None
    return shlex.join([f"{row['repository'].rpartition('/')[2]}/{row['script']}", *row["args"]])


def published_gb(row):
    """Return the published size of a row in GB, None if it has none."""
    return next((row[unit] * in_gb for unit, in_gb in UNITS.items() if unit in row), None)


def published_ms(row):
    """Return the published time of an update in ms, None if there is none."""
    return row["seconds"] * 1e3 / row["updates"] if "seconds" in row else None
