"""Predictions as tables of text: peaks, memory by category, costs, and scripts that fit a card."""

from emulated_gpu.cards import CONTEXT_GB, NCCL_GB
from emulated_gpu.why import pace, times
from emulated_gpu.why.fit import TIGHTLY
from shared.lab.records import formats, reading, scripts
from shared.lab.records.ladder_table import parent
from shared.lab.records.reading import name, setting, unit
from shared.memory import bf16
from shared.memory.accounting.blocks import CATEGORIES


def table(records, columns):
    """Return a table as lines of text; columns are {heading: function of a record}."""
    return formats.aligned(
        [*columns], [[str(show(r)) for show in columns.values()] for r in records]
    )


def predictions(records):
    """Return the predictions of one model as lines of text: peaks, and memory by category."""
    gb_or_mb, factor = formats.scale(records)
    width = max(len(formats.where(r)) for r in records)  # of the last column, which is text

    def amount(gb):
        return "" if gb is None else f"{gb * factor:.2f}"

    def peak(phase, key):
        return lambda r: amount(r[phase][f"{key}_gb"])

    def in_training(key):
        """Return a function of a record: a figure or, if the host's pace decides, its bounds."""
        return lambda r: " to ".join(dict.fromkeys(map(amount, pace.bounds(r, f"{key}_gb"))))

    def against_first(r):
        peaks = (x["train"]["device_peak_gb"] for x in (records[0], r))
        return formats.less(*peaks) if r is not records[0] else ""

    # A side road changes its parent, which says more than the first script of the table.
    def against_parent(r):
        before = r["script"] in scripts.side_roads() and parent(r, records)
        peaks = (x["train"]["device_peak_gb"] for x in (before, r))
        return formats.change(*peaks) if before else ""

    peaks = {
        "script": name,
        "devices": lambda r: r["world_size"],
        unit(records[0]): lambda r: r["batch_size"],
        "at once": reading.at_once,
        f"load {gb_or_mb}": peak("load", "device_peak"),
        f"load: host {gb_or_mb}": peak("load", "host_peak"),
        f"allocated {gb_or_mb}": in_training("device_peak"),
        f"reserved {gb_or_mb}": in_training("device_reserved"),
        f"host {gb_or_mb}": peak("train", "host_peak"),
        "allocated vs first": against_first,
        "allocated vs parent": against_parent,
        "peak in": lambda r: formats.where(r).ljust(width),
    }
    breakdowns = []  # (name, {category: GB})
    for r in records:
        breakdowns.append((name(r), r["train"]["breakdown_gb"]))
        if reading.on_host(r):
            breakdowns.append((f"{name(r)}, host", r["train"]["host_breakdown_gb"]))
    used = [label for label in CATEGORIES if any(label in gb for _, gb in breakdowns)]
    categories = {label: lambda row, label=label: amount(row[1].get(label)) for label in used}
    return [
        *table(records, peaks),
        "",
        f"What holds it at the peak, in {gb_or_mb}:",
        *table(breakdowns, {"script": lambda row: row[0], **categories}),
    ]


def costs(records):
    """Return the cost of an update per device, and its time, as lines of text."""

    def gb(key):
        def show(r):
            amount = r["cost"][f"{key}_gb"]
            if amount >= 0.005:
                return f"{amount:.2f}"
            return f"{amount:.3f}" if amount >= 5e-5 else ""  # else it would show as 0

        return show

    def speed(r):
        per_second = reading.emulated_per_second(r)
        if not per_second:  # a script without inputs
            return ""
        return f"{per_second:,.0f}" if per_second >= 10 else f"{per_second:.2g}"

    above = "What an update costs each device"
    columns = {
        "script": name,
        "TFLOP": lambda r: f"{r['cost']['tflop']:.4g}",
        "moved GB": gb("moved"),
        "gathered": gb("gathered"),
        "reduced": gb("reduced"),
        "to device": gb("to_device"),
        "to host": gb("to_host"),
        "on host": gb("moved_on_host"),
        "operations": lambda r: r["cost"]["operations"],
    }
    if all(r["time"] for r in records):  # not of a script that ends before its second update
        above += ", and how long it takes"
        columns |= {
            "GPU ms": lambda r: f"{r['time']['busy_ms']:.3g}",
            "kernels": lambda r: f"{r['time']['pieces']:,}",
            "ms": lambda r: f"{r['time']['ms']:.3g}",
            f"{unit(records[0])}/s": speed,
        }
    return [f"{above}:", *table(records, columns)]


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

    def ms(r):
        if not r["time"]:
            return ""
        is_least = r["world_size"] > 1 or reading.computes_on_host(r)
        return f"{'at least ' * is_least}{r['time']['ms']:,.0f}"

    columns = {
        "script": name,
        "GPUs": lambda r: r["world_size"],
        "each takes GB": lambda r: f"{r['fits']['needs_gb']:.2f}",
        "fits": answer,
        "to spare GB": lambda r: f"{_spare(r):.2f}",
        f"largest micro-batch, {unit(records[0])}": lambda r: (
            r["fits"]["largest_micro_batch"] or "none fits"
        ),
        "ms per update": ms,
    }
    above = (
        f"On a card of {records[0]['fits']['card_gb']:.4g} GB. Each takes what PyTorch reserves if "
        f"there is room, {CONTEXT_GB:g} GB for the CUDA context with its kernels and, with several "
        f"GPUs, {NCCL_GB:g} GB for NCCL. The latter two are as measured on one H200:"
    )
    below = "None of these fits as it is."
    if first := next((r for r in records if r["fits"]["fits"]), None):
        n = first["world_size"]
        below = f"The first that fits: {name(first)} on {n} {'GPUs' if n > 1 else 'GPU'}"
    return [above, *table(records, columns), f"Fits {TIGHTLY}. So may the largest.", below]


def _spare(record):
    return record["fits"]["card_gb"] - record["fits"]["needs_gb"]
