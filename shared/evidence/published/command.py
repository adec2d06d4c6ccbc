"""Predicts what others have measured on GPUs and published, and prints both side by side.

Where they have published speeds, too, it prints the least time of an update, by the card's data
sheet, and how much of the measured time that is.
"""

import datetime

from shared.cli import Parser, UserError
from shared.evidence import kept
from shared.evidence.published import article, lightning_pages, others, pytorch, step_by_step
from shared.evidence.published.pretend import Pretended
from shared.predict import cards
from shared.predict.jobs import run_jobs
from shared.records import stored
from shared.records.record import git_commit, versions
from shared.records.views import aligned, size
from shared.text.cli import TASK

# Nothing is chosen so that a figure comes out right. What a source does not say, and what was
# assumed instead, is in its note.
SOURCES = (
    *article.SOURCES,
    *pytorch.SOURCES,
    *lightning_pages.SOURCES,
    *others.SOURCES,
    *step_by_step.SOURCES,
)


def simulate(row):
    """Returns what a row's program reads, {name: figures}; in a process that does nothing else."""
    return Pretended(cards.CARDS[row.card], row.torch, row.devices).run(row.program)


def predicted(sources):
    """Predicts the rows of sources.

    Programs of which several figures were published run once.

    Returns:
        a list of dicts, one for each row, as they are stored.
    """
    rows = [(source, row) for source in sources for row in source.rows]
    programs = {_key(row): row for _, row in rows}
    found = dict(zip(programs, run_jobs([(simulate, row) for row in programs.values()])))
    common = {"versions": versions(TASK), "git_commit": git_commit()}
    common["date"] = datetime.date.today().isoformat()
    return [
        {
            "source": source.title,
            "what": row.words,
            "counter": row.counter,
            "published_gb": row.gb,
            "card": cards.CARDS[row.card].title,
            "devices": row.devices,
            "published_ms": row.ms,
            **found[_key(row)][row.read],
            **common,
        }
        for source, row in rows
    ]


def _key(row):
    program = row.program
    return program.func, str(program.keywords), row.card, row.torch, row.devices


def error(record):
    """Returns how much too high a prediction is, relative to the published figure."""
    return record[f"{record['counter']}_gb"] / record["published_gb"] - 1


def reached(record):
    """Returns the bound of an update's time, relative to the published time."""
    return record["bound"]["ms"] / record["published_ms"]


def table(records):
    """Returns rows of texts, for records with sizes: what, counter, published, predicted, error."""
    sizes = [
        (r, size(r["published_gb"]), size(r[f"{r['counter']}_gb"]))
        for r in records
        if r["published_gb"]
    ]
    return [(r["what"], r["counter"], *both, f"{error(r):+.1%}") for r, *both in sizes]


def times(record):
    """Returns texts of a record with a time: published, bound, by what, how much of it."""
    found, published = record["bound"], record["published_ms"]
    return (f"{published:.1f} ms", f"{found['ms']:.1f} ms", found["by"], f"{reached(record):.0%}")


HEADING = ("", "counter", "published", "predicted", "error")
TIMES = ("published per update", "bound", "by", "reached")


def main(argv=None):
    parser = Parser(description=__doc__.splitlines()[0])
    which = "only sources with this word in their titles; prints them, and stores nothing"
    parser.add_argument("--only", metavar="WORD", help=which)
    args = parser.parse_args(argv)
    chosen = [s for s in SOURCES if not args.only or args.only.lower() in s.title.lower()]
    if not chosen:
        titles = "; ".join(source.title for source in SOURCES)
        raise UserError(f"--only {args.only}: no source is called so; there are {titles}")
    records = predicted(chosen)
    if not args.only:
        kept.store(stored.PUBLISHED, "published", records)
    for source in chosen:
        mine = [r for r in records if r["source"] == source.title]
        print(f"\n{source.title}: {source.url}\n{source.note}")
        if sizes := table(mine):
            print("", *aligned(HEADING, sizes), sep="\n")
        if timed := [(r["what"], *times(r)) for r in mine if r["published_ms"]]:
            print(f"\n{source.times}\n", *aligned(("", *TIMES), timed), sep="\n")
    return records
