"""What was measured beside what was predicted: rows of tables, for a terminal and for pages."""

from shared.evidence.calibrate.operations import LISTED, difference, right
from shared.records.record import most_per_second, name, speed

MIB = 2**20
HEADING = ("script", "measured: allocated", "predicted", "error")
HEADING += ("measured: reserved", "predicted", "error", "per second", "at most", "reached")
OPERATIONS = (
    "operation",
    "inputs",
    "script",
    "calls",
    "measured MB",
    "formula MB",
    "differs by MB",
)


def trainings(checked):
    """Returns the rows of a table, the heading first, of peaks while training.

    Args:
        checked: predictions, each with "measured".
    """
    rows = [HEADING]
    for p in checked:
        m = p["measured"]
        cells = [name(p) if m["world_size"] == 1 else f"{name(p)}, {m['world_size']} GPUs"]
        for key in ("device_peak_gb", "device_reserved_gb"):
            there, foreseen = m["train"][key], p["train"][key]
            if there is None:  # a CPU has no caching allocator
                cells += ["", "", ""]
                continue
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
    """Returns what was found about operations, the largest difference first: (script, row).

    Args:
        operations: {script: {"rows": of operations.Watch}}.
    """
    found = [(script, row) for script, its in operations.items() for row in its["rows"]]
    return sorted(found, key=lambda pair: -abs(difference(pair[1])))


def wrong(operations):
    """Returns those of compared() that the formulas do not describe."""
    return [(script, row) for script, row in compared(operations) if not right(row)]


def table(pairs):
    """Returns the rows of a table of operations, the heading first.

    Args:
        pairs: as compared() returns them.
    """
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
    pairs = compared(operations)
    known = {row["operation"] for _, row in pairs if row["formula"] is not None}
    bad = {row["operation"] for _, row in wrong(operations)}
    unknown = sorted(bad - known)
    said = f"formulas: {len(known - bad)} of {len(known)} operations as measured"
    if pairs and not right(pairs[0][1]):
        row = pairs[0][1]
        said += f"; the largest error is {difference(row) / 1e6:+.3f} MB, of {row['operation']}"
    if unknown:
        more = ", ".join(unknown)
        said += f"; without a formula, and more than {LISTED / 1e6:g} MB: {more}"
    return said


def errors(checked):
    """Says how large the errors of the predictions are, in one line."""
    said = []
    for what, key in (("allocated", "device_peak_gb"), ("reserved", "device_reserved_gb")):
        both = [(p["train"][key], p["measured"]["train"][key], name(p)) for p in checked]
        found = [(foreseen / there - 1, script) for foreseen, there, script in both if there]
        if found:
            worst, script = max(found, key=lambda pair: abs(pair[0]))
            said.append(f"{what}: the largest error is {worst:+.2%}, of {script}")
    s = "s" if len(checked) > 1 else ""
    return f"{len(checked)} prediction{s}; {'; '.join(said)}"


def context(card):
    """Says what a process holds outside PyTorch's allocator, in one line.

    Args:
        card: as context.measure() returns it.
    """
    parts = ", ".join(f"after {what} {n / MIB:.0f}" for what, n in card["outside"].items())
    others = "" if card["before"] is not None else " (with what other processes use)"
    smi = card["outside_by_nvidia_smi"]
    said = f"; by nvidia-smi {smi / MIB:.0f}" if smi is not None else ""
    return f"outside PyTorch's allocator, in MiB{others}: {parts}{said}"
