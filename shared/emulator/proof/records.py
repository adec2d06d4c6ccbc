"""The stored results: a record a line, so that a change of one shows as one line.

A table of rows has a file; convolutions and workspaces are what an H200 asked for, of layers and
operations that were not used to find the rules of the emulator.
"""

import datetime
import json
import os
from pathlib import Path

from proof import rows
from proof.third_party import git

RESULTS = Path(__file__).with_name("results")
COMPACT = {"sort_keys": True, "ensure_ascii": False, "separators": (",", ":")}


def read(name):
    """Return the records of a table, "published" or "traces"."""
    return [*map(json.loads, (RESULTS / f"{name}.jsonl").read_text("utf-8").splitlines())]


def replace(name, sources, new):
    """Replace stored records of a table by new ones, in the order of its sources."""
    by_key = {rows.key(record): record for record in read(name)}
    made = {"git_commit": git_commit(), "date": datetime.date.today().isoformat()}
    by_key |= {rows.key(record): {**record, **made} for record in new}
    # A row that has gone from the table goes here, too.
    keys = [rows.key(row) for source in sources for row in rows.rows(source)]
    lines = [json.dumps(by_key[key], **COMPACT) for key in keys]
    (RESULTS / f"{name}.jsonl").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    print(f"{name}.jsonl: {len(new)} of {len(lines)} records are new")


def git_commit():
    """Return the commit that is checked out, with "-dirty" if files other than results differ.

    Outside of git, return the environment variable GIT_COMMIT, or None.
    """
    here = "-C", str(Path(__file__).parent)
    head = git(*here, "rev-parse", "--short=12", "HEAD")
    if head is None:
        return os.environ.get("GIT_COMMIT")
    apart = ":/", ":(exclude,top)shared/*/results/*"
    is_clean = git(*here, "diff", "--quiet", "HEAD", "--", *apart) is not None
    return head.decode().strip() + ("" if is_clean else "-dirty")
