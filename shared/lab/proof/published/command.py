"""Run programs with published figures on emulated GPUs, and print both figures side by side.

For published speeds, print the emulated time beside the published one.
"""

import datetime

from emulated_gpu import cards
from shared.cli import Parser, location
from shared.errors import UserError
from shared.lab.predict.jobs import run_jobs
from shared.lab.proof import third_party
from shared.lab.proof.published import run_row
from shared.lab.proof.published.show import show
from shared.lab.proof.published.sources import (
    SOURCES,
    needs_folder,
    published_gb,
    published_ms,
    rows,
    run_key,
)
from shared.lab.records import stored
from shared.record import git_commit, versions
from shared.text.cli import TASK

COMMAND = "python -m shared records published"
# The figures of a run that its record keeps.
KEPT = ("allocated_gb", "active_gb", "reserved_gb", "time", "notes", "why")


def prepare(sources, folder):
    """Fetch the repositories of the sources into a folder, and make their data."""
    for source in sources:
        if "commit" in source:
            run_row.prepare(source, folder)


def run(sources, folder=None):
    """Run the rows of sources, and replace their stored records.

    Without a folder, rows that need one are left out.
    """
    to_run = [row for source in sources for row in rows(source)]
    if not folder:
        to_run = [row for row in to_run if not needs_folder(row)]
    # Every row of these sources may need a folder.
    if not to_run:
        return
    by_row = {key(record): record for record in stored.read(stored.PUBLISHED)}
    by_row |= {key(record): record for record in emulated(to_run, folder)}
    # In the order of the sources: a row that has gone there goes here, too.
    records = [by_row[row["title"], row["what"]] for source in SOURCES for row in rows(source)]
    stored.write(stored.PUBLISHED, records)
    print(f"{stored.PUBLISHED.name}: {len(to_run)} of {len(records)} records are new")


def emulated(to_run, folder=None):
    """Run rows, and return their records.

    A program with several published figures runs once. The folder has third-party scripts, and the
    versions of PyTorch that they need.
    """
    # Programs run for minutes, and several rows read counters of one run.
    once = {run_key(row): row for row in to_run}
    # One environment after the other: rows run side by side, and of two with the same PyTorch each
    # may want other versions of the packages.
    by_environment = {}
    for row in once.values():
        by_environment.setdefault((row.get("torch"), *row.get("packages", ())), []).append(row)
    figures = {}
    for (torch, *packages), group in by_environment.items():
        if torch:
            third_party.python(folder, torch, packages)
        jobs = [(run_row.run, row, folder) for row in group]
        figures |= zip(map(run_key, group), run_jobs(jobs, emulated=False))
    common = {"git_commit": git_commit(), "date": datetime.date.today().isoformat()}
    # Any task will do: the version of PyTorch is the same for all.
    installed = versions(TASK)["torch"]
    return [{**record_of(row, figures[run_key(row)], installed), **common} for row in to_run]


def record_of(row, figures, installed):
    """Return the record of a row from the figures of its run; installed is PyTorch's version."""
    gb = published_gb(row)
    by_counter = figures.get(f"{row['counter']}_gb")
    made = {
        "source": row["title"],
        "what": row["what"],
        "counter": row["counter"] if gb else None,
        "published_gb": gb,
        # What a program prints of its own counts, where it prints the figure of this row.
        "emulated_gb": figures.get("printed", {}).get(row["read"], by_counter),
        "card": cards.CARDS[row["card"]].title,
        "devices": row["devices"],
        "published_ms": published_ms(row),
        "script": run_row.name(row) if "script" in row else None,
        "command": f"{COMMAND} --folder DIR" if needs_folder(row) else COMMAND,
        "cudnn": row["cudnn"],
        "torch": figures.get("torch") or installed,
    }
    if "why" in figures:  # it has not run, so there is nothing to compare
        made |= dict.fromkeys(("counter", "published_gb", "published_ms"))
    return made | {name: figures[name] for name in KEPT if name in figures}


def key(record):
    """Return the key of a record: the title of its source, and the subject of its row."""
    return record["source"], record["what"]


def parse(argv):
    parser = Parser(description=__doc__.splitlines()[0])
    which = "only sources with this word in the title; the records of others are kept"
    parser.add_argument("--only", metavar="WORD", help=which)
    where = (
        "folder for the scripts of others, and for the versions of PyTorch that they have used; "
        "both are fetched if missing. Without it, the stored records of those rows are kept"
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--folder", type=location, metavar="DIR", help=where)
    how.add_argument("--stored", action="store_true", help="print the stored records; run nothing")
    return parser.parse_args(argv)


def chosen(word):
    """Return the sources with a word in the title, or all of them without a word."""
    sources = [s for s in SOURCES if not word or word.lower() in s["title"].lower()]
    if not sources:
        titles = "; ".join(source["title"] for source in SOURCES)
        raise UserError(f"--only {word}: no title has this word; there are {titles}")
    return sources


def main(argv=None):
    args = parse(argv)
    sources = chosen(args.only)
    if args.folder:
        prepare(sources, args.folder)
    if not args.stored:
        run(sources, args.folder)
    by_source = {source["title"]: [] for source in sources}
    for entry in stored.read(stored.PUBLISHED):
        if entry["source"] in by_source:
            by_source[entry["source"]].append(entry)
    for source in sources:
        show(source, by_source[source["title"]])
    records = [entry for entries in by_source.values() for entry in entries]
    return records
