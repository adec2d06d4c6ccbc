"""Run what others have measured on emulated GPUs, and print both figures side by side.

For published speeds, print the bound on the time of an update, by the card's data sheet, and its
share of the published time.
"""

import datetime
import json
import tomllib
from pathlib import Path

from emulated_gpu import cards
from shared.cli import Parser, UserError, location
from shared.lab.evidence import others
from shared.lab.evidence.published import fit, runs
from shared.lab.predict.estimate import estimate
from shared.lab.predict.jobs import run_jobs
from shared.lab.records import stored
from shared.lab.records.formats import NOTHING, aligned, size
from shared.record import git_commit, versions
from shared.text.cli import TASK

# No setting is chosen to make a figure match. The note of a source says what it leaves open, and
# what was assumed.
HERE = Path(__file__).parent
SOURCES = tomllib.loads((HERE / "sources.toml").read_text("utf-8"))["sources"]
REPORTS = tomllib.loads((HERE / "reports.toml").read_text("utf-8"))
SOURCES.append(REPORTS)
COMMON = {"counter": "allocated", "card": "a100", "devices": 1, "read": "", "args": []}
COMMAND = "python -m shared published"


def rows(source):
    """Return the rows of a source, each with the settings that they share."""
    return [{**COMMON, **source, **row} for row in source["rows"]]


def needs_folder(row):
    """Return whether a row needs scripts of others, or another PyTorch than the installed one."""
    return "script" in row or "torch" in row


def what_runs(row):
    """Return a text that rows have in common if they read figures of one and the same run."""
    settings = [row.get(key) for key in ("card", "devices", "torch", "old_adam", "env")]
    return json.dumps([runs.name(row), *settings])


def published_gb(row):
    """Return the published size of a row in GB, None if it has none."""
    for unit, in_gb in runs.UNITS.items():
        if unit in row:
            return row[unit] * in_gb
    return None


def emulated(every, folder=None):
    """Run rows, and return the records to store.

    Programs with several published figures run once. The folder holds the scripts of the sources
    that have published some, and the versions of PyTorch.
    """
    once = {what_runs(row): row for row in every}
    results = run_jobs([(runs.run, row, folder) for row in once.values()], emulated=False)
    readings = dict(zip(once, results))
    common = {"git_commit": git_commit(), "date": datetime.date.today().isoformat()}
    installed = versions(TASK)
    records = []
    for row in every:
        figures = dict(readings[what_runs(row)])
        gb = published_gb(row)
        record = {
            "source": row["title"],
            "what": row["words"],
            "counter": row["counter"] if gb else None,
            "published_gb": gb,
            "emulated_gb": figures.get("printed", {}).get(
                row["read"], figures.get(f"{row['counter']}_gb")
            ),
            "card": cards.CARDS[row["card"]].title,
            "devices": row["devices"],
            "published_ms": row["seconds"] * 1e3 / row["updates"] if "seconds" in row else None,
            "script": runs.name(row) if "script" in row else None,
            "command": f"{COMMAND} --folder DIR" if needs_folder(row) else COMMAND,
            "cudnn": row.get("cudnn", False),
            "torch": figures.get("torch") or installed["torch"],
        }
        if "why" in figures:  # it has not run, so there is nothing to compare
            record |= dict.fromkeys(("counter", "published_gb", "published_ms"))
        kept = ("allocated_gb", "active_gb", "reserved_gb", "bound", "work_ms", "notes", "why")
        record |= {key: figures[key] for key in kept if key in figures}
        records.append({**record, **common})
    return records


def error(record):
    """Return the error of a prediction relative to the published figure, positive if too high."""
    return record["emulated_gb"] / record["published_gb"] - 1


def reached(record):
    """Return the bound on an update's time, relative to the published time."""
    return record["bound"]["ms"] / record["published_ms"]


def table(records):
    """Return rows of texts, for records with sizes; see HEADING."""
    sized = [r for r in records if r["published_gb"]]
    return [
        (
            r["what"],
            r["torch"].partition("+")[0],
            r["counter"],
            size(r["published_gb"]),
            size(r["emulated_gb"]),
            f"{error(r):+.1%}",
        )
        for r in sized
    ]


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
    """Return texts for a record with a time; see TIMES."""
    bound, published = record["bound"], record["published_ms"]
    guess = (NOTHING, NOTHING)
    if "work_ms" in record:
        guess = f"{estimate(record['work_ms']):.1f} ms", f"{fit.estimated(record):+.0%}"
    shown = f"{published:.1f} ms", f"{bound['ms']:.1f} ms", bound["by"], f"{reached(record):.0%}"
    return (*shown, *guess)


SCRIPTS = ("script", "trains", "allocated", "reserved", "published")
HEADING = ("", "PyTorch here", "counter", "published", "emulated", "error")
TIMES = ("published per update", "bound", "by", "reached", "estimated", "error")


def main(argv=None):
    parser = Parser(description=__doc__.splitlines()[0])
    which = "only sources with this word in the title; the records of others are kept"
    parser.add_argument("--only", metavar="WORD", help=which)
    where = (
        "folder for the scripts of others, and for the versions of PyTorch that they have used; "
    )
    where += "both are fetched if missing. Without it, the stored records of those rows are kept"
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--folder", type=location, metavar="DIR", help=where)
    how.add_argument("--stored", action="store_true", help="print the stored records; run nothing")
    args = parser.parse_args(argv)
    chosen = [s for s in SOURCES if not args.only or args.only.lower() in s["title"].lower()]
    if not chosen:
        titles = "; ".join(source["title"] for source in SOURCES)
        raise UserError(f"--only {args.only}: no title has this word; there are {titles}")
    for source in chosen:
        if "commit" in source and args.folder:
            runs.prepare(source, args.folder)
    every = [row for source in chosen for row in rows(source)]
    for row in every if args.folder else ():
        if "torch" in row:
            others.python(args.folder, row["torch"], row.get("packages", ()))
    again = [row for row in every if args.folder or not needs_folder(row)]
    again = [] if args.stored else again
    known = [*stored.read(stored.PUBLISHED), *emulated(again, args.folder)]
    by_row = {(r["source"], r["what"]): r for r in known}
    if again:
        stays = [by_row[row["title"], row["words"]] for source in SOURCES for row in rows(source)]
        stored.write(stored.PUBLISHED, stays)
        print(f"{stored.PUBLISHED.name}: {len(again)} of {len(stays)} records are new")
    records = [by_row[row["title"], row["words"]] for row in every]
    for source in chosen:
        mine = [r for r in records if r["source"] == source["title"]]
        print("\n{title}: {url}\n{note}".format(**source))
        if sizes := table(mine):
            print("", *aligned(HEADING, sizes), sep="\n")
        if ran := scripts(mine):
            print("", *aligned(SCRIPTS, ran), sep="\n")
        for r in (r for r in mine if "why" in r and not r["script"]):
            print(f"{r['what']} did not run: {r['why']}")
        for row in (row for row in source["rows"] if "why" in row):
            print("\n{words} ({there}; {url}): {why}".format(**row))
        if timed := [(r["what"], *times(r)) for r in mine if r["published_ms"]]:
            print("\n", source["times"], "\n", *aligned(("", *TIMES), timed), sep="\n")
    if any(fit.halves(records)):
        print("", fit.summary(records), sep="\n")
    return records
