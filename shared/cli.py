"""The few options that every stage has, and how a mistake is reported."""

import argparse
import contextlib
import logging
import os
import signal
import sys
import time
from pathlib import Path

import psutil
import torch

from shared import UserError, models, stages

PRESETS = {
    "tiny": {"model": "vit_tiny", "data": "digits"},
    "full": {"model": "vit_l_16", "data": "cifar10"},
}


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise UserError(f"{message} (see --help)")


def positive(text):
    """Converts an option's text to a positive integer.

    Raises:
        argparse.ArgumentTypeError: it is something else.
    """
    with contextlib.suppress(ValueError):
        if int(text) > 0:
            return int(text)
    raise argparse.ArgumentTypeError(f"{text} is not a positive whole number")


def parser(description):
    """Returns a parser with the options that stages and ladder share."""
    p = Parser(description=description, allow_abbrev=False)
    p.add_argument("--preset", choices=PRESETS, help="tiny: a small ViT on 8x8 digits, seconds on a laptop; full: ViT-L/16 on CIFAR-10 at 224 px (default: full with CUDA, else tiny)")
    p.add_argument("--model", metavar="NAME", help="vit_tiny or one of torchvision's vit_* (default: the preset's)")
    p.add_argument("--data", metavar="WHAT", help="digits, cifar10, fake, or a folder of images (default: the preset's)")
    p.add_argument("--devices", type=positive, metavar="N", help="GPUs per machine, or processes on a CPU; from 08_fsdp on (default: 4)")
    p.add_argument("--epochs", type=positive, default=1, metavar="N", help="passes over the training images (default: 1)")
    p.add_argument("--max-steps", type=positive, metavar="N", help="stop after N updates; evaluations then read N batches at most")
    p.add_argument("--seed", type=int, default=123, help="for the order of the images and for random weights (default: 123)")
    p.add_argument("--no-pretrained", dest="pretrained", action="store_false", help="start from random weights")
    return p


def parse(file, argv, *, batch_size, micro_batch_size=None, devices=1):
    """Parses a stage's command line.

    Args:
        file: the script, as in __file__; its docstring is for --help.
        argv: list of arguments, or None for the command line's.
        batch_size: images per update, over all devices.
        micro_batch_size: images per forward pass and device, or None for the whole batch at once.
        devices: how many devices the stage is meant for; 1 if it cannot use more.

    Returns:
        argparse.Namespace with the options and, derived from them: accelerator ("cuda" or "cpu"), devices (per
        machine), num_nodes, world_size, image_px, adam_lr, sgd_lr and notes (lines that tell what was chosen).

    Raises:
        UserError: an option is unknown, out of range, or does not fit this stage or this machine.
    """
    logging.getLogger("lightning.fabric").setLevel(logging.WARNING)  # Meter tells about processes and precision
    script = Path(file).resolve()
    p = parser(stages.idea(script))
    p.add_argument("--record", type=Path, metavar="FILE", help="append what was measured to FILE, one JSON object per line")
    args = p.parse_args(argv)
    args.idea, args.stage, args.script = p.description, script.parent.name, script.stem
    args.batch_size, args.micro_batch_size = batch_size, micro_batch_size
    args.notes = []
    choose(args)
    _choose_devices(args, devices)
    if args.record:
        writable(args.record)
    return args


def choose(args):
    """Fills in what the preset decides: accelerator, model, data, image size and learning rates."""
    args.accelerator = "cuda" if torch.cuda.is_available() else "cpu"
    if not args.preset:
        args.preset = "full" if args.accelerator == "cuda" else "tiny"
        other = next(name for name in PRESETS if name != args.preset)
        args.notes.append(f"preset {args.preset}, because there is {'a' if args.accelerator == 'cuda' else 'no'} CUDA device; --preset {other} chooses otherwise")
    args.model = args.model or PRESETS[args.preset]["model"]
    args.data = args.data or PRESETS[args.preset]["data"]
    args.image_px = models.image_px(args.model)
    # The small model wants larger steps; 5e-5 and 0.01 are the ones of the published ladder.
    args.adam_lr, args.sgd_lr = (6e-4, 0.05) if args.model == "vit_tiny" else (5e-5, 0.01)


def _choose_devices(args, default):
    started = int(os.environ.get("LOCAL_WORLD_SIZE", 0))  # torchrun has started the processes already
    if started:
        args.num_nodes = int(os.environ["WORLD_SIZE"]) // started
        if args.devices not in (None, started, started * args.num_nodes):
            raise UserError(f"--devices {args.devices}: torchrun has started {started} processes on each of {args.num_nodes} machines; leave --devices out")
        wanted = started
    else:
        args.num_nodes = 1
        wanted = args.devices or default
    if default == 1 and wanted * args.num_nodes > 1:
        raise UserError(f"{wanted * args.num_nodes} devices: this stage trains on one; 08_fsdp is the first that shares the work")
    fits = [n for n in range(1, args.batch_size + 1) if args.batch_size % (n * args.num_nodes) == 0]
    if wanted not in fits and (args.devices or started):
        raise UserError(f"--devices {wanted}: a batch of {args.batch_size} images does not divide by {wanted * args.num_nodes}; possible are {', '.join(map(str, fits))}")
    args.devices = wanted
    if args.accelerator == "cuda" and not started and wanted > torch.cuda.device_count():
        here = torch.cuda.device_count()
        args.devices = max(n for n in fits if n <= here)
        args.notes.append(f"{wanted} GPUs wanted, {here} here: training on {args.devices}")
    args.world_size = args.devices * args.num_nodes


def writable(path):
    """Makes sure that a file can be appended to, before hours are spent on what it is to hold.

    Raises:
        UserError: it cannot.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("a").close()
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}; choose another file") from None


def run(main):
    """Runs a script's main() and ends the process: exit code 0, 2 after a UserError (its one line on stderr),
    130 when interrupted. Processes that main() started do not outlive it.
    """
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    rank = int(os.environ.get("RANK", os.environ.get("LOCAL_RANK", 0)))
    try:
        main()
        return
    except UserError as error:
        status, text = 2, _one_line(error)
    except KeyboardInterrupt:
        status, text = 130, "interrupted"
    except Exception:
        # Another process may have ended first and have said why; then what happened here is only its echo.
        status, text = next((code for code in _children_codes() if code in (2, 130)), None), None
        if status is None:
            _end_children()
            raise
    if rank != 0 and text:
        time.sleep(2)  # the same mistake in every process is reported by rank 0 alone, which then ends the others
    if text and (rank == 0 or status == 2):
        print(f"\n{Path(sys.argv[0]).parent.name}/{Path(sys.argv[0]).name}: {text}", file=sys.stderr, flush=True)
    _end_children()
    os._exit(status)  # at once: a regular exit would wait for processes that no longer answer


def _one_line(error):
    # An error in a DataLoader's worker arrives with the worker's traceback, which ends in the line wanted.
    return str(error).strip().splitlines()[-1].split(f"{UserError.__name__}: ")[-1]


def _children_codes():
    codes = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            codes.append(child.wait(timeout=3))
    return codes


def _end_children():
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            child.kill()
