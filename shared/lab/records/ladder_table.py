"""The measurements of a ladder, as a table of text."""

from shared.lab.records import reading, scripts
from shared.lab.records.columns import SCRIPT, Column, as_text
from shared.lab.records.formats import change, learned, less, scale
from shared.lab.records.reading import peak


def parent(record, records):
    """Return the record that a record is compared with, or None.

    That is the record of its parent script; for a stage whose parent is not among the records, the
    record of the stage before.
    """
    script = scripts.every().get(record["script"])
    same = [r for r in records if script and r["script"] == script.parent]
    # Beside another script than its parent, a side road would show two changes at once.
    if same or script and script.side_road:
        return same[-1] if same else None
    apart = scripts.side_roads()
    before = [r for r in records[: records.index(record)] if r["script"] not in apart]
    return before[-1] if before else None


def measured(records, predicted):
    """Return the measurements of one model as lines of text: a heading and a row per script.

    predicted is {script: record of a prediction}, for some of the scripts or none.
    """
    unit, per_gb = scale(records)
    # For a script without a prediction: its cells stay empty.
    nothing = {"train": {"device_peak_gb": None, "device_reserved_gb": None}}
    rows = []
    for r in records:
        expected = predicted.get(r["script"], nothing)["train"]
        rows.append({**r, "expected": expected, "before": parent(r, records)})

    def amount(gb):
        return f"{gb * per_gb:.2f}"

    columns = [
        SCRIPT,
        Column(f"load {unit}", "load.device_peak_gb", amount),
        Column(f"train {unit}", "train.device_peak_gb", amount),
        Column("predicted", "expected.device_peak_gb", amount),
        Column("train vs before", lambda r: r["before"] and change(peak(r["before"]), peak(r))),
        Column("train vs first", lambda r: None if r is rows[0] else less(peak(rows[0]), peak(r))),
        Column(f"reserved {unit}", "train.device_reserved_gb", amount),
        Column("predicted", "expected.device_reserved_gb", amount),
        Column(f"host: load {unit}", "load.host_peak_gb", amount),
        Column(f"host: train {unit}", "train.host_peak_gb", amount),
        Column(f"{reading.unit(records[0])}/s", reading.speed, ".0f"),
        Column("test acc.", learned),
    ]
    return as_text(columns, rows)
