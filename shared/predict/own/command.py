"""Predict the GPU memory and the cost of any training script, unedited and without a GPU.

The script sees a GPU, computes on tensors without memory, and ends after a few updates. Its own
code runs as it is: run no script that you would not run yourself.
"""

import contextlib
import json
import logging
import os
import re
import socket
import sys
import time
from pathlib import Path

import torch

from shared import cli as options
from shared.cli import UserError
from shared.emulator import cards
from shared.images.cli import TASK
from shared.predict import allocator, gpu, history, machine, tables, timeline
from shared.predict.bound import bound
from shared.predict.command import show_tables
from shared.records import record as records
from shared.records import scripts, views

ENVIRONMENT = {"CUDA_VISIBLE_DEVICES": "", "WANDB_MODE": "disabled", "TORCHDYNAMO_DISABLE": "1"}
# Layers whose workspaces only cuDNN knows.
LIBRARY = torch.nn.modules.conv._ConvNd, torch.nn.RNNBase
UNREACHED = ConnectionError, TimeoutError, socket.gaierror
# A message with one of these is about what a simulated GPU cannot do.
CANNOT = "PrivateUse1|meta tensor|fake tensor|0 active drivers|CUDA|Triton|data_ptr"


def is_own(argv):
    """Return whether a command line names a script that is not one of this repository."""
    its = argv[: argv.index("--")] if "--" in argv else argv
    files = [x.removesuffix(".py") for x in its if x.endswith((".py", ".ipynb"))]
    return any(file not in scripts.every() for file in files)


def shape(text):
    """Convert a shape such as 3x224x224 to a tuple."""
    return tuple(options.positive(n) for n in text.split("x"))


def make_parser():
    """Return the parser of the options before --."""
    usage = "%(prog)s SCRIPT.py [options] [-- its options]"
    parser = options.Parser(prog="python -m shared.predict", usage=usage, description=__doc__)
    add, positive = parser.add_argument, options.positive
    card = f"the GPU: {', '.join(cards.CARDS)} (default: a100)"
    version = "of PyTorch, for its workspaces, such as 2.11 (default: the installed version)"
    devices = "GPUs; the script runs as rank 0 of so many processes, as torchrun starts it"
    images = "of images, such as 3x224x224, in place of missing data sets of torchvision"
    fits = "whether it fits into so many GB (1e9 bytes), or on a card"
    add("script", type=Path, metavar="SCRIPT.py", help="arguments after -- are for the script")
    add("--card", type=cards.get, default=cards.DEFAULT, metavar="NAME", help=card)
    add("--torch", type=machine.version, default=machine.INSTALLED, metavar="VERSION", help=version)
    add("--expandable", action="store_true", help=f"as with {allocator.VARIABLE}={allocator.GROW}")
    add("--devices", type=positive, default=1, metavar="N", help=devices)
    add("--updates", type=positive, default=3, metavar="N", help="to train for (default: 3)")
    add("--input", type=shape, metavar="SHAPE", help=images)
    add("--fits", type=cards.card_or_gb, metavar="GB|CARD", help=fits)
    add("--timeline", type=options.location, metavar="DIR", help="draw what holds memory")
    add("--json", action="store_true", help="print a list of one record instead of tables")
    return parser


def main(argv=None):
    argv = sys.argv[1:] if argv is None else argv
    cut = argv.index("--") if "--" in argv else len(argv)
    args = make_parser().parse_args(argv[:cut])
    args.command = options.command_of(["-m", "shared.predict"], argv)
    if isinstance(args.fits, cards.Card):
        args.card, args.fits = args.fits, None
    run, found = predict(args, argv[cut + 1 :])
    if args.timeline and len(run.starts) > 1:
        events = run.counters.now().events
        moments = history.condensed(found, events, run.ledger, run.starts[-2], gpu.DEVICE)
        timeline.draw_all([moments], args.timeline)
    print(json.dumps([found], indent=1)) if args.json else show(found, run, args)
    return [found]


def predict(args, argv):
    """Run a script with its arguments; return the Run and its record.

    The process cannot be used for anything else afterwards.
    """
    from shared.predict.own.script import Run  # here, because it changes PyTorch

    file = args.script.resolve()
    if not file.is_file() or file.suffix != ".py":
        makes = "; jupyter nbconvert --to script makes one" * (file.suffix == ".ipynb")
        raise UserError(f"there is no script {args.script}{makes}")
    os.environ |= ENVIRONMENT
    # Its failures are reported with the line of the script.
    logging.getLogger("torch._subclasses.fake_tensor").setLevel(logging.CRITICAL)
    torch.set_num_threads(1)
    started = time.perf_counter()
    if args.expandable:
        os.environ[allocator.VARIABLE] = allocator.GROW
    run = Run(file, args.card, args.torch, args.updates, args.devices)
    # The script's output does not belong to the JSON.
    with contextlib.redirect_stdout(sys.stderr) if args.json else contextlib.nullcontext():
        error = run.run(argv, args.input)
    if error:
        _end(run, error)
    return run, record(run, args, time.perf_counter() - started)


def _end(run, error):
    """Handle what ended the script: return if the run counts, else raise, or exit as it did."""
    if isinstance(error, SystemExit):
        if error.code not in (None, 0) or not (run.costs or run.cost.operations):
            raise error
        return
    if isinstance(error, StopIteration) and run.updates >= run.wanted:
        run.stopped = f"update {run.updates}, where its data ends"
        return
    if isinstance(error, KeyboardInterrupt):
        raise error
    said = str(error).strip().partition("\n")[0]
    at = run.failed_at(error)
    if isinstance(error, UserError):
        raise UserError(f"{at}: {said}") from None
    kind, module = type(error).__name__, type(error).__module__.partition(".")[0]
    if isinstance(error, gpu.NEEDS_NUMBERS) or (
        module in ("torch", "builtins", "triton") and re.search(CANNOT, str(error))
    ):
        raise UserError(f"{at}: cannot be simulated: {kind}: {said[:300]}") from None
    if any(isinstance(e, UNREACHED) for e in _chain(error)):
        raise UserError(f"{at}: not reached, download it first: {kind}: {said[:300]}") from None
    print(run.told(error), end="", file=sys.stderr)
    sys.exit(1)


def _chain(error):
    while error:
        yield error
        error = error.__cause__ or error.__context__


def record(run, args, seconds):
    """Return the record of a Run, with the fields of a prediction that it has."""
    phases = {name: run.phase(*span) for name, span in run.spans().items()}
    totals, operations = run.costs or (run.cost.totals(), list(run.cost.operations))
    if not operations:
        raise UserError(f"{args.script}: nothing ran on the GPU; does it train on cuda?")
    shape, floating = run.inputs or ((), True)
    unit = {(4, True): "images", (2, False): "texts"}.get((len(shape), floating), "inputs")
    known = {
        "script": f"{run.file.parent.name}/{run.file.name}",
        "preset": None,
        "model": type(run.model).__name__ if run.model else "no module trained",
        "inputs": " x ".join(map(str, shape)),
        "unit": unit,
        "device": f"simulated {args.card.title}",
        "as_torch": ".".join(map(str, args.torch)),
        "world_size": args.devices,
        "shares": args.devices,
        "precision": " and ".join(sorted({o.kind for o in operations if o.flop} - {"attention"})),
        "batch_size": (run.batch or sum(run.seen)) * args.devices,
        "micro_batch_size": max(run.sizes, default=None),
        "steps": run.updates,
        "load": phases["load"][0],
        "train": phases["train"][0],
        "peak_at": {name: found[1] for name, found in phases.items()},
        "host_breakdown_gb": {name: found[2] for name, found in phases.items()},
        "cost": totals,
        "bound": bound(operations, args.card.rates),
        "notes": [f"{where} {text}" for where, text in run.noted.values()],
        "stopped": run.stopped,
        "seconds": seconds,
        "command": args.command,
    }
    return records.new(TASK, **known)


def show(r, run, args):
    """Print what a script needs, and what is left of a card."""
    show_tables([r], args)
    print(f"\nThe peak: {views.where(r)}; line {r['peak_at']['train']['line']}")
    title, gb = ("A GPU", args.fits) if args.fits else (args.card.title, args.card.gb)
    needs, fits = tables.needs(r), "it does not fit"
    if needs <= gb:
        fits = f"{gb - needs:.1f} GB are left"
    elif run.replay(limit_gb=gb - tables.allowance(r)):
        fits = f"it fits {tables.TIGHTLY}"
    print(f"{title}, {gb:.4g} GB: with CUDA's context, {needs:.2f} GB if there is room: {fits}")
    if run.loaded is None:
        print("No module was called in training mode: the figures are for the whole script")
    if r["stopped"]:
        print(f"Stopped in {r['stopped']}: what comes after it is not in the figures")
    if run.model and any(isinstance(module, LIBRARY) for module in run.model.modules()):
        print("The workspaces of cuDNN are not in the figures: only the library knows them")
    if args.timeline:
        print(f"{args.timeline}: what holds the memory during one update")
