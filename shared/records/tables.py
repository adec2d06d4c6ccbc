"""What a ladder measured, as a table of text."""

from shared.records import scripts
from shared.records.record import breakdown, learned, scale, speed, unit
from shared.records.units import aligned, change, less, quality, size


def summary(record):
    """Returns what a script prints at its end: a line per phase, and one on speed and accuracy."""
    lines = []
    for name in ("load", "train", "save"):
        if not (phase := record[name]):
            continue
        reserved = ""
        if phase["device_reserved_gb"] is not None:
            amounts = (size(phase[key]) for key in ("device_reserved_gb", "host_peak_gb"))
            reserved = " ({} reserved, {} on the host)".format(*amounts)
        held = ", ".join(f"{label} {size(gb)}" for label, gb in breakdown(phase))
        lines.append(f"{name:5} peak {size(phase['device_peak_gb'])}{reserved}: {held}")
    updates = record["steps"] - (record["resumed_at"] or 0)
    taken = f"{updates} update{'s' * (updates != 1)} in {record['train_seconds']:.1f} s"
    fast = f", {speed(record):.0f} {unit(record)}/s" if speed(record) else ""
    name = "perplexity" if "test_perplexity" in record else "accuracy"
    return [*lines, f"{taken}{fast}; test {name} {quality(name, record[f'test_{name}'])}"]


def parent(record, records):
    """Returns the record that another one is compared with, None if there is none.

    That is the one of the script that its script builds on; for a stage whose parent is not among
    the records, the one of the stage before.
    """
    script = scripts.every().get(record["script"])
    same = [r for r in records if script and r["script"] == script.parent]
    if same or script and script.side_road:
        return same[-1] if same else None
    before = [
        r for r in records[: records.index(record)] if r["script"] not in scripts.side_roads()
    ]
    return before[-1] if before else None


def measured(records, predicted):
    """Returns what was measured of one model as lines of text: a heading and a row per script.

    Args:
        records: of the scripts, in order.
        predicted: {script: record of a prediction}, for some of them or none.
    """
    gb_or_mb, factor = scale(records)

    def amount(gb):
        return "" if gb is None else f"{gb * factor:.2f}"

    heading = (
        "script",
        f"load {gb_or_mb}",
        f"train {gb_or_mb}",
        "predicted",
        "train vs before",
        "train vs first",
        f"reserved {gb_or_mb}",
        "predicted",
        f"host: load {gb_or_mb}",
        f"host: train {gb_or_mb}",
        f"{unit(records[0])}/s",
        "test acc.",
    )
    nothing = {"train": {"device_peak_gb": None, "device_reserved_gb": None}}
    first = records[0]["train"]["device_peak_gb"]
    rows = []
    for r in records:
        before, load, train = parent(r, records), r["load"], r["train"]
        foreseen = predicted.get(r["script"], nothing)["train"]
        peak = train["device_peak_gb"]
        rows.append(
            (
                r["script"],
                amount(load["device_peak_gb"]),
                amount(peak),
                amount(foreseen["device_peak_gb"]),
                change(before["train"]["device_peak_gb"], peak) if before else "",
                less(first, peak) if r is not records[0] else "",
                amount(train["device_reserved_gb"]),
                amount(foreseen["device_reserved_gb"]),
                amount(load["host_peak_gb"]),
                amount(train["host_peak_gb"]),
                f"{speed(r):.0f}" if speed(r) else "",
                learned(r),
            )
        )
    return aligned(heading, rows)
