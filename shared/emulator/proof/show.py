"""Published figures and traces beside emulated ones, a line for each record."""


def error(record):
    """Return the error of a prediction relative to the published figure, positive if too high."""
    return record["emulated_gb"] / record["published_gb"] - 1


def size(gb):
    """Format a size in GB, or in MB."""
    return f"{gb:.2f} GB" if gb >= 1 else f"{gb * 1e3:.1f} MB"


def figures(r):
    """Yield the figures of a published record, each as a text: memory, and time of an update."""
    if "why" in r:
        yield f"did not run: {r['why']}"
        return
    if r["published_gb"]:
        sizes = f"{size(r['published_gb'])}, emulated {size(r['emulated_gb'])}"
        yield f"{r['counter']} {sizes} ({error(r):+.1%})"
    elif r["script"]:
        yield f"allocated {size(r['allocated_gb'])}, reserved {size(r['reserved_gb'])}"
    if r["published_ms"] and r.get("time"):  # a run that found no room has none
        ms = r["time"]["ms"]
        off = f"{ms / r['published_ms'] - 1:+.0%}"
        yield f"an update {r['published_ms']:.1f} ms, emulated {ms:.1f} ms ({off})"


def source(table, records):
    """Print a source and its records, with the reasons of those that are known to miss."""
    print("\n{title}: {url}\n{note}".format(**table))
    if "times" in table:
        print(table["times"])
    width = max(len(r["what"]) for r in records)
    for row, r in zip(table["rows"], records, strict=True):
        print(f"{r['what']:{width}}  PyTorch {r['torch']}  {'; '.join(figures(r))}")
        # The reader shall not have to find the reason.
        if "why" in row:
            print("{:{}}  there {there}, {url}: {why}".format("", width, **row))


def trace(r):
    """Print a line on the record of a trace."""
    reserved = "same bytes reserved"
    if r["reserved"] != r["emulated_reserved"]:
        reserved = f"{r['emulated_reserved'] / r['reserved'] - 1:+.2%} reserved"
    verdict = "" if r["verdict"] == "equal" else f" ({r['verdict']})"
    events = f"{r['equal']:,} of {r['events']:,} events equal{verdict}, {reserved}"
    made = f"PyTorch {r['torch']}, {r['seconds']:.0f} s"
    print(f"{r['name']:28} {events}; {made}", flush=True)
