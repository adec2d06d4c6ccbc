"""Predicts what every stage needs of a GPU, without one: its own code, run on tensors that have no memory."""

import argparse
import contextlib
import json
import shlex
import sys
import tempfile
import types
from pathlib import Path

import psutil
import torch

from shared import UserError, cli, images, ladder, models, stages, tables, text, timeline, workers
from shared.metrics import LEDGER_UPDATES
from shared.figures import by_model, setting, size
from shared.tables import ALLOWANCE_GB


def folder(path):
    """Makes a folder to write into, before minutes are spent on what it is to hold.

    Raises:
        UserError: it cannot be made.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=path).close()
    except OSError as error:
        raise UserError(f"--timeline {path}: {error.strerror}; choose another folder") from None


def number(text):
    """Converts an option's text to a positive number.

    Raises:
        argparse.ArgumentTypeError: it is something else.
    """
    with contextlib.suppress(ValueError):
        if 0 < float(text) < float("inf"):
            return float(text)
    raise argparse.ArgumentTypeError(f"{text} is not a positive number")


def parse(argv):
    """Parses the command line.

    Raises:
        UserError: an option is unknown, out of range, or does not fit another.
    """
    parser = cli.Parser(description=__doc__, allow_abbrev=False)
    parser.add_argument("stages", nargs="*", metavar="STAGE", help="which, such as 06_sgd or 01-06 (default: all that --model suits)")
    parser.add_argument("--preset", choices=cli.PRESETS, default="full", help="default: full, ViT-L/16 at 224 px and DistilBERT at 512 tokens")
    parser.add_argument("--model", metavar="NAME[,NAME...]", help=f"01 to 10: {images.MODEL_HELP}; 11: {text.MODEL_HELP}, or several (default: the preset's)")
    parser.add_argument("--image-px", type=cli.positive, metavar="N", help="edge of the pictures (default: the model's)")
    text.add_model_options(parser)
    parser.add_argument("--batch-size", type=cli.positive, metavar="N", help="images or texts per update (default: the stage's)")
    parser.add_argument("--micro-batch-size", type=cli.positive, metavar="N", help="images or texts per forward pass and device, from 05 on (default: the stage's)")
    parser.add_argument("--devices", type=cli.positive, metavar="N", help="GPUs, from 08 on (default: 4)")
    parser.add_argument("--one-by-one", action="store_true", help="11: apply the techniques one by one, from before.py to train.py")
    parser.add_argument("--plain", action="store_true", help="the scripts in plain PyTorch, plain.py, instead of train.py; 01 to 10")
    parser.add_argument("--on", choices=("gpu", "cpu"), help="predict for a GPU (default), or for a computer without one, as the tests do")
    parser.add_argument("--late-zero-grad", action="store_true", help="what if zero_grad() came between forward and backward pass, as in the scripts of 2023; 01 to 04")
    parser.add_argument("--fits", type=number, metavar="GB", help=f"tell which stages fit on a card of GB (1e9 bytes), by what is reserved and {ALLOWANCE_GB:g} GB for what is not simulated, and with what micro-batch")
    parser.add_argument("--timeline", type=Path, metavar="DIR", help="draw who holds the memory during one update, into DIR")
    parser.add_argument("--check", action="store_true", help="run the stages for real, a few updates each on noise, and compare; on a GPU if there is one. They need the memory that is predicted")
    parser.add_argument("--json", action="store_true", help="print a list of records instead of tables")
    args = parser.parse_args(argv)
    args.command = shlex.join(["python", "-m", "shared.predict", *(sys.argv[1:] if argv is None else argv)])
    workers.supported_torch()
    choose(args)
    if args.check:
        changed = [f"--{option.replace('_', '-')}" for option in ("image_px", "batch_size", "micro_batch_size", "one_by_one", "on", "late_zero_grad", "fits", "timeline") if getattr(args, option)]
        if changed:
            raise UserError(f"--check runs the scripts as they are; leave {changed[0]} out")
    if args.timeline:
        folder(args.timeline)
        cli.writable(args.timeline / "timeline.png")
    if args.timeline and (args.one_by_one or len(args.models) > 1):
        raise UserError("--timeline draws the scripts of one model; leave --one-by-one and further models out")
    if args.plain and args.late_zero_grad:
        raise UserError("--late-zero-grad changes the train.py of a stage; leave --plain out")
    if args.on == "cpu" and args.fits:
        raise UserError("--fits asks for a GPU's memory; leave --on cpu out")
    return args


def choose(args):
    """Fills in args.runs, what to simulate, and args.models, of which models; None is the preset's.

    Raises:
        UserError: there is no such model, or options and stages do not suit each other.
    """
    asked = {run: stages.asked_of_cli(stages.load(run)) for run in stages.runs(stages.names())}
    args.models = args.model.split(",") if args.model else [None]
    about = [(images if images.knows(name) else text, f"--model {name}") for name in args.models if name]
    about += [(task, option) for task, option, given in ((images, f"--image-px {args.image_px}", args.image_px), (text, f"--max-length {args.max_length}", args.max_length), (text, "--one-by-one", args.one_by_one), (text, "--trust-remote-code", args.trust_remote_code)) if given]
    if args.plain:
        args.runs = stages.plain(stages.select(args.stages, "stage") if args.stages else stages.chain())
        asked = {run: stages.asked_of_cli(stages.load(run)) for run in args.runs}
    else:
        args.runs = stages.runs(stages.select(args.stages, "stage")) if args.stages else list(asked)
    for task, option in about:
        wrong = [run for run in args.runs if asked[run]["task"] is not task]
        if wrong and args.stages:
            raise UserError(f"{option} is about {task.UNIT}, but {wrong[0]} is about {asked[wrong[0]]['task'].UNIT}")
        args.runs = [run for run in args.runs if run not in wrong]
        if not args.runs and args.plain:
            raise UserError(f"{option} is about {task.UNIT}, but the scripts in plain PyTorch are about images; leave one of them out")
        if not args.runs:
            raise UserError(f"{option} is about {task.UNIT}, but {about[0][1]} is about {about[0][0].UNIT}; leave one of them out")
    if args.micro_batch_size and not any(asked[run]["micro_batch_size"] for run in args.runs):
        raise UserError(f"--micro-batch-size {args.micro_batch_size}: none of the stages asked for has micro-batches; 05_grad_accum is the first")
    if args.devices and not any(asked[run]["devices"] > 1 for run in args.runs):
        raise UserError(f"--devices {args.devices}: none of the stages asked for shares the work; 08_fsdp is the first")
    for task in {asked[run]["task"] for run in args.runs}:
        for name in args.models:
            options = types.SimpleNamespace(preset=args.preset, model=name, data="fake", pretrained=False, max_length=args.max_length, trust_remote_code=args.trust_remote_code)
            cli.choose(options, task)
            if args.image_px:
                models.fits_patches(options.model, args.image_px)


def jobs(args, **options):
    """Returns what to simulate: a list of (one of stages.runs(), what workers.wanted() makes of the options)."""
    found = []
    for model in args.models:
        for run in args.runs:
            steps = [None]
            if args.one_by_one:  # all of them lead from the first script of the folder to the last one
                steps = [] if run.endswith("/before") else range(len(stages.load(run.replace("/train", "/one_by_one")).TECHNIQUES) + 1)
            found += [(run, workers.wanted(model=model, techniques=n, **options)) for n in steps]
    return found


def measure(args, predicted, logs):
    """Runs a script for a few updates on noise.

    Args:
        predicted: record of a prediction.
        logs: folder for what the script prints.

    Returns:
        its record; None, and says why, if it failed.
    """
    run = stages.run_of(predicted)
    options = ["--preset", args.preset, "--model", predicted["model"], "--data", "fake", "--no-pretrained", "--max-steps", str(LEDGER_UPDATES)]
    n = predicted["world_size"]  # as many as were predicted for
    torchrun = stages.asked_of_cli(stages.load(run))["launcher"] == "torchrun"
    options += [] if torchrun else ["--devices", str(n)]
    options += ["--max-length", str(args.max_length)] if args.max_length else []
    options += ["--trust-remote-code"] * args.trust_remote_code
    record, last = ladder.run_script(run, options, logs / "log", processes=n if torchrun else None)
    said = f"measured: {size(record['load']['device_peak_gb'])} loading, {size(record['train']['device_peak_gb'])} training" if record else f"FAILED: {last}"
    print(f"{run:20} {said}", file=sys.stderr, flush=True)
    return record


def check(args, wanted):
    """Measures and predicts, and prints both.

    Args:
        wanted: as jobs() returns it.

    Returns:
        whether every prediction is close enough, and every script ran.
    """
    records, failed = [], 0
    for p in workers.run([("simulation", "predict", *job) for job in wanted]):
        needed, there = p["train"]["device_peak_gb"] * p["world_size"], psutil.virtual_memory().available / 1e9
        if p["device"] == "simulated CPU" and needed > there:
            print(f"{stages.run_of(p):20} left out: needs {needed:.1f} GB, {there:.1f} GB are free here", file=sys.stderr)
            continue
        with tempfile.TemporaryDirectory() as logs:
            measured = measure(args, p, Path(logs))
        failed += measured is None
        records += [{**p, "command": args.command, "measured": measured}] if measured else []
    if args.json:
        print(json.dumps(records, indent=1))
    else:
        for group in by_model(records):
            print(f"\n{setting(group[0])} on {group[0]['measured']['device']}, torch {torch.__version__}\n")
            print("\n".join(tables.compare(group)))
    errors = [(abs(error), limit) for r in records for *_, error, limit in tables.differences(r)]
    return not failed and all(error <= limit for error, limit in errors)


def main(argv=None):
    args = parse(argv)
    cuda = torch.cuda.is_available()
    device = args.on or ("cpu" if args.check and not cuda else "gpu")
    devices = args.devices
    if args.check and cuda and not devices:  # as the stages choose it
        devices = max(n for n in (1, 2, 4) if n <= torch.cuda.device_count())
    same = ("preset", "image_px", "max_length", "batch_size", "micro_batch_size", "trust_remote_code", "late_zero_grad")
    wanted = jobs(args, device=device, devices=devices, **{name: getattr(args, name) for name in same})
    if args.check:
        sys.exit(0 if check(args, wanted) else 1)
    results = workers.run([("simulation", "predict", *job, bool(args.timeline)) for job in wanted])
    records = [{**(r[0] if args.timeline else r), "command": args.command} for r in results]
    if args.fits:
        largest = workers.run([("fits", "largest_micro_batch", *job, args.fits - ALLOWANCE_GB) for job in wanted])
        for r, n in zip(records, largest):
            r["fits"] = {"card_gb": args.fits, "needs_gb": tables.needs(r), "fits": tables.needs(r) <= args.fits, "largest_micro_batch": n}
    if args.timeline:
        timeline.draw_all(results, args.timeline)
    if args.json:
        print(json.dumps(records, indent=1))
        return records
    for group in by_model(records):
        r = group[0]
        print(f"\n{setting(r)}, on a {r['device']}, predicted with torch {torch.__version__}; nothing was computed. Figures are per device.\n")
        print("\n".join(tables.predictions(group)))
        if args.fits:
            print("\n" + "\n".join(tables.fitting(group)))
    if args.timeline:
        print(f"\n{args.timeline}: who holds the memory during one update, a picture per script" + (" and of all those of one model" if len(records) > 1 else ""))
    return records


if __name__ == "__main__":
    cli.run(main)
