"""Run programs of others on emulated GPUs, beside what real GPUs did; print and store both."""

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

if __name__ == "__main__":
    # In place of this folder, whose modules have names that are others', too.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from proof import records, rows, run, show, traces  # noqa: E402
from proof.third_party import Unavailable  # noqa: E402

WORKERS = 2  # runs side by side: each has a core of a small computer


def emulate(to_run, folder=None):
    """Run rows of published figures, and return their records.

    A program with several published figures runs once. The folder has third-party scripts, and the
    versions of PyTorch that they need.
    """
    once = {rows.run_key(row): row for row in to_run}
    # One environment after the other: rows run side by side, and of two with the same PyTorch each
    # may want other versions of the packages.
    by_environment = {}
    for row in once.values():
        by_environment.setdefault((row["torch"], *row["packages"]), []).append(row)
    figures = {}
    with ThreadPoolExecutor(WORKERS) as pool:
        for group in by_environment.values():
            for row in group:
                run.prepare(row, folder)
            found = pool.map(lambda row: run.figures(row, folder), group)
            figures |= zip(map(rows.run_key, group), found)
    return [run.record(row, figures[rows.run_key(row)]) for row in to_run]


def published(words, folder, stored):
    """Run and show the published figures of sources with a word in their titles."""
    sources = [s for s in rows.SOURCES if has_word(s["title"], words)]
    to_run = [row for source in sources for row in rows.rows(source)]
    # Without a folder, rows that need one keep their records.
    to_run = [row for row in to_run if folder or not rows.needs_folder(row)]
    if to_run and not stored:
        records.replace("published", rows.SOURCES, emulate(to_run, folder))
    every = records.read("published")
    for source in sources:
        show.source(source, [r for r in every if r["source"] == source["title"]])


def compare(words, folder, stored):
    """Run and show the traces with a word in their names; without a folder, those that need none.

    Failures are printed.
    """
    if not folder and not stored:
        for name in filter(lambda name: has_word(name, words), traces.STORED):
            real, emulated = traces.real(name), traces.emulated(name)
            count = f"{traces.equal(real, emulated):,} of {len(real):,} events equal"
            print(f"{name:20} {count}, {len(emulated):,} emulated; {traces.STORED[name]}")
        return
    chosen = [row for source in rows.TRACES for row in rows.rows(source)]
    chosen = [row for row in chosen if has_word(row["name"], words)]
    groups = {}
    for row in chosen if not stored else ():
        # One run may write the snapshots of several rows.
        groups.setdefault(rows.run_key(row), []).append(row)
    new = []
    for group in groups.values():
        try:
            new += traces.compare(group, folder)
        except (Unavailable, run.Failed) as error:
            print(f"{group[0]['name']:28} {error}", flush=True)
    if new:
        records.replace("traces", rows.TRACES, new)
    names = [row["name"] for row in chosen]
    for record in records.read("traces"):
        if record["name"] in names:
            show.trace(record)


def has_word(text, words):
    """Return whether a text has one of some words; without words, each has."""
    return not words or any(word.lower() in text.lower() for word in words)


def main(argv=None):
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(prog="proof", description=__doc__)
    parser.add_argument("table", choices=("published", "traces"))
    which = "only sources with one of these in the title, or traces with one in the name"
    parser.add_argument("words", nargs="*", metavar="WORD", help=which)
    how = parser.add_mutually_exclusive_group()
    where = (
        "folder for the scripts of others, and for the versions of PyTorch that they have used: "
        "about 40 GB; both are fetched if missing"
    )
    how.add_argument("--folder", type=Path, metavar="DIR", help=where)
    how.add_argument("--stored", action="store_true", help="print the stored records; run nothing")
    args = parser.parse_intermixed_args(argv)
    command = {"published": published, "traces": compare}[args.table]
    try:
        command(args.words, args.folder, args.stored)
    except Unavailable as error:
        print(f"\nproof: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
