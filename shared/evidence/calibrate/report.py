"""What was measured beside what was predicted: rows of tables, for a terminal and for pages."""

from shared.evidence.calibrate.operations import LISTED, difference, right
from shared.records.views import most_per_second, name, speed

HEADING = ("script", "measured: allocated", "predicted", "error")
HEADING += ("measured: reserved", "predicted", "error", "per second", "at most", "reached")
OPERATIONS = ("operation", "inputs", "script", "calls")
OPERATIONS += ("measured MB", "formula MB", "differs by MB")


def trainings(checked):
    """Returns the rows of a table of peaks while training, measured beside predicted."""
    rows = [HEADING]
    for p in checked:
        m = p["measured"]
        cells = [name(p) if m["world_size"] == 1 else f"{name(p)}, {m['world_size']} GPUs"]
        for key in ("device_peak_gb", "device_reserved_gb"):
            there, foreseen = m["train"][key], p["train"][key]
            if there is None:  # a CPU has no caching allocator
                cells += ["", "", ""]
            else:
                cells += [_gb(there), _gb(foreseen), f"{foreseen / there - 1:+.2%}"]
        cells += [f"{speed(m):.1f}" if speed(m) else "", "", ""]
        if speed(m) and p.get("bound"):
            most = most_per_second(p)
            cells[-2:] = [f"{most:.0f}", f"{speed(m) / most:.0%}"]
        rows.append(tuple(cells))
    return rows


def _gb(gb):
    return f"{gb:.3f} GB" if gb >= 1 else f"{gb * 1e3:.2f} MB"


def compared(operations):
    """Returns what was found about operations, the largest difference first: (script, row)."""
    found = [(script, row) for script, its in operations.items() for row in its["rows"]]
    return sorted(found, key=lambda pair: -abs(difference(pair[1])))


def wrong(operations):
    """Returns those of compared() that the formulas do not describe."""
    return [(script, row) for script, row in compared(operations) if not right(row)]


def table(pairs):
    """Returns the rows of a table of operations, as compared() returns them, the heading first."""
    rows = [OPERATIONS]
    for script, row in pairs:
        formula = "not in the table" if row["formula"] is None else _mb(row["formula"])
        what = row["operation"].removeprefix("aten.").removesuffix(".default")
        sizes = (_mb(row["measured"]), formula, f"{difference(row) / 1e6:+.3f}")
        rows.append((what, row["inputs"], script, str(row["calls"]), *sizes))
    return rows


def _mb(nbytes):
    return f"{nbytes / 1e6:.3f}"


def formulas(operations):
    """Says how many of the operations the formulas describe, in one line."""
    known = {row["operation"] for _, row in compared(operations) if row["formula"] is not None}
    bad = {row["operation"] for _, row in wrong(operations)}
    said = f"formulas: {len(known - bad)} of {len(known)} operations as measured"
    if unknown := sorted(bad - known):
        said += f"; without a formula, and more than {LISTED / 1e6:g} MB: {', '.join(unknown)}"
    return said


def context(card):
    """Says what a process holds outside PyTorch's allocator, by child.context(), in one line."""
    parts = ", ".join(f"after {what} {n / 2**20:.0f}" for what, n in card["outside"].items())
    others = "" if card["before"] is not None else " (with what other processes use)"
    return f"outside PyTorch's allocator, in MiB{others}: {parts}"
