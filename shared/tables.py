"""What was measured and predicted, as tables of text: peaks, who holds the memory, what fits on a card."""

from shared import stages
from shared.ledger import CATEGORIES
from shared.figures import aligned, counted, scale, speed

# What a card holds besides the tensors that are simulated: the CUDA context with the kernels (about 0.5 GB), buffers of
# NCCL, and workspaces of cuBLAS, which PyTorch's allocator counts, but no operation shows. An assumption to be on the safe
# side with, not a measurement.
ALLOWANCE_GB = 1.0


def measured(records, predicted):
    """Returns what was measured of one model as lines of text, one per script under a heading, with what was predicted."""
    unit, factor = scale(records)
    heading = ("stage", f"load {unit}", f"train {unit}", "predicted", "vs before", "vs first", f"reserved {unit}", "predicted", f"host: load {unit}", f"host: train {unit}", f"{counted(records[0])}/s", "test acc.")
    first = records[0]["train"]["device_peak_gb"]
    rows = []
    for r, before in zip(records, [None, *records]):
        peak = r["train"]["device_peak_gb"]
        p = predicted.get(stages.run_of(r), {"train": {"device_peak_gb": None, "device_reserved_gb": None}})["train"]
        amounts = [r["train"]["device_reserved_gb"], p["device_reserved_gb"], r["load"]["host_peak_gb"], r["train"]["host_peak_gb"]]
        rows.append([
            stages.run_of(r),
            f"{r['load']['device_peak_gb'] * factor:.2f}",
            f"{peak * factor:.2f}",
            f"{p['device_peak_gb'] * factor:.2f}" if p["device_peak_gb"] else "",
            f"{peak / before['train']['device_peak_gb'] - 1:+.1%}" if before else "",
            f"{first / peak:.1f}x less" if before else "",
            *("" if gb is None else f"{gb * factor:.2f}" for gb in amounts),
            f"{speed(r):.0f}" if speed(r) else "",
            f"{r['test_accuracy']:.1%}",
        ])
    return aligned(heading, rows)


def predictions(records):
    """Returns the predictions of one model as lines of text: peaks and where they are, then who holds the memory there."""
    unit, factor = scale(records)

    def amount(gb):
        return "" if gb is None else f"{gb * factor:.2f}"

    first = records[0]["train"]["device_peak_gb"]
    heading = ("stage", "devices", counted(records[0]), "at once", f"load {unit}", f"load: host {unit}", f"allocated {unit}", f"reserved {unit}", f"host {unit}", "vs first", "simulated in", "peak in")
    places = [where(r).ljust(max(len(where(r)) for r in records)) for r in records]
    rows = []
    for r, place in zip(records, places):
        load, train = r["load"], r["train"]
        amounts = [load["device_peak_gb"], load["host_peak_gb"], train["device_peak_gb"], train["device_reserved_gb"], train["host_peak_gb"]]
        sizes = (r["world_size"], r["batch_size"], r["micro_batch_size"] or r["batch_size"])
        rows.append((name(r), *map(str, sizes), *map(amount, amounts), f"{first / train['device_peak_gb']:.1f}x less" if r is not records[0] else "", f"{r['seconds']:.1f} s", place))
    held = []
    for r in records:
        held.append((name(r), *(amount(r["train"]["breakdown_gb"].get(label)) for label in CATEGORIES)))
        if on_host(r):
            held.append((name(r) + ", host", *(amount(r["host_breakdown_gb"]["train"].get(label)) for label in CATEGORIES)))
    return [*aligned(heading, rows), "", f"Who holds it at the peak, in {unit}:", *aligned(("stage", *CATEGORIES), held)]


def name(record):
    """Returns what to call a record in a table: its script; on the way from one script to another, the last technique."""
    return f"+ {record['technique']}" if record["technique"] else stages.run_of(record)


def on_host(record):
    """Tells whether a training holds more on the host than a few numbers."""
    return (record["train"]["host_peak_gb"] or 0) > 0.01 * record["train"]["device_peak_gb"]


def where(record):
    """Tells where in the update a stage's peak is, such as "backward of encoder.layers.encoder_layer_23.mlp.3"."""
    at = record["peak_at"]["train"]
    return f"{at['phase']} of {at['module']}" if at["module"] else at["phase"]


def needs(record):
    """Returns what a stage needs of a card, in GB."""
    return max(record[phase]["device_reserved_gb"] for phase in ("load", "train")) + ALLOWANCE_GB


def fitting(records):
    """Returns which stages fit on a card, and with what micro-batch, as lines of text; the records have "fits"."""
    fits = [r["fits"] for r in records]
    rows = [(name(r), f"{f['needs_gb']:.2f}", "yes" if f["fits"] else "no", str(f["largest_micro_batch"] or "none fits")) for r, f in zip(records, fits)]
    first = next((name(r) for r in records if r["fits"]["fits"]), None)
    return [
        f"On a card of {fits[0]['card_gb']:g} GB, {ALLOWANCE_GB:g} GB of it for what is not simulated (CUDA context, NCCL, workspaces of cuBLAS):",
        *aligned(("stage", "needs GB", "fits", f"largest micro-batch, {counted(records[0])}"), rows),
        f"The first that fits: {first}" if first else "None of these fits as it is.",
    ]


def differences(record):
    """Yields (phase, what, measured GB, predicted GB, relative error, largest error that is good enough)."""
    measured = record["measured"]
    gpu = measured["train"]["device_reserved_gb"] is not None
    for phase in ("load", "train"):
        for what, name, limit in (("allocated", "device_peak_gb", 0.02 if gpu else 0.01), ("reserved", "device_reserved_gb", 0.08)):
            m, p = measured[phase][name], record[phase][name]
            if m:
                yield phase, what, m, p, p / m - 1, limit


def compare(records):
    """Returns predicted and measured peaks of one model side by side, as lines of text; the records have "measured"."""
    unit, factor = scale(records)
    rows = []
    for r in records:
        for phase, what, m, p, error, _ in differences(r):
            same = r[phase]["breakdown_gb"] == r["measured"][phase]["breakdown_gb"]
            details = ("same" if same else "differs") if what == "allocated" else ""
            rows.append((name(r), phase, what, f"{m * factor:.3f}", f"{p * factor:.3f}", f"{error:+.2%}", f"{round((p - m) * 1e9):+,}", details))
    return aligned(("stage", "phase", "peak", f"measured {unit}", f"predicted {unit}", "error", "bytes", "breakdown"), rows)
