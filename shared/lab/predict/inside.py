"""What runs in the process with the emulated GPU: the script, and the record of what it needed."""

import json
import socket
import sys
import traceback
from pathlib import Path
from types import SimpleNamespace

import torch

from emulated_gpu import cards, process
from shared import record as records
from shared.cli import UserError
from shared.lab.predict import history
from shared.lab.predict.bound import bound
from shared.lab.predict.estimate import work
from shared.lab.predict.own.script import OURS, Run
from shared.lab.predict.own_script import FAILED
from shared.lab.predict.trace import Trace

# Layers whose workspaces only cuDNN knows.
LIBRARY = torch.nn.modules.conv._ConvNd, torch.nn.RNNBase
UNREACHED = ConnectionError, TimeoutError, socket.gaierror


def main(result, asked, argv):
    """Run a script, and write what it needed.

    Args:
        result: path of the file to write, JSON: {"record", "moments", "retries", ...}.
        asked: what command.py was asked for: {"script", "card", "updates", "devices", ...}.
        argv: the script's arguments.
    """
    for module in ("watch", "cost"):
        process.leave_out_of_compile(f"shared.lab.predict.{module}")
    torch.set_num_threads(1)
    process.leave_out_of_lines(Path(__file__).parent)
    run = Run(Path(asked["script"]), asked["updates"], asked["timed"])
    error = run.run(argv, asked["input"] and tuple(asked["input"]))
    if error and run.is_alone and not isinstance(error, KeyboardInterrupt):
        sys.exit(FAILED)
    out_of_memory = isinstance(error, torch.OutOfMemoryError)
    if out_of_memory:
        print(told(run, error), end="", file=sys.stderr)
        found = {"failed_at": failed_at(run, error)}
    else:
        if error:
            _end(run, error)
        found = needed(run, asked)
    Path(result).write_text(json.dumps(found))


def needed(run, asked):
    """Return the record of a Run, and what else command.py shows."""
    if not run.watch.places:
        raise UserError(f"{run.file.name}: nothing ran on the GPU; does it train on cuda?")
    trace, loaded = Trace(run.watch), run.loaded
    first = 0 if loaded is None else trace.index(loaded)
    r = record(run, trace, first, asked)
    moments = None
    if asked["timeline"] and len(run.starts) > 1:
        since, until = (trace.index(number) for number in run.starts[-2:])
        moments = history.condensed(r, trace, since, until)
    return {
        "record": r,
        "moments": moments,
        "errors": torch.cuda.memory_stats().get("num_ooms", 0),  # which the script has caught
        "retries": torch.cuda.memory_stats().get("num_alloc_retries", 0),
        "compile_seconds": _compile_seconds(),
        "host_ms": run.host_ms(),
        "trained": loaded is not None,
        "has_convolutions": any(issubclass(kind, LIBRARY) for kind in run.kinds),
    }


def record(run, trace, first, asked):
    """Return the record of a Run, with the fields of a prediction that it has."""
    card = cards.get(asked["card"])
    load, load_at = trace.phase(run.load_peaks, 0, first)
    run.end()
    parts = [(peaks, *map(trace.index, span)) for peaks, span in run.parts]
    train, train_at = max(
        (trace.phase(*part) for part in parts), key=lambda part: part[0]["device_peak_gb"]
    )
    operations = run.operations or run.watch.cost.operations
    shape, floating = run.inputs or ((), True)
    unit = {(4, True): "images", (2, False): "texts"}.get((len(shape), floating), "inputs")
    kinds = sorted({o.kind for o in operations if o.flop} - {"attention"})
    known = {
        "script": f"{run.file.parent.name}/{run.file.name}",
        "preset": None,
        "model": run.trains or "no module trained",
        "inputs": " x ".join(map(str, shape)),
        "unit": unit,
        "device": f"emulated {card.title}",
        "world_size": asked["devices"],
        "shares": asked["devices"],
        "precision": " and ".join(kinds),
        "batch_size": (run.batch or sum(run.sizes) or sum(run.seen)) * asked["devices"],
        "micro_batch_size": max(run.sizes, default=None),
        "steps": run.updates,
        "load": load,
        "train": train,
        "peak_at": {"load": load_at, "train": train_at},
        "cost": run.totals or run.watch.cost.totals(),
        "bound": bound(operations, card.rates) if operations else None,
        "work_ms": work(operations, card.rates) if operations else None,
        "notes": [f"{where} {text}" for text, where in run.noted.items()],
        "stopped": run.stopped,
    }
    return records.new(SimpleNamespace(packages=()), **known)


def _compile_seconds():
    """Return the seconds that torch.compile() took, 0 if the script does not use it."""
    if "torch._dynamo" not in sys.modules:
        return 0
    from torch._dynamo.utils import calculate_time_spent

    return calculate_time_spent().get("total_wall_time", 0)


def _end(run, error):
    """Handle what ended the script: return if the run counts, else raise, or exit as it did."""
    if isinstance(error, SystemExit):
        if error.code not in (None, 0) or not run.watch.places:
            raise error
        return
    if isinstance(error, StopIteration) and run.updates >= run.wanted:
        run.stopped = f"update {run.updates}, where its data ends"
        return
    if isinstance(error, KeyboardInterrupt):
        raise error
    at = failed_at(run, error)
    if isinstance(error, UserError):  # from a script of this repository
        raise UserError(f"{at}: {error}") from None
    said = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:300]}"
    if any(isinstance(e, UNREACHED) for e in _chain(error)):
        raise UserError(f"{at}: not reached, download it first: {said}") from None
    print(told(run, error), end="", file=sys.stderr)
    sys.exit(1)


def failed_at(run, error):
    """Return the line of a Run's script at which an exception was raised, as FILE:LINE."""
    own = [f for f in traceback.extract_tb(error.__traceback__) if run.is_own(f.filename)]
    return f"{Path(own[-1].filename).name}:{own[-1].lineno}" if own else run.file.name


def told(run, error):
    """Return an exception's traceback, from the script's first frame on, without our frames."""
    shown = chained = traceback.TracebackException.from_exception(error)
    while chained:
        frames = [f for f in chained.stack if not f.filename.startswith(OURS)]
        own = (i for i, f in enumerate(frames) if run.is_own(f.filename))
        chained.stack = traceback.StackSummary.from_list(frames[next(own, 0) :])
        chained = chained.__cause__ or chained.__context__
    return "".join(shown.format())


def _chain(error):
    while error:
        yield error
        error = error.__cause__ or error.__context__
