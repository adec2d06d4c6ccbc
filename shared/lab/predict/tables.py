"""Predictions as tables of text: peaks, memory by category, costs, and scripts that fit a card."""

from emulated_gpu.cards import CONTEXT_GB, NCCL_GB
from emulated_gpu.why import pace, times
from emulated_gpu.why.fit import TIGHTLY
from shared.lab.records import formats, reading, scripts
from shared.lab.records.columns import SCRIPT, Column, as_text
from shared.lab.records.ladder_table import parent
from shared.lab.records.reading import name, peak, setting
from shared.memory import bf16
from shared.memory.accounting.blocks import CATEGORIES


def predictions(records):
    """Return the predictions of one model as lines of text: peaks, and memory by category."""
    unit, per_gb = formats.scale(records)
    width = max(len(formats.where(r)) for r in records)  # of the last column, which is text

    def amount(gb):
        return f"{gb * per_gb:.2f}"

    def bounds(figure):
        """Return a function of a record: a figure or, if the host's pace decides, its bounds."""
        return lambda r: " to ".join(dict.fromkeys(map(amount, pace.bounds(r, f"{figure}_gb"))))

    def against_first(r):
        return formats.less(peak(records[0]), peak(r)) if r is not records[0] else None

    # A side road changes its parent, which says more than the first script of the table.
    def against_parent(r):
        before = parent(r, records) if r["script"] in scripts.side_roads() else None
        return before and formats.change(peak(before), peak(r))

    peaks = [
        SCRIPT,
        Column("devices", "world_size"),
        Column(reading.unit(records[0]), "batch_size"),
        Column("at once", reading.at_once),
        Column(f"load {unit}", "load.device_peak_gb", amount),
        Column(f"load: host {unit}", "load.host_peak_gb", amount),
        Column(f"allocated {unit}", bounds("device_peak")),
        Column(f"reserved {unit}", bounds("device_reserved")),
        Column(f"host {unit}", "train.host_peak_gb", amount),
        Column("allocated vs first", against_first),
        Column("allocated vs parent", against_parent),
        Column("peak in", lambda r: formats.where(r).ljust(width)),
    ]
    breakdowns = []
    for r in records:
        breakdowns.append({"script": name(r), **r["train"]["breakdown_gb"]})
        if reading.on_host(r):
            breakdowns.append({"script": f"{name(r)}, host", **r["train"]["host_breakdown_gb"]})
    categories = [Column("script", "script")]
    for label in CATEGORIES:
        categories.append(Column(label, lambda row, label=label: row.get(label), amount))
    return [
        *as_text(peaks, records),
        "",
        f"What holds it at the peak, in {unit}:",
        *as_text(categories, breakdowns),
    ]


def costs(records):
    """Return the cost of an update per device, and its time, as lines of text."""

    def gb(amount):
        if amount >= 0.005:
            return f"{amount:.2f}"
        return f"{amount:.3f}" if amount >= formats.LEAST else ""  # else it would show as 0

    def speed(r):
        per_second = r["batch_size"] / r["time"]["ms"] * 1e3  # over all devices
        if not per_second:  # a script without inputs
            return None
        return f"{per_second:,.0f}" if per_second >= 10 else f"{per_second:.2g}"

    above = "What an update costs each device"
    columns = [
        SCRIPT,
        Column("TFLOP", "cost.tflop", ".4g"),
        Column("moved GB", "cost.moved_gb", gb),
        Column("gathered", "cost.gathered_gb", gb),
        Column("reduced", "cost.reduced_gb", gb),
        Column("to device", "cost.to_device_gb", gb),
        Column("to host", "cost.to_host_gb", gb),
        Column("on host", "cost.moved_on_host_gb", gb),
        Column("operations", "cost.operations"),
    ]
    if all(r["time"] for r in records):  # not of a script that ends before its second update
        above += ", and how long it takes"
        columns += [
            Column("GPU ms", "time.busy_ms", ".3g"),
            Column("kernels", "time.pieces", ","),
            Column("ms", "time.ms", ".3g"),
            Column(f"{reading.unit(records[0])}/s", speed),
        ]
    return [f"{above}:", *as_text(columns, records)]


def show(records, card, how):
    """Print the tables of predictions of one model; `how` they were made is a text."""
    r = records[0]
    article = "an" if r["device"].startswith("e") else "a"
    print(f"\n{setting(r)}, on {article} {r['device']}, {how}. Figures are per device.\n")
    print("\n".join([*predictions(records), "", *costs(records)]))
    if card and (note := times.note(card)):
        print(f"\n{note}")
    if card and not card.bf16 and any("bf16" in str(r["precision"]) for r in records):
        print(f"\nA {card.title} has {bf16.NOTE}{bf16.SLOW}.")


def fitting(records):
    """Return a table of the scripts that fit on a card, by their "fits", as lines of text."""

    def answer(r):
        if not r["fits"]["fits"]:
            return "no"
        return "yes" if _spare(r) >= 0 else "tightly"

    def largest(r):
        return r["fits"]["largest_micro_batch"] or "none fits"

    def ms(r):
        if not r["time"]:
            return ""
        is_least = r["world_size"] > 1 or reading.computes_on_host(r)
        return f"{'at least ' * is_least}{r['time']['ms']:,.0f}"

    columns = [
        SCRIPT,
        Column("GPUs", "world_size"),
        Column("each takes GB", "fits.needs_gb", ".2f"),
        Column("fits", answer),
        Column("to spare GB", _spare, ".2f"),
        Column(f"largest micro-batch, {reading.unit(records[0])}", largest),
        Column("ms per update", ms),
    ]
    above = (
        f"On a card of {records[0]['fits']['card_gb']:.4g} GB. Each takes what PyTorch reserves if "
        f"there is room, {CONTEXT_GB:g} GB for the CUDA context with its kernels and, with several "
        f"GPUs, {NCCL_GB:g} GB for NCCL. The latter two are as measured on one H200:"
    )
    below = "None of these fits as it is."
    if first := next((r for r in records if r["fits"]["fits"]), None):
        n = first["world_size"]
        below = f"The first that fits: {name(first)} on {n} {'GPUs' if n > 1 else 'GPU'}"
    return [above, *as_text(columns, records), f"Fits {TIGHTLY}. So may the largest.", below]


def _spare(record):
    return record["fits"]["card_gb"] - record["fits"]["needs_gb"]
