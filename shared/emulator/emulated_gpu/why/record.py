"""The record of a script's run: what `emulated-gpu why --json` writes."""

import datetime
import importlib.metadata
import itertools
import platform

import torch
from torch.nn.modules.conv import _ConvNd

from emulated_gpu import cards, process
from emulated_gpu.accounting.blocks import KNOWN
from emulated_gpu.stand_ins import notes
from emulated_gpu.why import cost

NAMES = {**cost.NAMES, torch.float32: "fp32", torch.float64: "fp64"}
PACKAGES = ("torch", "emulated-gpu", "transformers", "accelerate", "peft", "trl", "lightning")
# The unit of a script's inputs, by their (number of dimensions, whether floating-point).
UNITS = {(4, True): "images", (2, False): "texts"}


def make_record(run, trace, settings):
    """Return the record of a Run that has ended.

    Args:
        run: script.Run.
        trace: its Trace.
        settings: settings.Settings.
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
    return {
        "script": settings.module or f"{run.source.file.parent.name}/{run.source.file.name}",
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
        "notes": [f"{where} {text}" for text, where in notes.made.items()],
        "groups": 1,  # of processes that NCCL connects; the process's report has their number
        "groups_at": max(run.groups_at, key=run.groups_at.get, default=None),
        "kept_by": process.kept_by(),
        "stopped": run.limits.stopped,
        "types_gb": trace.at_peak(first, end, type_of),
        "logits_gb": trace.at_peak(first, end, type_of_logits),
        "vocabulary": updates.vocabulary,
        "convolutional": layers(_ConvNd) > layers(torch.nn.Linear),
        "recomputes": any(category == "recomputed" for *_, category in run.watch.places),
        "process": {"peak_gb": host_peak() / 1e9, "pinned_gb": pinned() / 1e9},
        "evaluation": kept_by_evaluation(run.evaluation, trace),
        "versions": versions(),
        "date": str(datetime.date.today()),
    }


def kept_by_evaluation(evaluation, trace):
    """Return what an updates.Evaluation keeps with each batch, None if that is nothing.

    {"gb": with each batch, "batches": their number, None if unknown, "seen": those that ran,
    "left_gb": in use after these, "joined_gb": by so much the largest tensor that a batch leaves is
    larger than that of the batch before, "line": FILE:LINE}.
    """
    if not evaluation.kept:
        return None
    since, *_, until = evaluation.ends
    largest = [trace.largest(*of_batch) for of_batch in itertools.pairwise(evaluation.ends)]
    return {
        "gb": evaluation.kept / 1e9,
        "batches": evaluation.batches,
        "seen": evaluation.seen,
        "left_gb": evaluation.left / 1e9,
        "joined_gb": max(min(b - a for a, b in itertools.pairwise(largest)), 0) / 1e9,
        "line": trace.grown_at("allocated", since, until, until),
    }


def versions():
    """Return the versions of Python, and of the packages that decide about memory, if installed."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        if any(importlib.metadata.distributions(name=name)):
            found[name] = importlib.metadata.version(name)
    return found


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
    stats = getattr(torch.cuda, "host_memory_stats", dict)  # from PyTorch 2.6 on
    return stats().get("allocated_bytes.peak", 0)
