"""The record of a script's run, with the fields of a prediction that apply to it."""

from types import SimpleNamespace

import torch
from torch.nn.modules.conv import _ConvNd

from emulated_gpu import cards, process
from shared import record as records
from shared.lab.predict import cost
from shared.memory.blocks import KNOWN

NAMES = {**cost.NAMES, torch.float32: "fp32", torch.float64: "fp64"}
# The unit of a script's inputs, by their (number of dimensions, whether floating-point).
UNITS = {(4, True): "images", (2, False): "texts"}


def make_record(run, trace, settings):
    """Return the record of a Run that has ended.

    Args:
        run: own.script.Run.
        trace: its Trace.
        settings: own.settings.Settings.
    """
    card = cards.get(settings.card)
    updates = run.updates
    kinds = updates.module_types
    first = 0 if updates.loaded is None else trace.index(updates.loaded)
    load, load_at = trace.phase(updates.load_peaks, 0, first)
    end = trace.index(len(run.watch.places))
    train, train_at = trace.phase(process.restart_peaks(), first, end)
    operations = updates.operations or run.watch.cost.operations
    shape, is_floating = updates.batches.shape or ((), True)
    sizes = updates.batches.last
    in_all = sum(sizes) or sum(updates.batches.sizes)

    def layers(of_type):
        return sum(kinds[kind] for kind in kinds if issubclass(kind, of_type))

    def type_of_logits(block):  # their gradients, and what a loss makes of them, are as large
        is_one = block.shape and block.shape[-1] == updates.vocabulary and block.label not in KNOWN
        return type_of(block) if is_one else ""

    # Attention is named by no precision of its own: it computes in that of its inputs.
    precisions = sorted({o.kind for o in operations if o.flop} - {"attention"})
    fields = {
        "script": f"{run.source.file.parent.name}/{run.source.file.name}",
        "preset": None,
        "model": updates.model_name or "no module trained",
        "inputs": " x ".join(map(str, shape)),
        "unit": UNITS.get((len(shape), is_floating), "inputs"),
        "device": f"emulated {card.title}",
        "world_size": settings.devices,
        "shares": settings.devices,
        "precision": " and ".join(precisions),
        "batch_size": in_all * settings.devices,
        "micro_batch_size": max(sizes, default=None),
        "steps": updates.count,
        "load": load,
        "train": train,
        "peak_at": {"load": load_at, "train": train_at},
        "cost": updates.totals or run.watch.cost.totals(),
        "time": updates.time,
        "notes": [f"{where} {text}" for text, where in run.source.notes.items()],
        "kept_by": process.kept_by(),
        "stopped": run.limits.stopped,
        "types_gb": trace.at_peak(first, end, type_of),
        "logits_gb": trace.at_peak(first, end, type_of_logits),
        "vocabulary": updates.vocabulary,
        "convolutional": layers(_ConvNd) > layers(torch.nn.Linear),
        "recomputes": any(category == "recomputed" for *_, category in run.watch.places),
        "process": {"peak_gb": host_peak() / 1e9, "pinned_gb": pinned() / 1e9},
    }
    return records.new(SimpleNamespace(packages=()), **fields)


def type_of(block):
    """Return the name of the type of a block's tensor, such as "fp32"; "" if it is not known."""
    return NAMES.get(block.dtype) or str(block.dtype or "").removeprefix("torch.")


def host_peak():
    """Return the most memory that this process has held on the host, in bytes."""
    # Not getrusage(), whose peak begins with that of the process that has started this one:
    # https://man7.org/linux/man-pages/man5/proc_pid_status.5.html
    with open("/proc/self/status") as file:
        (kib,) = (line.split()[1] for line in file if line.startswith("VmHWM"))
    return int(kib) * 1024


def pinned():
    """Return the most pinned memory that PyTorch's allocator has held on the host, in bytes."""
    return torch.cuda.host_memory_stats().get("allocated_bytes.peak", 0)
