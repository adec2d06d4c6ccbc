"""What was predicted, as tables of text: peaks, who holds the memory, what fits on a card."""

from shared.memory.blocks import CATEGORIES
from shared.records import scripts
from shared.records.record import at_once, most_per_second, name, on_host, scale, unit, where
from shared.records.tables import parent
from shared.records.units import aligned, change, less

# What a card holds besides what PyTorch's allocator has taken: an allowance, not measured here.
# Others found 0.3 to 0.8 GB for the CUDA context with its kernels, most on the newest cards:
# https://github.com/pytorch/pytorch/pull/86509, https://github.com/Lightning-AI/litgpt/issues/1892;
# and 0.5 to 0.7 GB for the buffers of NCCL with up to four GPUs, more with more communicators:
# https://github.com/NVIDIA/nccl/issues/964, https://github.com/NVIDIA/nccl/issues/864.
CONTEXT_GB = 0.8
NCCL_GB = 0.8


def predictions(records):
    """Returns the predictions of one model as lines of text: peaks, then who holds the memory."""
    gb_or_mb, factor = scale(records)

    def amount(gb):
        return "" if gb is None else f"{gb * factor:.2f}"

    heading = (
        "script",
        "devices",
        unit(records[0]),
        "at once",
        f"load {gb_or_mb}",
        f"load: host {gb_or_mb}",
        f"allocated {gb_or_mb}",
        f"reserved {gb_or_mb}",
        f"host {gb_or_mb}",
        "allocated vs first",
        "reserved vs first",
        "allocated vs parent",
        "simulated in",
        "peak in",
    )

    def against_parent(r):
        before = r["script"] in scripts.side_roads() and parent(r, records)
        return before and change(*(x["train"]["device_peak_gb"] for x in (before, r))) or ""

    def fallen(key, r):
        before, now = (record["train"][key] for record in (records[0], r))
        return less(before, now) if now and r is not records[0] else ""

    width = max(len(where(r)) for r in records)
    rows = []
    for r in records:
        load, train = r["load"], r["train"]
        rows.append(
            (
                name(r),
                str(r["world_size"]),
                str(r["batch_size"]),
                str(at_once(r)),
                amount(load["device_peak_gb"]),
                amount(load["host_peak_gb"]),
                amount(train["device_peak_gb"]),
                amount(train["device_reserved_gb"]),
                amount(train["host_peak_gb"]),
                *(fallen(key, r) for key in ("device_peak_gb", "device_reserved_gb")),
                against_parent(r),
                f"{r['seconds']:.1f} s",
                where(r).ljust(width),
            )
        )
    held = []
    for r in records:
        parts = r["train"]["breakdown_gb"]
        held.append((name(r), *(amount(parts.get(label)) for label in CATEGORIES)))
        if on_host(r):
            parts = r["host_breakdown_gb"]["train"]
            held.append((f"{name(r)}, host", *(amount(parts.get(label)) for label in CATEGORIES)))
    return [
        *aligned(heading, rows),
        "",
        f"Who holds it at the peak, in {gb_or_mb}:",
        *aligned(("script", *CATEGORIES), held),
    ]


def costs(records):
    """Returns what an update costs each device, and its least time, as lines of text."""

    def gb(amount):
        return f"{amount:.2f}" if amount >= 0.005 else f"{amount:.3f}" if amount >= 5e-5 else ""

    timed = all(r["bound"] for r in records)
    heading = ["script", "TFLOP", "moved GB", "gathered", "reduced", "to device", "to host"]
    heading += ["on host", "operations"]
    if timed:
        heading += ["at least ms", "in cache", f"at most {unit(records[0])}/s", "bounded by"]
    rows = []
    for r in records:
        c, b = r["cost"], r["bound"]
        sizes = [gb(n) for key, n in c.items() if key.endswith("_gb")]
        row = [name(r), f"{c['tflop']:.4g}", *sizes, str(c["operations"])]
        if timed:
            speed = f"{most_per_second(r):,.0f}"
            row += [f"{b['ms']:.4g}", f"{b['in_cache_ms']:.4g}", speed, b["by"]]
        rows.append(tuple(row))
    above = "What an update costs each device"
    if timed:
        above += (
            ", and how long it takes at least, by the highest rates; in cache: if whatever fits "
            "in the L2 cache stays there"
        )
    return [f"{above}:", *aligned(tuple(heading), rows)]


def allowance(record):
    """Returns how much of a card is left for what is not simulated, in GB."""
    return CONTEXT_GB + NCCL_GB * (record["world_size"] > 1)


def needs(record):
    """Returns what a script needs of a card, in GB."""
    reserved = max(record[phase]["device_reserved_gb"] for phase in ("load", "train"))
    return reserved + allowance(record)


def fitting(records):
    """Returns which scripts fit on a card, and with what micro-batch, as lines of text.

    Args:
        records: with "fits".
    """
    rows = []
    for r in records:
        fits = r["fits"]
        largest = str(fits["largest_micro_batch"] or "none fits")
        needed = (str(r["world_size"]), f"{fits['needs_gb']:.2f}")
        rows.append((name(r), *needed, "yes" if fits["fits"] else "no", largest))
    first = next((r for r in records if r["fits"]["fits"]), None)
    many = f"largest micro-batch, {unit(records[0])}"
    heading = ("script", "GPUs", "each needs GB", "fits", many)
    above = (
        f"On a card of {records[0]['fits']['card_gb']:.4g} GB; {CONTEXT_GB:g} GB of it for CUDA's "
        f"context with its kernels, and with several GPUs {NCCL_GB:g} GB for NCCL, which are not "
        "simulated:"
    )
    below = "None of these fits as it is."
    if first:
        n = first["world_size"]
        below = f"The first that fits: {name(first)} on {n} GPU{'s' * (n > 1)}"
    return [above, *aligned(heading, rows), below]


def differences(record):
    """Yields (phase, what, measured GB, predicted GB, relative error, largest error allowed).

    Args:
        record: of a prediction, with "measured".
    """
    measured = record["measured"]
    gpu = measured["train"]["device_reserved_gb"] is not None
    peaks = (
        ("allocated", "device_peak_gb", 0.02 if gpu else 0.01),
        ("reserved", "device_reserved_gb", 0.08),
    )
    for phase in ("load", "train"):
        for what, key, limit in peaks:
            m, p = measured[phase][key], record[phase][key]
            if m:
                yield phase, what, m, p, p / m - 1, limit


def compare(records):
    """Returns predicted and measured peaks of one model side by side, as lines of text.

    Args:
        records: of predictions, with "measured".
    """
    gb_or_mb, factor = scale(records)
    rows = []
    for r in records:
        for phase, what, m, p, error, _ in differences(r):
            same = r[phase]["breakdown_gb"] == r["measured"][phase]["breakdown_gb"]
            sizes = (f"{m * factor:.3f}", f"{p * factor:.3f}")
            errors = (f"{error:+.2%}", f"{round((p - m) * 1e9):+,}")
            # On a GPU the ledger measures tensors, and knows no blocks and no workspaces.
            on_cpu = r["measured"][phase]["device_reserved_gb"] is None
            last = ("same" if same else "differs") if on_cpu else ""
            rows.append((name(r), phase, what, *sizes, *errors, last))
    heading = ("script", "phase", "peak", f"measured {gb_or_mb}", f"predicted {gb_or_mb}")
    return aligned((*heading, "error", "bytes", "breakdown"), rows)
