"""The measurements of a ladder, as a table of text."""

from shared.lab.records import scripts
from shared.lab.records.formats import aligned, change, learned, less, scale
from shared.lab.records.reading import speed, unit


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
    name, factor = scale(records)
    heading = ["script", f"load {name}", f"train {name}", "predicted"]
    heading += ["train vs before", "train vs first", f"reserved {name}", "predicted"]
    heading += [f"host: load {name}", f"host: train {name}"]
    heading += [f"{unit(records[0])}/s", "test acc."]

    def amounts(*sizes):
        return ["" if gb is None else f"{gb * factor:.2f}" for gb in sizes]

    # For a script without a prediction: its cells stay empty.
    nothing = {"train": {"device_peak_gb": None, "device_reserved_gb": None}}
    first = records[0]["train"]["device_peak_gb"]
    rows = []
    for r in records:
        before = parent(r, records)
        load = r["load"]
        train = r["train"]
        expected = predicted.get(r["script"], nothing)["train"]
        peak = train["device_peak_gb"]
        reserved = train["device_reserved_gb"]
        rows.append(
            [
                r["script"],
                *amounts(load["device_peak_gb"], peak, expected["device_peak_gb"]),
                change(before["train"]["device_peak_gb"], peak) if before else "",
                less(first, peak) if r is not records[0] else "",
                *amounts(reserved, expected["device_reserved_gb"]),
                *amounts(load["host_peak_gb"], train["host_peak_gb"]),
                f"{speed(r):.0f}" if speed(r) else "",
                learned(r),
            ]
        )
    return aligned(heading, rows)
