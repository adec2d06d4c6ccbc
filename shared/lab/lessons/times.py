"""The parts of pages on time, as measured on one GPU: tables, and the sentences with figures."""

import statistics

from emulated_gpu.launch import HOST_US
from shared.lab.records import markdown, measured
from shared.lab.records.columns import Column, in_markdown
from shared.lab.records.time_errors import nine_of_ten

# What the tables of 04, 05 and 06 show: script, images per update, at a time.
BF16 = ("03_bf16/train", 64, 64)
BATCH_OF_16 = ("04_batchsize/train", 16, 16)
MICRO_BATCHES = [
    ("05_grad_accum/train", 16, 4),
    ("06_sgd/train", 16, 4),
    ("06_sgd/train", 64, 16),
    ("06_sgd/train", 128, 32),
]
CHECKPOINTED = ("09_act_ckpt/one_gpu", 64, 64)
SHOWN = {
    "04_batchsize": [
        BF16,
        ("03_bf16/train", 128, 128),
        BATCH_OF_16,
        ("04_batchsize/train", 32, 32),
    ],
    "05_grad_accum": [BF16, BATCH_OF_16, *MICRO_BATCHES, CHECKPOINTED],
    # Both with SGD, so that no optimizer's states are beside the activations.
    "09_act_ckpt": [("06_sgd/train", 64, 16), CHECKPOINTED],
}
SIZES = [Column("images", "batch_size"), Column("at a time", "at_a_time")]
MS = Column("ms per update", measured.spread)
KERNELS = Column("kernels", "kernels", ",")
PER_SECOND = Column("images/s", "per_second", ".0f")


def table(folder):
    """Return the table of images at a time and images per second, of a folder's page."""

    def link(run):
        # The number of a stage is enough.
        short = run.name.partition("_")[0] if run.name.endswith("/train") else run.name
        return f"[{short}](../{run.name}.py)"

    columns = [
        Column(f"{measured.gpu()}: script", link),
        *SIZES,
        Column("peak GB", "peak_gb", ".2f"),
        MS,
        KERNELS,
        PER_SECOND,
    ]
    return markdown.text(in_markdown(columns, [measured.updates(*r) for r in SHOWN[folder.name]]))


def every(folder):
    """Return the table of all timed updates."""
    columns = [
        Column(f"{measured.gpu()}: script", "name"),
        *SIZES,
        MS,
        Column("emulated", lambda run: run.emulated and run.emulated["ms"], ".0f"),
        Column("started by the host in", "launch_ms", ".0f"),
        KERNELS,
        Column("GPU busy, ms", "busy_ms", ".0f"),
        Column("emulated", lambda run: run.emulated and run.emulated["busy_ms"], ".0f"),
        PER_SECOND,
    ]
    rows = sorted(measured.times(), key=lambda run: run.name[:2])  # within a stage as measured
    busy, ms = map(_summed, ("busy_ms", "ms"))
    summary = (
        f"Emulated beside a host that takes {HOST_US:g} µs for a kernel, "
        f"{len(emulated_errors('ms'))} runs: for how long the GPU is busy, {busy}; for how long an "
        f"update takes, {ms}."
    )
    return markdown.text(in_markdown(columns, rows), summary)


def _summed(key):
    """Return the errors of emulated_errors(), as text."""
    off = emulated_errors(key)
    return (
        f"median error {statistics.median(off):.0%}, nine of ten within {nine_of_ten(off):.0%}, "
        f"all within {max(off):.0%}"
    )


def emulated_errors(key):
    """Return the relative errors, without sign, of emulated "ms" or "busy_ms"."""
    errors = []
    for run in measured.times():
        if run.emulated:
            true = run.busy_ms if key == "busy_ms" else run.median
            errors.append(abs(run.emulated[key] / true - 1))
    return errors


def which_first(folder):
    """Return the table of what helps first, with the price of each technique in time."""

    def times(name, before, *sizes):
        """Return how many times as long an update takes, with these images per update and pass."""
        runs = [measured.updates(script, *sizes) for script in (name, before)]
        return runs[0].median / runs[1].median

    mixed = "[mixed precision](../02_mixed_precision/)"
    faster = f"{1 / times('02_mixed_precision/train', '01_baseline/train'):.0f} times as fast"
    checkpointing = "[checkpointing](../09_act_ckpt/one_gpu.py), with as many images at once as fit"
    # 05 has Adam; its time, with all images at once, is that of 06 but for the optimizer's step.
    name, *sizes = CHECKPOINTED
    longer = times(name, "05_grad_accum/train", *sizes)
    again = f"{longer:.1f} times as long with {sizes[-1]} images at once"
    # With few images the GPU waits for the host, which starts the kernels of a forward pass twice.
    few = times(name, "05_grad_accum/train", 16, 4)
    again += f", {few:.1f} with 4, where the GPU waits for the host"
    # An update of four passes beside one. 05 and 06 start nearly the same kernels, so they are two
    # measurements of the same.
    passes = (measured.updates(name).median for name in ("05_grad_accum/train", "06_sgd/train"))
    whole = measured.updates(*BATCH_OF_16).median
    four = " to ".join(f"{ms / whole:.0f}" for ms in sorted(passes))
    small = f"[micro-batches](../05_grad_accum/), {four} times as long with 4 images at once"
    eight_bits = "[Adam in 8 bits](../06_sgd/adam_8bit_bnb.py)"
    # The pace of the host differs more between two runs than these two differ.
    bits, five = map(measured.updates, ("06_sgd/adam_8bit_bnb", "05_grad_accum/train"))
    more = f"{bits.kernels / five.kernels - 1:.0%} more kernels"
    host = times("06_sgd/adam_on_host", "05_grad_accum/train")
    last = f"[offloading](../10_offload/), last, or only Adam, {host:.1f} times as long"
    # Texts by hand, as they advise; figures only where an update was timed.
    return f"""\
| most of the peak is | first | an update on an H200 | then |
|---|---|---|---|
| activations, in fp32 | {mixed} | {faster} | the next row |
| activations, in 16 bits | {checkpointing} | {again} | {small} |
| Adam's states | {eight_bits} | {more} | [sharding over several GPUs](../08_fsdp/) |
| weights, gradients | sharding; [LoRA](../11_llm/lora.py) for text | not timed | {last} |
| Adam's temporaries | `fused=True` in the optimizer | not timed |  |"""
