"""Measurements beside predictions: rows of tables for a terminal and for pages."""

from shared.evidence.calibrate.operations import LISTED, difference, right
from shared.records.views import most_per_second, name, speed

HEADING = ("script", "measured: allocated", "predicted", "error")
HEADING += ("measured: reserved", "predicted", "error", "per second", "at most", "reached")
OPERATIONS = ("operation", "inputs", "script", "calls")
OPERATIONS += ("measured MB", "formula MB", "differs by MB")


def runs(checked):
    """Return the rows of a table of training peaks, measured beside predicted."""
    rows = [HEADING]
    for p in checked:
        m = p["measured"]
        cells = [name(p) if m["world_size"] == 1 else f"{name(p)}, {m['world_size']} GPUs"]
        for key in ("device_peak_gb", "device_reserved_gb"):
            there, predicted = m["train"][key], p["train"][key]
            if there is None:  # a CPU has no caching allocator
                cells += ["", "", ""]
            else:
                cells += [_gb(there), _gb(predicted), f"{predicted / there - 1:+.2%}"]
        cells += [f"{speed(m):.1f}" if speed(m) else "", "", ""]
        if speed(m) and p.get("bound"):
            most = most_per_second(p)
            cells[-2:] = [f"{most:.0f}", f"{speed(m) / most:.0%}"]
        rows.append(tuple(cells))
    return rows


def _gb(gb):
    return f"{gb:.3f} GB" if gb >= 1 else f"{gb * 1e3:.2f} MB"


def compared(operations):
    """Return the measured operations as (script, row), the largest difference first."""
    found = [(script, row) for script, its in operations.items() for row in its["rows"]]
    return sorted(found, key=lambda pair: -abs(difference(pair[1])))


def wrong(operations):
    """Return those of compared() without a formula that is right."""
    return [(script, row) for script, row in compared(operations) if not right(row)]


def table(pairs):
    """Return the rows of a table of operations from compared(), the heading first."""
    rows = [OPERATIONS]
    for script, row in pairs:
        formula = "none" if row["formula"] is None else _mb(row["formula"])
        what = row["operation"].removeprefix("aten.").removesuffix(".default")
        sizes = (_mb(row["measured"]), formula, f"{difference(row) / 1e6:+.3f}")
        rows.append((what, row["inputs"], script, str(row["calls"]), *sizes))
    return rows


def _mb(nbytes):
    return f"{nbytes / 1e6:.3f}"


def formulas(operations):
    """Return a line with the number of operations that the formulas describe."""
    known = {row["operation"] for _, row in compared(operations) if row["formula"] is not None}
    bad = {row["operation"] for _, row in wrong(operations)}
    said = f"formulas: {len(known - bad)} of {len(known)} operations as measured"
    if unknown := sorted(bad - known):
        said += f"; without a formula, and more than {LISTED / 1e6:g} MB: {', '.join(unknown)}"
    return said


def context(card):
    """Return a line with the memory outside PyTorch's allocator, by child.context()."""
    parts = ", ".join(f"after {what} {n / 2**20:.0f}" for what, n in card["outside"].items())
    others = "" if card["before"] is not None else " (including other processes)"
    return f"outside PyTorch's allocator, in MiB{others}: {parts}"
