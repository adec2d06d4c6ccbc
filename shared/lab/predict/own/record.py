"""The record of a script's run, with the fields of a prediction that apply to it."""

from types import SimpleNamespace

from emulated_gpu import cards, process
from shared import record as records
from shared.lab.predict.bound import bound

# What a script trains on, by (number of dimensions, whether floating-point) of its inputs.
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
    segments = run.segments
    first = 0 if segments.loaded is None else trace.index(segments.loaded)
    load, load_at = trace.phase(segments.load_peaks, 0, first)
    end = len(run.watch.places)
    train, train_at = trace.phase(segments.end(), first, trace.index(end))
    operations = updates.operations or run.watch.cost.operations
    shape, is_floating = updates.batches.shape or ((), True)
    sizes = updates.batches.last
    in_all = sum(sizes) or sum(updates.batches.sizes)
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
        "bound": bound(operations, card.rates) if operations else None,
        "time": updates.time,
        "notes": [f"{where} {text}" for text, where in run.source.notes.items()],
        "kept_by": process.kept_by(),
        "stopped": run.limits.stopped,
    }
    return records.new(SimpleNamespace(packages=()), **fields)
