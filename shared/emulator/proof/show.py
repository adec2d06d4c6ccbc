"""Published figures and traces beside emulated ones, as text."""

NOTHING = "–"
SIZES = ("", "PyTorch here", "counter", "published", "emulated", "error")
SCRIPTS = ("script", "trains", "allocated", "reserved", "published")
TIMES = ("", "published per update", "emulated", "error")


def error(record):
    """Return the error of a prediction relative to the published figure, positive if too high."""
    return record["emulated_gb"] / record["published_gb"] - 1


def size(gb):
    """Format a size in GB, or in MB."""
    return f"{gb:.2f} GB" if gb >= 1 else f"{gb * 1e3:.1f} MB"


def aligned(heading, rows):
    """Return a table of texts as lines; the first column is left-aligned, others right-aligned."""
    rows = [heading, *rows]
    widths = [max(map(len, column)) for column in zip(*rows)]
    return [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip()
        for row in rows
    ]


def size_row(r):
    """Return the texts of a record with a published size; SIZES is their heading."""
    torch = r["torch"].partition("+")[0]  # without the build, such as cu128
    sizes = size(r["published_gb"]), size(r["emulated_gb"])
    return (r["what"], torch, r["counter"], *sizes, f"{error(r):+.1%}")


def script_row(r):
    """Return the texts of a third-party script: its memory, or the error that ended it."""
    # The reason stands in the place of the figures.
    memory = r.get("why"), NOTHING
    if "why" not in r:
        memory = size(r["allocated_gb"]), size(r["reserved_gb"])
    published = size(r["published_gb"]) if r["published_gb"] else NOTHING
    return (r["script"], r["what"], *memory, published)


def time_row(r):
    """Return the texts of a record with a published time; TIMES is their heading."""
    emulated = NOTHING, NOTHING
    if r.get("time"):  # not of a run that has failed
        ms = r["time"]["ms"]
        emulated = f"{ms:.1f} ms", f"{ms / r['published_ms'] - 1:+.0%}"
    return (r["what"], f"{r['published_ms']:.1f} ms", *emulated)


def source(table, records):
    """Print a source, its records as tables, and the rows that failed or miss, with the reasons."""
    print("\n{title}: {url}\n{note}".format(**table))
    if sizes := [size_row(r) for r in records if r["published_gb"]]:
        print("", *aligned(SIZES, sizes), sep="\n")
    if scripts := [script_row(r) for r in records if r["script"]]:
        print("", *aligned(SCRIPTS, scripts), sep="\n")
    for r in records:
        if "why" in r and not r["script"]:
            print(f"{r['what']} did not run: {r['why']}")
    # A row with a reason is one that is known to miss; the reader shall not have to find it.
    for row in table["rows"]:
        if "why" in row:
            print("\n{what} ({there}; {url}): {why}".format(**row))
    if times := [time_row(r) for r in records if r["published_ms"]]:
        print("\n", table["times"], "\n", *aligned(TIMES, times), sep="\n")


def trace(r):
    """Print a line on the record of a trace."""
    reserved = "same bytes reserved"
    if r["reserved"] != r["emulated_reserved"]:
        reserved = f"{r['emulated_reserved'] / r['reserved'] - 1:+.2%} reserved"
    verdict = "" if r["verdict"] == "equal" else f" ({r['verdict']})"
    events = f"{r['equal']:,} of {r['events']:,} events equal{verdict}, {reserved}"
    made = f"PyTorch {r['torch']}, {r['seconds']:.0f} s"
    print(f"{r['name']:28} {events}; {made}", flush=True)
