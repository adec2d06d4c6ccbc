"""The parts of pages on time, as measured on one GPU: tables, and the sentences with figures."""

import statistics

from emulated_gpu.launch import HOST_US
from shared.lab.records import markdown, measured
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


def table(folder):
    """Return the table of images at a time and images per second, of a folder's page."""
    rows = [(f"{measured.gpu()}: script", "images", "at a time", "peak GB")]
    rows[0] += ("ms per update", "kernels", "images/s")
    for name, batch_size, at_a_time in SHOWN[folder.name]:
        run = measured.updates(name, batch_size, at_a_time)
        sizes = map(str, (run.batch_size, run.at_a_time))
        cells = measured.spread(run), f"{run.kernels:,}", f"{run.per_second:.0f}"
        # The number of a stage is enough.
        short = name.partition("_")[0] if name.endswith("/train") else name
        link = f"[{short}](../{name}.py)"
        rows.append((link, *sizes, f"{run.peak_gb:.2f}", *cells))
    return markdown.text(rows)


def every(folder):
    """Return the table of all timed updates."""
    settings = (f"{measured.gpu()}: script", "images", "at a time")
    figures = ("ms per update", "emulated", "started by the host in", "kernels")
    figures += ("GPU busy, ms", "emulated", "images/s")
    rows = [(*settings, *figures)]
    for run in sorted(measured.times(), key=lambda run: run.name[:2]):  # within a stage as measured
        sizes = str(run.batch_size), str(run.at_a_time)
        whole, busy = _emulated(run, "ms"), _emulated(run, "busy_ms")
        cells = measured.spread(run), whole, f"{run.launch_ms:.0f}", f"{run.kernels:,}"
        last = f"{run.busy_ms:.0f}", busy, f"{run.per_second:.0f}"
        rows.append((run.name, *sizes, *cells, *last))
    busy, same, usual = map(_summed, ("busy_ms", "ms", "usual_ms"))
    summary = (
        f"Emulated beside a host of the same pace, {len(emulated_errors('ms'))} runs: for how long "
        f"the GPU is busy, {busy}; for how long an update takes, {same}. **That is with your own "
        f"host's pace.** With the {HOST_US:g} µs for a kernel that the emulator assumes, the longer "
        f"of the host's time and the GPU's is further off: {usual}."
    )
    return markdown.text(rows, summary)


def _summed(key):
    """Return the errors of emulated_errors(), as text."""
    off = emulated_errors(key)
    return (
        f"median error {statistics.median(off):.0%}, nine of ten within {nine_of_ten(off):.0%}, "
        f"all within {max(off):.0%}"
    )


def _emulated(run, key):
    return f"{run.emulated[key]:.0f}" if run.emulated else ""


def emulated_errors(key):
    """Return the relative errors, without sign, of emulated "ms", "usual_ms" or "busy_ms"."""
    errors = []
    for run in measured.times():
        if run.emulated:
            true = run.busy_ms if key == "busy_ms" else run.median
            ms = usual_ms(run) if key == "usual_ms" else run.emulated[key]
            errors.append(abs(ms / true - 1))
    return errors


def usual_ms(run):
    """Return the milliseconds of an update beside a host of the pace that is assumed by default.

    The runs were emulated beside a host of their own pace. The slower of host and GPU sets the
    time; what the host computes or copies besides is left out.
    """
    return max(run.emulated["pieces"] * HOST_US / 1e3, run.emulated["busy_ms"])


def micro_batched():
    """Return how many times as long as in 04 an update of four passes takes, (least, most).

    05 and 06 start nearly the same kernels, so they are two measurements of the same.
    """
    whole = measured.updates(*BATCH_OF_16).median
    runs = [measured.updates(name) for name in ("05_grad_accum/train", "06_sgd/train")]
    ratios = [run.median / whole for run in runs]
    return min(ratios), max(ratios)


def which_first(folder):
    """Return the table of what helps first, with the price of each technique in time."""

    def times(name, before):
        """Return how many times as long an update takes."""
        runs = [measured.updates(script) for script in (before, name)]
        return f"{runs[1].median / runs[0].median:.2g}x"

    halves = times("02_mixed_precision/train", "01_baseline/train")
    # The pace of the host differs more between two runs than these two differ.
    bits, five = map(measured.updates, ("06_sgd/adam_8bit_bnb", "05_grad_accum/train"))
    four = " to ".join(f"{ratio:.0f}" for ratio in micro_batched())
    host = times("06_sgd/adam_on_host", "05_grad_accum/train")
    # 05 has Adam; its time, with all images at once, is that of 06 but for the optimizer's step.
    checkpointed = measured.updates(*CHECKPOINTED)
    kept = measured.updates("05_grad_accum/train", checkpointed.batch_size, checkpointed.at_a_time)
    again = f"{checkpointed.median / kept.median:.1f}x with {checkpointed.at_a_time} images at once"
    # With few images the GPU waits for the host, which starts the kernels of a forward pass twice.
    waits = [
        measured.updates(name, 16, 4) for name in ("09_act_ckpt/one_gpu", "05_grad_accum/train")
    ]
    again += f", {waits[0].median / waits[1].median:.1f}x with 4, where the GPU waits for the host"
    # Texts by hand, as they advise; figures only where an update was timed.
    table = [("most of the peak is", "first", "an update on an H200", "then")]
    table += [
        (
            "activations, in fp32",
            "[02](../02_mixed_precision/), or [bf16_mixed](../02_mixed_precision/bf16_mixed.py)",
            halves,
            "the next row",
        ),
        (
            "activations, in 16 bits",
            "[checkpointing](../09_act_ckpt/one_gpu.py), with as many images at once as fit",
            again,
            f"[05](../05_grad_accum/): {four}x with 4 images at once, free if 4 keep the GPU busy",
        ),
        (
            "Adam's states",
            "[8 bits](../06_sgd/adam_8bit_bnb.py)",
            f"{bits.kernels / five.kernels - 1:.0%} more kernels with 4 images at once",
            "[08](../08_fsdp/)",
        ),
        (
            "weights, gradients",
            "08; [LoRA](../11_llm/lora.py) for text",
            "not timed",
            f"[10](../10_offload/), last; [Adam on the host](../06_sgd/adam_on_host.py): {host}",
        ),
        ("Adam's temporaries", "`fused=True`", "not timed", ""),
    ]
    return markdown.text(table)
