"""Predict the GPU memory and the cost of any training script, unedited and without a GPU.

The script runs on an emulated GPU, and ends after a few updates. Its own code runs as it is: run no
script that you would not run yourself.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from emulated_gpu import cards, launch
from emulated_gpu.build import BuildError
from shared import cli as options
from shared.cli import UserError
from shared.lab.predict import tables
from shared.lab.predict.advice import advice
from shared.lab.predict.estimate import estimate
from shared.lab.records import formats, scripts
from shared.record import ROOT

EXPANDABLE = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
FAILED = 75  # the exit code of inside.py if the script fails in updates without values
TIMED = 3  # updates after the watched ones, with nothing of ours between them
INSIDE = """
import json, sys
sys.path.insert(0, {root!r})
sys.argv[0] = "predict"
from shared.lab.predict import inside
inside.main({result!r}, json.loads({asked!r}), {argv!r})
"""


def is_own(argv):
    """Return whether a command line names a script that is not one of this repository."""
    its = argv[: argv.index("--")] if "--" in argv else argv
    files = [x.removesuffix(".py") for x in its if x.endswith((".py", ".ipynb"))]
    return any(file not in scripts.every() for file in files)


def shape(text):
    """Convert a shape such as 3x224x224 to a tuple."""
    return tuple(options.positive(n) for n in text.split("x"))


def script(text):
    """Convert the name of a script to its path."""
    path = Path(text)
    if not path.is_file() or path.suffix != ".py":
        makes = "; jupyter nbconvert --to script makes one" * (path.suffix == ".ipynb")
        raise argparse.ArgumentTypeError(f"there is no script {text}{makes}")
    return path


def new_file(text):
    """Convert a name to the path of a file to write."""
    path = Path(text)
    if not os.access(path.resolve().parent, os.W_OK):
        raise argparse.ArgumentTypeError(f"the folder of {text} does not exist, or is read-only")
    return path


def make_parser():
    """Return the parser of the options before --."""
    usage = "%(prog)s SCRIPT.py [options] [-- its options]"
    parser = options.Parser(prog="python -m shared predict", usage=usage, description=__doc__)
    add, positive = parser.add_argument, options.positive
    card = f"the GPU: {', '.join(cards.CARDS)} (default: a100)"
    devices = "GPUs; the script runs as rank 0 of so many processes, as torchrun starts it"
    images = "of images, such as 3x224x224, in place of missing data sets of torchvision"
    fits = "whether it fits into so many GB (1e9 bytes), or on a card"
    add("script", type=script, metavar="SCRIPT.py", help="arguments after -- are for the script")
    add("--card", type=cards.get, default=cards.DEFAULT, metavar="NAME", help=card)
    add("--expandable", action="store_true", help="with PyTorch's expandable segments")
    add("--devices", type=positive, metavar="N", help=devices)
    add("--updates", type=positive, default=3, metavar="N", help="to train for (default: 3)")
    add("--input", type=shape, metavar="SHAPE", help=images)
    add("--fits", type=cards.card_or_gb, metavar="GB|CARD", help=fits)
    add("--timeline", type=options.location, metavar="DIR", help="draw what holds memory")
    add("--snapshot", type=new_file, metavar="FILE", help="of the allocator, for memory_viz")
    add("--json", action="store_true", help="print a list of one record instead of tables")
    return parser


def main(argv=None):
    argv = sys.argv[1:] if argv is None else argv
    cut = argv.index("--") if "--" in argv else len(argv)
    args = make_parser().parse_args(argv[:cut])
    args.command = options.command_of(["-m", "shared", "predict"], argv)
    if isinstance(args.fits, cards.Card):
        args.card, args.fits = args.fits, None
    found = predict(args, argv[cut + 1 :])
    if args.timeline and found["moments"]:
        from shared.lab.predict import timeline  # matplotlib takes a second to import

        timeline.draw_all([found["moments"]], args.timeline)
    print(json.dumps([found["record"]], indent=1)) if args.json else show(found, args)
    return [found["record"]]


def predict(args, argv):
    """Run a script with its arguments; return what inside.needed() found, and how it fits.

    Where the card is too small, or only just large enough, the script runs again on one that has
    plenty: the figures are those of a run with room.
    """
    began = time.perf_counter()
    has_gb = args.fits or args.card.gb
    found = run(args, argv, has_gb, args.snapshot)
    fits = None  # with room
    if "failed_at" in found:
        fits = f"it does not fit: out of memory in {found['failed_at']}"
    elif found["errors"]:
        fits = "an allocation failed, and the script went on"
    elif found["retries"]:
        fits = f"it fits {tables.TIGHTLY}"
    if fits:
        found = run(args, argv, tables.PLENTY_GB)
    found |= {"fits": fits, "eager_gb": None}
    if found["compile_seconds"]:
        eager = run(args, argv, tables.PLENTY_GB, TORCHDYNAMO_DISABLE="1")
        found["eager_gb"] = eager["record"]["train"]["device_peak_gb"]
    r = found["record"]
    r["seconds"], r["command"] = time.perf_counter() - began, args.command
    if found["moments"]:
        found["moments"]["record"] = r
    return found


def run(args, argv, card_gb, snapshot=None, timed=TIMED, **variables):
    """Run a script once on a card with so many GB; return what inside.py has written.

    Only the first run is shown, which may write a snapshot.
    """
    quiet = card_gb == tables.PLENTY_GB or not timed
    asked = {
        "script": str(args.script.resolve()),
        "card": next(key for key, card in cards.CARDS.items() if card is args.card),
        "updates": args.updates,
        "devices": args.devices or 1,
        "input": args.input,
        "timeline": bool(args.timeline),
        "timed": timed,
    }
    try:
        memory = {"memory_gb": card_gb, "context_gb": tables.set_aside(args.devices or 1)}
        env = launch.environment(args.card, args.devices or 1, alone=bool(args.devices), **memory)
    except BuildError as error:
        raise UserError(str(error)) from None
    env |= {"WANDB_MODE": "disabled", **variables, **(EXPANDABLE if args.expandable else {})}
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder, "result.json")
        known = {"root": str(ROOT), "result": str(result), "asked": json.dumps(asked), "argv": argv}
        command = [sys.executable, "-c", INSIDE.format(**known)]
        output = {"stdout": sys.stderr if args.json else None}
        log = Path(folder, "log.txt")
        if quiet:
            output = {"stdout": log.open("w"), "stderr": subprocess.STDOUT}
        code, reports = launch.run(command, env, snapshot, **output)
        if timed and (code < 0 or code == FAILED):
            return run(args, argv, card_gb, snapshot, 0, **variables)
        if code < 0:
            name = signal.Signals(-code).name
            asks = "; has the host enough memory?" if -code == signal.SIGKILL else ""
            raise UserError(f"{args.script} was ended by {name}{asks}")
        if code and quiet:
            print(log.read_text(errors="replace"), end="", file=sys.stderr)
        if code or not result.exists():
            sys.exit(code or 1)
        found = json.loads(result.read_text())
    if "record" in found and reports:
        report = reports[0]
        lines = report["lines"].items()
        read = [f"{line} reads {what} that no kernel computed" for line, what in lines]
        assumed = [f"{name}: its result is an assumption" for name in report["called"]]
        found["record"]["notes"] += read + assumed
    return found


def show(found, args):
    """Print what a script needs, whether it fits, how long it takes, and what to try first."""
    r, host_ms = found["record"], found["host_ms"]
    how = "with expandable segments, " if args.expandable else ""
    how += f"with torch {torch.__version__}; kernels did nothing"
    tables.show([r], args.card, how)
    title, gb = ("A GPU", args.fits) if args.fits else (args.card.title, args.card.gb)
    needs = tables.needs(r)
    fits = found["fits"] or f"{gb - needs:.1f} GB are left"
    line = r["peak_at"]["train"]["line"]
    active = formats.size(r["train"]["device_active_gb"])
    print(f"\nThe peak: {formats.where(r)}; line {line}; {active} active")
    print(f"{title}, {gb:.4g} GB: with CUDA's context, {needs:.2f} GB if there is room: {fits}")
    if host_ms and r["bound"]:
        gpu_ms = estimate(r["work_ms"])
        print(
            f"Launching an update took this computer {host_ms:.0f} ms; the GPU takes at least "
            f"{r['bound']['ms']:.0f} ms, estimated {gpu_ms:.0f} ms: so an update takes about "
            f"{max(host_ms, gpu_ms):.0f} ms, or more: shared/lab/predict/README.md"
        )
    if found["eager_gb"]:
        print(
            f"torch.compile took {found['compile_seconds']:.1f} s; without it, "
            f"{formats.size(found['eager_gb'])} would be allocated"
        )
    if not found["trained"]:
        print("No module was called in training mode: the figures are for the whole script")
    if r["stopped"]:
        print(f"Stopped in {r['stopped']}: what comes after it is not in the figures")
    if found["has_convolutions"]:
        print(
            "The workspaces of cuDNN are not in the figures: for networks on an H200 PyTorch "
            f"reserved up to {tables.CUDNN:.0%} more, for single layers twice as much"
        )
    if found["trained"]:
        print("\n".join(advice(r, found["has_convolutions"])))
    for note in r["notes"]:
        print(f"- {note}")
    if args.timeline:
        print(f"{args.timeline}: what holds the memory during one update")
