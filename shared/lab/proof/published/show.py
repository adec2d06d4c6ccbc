"""Published figures beside emulated ones, as text: sizes, scripts and times of a source."""

from shared.lab.records import time_errors
from shared.lab.records.formats import NOTHING, aligned, size

SIZES = ("", "PyTorch here", "counter", "published", "emulated", "error")
SCRIPTS = ("script", "trains", "allocated", "reserved", "published")
TIMES = ("", "published per update", "emulated", "error")


def error(record):
    """Return the error of a prediction relative to the published figure, positive if too high."""
    return record["emulated_gb"] / record["published_gb"] - 1


def size_rows(records):
    """Return rows of texts for the records with published sizes; SIZES is their heading."""
    return [
        (
            r["what"],
            r["torch"].partition("+")[0],  # without the build, such as cu128
            r["counter"],
            size(r["published_gb"]),
            size(r["emulated_gb"]),
            f"{error(r):+.1%}",
        )
        for r in records
        if r["published_gb"]
    ]


def script_rows(records):
    """Return rows of texts for third-party scripts: their memory, or the error that ended them."""
    rows = []
    for r in records:
        if not r["script"]:
            continue
        published = size(r["published_gb"]) if r["published_gb"] else NOTHING
        if "why" in r:
            memory = (r["why"], NOTHING)  # the reason stands in the place of the figures
        else:
            memory = (size(r["allocated_gb"]), size(r["reserved_gb"]))
        rows.append((r["script"], r["what"], *memory, published))
    return rows


def time_rows(records):
    """Return rows of texts for the records with published times; TIMES is their heading."""
    rows = []
    for r in records:
        if not r["published_ms"]:
            continue
        emulated = (NOTHING, NOTHING)
        if r.get("time"):  # not from a PyTorch that is too old to tell what operations move
            emulated = (f"{r['time']['ms']:.1f} ms", f"{time_errors.error(r):+.0%}")
        rows.append((r["what"], f"{r['published_ms']:.1f} ms", *emulated))
    return rows


def show(source, records):
    """Print a source, its records as tables, and the rows that failed or miss, with the reasons."""
    print("\n{title}: {url}\n{note}".format(**source))
    if sizes := size_rows(records):
        print("", *aligned(SIZES, sizes), sep="\n")
    if scripts := script_rows(records):
        print("", *aligned(SCRIPTS, scripts), sep="\n")
    for r in records:
        if "why" in r and not r["script"]:
            print(f"{r['what']} did not run: {r['why']}")
    # A row with a reason is one that is known to miss; the reader shall not have to find it.
    for row in source["rows"]:
        if "why" in row:
            print("\n{what} ({there}; {url}): {why}".format(**row))
    if times := time_rows(records):
        print("\n", source["times"], "\n", *aligned(TIMES, times), sep="\n")
