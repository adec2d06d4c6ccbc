"""Run what others have measured on emulated GPUs, and print both figures side by side.

For published speeds, print the bound on the time of an update, by the card's data sheet, and its
share of the published time.
"""

import datetime
import functools
import json
import pkgutil
import tomllib
from pathlib import Path

from shared.cli import Parser, UserError, location
from shared.emulator import cards
from shared.evidence.published import unedited
from shared.evidence.published.gpu import Gpu
from shared.predict.jobs import run_jobs
from shared.records import stored
from shared.records.atomic_files import write_text
from shared.records.record import git_commit, versions
from shared.records.views import NOTHING, aligned, size
from shared.text.cli import TASK

# No setting is chosen to make a figure match. The note of a source says what it leaves open, and
# what was assumed.
SOURCES = tomllib.loads(Path(__file__).with_name("sources.toml").read_text("utf-8"))["sources"]
COMMON = {"counter": "allocated", "card": "a100", "devices": 1, "read": "peak"}
COMMAND = "python -m shared.evidence.published"
UNITS = {"gb": 1, "gib": cards.GIB, "mib": 2**20 / 1e9}  # in GB


def rows(source):
    """Return the rows of a source, each with the settings that they share."""
    return [{**COMMON, "options": {}, **source, **row} for row in source["rows"]]


def what_runs(row):
    """Return a text that rows have in common if they read figures of one and the same run."""
    program = unedited.name(row) if "script" in row else row["program"]
    return json.dumps([program, row["options"], row["card"], row["devices"]])


def run(row, folder):
    """Return the readings of a row's program or script, {name: figures}.

    Run it in a process of its own. The folder holds the scripts of others.
    """
    if "script" in row:
        return unedited.run(row, folder)
    function = pkgutil.resolve_name(f"{__package__}.{row['program']}")
    gpu = Gpu(cards.CARDS[row["card"]], row["devices"])
    return gpu.run(functools.partial(function, **row["options"]))


def published_gb(row):
    """Return the published size of a row in GB, None if it has none."""
    for unit, in_gb in UNITS.items():
        if unit in row:
            return row[unit] * in_gb
    return None


def predicted(sources, folder=None):
    """Run the rows of sources, and return the records to store.

    Programs with several published figures run once. The folder holds the scripts of the sources
    that have published some.
    """
    every = [row for source in sources for row in rows(source)]
    once = {what_runs(row): row for row in every}
    results = run_jobs([(run, row, folder) for row in once.values()])
    readings = dict(zip(once, results))
    common = {"versions": versions(TASK), "git_commit": git_commit()}
    common["date"] = datetime.date.today().isoformat()
    records = []
    for row in every:
        gb = published_gb(row)
        record = {
            "source": row["title"],
            "what": row["words"],
            "counter": row["counter"] if gb else None,
            "published_gb": gb,
            "card": cards.CARDS[row["card"]].title,
            "devices": row["devices"],
            "published_ms": row["seconds"] * 1e3 / row["updates"] if "seconds" in row else None,
            "script": unedited.name(row) if "script" in row else None,
            "command": f"{COMMAND} --scripts DIR" if "script" in row else COMMAND,
        }
        figures = readings[what_runs(row)][row["read"]]
        if "why" in figures:  # it has not run, so there is nothing to compare
            record |= dict.fromkeys(("counter", "published_gb", "published_ms"))
        records.append({**record, **figures, **common})
    return records


def error(record):
    """Return the error of a prediction relative to the published figure, positive if too high."""
    return record[f"{record['counter']}_gb"] / record["published_gb"] - 1


def reached(record):
    """Return the bound on an update's time, relative to the published time."""
    return record["bound"]["ms"] / record["published_ms"]


def table(records):
    """Return rows of texts, for records with sizes: what, counter, published, predicted, error."""
    sizes = [
        (r, size(r["published_gb"]), size(r[f"{r['counter']}_gb"]))
        for r in records
        if r["published_gb"]
    ]
    return [(r["what"], r["counter"], *both, f"{error(r):+.1%}") for r, *both in sizes]


def scripts(records):
    """Return rows of texts, for records of scripts: their memory, or why they did not run."""
    rows = []
    for r in (r for r in records if r["script"]):
        published = size(r["published_gb"]) if r["published_gb"] else NOTHING
        gb = (size(r[f"{counter}_gb"]) for counter in ("allocated", "reserved"))
        predicted = (r["why"], NOTHING) if "why" in r else gb
        rows.append((r["script"], r["what"], *predicted, published))
    return rows


def times(record):
    """Return texts for a record with a time: published, bound, the limiting part, the share."""
    bound, published = record["bound"], record["published_ms"]
    return (f"{published:.1f} ms", f"{bound['ms']:.1f} ms", bound["by"], f"{reached(record):.0%}")


SCRIPTS = ("script", "trains", "allocated", "reserved", "published")
HEADING = ("", "counter", "published", "predicted", "error")
TIMES = ("published per update", "bound", "by", "reached")


def main(argv=None):
    parser = Parser(description=__doc__.splitlines()[0])
    which = "only sources with this word in the title; print them, and store nothing"
    parser.add_argument("--only", metavar="WORD", help=which)
    where = "folder for the scripts of others, fetched if missing; without it, their stored "
    where += "records are kept"
    parser.add_argument("--scripts", type=location, metavar="DIR", help=where)
    args = parser.parse_args(argv)
    chosen = [s for s in SOURCES if not args.only or args.only.lower() in s["title"].lower()]
    if not chosen:
        titles = "; ".join(source["title"] for source in SOURCES)
        raise UserError(f"--only {args.only}: no title has this word; there are {titles}")
    for source in chosen:
        if "commit" in source and args.scripts:
            unedited.fetch(source, args.scripts)
    again = [s for s in chosen if "commit" not in s or args.scripts]
    records = predicted(again, args.scripts)
    if left := {s["title"] for s in chosen} - {s["title"] for s in again}:
        records += [r for r in json.loads(stored.PUBLISHED.read_text()) if r["source"] in left]
    if not args.only:
        write_text(stored.PUBLISHED, json.dumps(records, indent=1) + "\n")
        print(f"{stored.PUBLISHED.name}: {len(records)} records")
    for source in chosen:
        mine = [r for r in records if r["source"] == source["title"]]
        print("\n{title}: {url}\n{note}".format(**source))
        if sizes := table(mine):
            print("", *aligned(HEADING, sizes), sep="\n")
        if ran := scripts(mine):
            print("", *aligned(SCRIPTS, ran), sep="\n")
        if timed := [(r["what"], *times(r)) for r in mine if r["published_ms"]]:
            print("\n", source["times"], "\n", *aligned(("", *TIMES), timed), sep="\n")
    return records
